"""A fork bomb, a memory hog and a full disk on a login node with slurmctld and a database.

Containers can't show it: they share CPUs, memory and disk with this machine, and have no cgroups
with limits on some.
"""

import json
import math
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from vmkit import site
from vmkit.machine import Machine
from vmkit.site import Site
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
def two() -> Iterator[Site]:
    """The machine, on which ada has been logged in from the start, and a client."""
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
        yield machines


@pytest.fixture(scope="module")
def access(two: Site) -> Machine:
    """The machine."""
    return two.server


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


FEED = """
import itertools, socket, struct
fed = [socket.create_connection(("127.0.0.1", 6817)) for _ in range(5)]
try:
    for one in fed:
        one.sendall(struct.pack("!I", 200 << 20))
    for one in itertools.cycle(fed):
        one.sendall(bytes(1 << 20))
except OSError:
    pass
"""
"""Messages of 200 MiB for slurmctld, sent side by side until it is gone.

Longer ones would not meet the bound: the kernel refuses more memory than the machine has.
"""


def test_slurmctld_is_ended_alone_by_long_messages_and_starts_again(access: Machine) -> None:
    group = "/sys/fs/cgroup/system.slice/slurmctld.service"
    assert share_of_memory(access, group) == pytest.approx(0.4, abs=0.01)
    assert access.check(f"cat {group}/memory.swap.max") == "0"
    until(lambda: access.ssh("sinfo").returncode == 0, "slurmctld is up")
    job = submitted(access)
    alone = "systemctl show --value --property=InvocationID mariadb munge muster-munge ssh"
    others = access.check(alone)
    access.check(f"runuser -u ada -- timeout 100 python3 -c {shlex.quote(FEED)}")
    # systemd says it a moment after the connections have ended.
    ended = "journalctl --unit=slurmctld --output=cat --lines=20 --grep=oom-kill"
    until(lambda: access.ssh(ended).returncode == 0, "slurmctld has met its limit", seconds=20)
    until(lambda: job in queue(access), "slurmctld is up with its queue")
    assert access.check(alone) == others


# As much as there is, then the rest.
FILL = """
for mib in 1024 64 1; do
    n=0
    while fallocate -l ${mib}M $0/fill-$mib-$n; do n=$((n+1)); done 2>/dev/null
done
dd if=/dev/zero of=$0/fill bs=4k
"""
MAKE = "CREATE DATABASE kept; CREATE TABLE kept.words (n INT, word TEXT)"
WRITE = "INSERT INTO kept.words SELECT seq, REPEAT('x', 1000) FROM kept.seq_1_to_30000"
SORT = """SELECT COUNT(*) FROM (
    SELECT DISTINCT CONCAT(seq, REPEAT('x', 2000)) FROM kept.seq_1_to_20000
) AS sorted"""
SUBMIT = (
    "runuser -u ada -- sbatch --parsable --hold --mem=50 --time=5 --chdir=/ --output=/dev/null "
    "--wrap=true"
)


def mariadb(sql: str) -> str:
    """A command that ends, whatever the server waits for."""
    return f"timeout 100 mariadb --batch --skip-column-names --execute={shlex.quote(sql)}"


@contextmanager
def filled(access: Machine) -> Iterator[None]:
    """Ada has filled /tmp and /var/tmp."""
    folders = ("/tmp", "/var/tmp")
    try:
        for folder in folders:
            access.ssh(f"runuser -u ada -- sh -c {shlex.quote(FILL)} {folder}")
        assert access.check("df --output=avail --block-size=M / | tail -n 1") == "0M"
        yield
    finally:
        access.check(f"rm -f {' '.join(f'{folder}/fill*' for folder in folders)}")


def test_on_the_system_s_disk_both_stop_when_it_is_full(access: Machine) -> None:
    access.check(mariadb(MAKE))
    submitted(access)
    try:
        with filled(access):
            for command in (mariadb(WRITE), mariadb(SORT), SUBMIT):
                assert access.ssh(command).returncode != 0, command
    finally:
        access.check("systemctl reset-failed mariadb slurmctld")
        access.check("systemctl restart mariadb slurmctld")
        access.check(mariadb("DROP DATABASE kept"))


def submitted(access: Machine) -> str:
    """A job of ada's that waits; its number."""
    until(lambda: access.ssh("sinfo").returncode == 0, "slurmctld is up")
    return access.check(SUBMIT)


def queue(access: Machine) -> set[str]:
    """The jobs that slurmctld knows; none where it does not answer."""
    return set(access.ssh("squeue --noheader --format=%i").stdout.split())


@pytest.fixture(scope="module")
def moved(two: Site) -> str:
    """Queue and database have got a file system of their own; a job that waited before."""
    server = two.server
    server.check(mariadb(MAKE))
    server.check(mariadb("INSERT INTO kept.words VALUES (0, 'before')"))
    job = submitted(server)
    # slurmctld stays without the database: slurmdbd is not installed.
    two.define(site.CLUSTER | {"storage": {"state_gib": 1}}, database=True)
    pool = json.dumps({"mariadb_buffer_pool_mib": 128})
    two.play(f"--limit={site.SERVER}", f"--extra-vars={pool}", roles="file_systems,mariadb")
    return job


def test_what_there_was_has_moved_with_the_daemons(access: Machine, moved: str) -> None:
    until(lambda: moved in queue(access), "slurmctld is up with its queue")
    assert access.check(mariadb("SELECT word FROM kept.words WHERE n = 0")) == "before"
    folders = "/var/lib/mysql /var/lib/slurm/slurmctld"
    lies_on = set(access.check(f"stat --format=%d {folders}").split())
    assert len(lies_on) == 1
    assert lies_on.isdisjoint(access.check("stat --format=%d / /tmp /var/tmp").split())


def test_who_fills_the_system_s_disk_stops_neither(access: Machine, moved: str) -> None:
    with filled(access):
        job = submitted(access)
        access.check(mariadb(WRITE))
        assert access.check(mariadb(SORT)) == "20000"
        access.check("systemctl restart mariadb slurmctld")
        until(lambda: {job, moved} <= queue(access), "slurmctld is up with its queue")
        assert access.check(mariadb("SELECT COUNT(*) FROM kept.words")) == "30001"


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
