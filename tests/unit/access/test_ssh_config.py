"""`muster ssh-config`: what people need to reach a login node."""

import subprocess
import sys
from pathlib import Path

import pytest
from accesskit import NO_STACK, UP, Pulumi

ROOT = Path(__file__).resolve().parents[3]


def muster(env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "muster", "ssh-config", *words],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def as_ssh_reads_it(file: Path, host: str) -> dict[str, str]:
    """What ssh makes of the configuration: its own answer."""
    done = subprocess.run(
        ["ssh", "-G", "-F", str(file), host], capture_output=True, text=True, timeout=10, check=True
    )
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


@pytest.mark.parametrize("name", ["slurm10", "slurm10-login-0"])
def test_ssh_takes_the_way_through_iap(pulumi: Pulumi, tmp_path: Path, name: str) -> None:
    done = muster(pulumi(UP), "cloud", "--user", "ada")
    assert done.returncode == 0, done.stderr
    file = tmp_path / "config"
    file.write_text(done.stdout)
    read = as_ssh_reads_it(file, name)
    assert read["user"] == "ada"
    assert read["proxycommand"] == (
        "gcloud compute start-iap-tunnel slurm10-login-0 22 --listen-on-stdin "
        "--project=my-project --zone=europe-west4-a --verbosity=warning"
    )
    assert read["stricthostkeychecking"] == "accept-new"
    assert read["hostkeyalias"] == "slurm10-login-0.europe-west4-a.my-project"
    assert read["userknownhostsfile"].endswith("/.ssh/known_hosts.muster-slurm10")


def test_each_login_node_has_its_name_and_the_first_the_cluster_s(pulumi: Pulumi) -> None:
    done = muster(pulumi({**UP, "logins": ["slurm10-login-0", "slurm10-login-1"]}), "cloud")
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("Host ")] == [
        "Host slurm10 slurm10-login-0",
        "Host slurm10-login-1",
    ]
    assert "    User " not in done.stdout
    assert "controller" not in done.stdout


def test_write_puts_it_where_ssh_reads_it_and_says_what_is_missing(
    pulumi: Pulumi, tmp_path: Path
) -> None:
    env = pulumi(UP)
    done = muster(env, "cloud", "--user", "ada", "--write")
    assert "Include config.d/*" in done.stdout
    file = tmp_path / ".ssh/config.d/muster-slurm10"
    assert file.read_text() == muster(env, "cloud", "--user", "ada").stdout
    (tmp_path / ".ssh/config").write_text("Include config.d/*\n")
    assert "Include" not in muster(env, "cloud", "--user", "ada", "--write").stdout


@pytest.mark.parametrize(
    ("words", "error", "says"),
    [
        (["cloud"], NO_STACK, "there is no stack slurm10 here"),
        (["cloud", "--user", "nobody2"], "", "nobody in inventories/cloud has the login nobody2"),
        (["lab"], "", "inventories/lab is not in the cloud"),
    ],
)
def test_what_can_not_be_is_one_sentence(
    pulumi: Pulumi, words: list[str], error: str, says: str
) -> None:
    done = muster(pulumi(None if error else UP, error), *words)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
