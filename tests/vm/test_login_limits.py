"""A fork bomb and a memory hog on a login node that is the controller and has a database.

Containers can't show it: they share CPUs and memory with this machine, and have no cgroups with
limits on some.
"""

import json
import math
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from vmkit import site
from vmkit.machine import Machine
from waiting import until

pytestmark = pytest.mark.proof("an emulated machine of its own takes minutes")

ROLES = "munge,slurmctld,login_limits"
PROGRAM = Path(__file__).with_name("vmkit") / "under_attack.py"
SLICE = "/sys/fs/cgroup/user.slice/user-20001.slice"
SCHEDULERS = ("cron.service", "atd.service")
"""They start programs of people outside of their sessions."""

ATTACKS = {
    "fork bomb": """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
""",
    # Programs smaller than MariaDB: the kernel ends the largest one of all that it may end.
    "memory hog": """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    try:
        if os.fork() == 0:
            kept = bytearray(20 << 20)
            time.sleep(3600)
    except OSError:
        pass
""",
}

MOST_SECONDS = 1
"""Until an answer."""

ALL_SECONDS = 300
"""Timeout of a measurement: the attack's time, and that of its end."""


@dataclass
class Measured:
    """How two daemons answered."""

    seconds: dict[str, list[float | None]]
    """Of each try; None: no answer."""
    processes: int = 0
    """Of the attacker, at the end."""
    killed: int = 0
    """Programs of the attacker that the kernel has ended because memory ran out."""

    @property
    def longest(self) -> dict[str, float]:
        """Seconds of the longest answer of each daemon."""
        return {
            daemon: max(math.inf if one is None else one for one in tries)
            for daemon, tries in self.seconds.items()
        }

    def __str__(self) -> str:
        shown = [
            f"{daemon} {'no answer' if math.isinf(longest) else f'{longest:.2f} s'}"
            for daemon, longest in self.longest.items()
        ]
        return f"{', '.join(shown)}; {self.processes} processes, {self.killed} ended"


@pytest.fixture(scope="module")
def access() -> Iterator[Machine]:
    """The machine, on which ada has been logged in from the start."""
    with site.booted() as machines:
        machines.define(site.CLUSTER)
        server = machines.server
        server.check("useradd --uid 20001 --shell /bin/bash ada")
        server.check(f"cat >/root/under_attack.py <<'EOF'\n{PROGRAM.read_text()}EOF")
        server.check("systemctl start mariadb")
        # Programs by their names: cron and at are not installed here.
        for service in SCHEDULERS:
            server.check(f"systemd-run --unit={service} sleep infinity")
        # While a machine boots, a login is refused, or has no slice.
        server.check("systemctl start systemd-logind systemd-user-sessions")
        server.check("systemd-run --property=PAMName=sshd --property=User=ada sleep infinity")
        server.check(f"timeout 20 sh -c 'until test -e {SLICE}; do sleep 0.2; done'")
        machines.play(f"--limit={site.SERVER}", roles=ROLES)
        yield server


@pytest.fixture
def measure(
    access: Machine, record_property: Callable[[str, object], None]
) -> Callable[..., Measured]:
    """Ask the daemons during an attack, or without one; the run prints the longest times."""

    def measured(attack: str | None = None) -> Measured:
        program = ["python3", "-c", ATTACKS[attack]] if attack else []
        # As root after a login, but no victim of the attack: the kernel ends other programs.
        unit = "systemd-run --quiet --slice=user-0.slice --property=OOMScoreAdjust=-1000"
        file = "--property=StandardOutput=truncate:/run/measured"
        words = ["python3", "/root/under_attack.py", "ada", *program]
        access.check(f"rm -f /run/measured; {unit} {file} -- {shlex.join(words)}")
        shown = ""

        def whole() -> bool:
            nonlocal shown
            # Not often: it uses the same CPU.
            shown = access.ssh("sleep 5; cat /run/measured", timeout=30).stdout
            return shown.endswith("}")

        until(whole, "it has measured", ALL_SECONDS)
        found = Measured(**json.loads(shown))
        record_property("measured", str(found))
        return found

    return measured


def restarts(access: Machine) -> str:
    """How often systemd has started the two daemons again."""
    return access.check("systemctl show --value --property=NRestarts mariadb slurmctld")


@pytest.mark.parametrize(
    "group", [SLICE, *(f"/sys/fs/cgroup/system.slice/{service}" for service in SCHEDULERS)]
)
def test_what_runs_has_the_limits_too(access: Machine, group: str) -> None:
    assert access.check(f"cat {group}/pids.max") == "2000"
    assert share_of_memory(access, group) == pytest.approx(0.3, abs=0.01)


def test_all_who_are_logged_in_have_a_limit_together(access: Machine) -> None:
    group = "/sys/fs/cgroup/user.slice"
    assert access.check(f"cat {group}/cpu.weight") == "20"
    assert share_of_memory(access, group) == pytest.approx(0.7, abs=0.01)


def share_of_memory(access: Machine, group: str) -> float:
    """How much of the machine's memory a cgroup may have."""
    memory = int(access.check("awk '/^MemTotal:/ {print $2}' /proc/meminfo")) * 1024
    return int(access.check(f"cat {group}/memory.max")) / memory


def test_daemons_answer_without_an_attack(measure: Callable[..., Measured]) -> None:
    """The machine is fast enough for the figures to mean something."""
    assert max(measure().longest.values()) < MOST_SECONDS


@pytest.mark.parametrize("attack", ATTACKS)
def test_daemons_answer_under_an_attack(
    access: Machine, measure: Callable[..., Measured], attack: str
) -> None:
    found = measure(attack)
    assert max(found.longest.values()) < MOST_SECONDS
    assert found.killed, "it has not met its limit"
    assert restarts(access) == "0\n\n0"


@pytest.fixture(scope="module")
def unlimited(access: Machine) -> Machine:
    """The machine without the role."""
    access.check("rm -r /etc/systemd/system/user*.slice.d && systemctl daemon-reload")
    return access


@pytest.mark.parametrize("attack", ATTACKS)
def test_without_limits_daemons_do_not_answer(
    unlimited: Machine, measure: Callable[..., Measured], attack: str
) -> None:
    # What the attack before has ended.
    unlimited.check("systemctl restart munge mariadb slurmctld")
    assert max(measure(attack).longest.values()) > MOST_SECONDS
