"""A controller on this machine: the daemon and SLURM's programs as installed, and a fake SLURM.

They find their files where they are on a controller: a mount namespace has overlays on /etc, /run,
/usr/bin, /var/log and /var/spool, which are gone when it ends.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.autoscaler.slurm import power_save_program
from muster.catalog.hostlists import fold

LAYERS = ("etc", "run", "usr/bin", "var/log", "var/spool")
MOUNT = """
set -e
layers=$1/layers
mount -t tmpfs none $layers
shift
for place in "$@"; do
  mkdir -p $layers/up/$place $layers/work/$place
  cp -a $layers/../root/$place/. $layers/up/$place
  mount -t overlay overlay \\
    -o lowerdir=/$place,upperdir=$layers/up/$place,workdir=$layers/work/$place /$place
done
echo mounted
exec sleep infinity
"""

# As scontrol of 24.11 prints it: tests/unit/autoscaler/slurm/data/24.11/nodes.
NODE = (
    "NodeName={name} CoresPerSocket=1  CPUAlloc=0 CPUEfctv=2 CPUTot=2 CPULoad=0.00 "
    "AvailableFeatures=(null) ActiveFeatures=(null) Gres=(null) NodeAddr={name} "
    "NodeHostName={name}  RealMemory=7000 AllocMem=0 FreeMem=N/A Sockets=2 Boards=1 "
    "State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=debug  "
    "BootTime=None SlurmdStartTime=None LastBusyTime=Unknown ResumeAfterTime=None "
    "CfgTRES=cpu=2,mem=7000M,billing=2 AllocTRES= CurrentWatts=0 AveWatts=0 \n"
)
OFF = "IDLE+CLOUD+POWERED_DOWN"
POWERING_UP = "ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP"
UP = "ALLOCATED+CLOUD"
FALLING = "IDLE+CLOUD+POWERING_DOWN"

KEPT = ("PATH", "PYTHONPATH")
"""Variables of this process that the daemon gets too."""
SOON_S = 60
TICKS = os.sysconf("SC_CLK_TCK")


def until(state: Callable[[], object], what: str, seconds: float, pause_s: float = 0.05) -> None:
    """Return when `state()` holds.

    Raises:
        SystemExit: it does not within the timeout: the work was not done.

    """
    end = time.monotonic() + seconds
    while not state():
        if time.monotonic() > end:
            sys.exit(f"not within {seconds:.0f} s: {what}")
        time.sleep(pause_s)


@dataclass(frozen=True)
class Usage:
    """CPU and memory of a process."""

    cpu_s: float
    """With its ended children."""
    memory_mb: float
    most_memory_mb: float


class Controller:
    """A controller whose daemon runs."""

    def __init__(self, folder: Path, holder: int, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.root = Path(f"/proc/{holder}/root")
        self._enter = ("nsenter", "--mount", f"--target={holder}")
        self._log = (folder / "daemon.log").open("w")
        self._process = subprocess.Popen(
            [*self._enter, sys.executable, "-m", "muster.autoscaler"],
            env={**{key: os.environ[key] for key in KEPT if key in os.environ}, **environment},
            stdout=self._log,
            stderr=self._log,
        )

    def close(self) -> None:
        """End the daemon."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(SOON_S)
        self._log.close()

    # --- SLURM's actions --------------------------------------------------------------------------

    def call(self, program: str, nodes: list[str], jobs: Mapping[int, list[str]]) -> float:
        """Run one of SLURM's programs; return when it was started."""
        listed = [{"job_id": job, "nodes_resume": fold(names)} for job, names in jobs.items()]
        resume_file = self.folder / "resume-file"
        resume_file.write_text(json.dumps({"jobs": listed, "all_nodes_resume": fold(nodes)}))
        command = [*self._enter, self.folder / program, fold(nodes)]
        began = time.time()
        subprocess.run(
            command, env={"SLURM_RESUME_FILE": str(resume_file)}, timeout=SOON_S, check=True
        )
        return began

    def wake(self) -> float:
        """Wake the daemon without a request; return the time."""
        began = time.time()
        power_save_program.wake(f"{self.root}{power_save_program.SPOOL}")
        return began

    # --- the daemon's state -----------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Return the status file, without its nodes; {} = there is none yet."""
        path = self.root / "run/muster-autoscaler/status.json"
        try:
            status: dict[str, Any] = json.loads(path.read_text())
        except FileNotFoundError:
            if self._process.poll() is not None:
                sys.exit(f"the daemon has ended:\n{self.said()}")
            return {}
        return status

    def said(self) -> str:
        """Return the end of the daemon's log."""
        return (self.folder / "daemon.log").read_text()[-4000:]

    def ready(self) -> None:
        """Wait until the daemon has read slurmctld and the cloud."""

        def read() -> bool:
            status = self.status()
            return bool(status and status["slurm_read"] and status["cloud_read"] and status["room"])

        until(read, "the daemon has read slurmctld and the cloud", SOON_S)

    def spooled(self) -> list[str]:
        """Return the requests that are not settled."""
        files = (self.root / power_save_program.SPOOL.removeprefix("/")).iterdir()
        return [path.name for path in files if path.name != power_save_program.WAKE]

    def usage(self) -> Usage:
        """Return what the daemon and its children have used."""
        place = Path(f"/proc/{self._process.pid}")
        fields = (place / "stat").read_text().rpartition(")")[2].split()
        lines = (line.split() for line in (place / "status").read_text().splitlines())
        kib = {words[0]: int(words[1]) for words in lines if words and words[0].startswith("Vm")}
        return Usage(
            sum(map(int, fields[11:15])) / TICKS,
            kib["VmRSS:"] * 1024 / 1e6,
            kib["VmHWM:"] * 1024 / 1e6,
        )


