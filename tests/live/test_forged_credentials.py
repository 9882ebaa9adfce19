"""Root of a compute node has the munge key: what it can have done on other hosts as root or slurm.

It only has to become that user: munged then signs for it. Each test is one way from there to a
program on the host of slurmctld or slurmdbd, or to the end of one of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from conftest import Lab
from waiting import until

AS_SLURM = "setpriv --reuid=slurm --regid=slurm --clear-groups"
MARK = "forged"
"""The file that the attacker's programs make, in a folder that the daemon writes to."""


@dataclass(frozen=True)
class Attack:
    """A cluster, with root on one of its nodes."""

    lab: Lab
    node: str
    controller: str
    database: str

    def run(self, command: str) -> str:
        """Run a command as root of the node; return its output, errors included."""
        return self.lab.on(self.node, f"timeout 50 {command} </dev/null", check=False)

    def on_controller(self, command: str) -> str:
        """Run a command on the controller."""
        return self.lab.on(self.controller, command)

    def is_active(self, host: str, unit: str) -> bool:
        """Whether systemd says that this daemon runs."""
        return self.lab.on(host, f"systemctl is-active {unit}", check=False).strip() == "active"


@pytest.fixture(
    params=["lab", pytest.param("split", marks=pytest.mark.proof("raises its own cluster"))]
)
def attack(request: pytest.FixtureRequest) -> Attack:
    """Debian 12 with all daemons on one host, Debian 13 with each on its own."""
    lab: Lab = request.getfixturevalue(request.param)
    if request.param == "lab":
        return Attack(lab, "lab-cpu-01", "lab-access", "lab-access")
    return Attack(lab, "split-cpu-01", "split-ctl", "split-db")


def test_a_trigger_starts_no_program_on_the_controller(attack: Attack) -> None:
    made = f"/var/lib/slurm/slurmctld/{MARK}"
    program = f"/usr/bin/touch {made}"
    said = attack.run(
        f"{AS_SLURM} strigger --set --node={attack.node} --drained --program='{program}'"
    )
    attack.run(f"scontrol update nodename={attack.node} state=drain reason=forged")
    try:
        # slurmctld starts what triggers ask for every 15 s (TRIGGER_INTERVAL), if it took this one.
        seconds = 1 if "operation is presently disabled" in said else 20
        wait = f"for i in $(seq {seconds}); do sleep 1; ls {made} && break; done || true"
        assert f"cannot access '{made}'" in attack.on_controller(wait).splitlines()[-1]
    finally:
        attack.run(f"scontrol update nodename={attack.node} state=resume")
        attack.on_controller(f"rm -f {made}")
    assert " is UP" in attack.on_controller("scontrol ping")


def test_a_slurmctld_that_is_told_to_end_comes_back(attack: Attack) -> None:
    before = attack.on_controller("systemctl show -P InvocationID slurmctld")
    try:
        attack.run(f"{AS_SLURM} scontrol shutdown slurmctld")
        until(
            lambda: attack.on_controller("systemctl show -P InvocationID slurmctld") != before,
            "slurmctld has been started again",
            30,
        )
        until(lambda: " is UP" in attack.on_controller("scontrol ping || true"), "it answers", 30)
    finally:
        attack.on_controller("systemctl start slurmctld")


@pytest.fixture
def script(attack: Attack) -> Iterator[str]:
    """A program on the database's host, as one in a shared home is; it makes the returned file."""
    made = f"/var/log/slurm/{MARK}"
    text = f"'#!/bin/sh\\nid >{made}\\n'"
    hosts = {attack.node, attack.controller, attack.database}
    for host in hosts:
        attack.lab.on(host, f"printf {text} >/var/tmp/script; chmod 0755 /var/tmp/script")
    yield made
    attack.lab.on(attack.database, f"rm -f {made}")
    for host in hosts:
        attack.lab.on(host, "rm -f /var/tmp/script")


def test_the_script_of_an_archive_is_not_started_on_the_database_host(
    attack: Attack, script: str
) -> None:
    archive = "sacctmgr -i archive dump script=/var/tmp/script purgejobafter=120months"
    # From the node, and from a host that slurmdbd does answer.
    for host in (attack.node, attack.controller):
        attack.lab.on(host, f"timeout 30 {archive}", check=False)
        found = attack.lab.on(attack.database, f"sleep 1; cat {script}", check=False)
        assert "No such file" in found, host
    assert attack.is_active(attack.database, "slurmdbd")


@pytest.mark.parametrize(
    "command",
    [
        "sacctmgr -i modify user ada set adminlevel=Administrator",
        "sacctmgr shutdown",
        "sacct --allusers",
    ],
)
def test_slurmdbd_does_not_talk_to_a_node(attack: Attack, command: str) -> None:
    try:
        assert "Connection refused" in attack.run(command)
        assert attack.is_active(attack.database, "slurmdbd")
    finally:
        attack.lab.on(attack.database, "systemctl start slurmdbd")


def test_the_controller_s_people_still_see_accounting(attack: Attack) -> None:
    until(
        lambda: "ada" in attack.on_controller("sacctmgr -nP show user format=user"),
        "slurmdbd answers",
        30,
    )
