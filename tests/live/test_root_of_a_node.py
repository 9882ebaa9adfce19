"""Root of a compute node has no program run on controller, database or storage host.

The ways are those of ways_from_a_node.py.

All of them are tried first, each with a program of its own that leaves a mark wherever it can; then
the other hosts are searched for marks.
"""

import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from conftest import Lab
from open_ports import LISTENING, attempts, listening
from waiting import until
from ways_from_a_node import OWN, PRELUDE, PROGRAMS, WAYS, Way

FOLDERS = (
    *("/run", "/tmp", "/var/tmp", "/dev/shm", "/root", "/var/lib/muster/home/chief"),
    *("/var/log/slurm", "/var/lib/slurm/slurmctld", "/var/lib/muster-mail", "/var/lib/mysql"),
)
"""Each user of the hosts and each confined daemon may write to one of them."""
AS_SLURM = "setpriv --reuid=slurm --regid=slurm --clear-groups"


@dataclass(frozen=True)
class Cluster:
    """A cluster, with root on one of its nodes."""

    lab: Lab
    node: str
    controller: str
    database: str
    others: tuple[str, ...]
    """The hosts that the node takes nothing from: these two, and the storage host where one is."""
    job: str

    def run(self, command: str) -> str:
        """Run a command as root of the node; return its output, errors included."""
        return self.lab.on(self.node, f"timeout 50 {command} </dev/null", check=False)

    def on_controller(self, command: str) -> str:
        """Run a command on the controller."""
        return self.lab.on(self.controller, command)

    def is_active(self, host: str, unit: str) -> bool:
        """Whether systemd says that this daemon runs."""
        return self.lab.on(host, f"systemctl is-active {unit}", check=False).strip() == "active"

    def try_way(self, way: Way) -> str:
        """Run the script of a way; return its output."""
        address = self.lab.on(self.node, "hostname --all-ip-addresses").split()[0]
        variables = {
            "OWN": OWN,
            "NODE": self.node,
            "OTHERS": " ".join(self.others),
            "NETWORK": address.rpartition(".")[0],
            "PROGRAM": f"{PROGRAMS}/{way.name}",
            "JOB": f"--uid=ada {self.job} --chdir=/ --output=/dev/null --mem=50M --time=2",
        }
        given = "".join(f"{name}='{value}'\n" for name, value in variables.items())
        return self.lab.on(self.node, f"{given}{PRELUDE}{way.script}", check=False, timeout=120)

    def log_in_as_chief(self, host: str) -> None:
        """Have the administrator log in, from where administrators are, by two kinds of shells."""
        fleet = self.lab.fleet
        options = ["-tt", "-F", str(fleet.ssh_config), "-i", str(fleet.folder / "chief_key")]
        for command in ("true", "bash -lic true"):
            words = ["ssh", *options, f"chief@{host}", command]
            subprocess.run(words, capture_output=True, timeout=60, check=True)

    def marks(self, host: str) -> dict[str, str]:
        """Return which programs have run on a host, and as whom."""
        search = (
            "find / /run /dev/shm /tmp -xdev -name 'mark-of-*' -printf '%f ' -exec head -n 1 {} ';'"
        )
        # find fails where a process has ended or a file has gone meanwhile; that it finds what is
        # there, test_the_search_finds_what_others_run_there shows.
        lines = self.lab.on(host, f"{search} 2>/dev/null || true").splitlines()
        return dict(line.removeprefix("mark-of-").split(" ", 1) for line in lines)

    def forget(self) -> None:
        """Remove all marks."""
        # As above. A mark that stays fails the tests after it.
        for host in self.others:
            self.lab.on(host, "find / /run /dev/shm /tmp -xdev -name 'mark-of-*' -delete || true")


