"""One virtual machine: QEMU without KVM, reached by ssh."""

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from vmkit.root import Root

BOOT_SECONDS = 240
"""Timeout of a boot; 30 to 50 s on two cores."""

KERNEL = (
    # The disk of a machine that waited for a CPU is slow, not lost.
    "nvme_core.io_timeout=600 "
    "console=ttyS0 root=/dev/nvme0n1 rw quiet panic=-1 mitigations=off no_timer_check tsc=reliable "
    "audit=0 apparmor=0"
)


LIFE_SECONDS = 3600
"""Maximum lifetime of a machine."""


class VmError(Exception):
    """A machine failed; the text has the end of its console."""


def free_port() -> int:
    """Return a free TCP port of this machine."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@dataclass
class Machine:
    """A machine on the network that all machines of a site share."""

    name: str
    number: int
    root: Root
    folder: Path
    wire: list[str]
    """QEMU's options for its network connections, the network `wire` among them."""
    disks: list[str]
    """Sizes of the empty disks, /dev/vda and on."""
    alone: bool = True
    """It only reaches the network `wire`; else also containers of this machine."""
    cores: int = 1
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def console(self) -> Path:
        """What the kernel and systemd print."""
        return self.folder / f"{self.name}.console"

    def prepare(self) -> None:
        """Make the disks: an overlay of the root disk, and empty ones."""
        root, *others = self._files()
        for words in (
            ("-F", "raw", "-b", str(self.root.disk), root),
            *zip(others, self.disks, strict=True),
        ):
            subprocess.run(
                ["qemu-img", "create", "-q", "-f", "qcow2", *words], timeout=60, check=True
            )

    def _files(self) -> list[str]:
        """The disks' files, the root's first."""
        names = [self.name, *(f"{self.name}-{n}" for n in range(1, len(self.disks) + 1))]
        return [f"{self.folder}/{name}.qcow2" for name in names]

    def start(self) -> None:
        """Switch it on."""
        disks = [
            word
            for number, file in enumerate(self._files())
            for word in (
                *("-drive", f"file={file},if=none,id=d{number},cache=unsafe"),
                # The kernel probes NVMe disks in parallel: only one keeps its name.
                *(
                    "-device",
                    f"virtio-blk,drive=d{number}" if number else "nvme,drive=d0,serial=d0",
                ),
            )
        ]
        self.process = subprocess.Popen(
            [
                # A run that is killed leaves no machine for longer than this.
                *("timeout", "--kill-after=5", str(LIFE_SECONDS)),
                # With KVM inside a virtual machine the guest hangs; emulated it always runs.
                *("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max"),
                *("-smp", f"{self.cores},sockets=1,cores={self.cores}"),
                *("-m", "768", "-nodefaults", "-no-reboot", "-display", "none"),
                *("-monitor", "none", "-serial", f"file:{self.console}"),
                *("-kernel", str(self.root.kernel)),
                *("-append", f"{KERNEL} systemd.hostname={self.name}"),
                *disks,
                "-netdev",
                f"user,id=host,restrict={'on' if self.alone else 'off'},"
                f"hostfwd=tcp:127.0.0.1:{self.port}-:22",
                *("-device", "virtio-net-pci,netdev=host,mac=52:54:00:00:00:01,romfile="),
                *(word for end in self.wire for word in ("-netdev", end)),
                "-device",
                f"virtio-net-pci,netdev=wire,mac=52:54:00:00:01:{self.number:02x},romfile=",
                *("-device", "virtio-rng-pci"),
            ],
            stdin=subprocess.DEVNULL,
            # Only the tests get a Ctrl-C; they then switch it off.
            start_new_session=True,
        )

    def wait(self) -> None:
        """Return when it has booted and answers."""
        deadline = time.monotonic() + BOOT_SECONDS
        while time.monotonic() < deadline:
            assert self.process is not None
            if self.process.poll() is not None:
                raise VmError(f"{self.name}: QEMU ended: {self.last_words()}")
            done = self.ssh("true", timeout=20)
            if done.returncode == 0:
                return
            time.sleep(1)
        raise VmError(f"{self.name}: no ssh after {BOOT_SECONDS} s: {self.last_words()}")

    def last_words(self) -> str:
        """Return the end of the console."""
        return self.console.read_text(errors="replace")[-1000:] if self.console.exists() else ""

    def ssh_config(self) -> str:
        """Return the ssh_config lines for it, with a checked host key."""
        known = self.folder / f"{self.name}.known_hosts"
        known.write_text(f"{self.name} {self.root.host_key}\n", encoding="utf-8")
        return (
            f"Host {self.name} 192.0.2.{self.number}\n"
            f"  HostName 127.0.0.1\n  Port {self.port}\n  User root\n"
            f"  HostKeyAlias {self.name}\n  UserKnownHostsFile {known}\n"
            f"  IdentityFile {self.root.key}\n  IdentitiesOnly yes\n  ConnectTimeout 10\n"
            f"  ControlPath {self.folder}/{self.name}\n  ControlMaster auto\n  ControlPersist 300\n"
            "  LogLevel ERROR\n"
        )

    def ssh(self, command: str, *, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a shell command as root; return its result, 255 if ssh has no answer in time."""
        words = ["ssh", "-F", f"{self.folder}/ssh_config", self.name, command]
        try:
            return subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(words, 255, "", f"no answer after {timeout:.0f} s")

    def check(self, command: str) -> str:
        """Run a shell command that must succeed; return its output."""
        done = self.ssh(command)
        assert done.returncode == 0, f"{self.name}: {command}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def power_off(self) -> None:
        """Shut it down."""
        assert self.process is not None
        self.ssh("systemctl poweroff")
        self.process.wait(timeout=BOOT_SECONDS)
        self.process = None
        self._hang_up()

    def reboot(self) -> None:
        """Reboot it, and return when it has booted."""
        self.power_off()
        self.start()
        self.wait()

    def _hang_up(self) -> None:
        """Close ssh's shared connection, which would be stale after the next boot."""
        subprocess.run(
            ["ssh", "-F", f"{self.folder}/ssh_config", "-O", "exit", self.name],
            capture_output=True,
            timeout=30,
            check=False,
        )

    def stop(self) -> None:
        """Cut its power."""
        self._hang_up()
        if self.process is not None:
            # `timeout` and QEMU.
            with suppress(ProcessLookupError):  # It has ended by itself.
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(timeout=30)
            self.process = None
