"""The plugin pulumi_stack, as ansible-inventory uses it: stack outputs become groups and hosts."""

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from accesskit import NO_STACK, UP, Pulumi

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """A copy of inventories/cloud."""
    return Path(shutil.copytree(ROOT / "inventories/cloud", tmp_path / "cloud"))


def ask(inventory: Path, env: dict[str, str], *more: str) -> subprocess.CompletedProcess[str]:
    program = str(Path(sys.executable).with_name("ansible-inventory"))
    return subprocess.run(
        [program, "--inventory", str(inventory), "--list", "--export", *more],
        cwd=ROOT,
        env={**env, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def listed(inventory: Path, env: dict[str, str], *more: str) -> dict[str, Any]:
    done = ask(inventory, env, *more)
    assert (done.returncode, done.stderr) == (0, "")
    return dict(json.loads(done.stdout))


def plain(value: Any) -> Any:
    """A variable as JSON shows it: what a plugin gives is marked as not to be templated."""
    return value["__ansible_unsafe"] if isinstance(value, dict) else value


def test_the_stack_s_hosts_are_in_the_five_groups(inventory: Path, pulumi: Pulumi) -> None:
    whole = listed(inventory, pulumi(UP))
    groups = {name: group["hosts"] for name, group in whole.items() if group.get("hosts")}
    assert groups == {
        "controller": ["slurm10-controller"],
        "database": ["slurm10-controller"],
        "login": ["slurm10-login-0"],
        "storage": ["slurm10-controller"],
    }
    assert "compute" in whole["all"]["children"]


def test_hosts_are_reached_through_iap_and_their_keys_are_checked(
    inventory: Path, pulumi: Pulumi
) -> None:
    hosts = listed(inventory, pulumi(UP))["_meta"]["hostvars"]
    assert plain(hosts["slurm10-controller"]["ansible_host"]) == "10.10.0.2"
    assert "ansible_host" not in hosts["slurm10-login-0"]
    for host, variables in hosts.items():
        words = shlex.split(plain(variables["ansible_ssh_common_args"]))
        options = dict(word.split("=", 1) for word in words if word != "-o")
        assert options["ProxyCommand"].split()[:6] == [
            *("gcloud", "compute", "start-iap-tunnel", host, "22", "--listen-on-stdin")
        ]
        assert "--project=my-project --zone=europe-west4-a" in options["ProxyCommand"]
        assert options["StrictHostKeyChecking"] == "accept-new"
        assert options["HostKeyAlias"] == f"{host}.europe-west4-a.my-project"


def test_the_agent_is_forwarded_to_the_controller_alone(inventory: Path, pulumi: Pulumi) -> None:
    hosts = listed(inventory, pulumi(UP))["_meta"]["hostvars"]
    forwarding = {
        host
        for host, variables in hosts.items()
        if "-o ForwardAgent=yes"
        in " ".join(shlex.split(plain(variables["ansible_ssh_common_args"])))
    }
    assert forwarding == {"slurm10-controller"}


def test_pulumi_is_asked_for_the_stack_of_the_cluster_s_name_and_once(
    inventory: Path, pulumi: Pulumi, tmp_path: Path
) -> None:
    env = pulumi(UP)
    first = listed(inventory, env)
    assert listed(inventory, env) == first
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == [
        f"stack output --json --cwd {ROOT}/pulumi --stack slurm10 --non-interactive",
    ]
    listed(inventory, env, "--flush-cache")
    assert len((tmp_path / "asked").read_text().splitlines()) == 2


def test_secrets_are_asked_from_secret_manager_only_when_they_are_used(
    inventory: Path, pulumi: Pulumi, tmp_path: Path
) -> None:
    env = pulumi(UP)
    gcloud = tmp_path / "bin/gcloud"
    gcloud.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/gcloud-asked\necho key-of-the-cluster\n')
    gcloud.chmod(0o755)
    assert "key-of-the-cluster" not in json.dumps(listed(inventory, env))
    assert not (tmp_path / "gcloud-asked").exists()
    done = subprocess.run(
        [
            *(str(Path(sys.executable).with_name("ansible")), "--inventory", str(inventory)),
            *("--module-name", "debug", "--args", "var=secrets.munge_key", "slurm10-login-0"),
        ],
        cwd=ROOT,
        env={**env, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "key-of-the-cluster" in done.stdout, done.stdout + done.stderr
    asked = set((tmp_path / "gcloud-asked").read_text().splitlines())
    assert asked == {
        "secrets versions access latest --secret=slurm10-munge-key --project=my-project --quiet"
    }
    kept = "".join(file.read_text() for file in (tmp_path / ".cache").rglob("*") if file.is_file())
    assert "key-of-the-cluster" not in kept


def test_the_relay_s_password_is_a_secret_where_the_relay_wants_a_login(
    inventory: Path, pulumi: Pulumi
) -> None:
    def secrets() -> set[str]:
        return {*listed(inventory, pulumi(UP))["all"]["vars"]["secrets"]}

    made = {"munge_key", "slurmdbd_password"}
    assert secrets() == made
    file = inventory / "group_vars/all/cluster.yml"
    mail = "mail: {relay: smtp.example.org, port: 587, domain: example.org%s}\n  accounts:"
    text = file.read_text()
    file.write_text(text.replace("accounts:", mail % "", 1))
    assert secrets() == made
    file.write_text(text.replace("accounts:", mail % ", login: hpc", 1))
    assert secrets() == made | {"mail_password"}


def test_a_login_node_that_is_not_up_yet_is_no_host(inventory: Path, pulumi: Pulumi) -> None:
    file = inventory / "group_vars/all/cluster.yml"
    file.write_text(file.read_text().replace("count: 1", "count: 2"))
    assert listed(inventory, pulumi(UP))["login"]["hosts"] == ["slurm10-login-0"]


@pytest.mark.parametrize(
    ("outputs", "error", "says"),
    [
        (None, NO_STACK, "there is no stack slurm10 here"),
        ({}, "", "the stack slurm10 is not up (yet); run: pulumi -C pulumi up -s slurm10"),
        (None, "error: passphrase must be set", "passphrase must be set"),
        ({**UP, "cluster": "other"}, "", "is of the cluster other"),
        ({**UP, "zone": "a; rm -rf /"}, "", "names that Google does not"),
    ],
)
def test_without_a_stack_one_sentence_says_what_to_do(
    inventory: Path, pulumi: Pulumi, outputs: Any, error: str, says: str
) -> None:
    done = ask(inventory, pulumi(outputs, error))
    assert done.returncode != 0
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("error: ")


def test_what_is_not_up_is_not_remembered(inventory: Path, pulumi: Pulumi) -> None:
    assert ask(inventory, pulumi({})).returncode != 0
    assert listed(inventory, pulumi(UP))["login"]["hosts"] == ["slurm10-login-0"]


def test_without_pulumi_one_sentence_says_so(inventory: Path, no_pulumi: dict[str, str]) -> None:
    done = ask(inventory, no_pulumi)
    assert done.returncode != 0
    assert done.stderr.count("\n") == 1
    assert "the program pulumi is not installed here" in done.stderr


def test_a_wrong_definition_is_reported_with_file_and_line(inventory: Path, pulumi: Pulumi) -> None:
    file = inventory / "group_vars/all/cluster.yml"
    file.write_text(file.read_text().replace("max_nodes: 10", "max_nodes: -1"))
    done = ask(inventory, pulumi(UP))
    assert done.returncode != 0
    assert "cluster.yml:" in done.stderr


def test_a_cluster_of_machines_needs_no_such_file(inventory: Path, pulumi: Pulumi) -> None:
    lab = inventory.parent / "lab"
    shutil.copytree(ROOT / "inventories/lab", lab, ignore=shutil.ignore_patterns("secrets.yml"))
    shutil.copy(inventory / "pulumi_stack.yml", lab)
    done = ask(lab, pulumi(UP))
    assert done.returncode != 0
    assert 'Ansible reads "pulumi_stack.yml", which is beside it' in done.stderr