def put_programs(cluster: Cluster) -> None:
    """Write a program for each way, and one for the search, on all hosts."""
    folders = " ".join(FOLDERS)
    for host in {cluster.node, *cluster.others}:
        names = " ".join([*(way.name for way in WAYS), "search"])
        cluster.lab.on(
            host,
            f"mkdir -p {PROGRAMS} && cd {PROGRAMS} && for name in {names}; do "
            f"printf '#!/bin/sh\\nfor folder in {folders}; do id >$folder/mark-of-%s; done\\n'"
            " $name >$name; chmod 755 $name; done",
        )


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Debian 12 with all daemons on one host, or Debian 13 with each on its own, and storage."""
    lab: Lab = request.getfixturevalue(request.param)
    if request.param == "lab":
        access, job = "lab-access", "-p ml-cpu -A LAB-test"
        cluster = Cluster(lab, "lab-cpu-01", access, access, (access,), job)
    else:
        others = ("split-ctl", "split-db", "split-storage")
        cluster = Cluster(lab, "split-cpu-01", "split-ctl", "split-db", others, "-A team")
    key = (lab.fleet.folder / "chief_key").read_text(encoding="utf-8")
    lab.on(
        cluster.node,
        f"install -d -m 755 {OWN} && cd {OWN} && rm -f key && ssh-keygen -qt ed25519 -N '' -f key"
        f" && echo 199 >last && (umask 077; echo '{key}' >chief)",
    )
    put_programs(cluster)
    for host in cluster.others:
        lab.on(host, "useradd -u 20008 -m -s /bin/bash -p '*' zoe")
    yield cluster
    for host in {cluster.node, *cluster.others}:
        lab.on(host, f"rm -rf {PROGRAMS} {OWN}; userdel -r zoe; true")
    again = "rm -rf /home/chief/.[a-z]*; cp -rT /etc/skel /home/chief; chown -R chief: /home/chief"
    lab.on(cluster.node, f"{again}; rm -f /home/ada/.ssh/authorized_keys; true")
    cluster.on_controller("scontrol reconfigure")


@dataclass(frozen=True)
class Tried:
    """What came of all ways: what each printed on the node, and the marks on each other host."""

    said: dict[str, str]
    marks: dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def tried(cluster: Cluster) -> Iterator[Tried]:
    """All ways, tried one after the other; then the administrator logs in."""
    said, over = {}, time.monotonic()
    for way in WAYS:
        said[way.name] = cluster.try_way(way)
        over = max(over, time.monotonic() + way.seconds)
    for host in cluster.others:
        cluster.log_in_as_chief(host)
    time.sleep(max(0.0, over - time.monotonic()))
    cluster.on_controller(f"scontrol update nodename={cluster.node} state=resume; scancel -u ada")
    yield Tried(said, {host: cluster.marks(host) for host in cluster.others})
    cluster.forget()


ON_EACH = pytest.mark.parametrize(
    "cluster",
    ["lab", pytest.param("split", marks=pytest.mark.proof("raises its own cluster"))],
    indirect=True,
)


@pytest.mark.parametrize("way", [pytest.param(way, id=way.name) for way in WAYS])
@ON_EACH
def test_root_of_a_node_has_nothing_run_elsewhere(cluster: Cluster, way: Way, tried: Tried) -> None:
    for host, marks in tried.marks.items():
        assert way.name not in marks, (host, marks[way.name], tried.said[way.name])
    assert re.search(way.says, tried.said[way.name]), tried.said[way.name]


@ON_EACH
def test_a_key_in_a_home_has_it_run_where_sshd_reads_keys_there(cluster: Cluster) -> None:
    """Without the defence the way works, and the search finds what it has started."""
    way = next(way for way in WAYS if way.name == "key-in-the-home-of-an-administrator")
    # Of two settings sshd takes the first.
    setting = "/etc/ssh/sshd_config.d/00-trial.conf"
    homes = f"echo AuthorizedKeysFile /home/%u/.ssh/authorized_keys >{setting}"
    try:
        for host in cluster.others:
            cluster.lab.on(host, f"{homes}; systemctl restart ssh")
        said = cluster.try_way(way)
        for host in cluster.others:
            assert "(chief)" in cluster.marks(host).get(way.name, ""), (host, said)
    finally:
        for host in cluster.others:
            cluster.lab.on(host, f"rm -f {setting}; systemctl restart ssh")
        cluster.forget()


@ON_EACH
@pytest.mark.parametrize("who", ["root", "slurm", "slurmctld", "mysql", "chief"])
def test_the_search_finds_what_others_run_there(cluster: Cluster, who: str) -> None:
    program = f"{PROGRAMS}/search"
    # Where they are.
    hosts = {"root": cluster.others, "chief": cluster.others, "mysql": (cluster.database,)}
    how = {
        "root": program,
        "slurm": f"{AS_SLURM} {program}",
        # Where its own programs, such as that of a trigger, would run.
        "slurmctld": "nsenter --mount --target $(systemctl show -P MainPID slurmctld) "
        f"{AS_SLURM} {program}",
        "mysql": f"setpriv --reuid=mysql --regid=mysql --clear-groups {program}",
        "chief": f"echo {program} >>/var/lib/muster/home/chief/.profile",
    }
    for host in hosts.get(who, (cluster.controller,)):
        try:
            cluster.lab.on(host, how[who], check=False)
            if who == "chief":
                cluster.log_in_as_chief(host)
            assert f"({who.replace('ctld', '')})" in cluster.marks(host)["search"], host
        finally:
            cluster.lab.on(host, f"sed -i '\\|{program}|d' /var/lib/muster/home/chief/.profile")
            cluster.forget()


@ON_EACH
def test_a_node_reaches_ssh_and_slurmctld_alone(cluster: Cluster) -> None:
    """Of what listens there: not MariaDB, slurmdbd or what counts and measures."""
    reached = {}
    for host in cluster.others:
        ports = listening(cluster.lab.on(host, LISTENING))
        assert host != cluster.database or ports >= {3306, 6819}
        said = cluster.lab.on(cluster.node, attempts(host, ports))
        reached[host] = {int(port) for port in said.split()}
    # 2525: the lab's mail relay is a stand-in on the controller.
    assert reached.pop(cluster.controller) - {2525} == {22, 6817}
    assert all(ports == {22} for ports in reached.values())


@ON_EACH
def test_a_slurmctld_that_is_told_to_end_comes_back(cluster: Cluster) -> None:
    before = cluster.on_controller("systemctl show -P InvocationID slurmctld")
    try:
        cluster.run(f"{AS_SLURM} scontrol shutdown slurmctld")
        until(
            lambda: cluster.on_controller("systemctl show -P InvocationID slurmctld") != before,
            "slurmctld has been started again",
            30,
        )
        # It fails as long as slurmctld is down.
        until(lambda: " is UP" in cluster.on_controller("scontrol ping || true"), "it answers", 30)
    finally:
        cluster.on_controller("systemctl start slurmctld")


@ON_EACH
def test_the_script_of_an_archive_is_not_started_on_the_database_host(cluster: Cluster) -> None:
    """From a host that slurmdbd does answer."""
    archive = f"sacctmgr -i archive dump script={PROGRAMS}/search purgejobafter=120months"
    cluster.lab.on(cluster.controller, f"timeout 30 {archive}", check=False)
    time.sleep(1)
    assert cluster.marks(cluster.database) == {}
    assert cluster.is_active(cluster.database, "slurmdbd")


@ON_EACH
def test_the_controller_s_people_still_see_accounting(cluster: Cluster, tried: Tried) -> None:
    shown = "sacctmgr -nP show user ada format=user,adminlevel"
    until(lambda: "ada|None" in cluster.on_controller(shown), "slurmdbd answers", 30)
