# SPDX-License-Identifier: Apache-2.0
"""The program: checks the node and tells SLURM; ends within TOTAL_S whatever hangs."""

import glob
import os
import socket
import sys
import time
import traceback
from collections.abc import Iterable, Mapping

from . import gpus, guard, record, scratch, storage, xids
from .commands import Commands
from .findings import BROKEN, UNCHECKED, Finding, Reading, one_line

USAGE = """\
usage: muster-health [prolog]

Looks at the storage and GPUs of the node, on a VM at its guard too, and says what it found. If
something is broken the node is drained with a reason that begins with `muster: health: `, which is
lifted when it is well again. Ends with 1 if something is broken or SLURM can't be told, otherwise
with 0.

  (nothing)   as SLURM's HealthCheckProgram, and by hand
  prolog      as a part of SLURM's Prolog: asks slurmctld nothing unless something is broken
"""

TOTAL_S = 19.0
"""HealthCheckProgram is killed after 60 s; a prolog keeps a job waiting."""
ASK_S = 3.0
"""For one question to slurmctld or systemd, and for telling slurmctld."""


class Check:
    """One check of this machine."""

    def __init__(
        self,
        commands: Commands,
        root: str = "/",
        node: str = "",
        total_s: float = TOTAL_S,
        ask_s: float = ASK_S,
    ) -> None:
        """Take the machine to check and the time for it; the defaults are those of this node."""
        self.commands = commands
        self.root = root
        self.node = node or os.environ.get("SLURMD_NODENAME") or _host()
        self.end = time.monotonic() + total_s
        self.ask_s = ask_s

    def run(self, prolog: bool) -> int:
        """Check the node, print the findings, drain or resume it; return the exit status."""
        # A prolog runs for each job: the record of the last check is enough.
        asked = {"slurmd": storage.SHOW} | ({} if prolog else {"node": self.show()})
        readings = self.commands.run(asked, self.ask_s)
        known = self._remembered() if prolog else self._known(readings["node"])
        findings = self._look(readings["slurmd"], known or self._remembered())
        # What is broken first: slurmd logs it in one line with its own text.
        for finding in sorted(findings, key=lambda finding: finding.state != BROKEN):
            print(f"{finding.check:20} {finding.state:10} {finding.why}", flush=True)
        if not findings:
            print("nothing to look at: no shared folder, no scratch, no GPU", flush=True)
        if prolog and record.reason(findings):
            known = self._known(self.commands.run({"node": self.show()}, self.ask_s)["node"])
        broken = any(finding.state == BROKEN for finding in findings)
        told = self._tell(known, findings) if broken or not prolog else True
        # A node that is not broken takes its job, whatever slurmctld says.
        return 1 if broken or not told else 0

    def show(self) -> list[str]:
        """Return the command that asks for the node's record."""
        return ["scontrol", "--oneliner", "show", "node", self.node]

    def _known(self, reading: Reading) -> record.Record | None:
        """Return the record that slurmctld has; it is kept for prologs."""
        known = record.parse(reading.text) if reading.status == 0 else None
        if known is None:
            said = one_line(reading.text) or "no answer"
            said = "scontrol is not installed" if reading.missing else said
            print(f"muster-health: slurmctld says nothing of {self.node}: {said}", file=sys.stderr)
            return None
        place = self._path("run/muster-health")
        os.makedirs(place, mode=0o755, exist_ok=True)
        new = f"{place}/node.{os.getpid()}"
        with open(new, "w", encoding="utf-8") as file:
            file.write(reading.text)
        os.rename(new, f"{place}/node")
        return known

    def _remembered(self) -> record.Record | None:
        return record.parse(self._read("run/muster-health/node"))

    def _look(self, shown: Reading, known: record.Record | None) -> list[Finding]:
        """Return the findings; all commands run side by side."""
        vm_mounts = self._read(storage.VM_MOUNTS)
        needs = storage.wanted(shown.text, vm_mounts)
        mounts = self._mounted()
        commands = _looks(needs, mounts) | _mounts(storage.missing(needs, mounts), vm_mounts)
        commands[scratch.CHECK] = [self._path(scratch.PROGRAM), "check"]
        if known and known.gpus:
            commands |= gpus.COMMANDS | xids.COMMANDS
            commands |= gpus.FABRIC if self._has_switches() else {}
        guarded = bool(self._read(guard.RULES))
        commands |= guard.COMMANDS if guarded else {}
        readings = self.commands.run(commands, self._left())
        stale = storage.stale(needs, readings)
        if stale and self._left() > self.ask_s:
            readings |= self._mount_again(stale, vm_mounts)
            readings = {key: readings[key] for key in readings if key not in stale}
        # Not of what was mounted before: a folder that is not mounted answers too.
        mounts = self._mounted()
        looks = _looks(needs, mounts)
        new = {path: looks[path] for path in looks if path not in readings}
        # Also where something else took all the time: a folder that is mounted answers at once.
        readings |= self.commands.run(new, max(self._left(), 1.0))
        findings = [] if shown.status == 0 else [storage.unknown(shown)]
        findings += storage.findings(needs, mounts, readings)
        if guarded:
            findings.append(guard.finding(readings))
        findings += scratch.findings(readings[scratch.CHECK])
        if known is None:
            findings.append(Finding(gpus.GPUS, UNCHECKED, "what SLURM counts on is not known"))
        elif known.gpus:
            findings += [*gpus.findings(known.gpus, readings), xids.finding(readings)]
        return findings

    def _left(self) -> float:
        """Seconds left for checks: slurmctld must still be asked and updated."""
        return self.end - time.monotonic() - 2 * self.ask_s

    def _mount_again(self, paths: list[str], vm_mounts: str) -> dict[str, Reading]:
        """Mount folders whose handle is stale again; return what mounting them said."""
        self.commands.run({f"unmount {path}": storage.unmount(path) for path in paths}, self.ask_s)
        readings = self.commands.run(_mounts(paths, vm_mounts), self._left())
        again = [path for path in paths if readings[storage.mounting(path)].status == 0]
        if again:
            said = "mounted again because it was stale"
            print(f"muster-health: {said}: {' '.join(again)}", flush=True)
        return readings

    def _mounted(self) -> dict[str, str]:
        return storage.mounted(self._read(storage.MOUNTINFO))

    def _tell(self, known: record.Record | None, findings: list[Finding]) -> bool:
        """Drain or resume the node where needed; return whether slurmctld has the findings."""
        if known is None:
            return False
        words = record.plan(known, findings)
        if not words:
            return True
        said = self.commands.run(
            {"tell": ["scontrol", "update", f"nodename={self.node}", *words]}, self.ask_s
        )["tell"]
        print(f"muster-health: {self.node}: {' '.join(words)}", flush=True)
        if said.status != 0:
            why = one_line(said.text) or "no answer"
            print(f"muster-health: slurmctld does not take it: {why}", file=sys.stderr)
        return said.status == 0

    def _has_switches(self) -> bool:
        """Whether NVSwitches are on the PCI bus: bridges of no common kind, made by NVIDIA."""
        return any(
            self._read(f"{device}/vendor").strip() == "0x10de"
            for device in glob.glob("sys/bus/pci/devices/*", root_dir=self.root)
            if self._read(f"{device}/class").startswith("0x0680")
        )

    def _read(self, name: str) -> str:
        """Return a file's text; nothing if it is not there."""
        try:
            # Names of mounts may have \r in them, which is no end of a line there.
            with open(self._path(name), encoding="utf-8", errors="replace", newline="\n") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def _path(self, name: str) -> str:
        return os.path.join(self.root, name.lstrip("/"))


def _looks(needs: storage.Wanted, mounts: Mapping[str, str]) -> dict[str, list[str]]:
    return {path: storage.look(path, mounts[path]) for path in storage.looks(needs, mounts)}


def _mounts(paths: Iterable[str], vm_mounts: str) -> dict[str, list[str]]:
    return {storage.mounting(path): storage.mount(path, vm_mounts) for path in paths}


def _host() -> str:
    return socket.gethostname().partition(".")[0]


def main(words: list[str]) -> int:
    """Run as the command line says; return the exit status."""
    if words not in ([], ["prolog"]):
        print(USAGE, end="", file=sys.stdout if words == ["--help"] else sys.stderr)
        return 0 if words == ["--help"] else 2
    if os.geteuid() != 0:
        print("muster-health: slurmctld and the kernel log are root's; use sudo", file=sys.stderr)
        return 2
    prolog = words == ["prolog"]
    try:
        return Check(Commands("/run/muster-health")).run(prolog=prolog)
    except Exception:
        traceback.print_exc()
        # A fault of this program is no fault of the node: its jobs continue.
        return 0 if prolog else 1
