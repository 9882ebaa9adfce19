"""`muster packages CLUSTER`: what the roles install, read from them by Ansible without a host."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.muster.slurm.plugins.lookup.role_packages import RELEASES
from documentation import Page
from typer.testing import CliRunner

from muster.cli import packages
from muster.cli.main import app
from muster.definition import PACKAGED_SLURM
from muster.verify.ansible_query import AskError, Found

ROOT = Path(__file__).parents[3]
LAB = ROOT / "inventories/lab"
HOSTS = ["lab-access", "lab-cpu-01", "lab-cpu-02", "lab-gpu-01", "lab-gpu-02"]
NOTHING = {"packages": ["munge"], "repositories": [], "images": [], "builds": {}}


def listed(inventory: Path) -> dict[str, list[str]]:
    """Run the command; return hosts -> the lines below them."""
    done = subprocess.run(
        [sys.executable, "-m", "muster", "packages", str(inventory)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    blocks = re.findall(r"^(\S+):\n((?:  .+\n)+)", done.stdout, re.MULTILINE)
    return {hosts: [line.strip() for line in text.splitlines()] for hosts, text in blocks}


def test_the_lab_s_list_is_the_one_that_the_docs_show() -> None:
    found = listed(LAB)
    page = Page(ROOT / "docs/site.md")
    [command] = [each for each in page.commands if each.line == "muster packages lab"]
    assert command.prints("\n".join(word for key in found for word in (f"{key}:", *found[key])))
    nodes = found["lab-cpu-[01-02],lab-gpu-[01-02]"]
    [names] = [line.split()[1:] for line in nodes]
    # What a module needs is on each host: without it a training fails on the nodes alone.
    library = {"python3-distutils", "python3-gdbm", "python3-lib2to3", "python3-venv"}
    assert library <= {*names}
    assert {"munge", "chrony", "lmod", "slurmd=22.05.*", "libpam-slurm-adopt=22.05.*"} <= {*names}
    assert "mariadb-server" not in names
    access = found["lab-access"][0].split()
    assert {"mariadb-server", "slurmdbd", "slurmctld=22.05.*", "msmtp", *library} <= {*access}
    # One role names it with its version, another without.
    assert "slurm-client=22.05.*" in access
    assert "slurm-client" not in access


def test_drivers_folders_and_containers_are_in_it(tmp_path: Path) -> None:
    inventory = tmp_path / "lab"
    shutil.copytree(LAB, inventory, ignore=shutil.ignore_patterns("secrets.yml"))
    hosts = yaml.safe_load((inventory / "hosts.yml").read_text())
    hosts["all"]["children"]["storage"] = {
        "hosts": {f"lab-store-{n}": {"ansible_host": f"192.0.2.5{n}"} for n in (1, 2, 3)}
    }
    (inventory / "hosts.yml").write_text(yaml.safe_dump(hosts))
    file = inventory / "group_vars/all/cluster.yml"
    document = yaml.safe_load(file.read_text())
    cluster = document["cluster"]
    cluster["nodes"]["gpu"]["gpus"]["type"] = "rtx5090"
    cluster["nvidia"] = {"source": "nvidia"}
    cluster["storage"]["data"] = {"kind": "ceph", "path": "/data"}
    cluster["storage"]["ceph"] = {
        "devices": {"storage": ["/dev/vdb"]},
        "image": "quay.io/ceph/ceph:v20.2.5",
    }
    file.write_text(yaml.safe_dump(document))
    found = listed(inventory)
    gpus, stores = found["lab-gpu-[01-02]"], found["lab-store-[1-3]"]
    assert any("linux-headers-$(uname -r)" in line for line in gpus)
    assert any(line.startswith("repository: https://developer.download.nvidia") for line in gpus)
    assert "image: quay.io/ceph/ceph:v20.2.5" in stores
    assert "podman" in stores[0].split()
    assert not any("repository" in line for line in found["lab-cpu-[01-02]"])


def test_the_client_of_the_hub_is_in_it_where_models_are_added(tmp_path: Path) -> None:
    inventory = tmp_path / "lab"
    shutil.copytree(LAB, inventory, ignore=shutil.ignore_patterns("secrets.yml"))
    file = inventory / "group_vars/all/cluster.yml"
    document = yaml.safe_load(file.read_text())
    document["cluster"]["storage"]["models"] = {"kind": "existing", "path": "/models"}
    file.write_text(yaml.safe_dump(document))
    client = re.compile(
        r"build of (/opt/muster-models/\w+-debian-12): /usr/local/lib/muster/install-locked \1 .*"
    )
    found = listed(inventory)
    assert any(client.fullmatch(line) for line in found["lab-access"])
    assert not any("muster-models" in line for line in found["lab-cpu-[01-02],lab-gpu-[01-02]"])
    (inventory / "group_vars/all/models.yml").write_text("models_hub: false\n")
    assert not any("muster-models" in line for line in listed(inventory)["lab-access"])


def test_uv_is_in_it_where_environments_are_built(tmp_path: Path) -> None:
    inventory = tmp_path / "lab"
    shutil.copytree(LAB, inventory, ignore=shutil.ignore_patterns("secrets.yml"))
    assert "muster-uv" not in str(listed(inventory))
    shutil.copytree(ROOT / "examples/software", inventory / "software")
    file = inventory / "group_vars/all/cluster.yml"
    document = yaml.safe_load(file.read_text())
    requirements = {"python": "apps/python/3.11", "requirements": "software/jupyterlab-4.txt"}
    document["cluster"]["software"]["modules"]["apps/jupyter"] = {
        "4": {"whatis": "JupyterLab", "environment": requirements}
    }
    file.write_text(yaml.safe_dump(document))
    uv = re.compile(r"build of (/opt/muster-uv/\w+): /usr/local/lib/muster/install-locked \1 .*")
    found = listed(inventory)
    assert any(uv.fullmatch(line) for line in found["lab-access"])
    assert not any("muster-uv" in line for line in found["lab-cpu-[01-02],lab-gpu-[01-02]"])


def test_roles_fetch_nothing_else_than_what_is_read() -> None:
    fetching = re.compile(
        r"^\s*(?:- )?(?:[\w.]+\.)?(?:get_url|uri|git|pip|unarchive|apt|apt_key|apt_repository)"
        r":|\b(?:curl|wget|install-locked)\b",
        re.MULTILINE,
    )
    calls = {
        path.relative_to(ROOT / "roles").as_posix()
        for folder in ("tasks", "vars")
        for path in (ROOT / "roles").rglob(f"{folder}/*.yml")
        if fetching.search(path.read_text(encoding="utf-8"))
    }
    # The keys of NVIDIA's repositories, the client of the Hugging Face hub, and uv.
    assert calls == {
        "nvidia_driver/tasks/install.yml",
        "models/tasks/install.yml",
        "models/vars/main.yml",
        "software/vars/main.yml",
    }


def test_roles_install_nowhere_else_than_where_it_is_read() -> None:
    calls = {
        path.relative_to(ROOT / "roles").as_posix()
        for path in (ROOT / "roles").rglob("tasks/*.yml")
        if "managed_packages:" in path.read_text(encoding="utf-8")
    }
    assert calls
    assert {path for path in calls if not path.endswith("/tasks/install.yml")} == set()


def test_each_system_of_the_definition_has_its_facts() -> None:
    assert RELEASES.keys() == PACKAGED_SLURM.keys()


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch):
    def shown(replies: Found | AskError, inventory: Path = LAB) -> tuple[int, str, str]:
        def ask(*_: object) -> Found:
            if isinstance(replies, AskError):
                raise replies
            return replies

        monkeypatch.setattr(packages, "ask", ask)
        result = CliRunner().invoke(app, ["packages", str(inventory)])
        return result.exit_code, result.stdout, result.stderr

    return shown


def test_hosts_that_need_the_same_come_together(shown) -> None:
    answers = {host: {"needed": NOTHING} for host in HOSTS[1:]}
    answers["lab-access"] = {"needed": NOTHING | {"packages": ["munge", "slurmctld"]}}
    assert shown(Found(answers, [])) == (
        0,
        "lab-cpu-[01-02],lab-gpu-[01-02]:\n  packages: munge\n"
        "lab-access:\n  packages: munge slurmctld\n",
        "",
    )


def test_what_ansible_can_not_read_is_said(shown) -> None:
    code, out, errors = shown(AskError("Ansible did not start: no vault password"))
    assert (code, out) == (1, "")
    assert errors == "error: Ansible did not start: no vault password\n"
    code, out, errors = shown(
        Found({}, ["lab-access: could not be asked: no base_os; try: ansible"])
    )
    assert (code, out) == (1, "")
    assert errors == (
        "error: lab-access: could not be asked: no base_os; "
        f"run: ansible-playbook -i {LAB} ansible/packages.yml\n"
    )


def test_a_cluster_in_the_cloud_has_no_list(shown) -> None:
    code, out, errors = shown(Found({}, []), ROOT / "inventories/cloud")
    assert (code, out) == (2, "")
    assert "NAT" in errors