class PlayedSlurm:
    """A fake scontrol: it prints nodes in the states that are set and accepts all commands."""

    def __init__(self, count: int) -> None:
        self.names = [f"lab-debug-{number}" for number in range(count)]
        self.states = dict.fromkeys(self.names, OFF)
        self.file: Path | None = None

    def install(self, folder: Path) -> str:
        """Return the program."""
        self.file = folder / "nodes"
        self.set([], OFF)
        told = folder / "told"
        return f'#!/bin/sh\n[ "$2" = show ] && exec cat {self.file}\necho "$@" >>{told}\n'

    def set(self, names: list[str], state: str) -> None:
        """Set the state of nodes."""
        assert self.file
        self.states |= dict.fromkeys(names, state)
        text = "".join(
            NODE.format(name=name, state=current) for name, current in self.states.items()
        )
        new = self.file.with_suffix(".new")
        new.write_text(text)
        new.replace(self.file)


@contextmanager
def controller(
    scontrol: Callable[[Path], str], url: str, metadata: str, cluster: str = "lab"
) -> Iterator[Controller]:
    """Start a controller; `scontrol` writes that program for a folder."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as made:
        folder = Path(made)
        _install(folder, scontrol(folder), url, cluster)
        mounting = ["unshare", "--mount", "--propagation", "private", "sh", "-c", MOUNT, "sh"]
        with subprocess.Popen(
            [*mounting, str(folder), *LAYERS], stdout=subprocess.PIPE, text=True
        ) as holder:
            try:
                assert holder.stdout
                if holder.stdout.readline() != "mounted\n":
                    sys.exit("the controller's folders can't be mounted")
                running = Controller(folder, holder.pid, {"GCE_METADATA_HOST": metadata})
                try:
                    running.ready()
                    yield running
                finally:
                    running.close()
            finally:
                holder.kill()


def _install(folder: Path, scontrol: str, url: str, cluster: str) -> None:
    root = folder / "root"
    for place in (*LAYERS, "etc/muster", "run/muster-autoscaler", "var/log/muster"):
        (root / place).mkdir(parents=True, exist_ok=True)
    (folder / "layers").mkdir()
    (root / power_save_program.SPOOL.removeprefix("/")).mkdir()
    settings = {
        "cluster": cluster,
        "resume_timeout_s": 300,
        "compute_endpoint": f"{url}/compute/v1/",
    }
    (root / "etc/muster/autoscaler.json").write_text(json.dumps(settings))
    programs = {root / "usr/bin/scontrol": scontrol}
    programs |= {
        folder / name: Path(power_save_program.__file__).read_text()
        for name in power_save_program.PROGRAMS
    }
    for path, text in programs.items():
        path.write_text(text)
        path.chmod(0o755)
    # The same modes as the folders below: overlayfs shows the mode of the upper one.
    for place in LAYERS:
        shutil.copymode(f"/{place}", root / place)
