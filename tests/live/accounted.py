"""SLURM's daemons with accounting in one container: emulation.py with MariaDB and slurmdbd.

Accounts, QoS and limits come from the definition by the code of the module `slurm_accounts`, which
talks to the sacctmgr of the container.
"""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.muster.slurm.plugins.module_utils.accounting_plan import plan
from ansible_collections.muster.slurm.plugins.module_utils.accounting_state import State
from ansible_collections.muster.slurm.plugins.module_utils.accounting_wish import (
    unknown_tres,
    wanted,
    without_tres,
)
from ansible_collections.muster.slurm.plugins.module_utils.sacctmgr import (
    Sacctmgr,
    apply,
)
from documentation import ROOT, Page, merged
from emulation import EMULATED_CGROUP, EMULATED_SLURM, Emulation, emulated, wait_for

from muster.cli.render import by_name
from muster.definition import PACKAGED_SLURM, Definition, load
from muster.definition.schema.limits import Qos
from muster.definition.schema.people import Account
from muster.render import limits, people
from muster.render.slurm import render
from muster_sandbox.containers import base_image
from muster_sandbox.containers.podman import as_root, podman

SLURMDBD = (
    "setpriv --reuid=slurm --regid=slurm --init-groups slurmdbd -D >/var/log/slurm/dbd.log 2>&1"
)
PASSWORD = "of-a-test"  # noqa: S105 - of a database in a container without a network address
DATABASE = f"""
install -d -o mysql -g mysql /run/mysqld
install -d -o slurm -g slurm /run/slurmdbd
echo 'StoragePass={PASSWORD}' >>/etc/slurm/slurmdbd.conf
chown slurm:slurm /etc/slurm/slurmdbd.conf
chmod 0600 /etc/slurm/slurmdbd.conf
setsid mariadbd --user=mysql --innodb-lock-wait-timeout=900 >/var/log/mariadbd.log 2>&1 &
for i in $(seq 300); do mariadb --execute 'SELECT 1' >/dev/null 2>&1 && break; sleep 0.2; done
mariadb --execute "CREATE DATABASE slurm_acct_db;
  CREATE USER slurm@localhost IDENTIFIED BY '{PASSWORD}';
  GRANT ALL ON slurm_acct_db.* TO slurm@localhost;"
setsid {SLURMDBD} &
for i in $(seq 300); do sacctmgr -n show cluster >/dev/null 2>&1 && exit 0; sleep 0.2; done
cat /var/log/slurm/dbd.log /var/log/mariadbd.log
exit 1
"""


