"""What docs/procedures.md and docs/site.md say of files and checks is what Muster does."""

import base64
import difflib
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from documentation import ROOT, Block, Page, merged

from muster import secrets
from muster.definition import Definition, load
from muster.render import role_variables
from muster.render.slurm import render

LAB = ROOT / "inventories/lab"
PROCEDURES = Page(ROOT / "docs/procedures.md")
SITE = Page(ROOT / "docs/site.md")


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    folder = tmp_path / "inventories/lab"
    shutil.copytree(LAB, folder, ignore=shutil.ignore_patterns("secrets.yml"))
    return folder


def change_in(page: Page, word: str) -> Block:
    """Return the page's change of the inventory that has a word."""
    [block] = [block for block in page.blocks("yaml") if word in block.text]
    return block


def changed(folder: Path, block: Block) -> Definition:
    """Return the definition with this change alone."""
    file = folder / block.text.partition("\n")[0].removeprefix("# inventories/lab/")
    old = yaml.safe_load(file.read_text()) if file.exists() else {}
    new = merged(old, yaml.safe_load(block.text))
    file.write_text(yaml.safe_dump(new, sort_keys=False))
    return load(folder)


def test_a_change_of_memory_changes_what_the_page_names(lab: Path) -> None:
    before, after = render(load(lab)), render(changed(lab, change_in(PROCEDURES, "memory_mib")))
    lines = [
        re.sub(r"^[-+]", "", line)
        for line in difflib.unified_diff(
            before.slurm_conf.splitlines(), after.slurm_conf.splitlines(), n=0, lineterm=""
        )
        if re.match(r"[-+][^-+]", line)
    ]
    words = [dict(word.partition("=")[::2] for word in line.split()) for line in lines]
    nodes = [line for line in words if "NodeName" in line]
    partitions = [line for line in words if "PartitionName" in line]
    assert len(nodes) == len(partitions) == 2
    assert differing(*nodes) == {"RealMemory"}
    assert differing(*partitions) == {
        "DefMemPerCPU",
        "DefMemPerGPU",
        "MaxMemPerCPU",
        "TRESBillingWeights",
    }
    # The rest is the digest: Debian 12's SLURM needs restarts, of slurmctld and of these nodes.
    assert len(lines) == 6
    assert before.restart.slurmctld != after.restart.slurmctld
    assert differing(before.restart.slurmd, after.restart.slurmd) == {"gpu"}
    assert before.gres_conf == after.gres_conf


def differing(left: dict[str, str], right: dict[str, str]) -> set[str]:
    return {key for key in {*left, *right} if left.get(key) != right.get(key)}


def test_another_ssh_port_is_ansible_s_alone(lab: Path) -> None:
    before = load(lab)
    after = changed(lab, change_in(PROCEDURES, "ansible_port"))
    inventory = [
        str(Path(sys.executable).with_name("ansible-inventory")),
        *("--inventory", str(lab), "--host", "lab-cpu-01"),
    ]
    done = subprocess.run(inventory, cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["ansible_port"] == 2222
    assert variables_of(before) == variables_of(after)


def test_a_new_login_node_concerns_the_hosts_that_the_page_names(lab: Path) -> None:
    before = variables_of(load(lab))
    after = variables_of(changed(lab, change_in(PROCEDURES, "lab-login")))
    assert before["lab-access"]["slurmdbd_clients"] == []
    assert after["lab-access"]["slurmdbd_clients"] == ["192.0.2.11"]
    assert {host for host in before if before[host]["base_hosts"] == after[host]["base_hosts"]} == (
        set()
    )
    assert "slurm_controllers" in after["lab-login"]


def variables_of(definition: Definition) -> dict[str, dict[str, object]]:
    """Return the role variables of each host."""
    addresses = {name: its["ansible_host"] for name, its in definition.hosts.vars.items()}
    found = {}
    for name in definition.hosts.groups["all"]:
        host = role_variables.Host(
            definition=definition,
            name=name,
            addresses=addresses,
            inventory=LAB,
            compute_endpoint="",
            given={},
        )
        own, _ = role_variables.role_variables(host)
        found[name] = {**own, **role_variables.shared(definition, addresses)}
    return found


def test_a_munge_key_that_is_in_use_is_kept(lab: Path) -> None:
    """The command of the page, with an ssh that has the key of another machine."""
    [block] = [block for block in SITE.blocks("text") if "munge_key" in block.text]
    there = lab.parents[1] / "munge.key"
    there.write_bytes(bytes(n * 7 % 251 for n in range(128)))
    ssh = f"ssh() {{ shift; base64 -w0 {shlex.quote(str(there))}; }}\n"
    subprocess.run(["bash", "-ec", ssh + block.text], cwd=lab.parents[1], check=True)
    path = secrets.path_of(lab)
    assert path.stat().st_mode & 0o077 == 0
    kept = yaml.safe_load(path.read_text())["secrets"]["munge_key"]
    assert base64.b64decode(kept) == there.read_bytes()
    assert secrets.make(lab) == ["slurmdbd_password"]
    assert yaml.safe_load(path.read_text())["secrets"]["munge_key"] == kept
    load(lab)


def test_slurmdbd_with_another_database_has_all_other_lines_of_muster_s(lab: Path) -> None:
    ours = render(load(lab)).slurmdbd_conf
    theirs = render(changed(lab, change_in(SITE, "database:"))).slurmdbd_conf
    elsewhere = "StorageHost=db.example.org\nStoragePort=3306"
    assert theirs == ours.replace("StorageHost=localhost", elsewhere) != ours