class InContainer(Sacctmgr):
    """sacctmgr and sacct of a container, which has the slurm.conf of the cluster."""

    def __init__(self, lab: Emulation, cluster: str) -> None:
        super().__init__(cluster, "localhost", 6819, 60)
        self.lab = lab

    def _call(self, program: str, *words: str) -> tuple[int, str, str]:
        done = subprocess.run(
            as_root(["podman", "exec", self.lab.name, program, *words]),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr


def lab_of_page(page: str, folder: Path) -> Definition:
    """Return the lab with the first change of it that a page of docs/ has."""
    inventory = folder / "lab"
    shutil.copytree(
        ROOT / "inventories/lab", inventory, ignore=shutil.ignore_patterns("secrets.yml")
    )
    block = next(block for block in Page(ROOT / page).blocks("yaml"))
    head = re.match(r"# inventories/lab/(\S+)\n", block.text)
    assert head
    file = inventory / head[1]
    old = yaml.safe_load(file.read_text(encoding="utf-8"))
    # In their order: the first account that lists somebody is the default one.
    changed = yaml.safe_dump(merged(old, yaml.safe_load(block.text)), sort_keys=False)
    file.write_text(changed, encoding="utf-8")
    return load(inventory)


def for_release(definition: Definition, release: str, slurm: Mapping[str, str | int]) -> Definition:
    """Return a definition for the SLURM of a release, with what emulation needs."""
    system = base_image.RELEASES[release]
    cluster = definition.cluster.model_copy(
        update={
            "os": system,
            "slurm_version": PACKAGED_SLURM[system],
            "slurm": {
                **EMULATED_SLURM,
                # A container of a test has no cgroups to read usage from.
                "JobAcctGatherType": "jobacct_gather/none",
                **slurm,
            },
            "cgroup": EMULATED_CGROUP,
        }
    )
    return replace(definition, cluster=cluster)


def with_limits(definition: Definition, more: Mapping[str, Any]) -> Definition:
    """Return a definition with more in `accounts` and `qos`."""
    cluster = definition.cluster
    said = cluster.model_dump(include={"accounts", "qos"}, exclude_unset=True)
    changed = merged(said, more)
    update = {
        "accounts": {
            name: Account.model_validate(account) for name, account in changed["accounts"].items()
        },
        "qos": {name: Qos.model_validate(qos) for name, qos in changed["qos"].items()},
    }
    return replace(definition, cluster=cluster.model_copy(update=update))


def _wish(definition: Definition) -> State:
    return wanted(
        people.accounts(definition), people.account_users(definition), limits.qos(definition)
    )


def change_accounts(
    lab: Emulation, before: Definition, after: Definition, shown: Callable[[], object]
) -> None:
    """Bring slurmdbd from what a definition says to what another one says; it is not read.

    slurmdbd does not wait for slurmctld, so `shown` must show each change there.
    """
    slurmdbd = InContainer(lab, after.cluster.name)
    for command in plan(after.cluster.name, _wish(before), _wish(after)):
        old = shown()
        assert slurmdbd.change(command) is None, command
        wait_for(
            lambda old=old: shown() != old,
            lambda command=command: f"slurmctld heard of {command}: {shown()}",
        )


def set_accounts(lab: Emulation, definition: Definition, *, slurmctld_runs: bool = True) -> None:
    """Bring accounts, QoS and limits to what the definition says, as the role `accounts` does."""
    slurmdbd = InContainer(lab, definition.cluster.name)
    wish = _wish(definition)
    if slurmctld_runs:
        wait_for(
            lambda: not unknown_tres(wish, slurmdbd.state().tres), lambda: str(slurmdbd.state())
        )
    current = slurmdbd.first_state()
    apply(
        slurmdbd,
        current,
        without_tres(wish, unknown_tres(wish, current.tres)),
        prune=False,
        busy=frozenset(),
    )


@contextmanager
def without_slurmdbd(lab: Emulation) -> Iterator[None]:
    """Stop slurmdbd; at the end start it and wait until it answers."""
    lab.run("pkill", "-x", "slurmdbd")
    try:
        wait_for(
            lambda: lab.run("sh", "-c", "! sacctmgr show cluster >/dev/null 2>&1") == "",
            lambda: lab.run("cat", "/var/log/slurm/dbd.log"),
        )
        yield
    finally:
        lab.start("sh", "-c", f"exec {SLURMDBD}")
        wait_for(
            lambda: "lab" in lab.run("sacctmgr", "--noheader", "show", "cluster", "format=cluster"),
            lambda: lab.run("cat", "/var/log/slurm/dbd.log"),
        )


@contextmanager
def accounted(
    name: str, release: str, definition: Definition, *, seconds: int = 900
) -> Iterator[Emulation]:
    """Run the daemons of a cluster with accounting, and its nodes, for `seconds` at most."""
    nodes = [host for name in definition.cluster.nodes for host in definition.hosts_of(name)]
    files = by_name(render(definition))
    with emulated(name, release, files, nodes, seconds=seconds) as lab:
        for gpu in range(4):
            lab.run("mknod", "-m", "0666", f"/dev/nvidia{gpu}", "c", "195", str(gpu))
        for login, person in definition.cluster.users.people.items():
            if login != "ada":  # emulation.py makes her
                lab.run(
                    *("useradd", "--uid", str(person.uid), "--create-home"),
                    *("--groups", "ml-users", login),
                )
        podman("exec", lab.name, "sh", "-ec", DATABASE)
        set_accounts(lab, definition, slurmctld_runs=False)
        lab.starts_slurmctld("/var/log/slurm/slurmctld.log")
        set_accounts(lab, definition)
        lab.starts_slurmds()
        yield lab
