"""What the role base says when apt fails: the reason that apt gave, and no other."""

from pathlib import Path

import pytest
import yaml
from ansible.plugins.test.core import search
from jinja2 import Environment

INSTALL = Path(__file__).parents[3] / "roles" / "base" / "tasks" / "install.yml"
COMMAND = (
    "'/usr/bin/apt-get -y -o \"DPkg::Lock::Timeout=300\" --no-remove install 'chrony'' failed: "
)


def said(msg: str, stderr: str = "") -> str:
    """The role's sentence for what the apt module returned."""
    tasks = yaml.safe_load(INSTALL.read_text(encoding="utf-8"))
    block = next(task for task in tasks if "rescue" in task)
    variables = block["rescue"][0]["vars"]
    environment = Environment(autoescape=False)  # noqa: S701 (no HTML)
    environment.tests["search"] = search
    failed = {"msg": msg, "stderr": stderr, "invocation": {"lock_timeout": 300}}
    heard = environment.from_string(variables["__base_apt_said"]).render(
        ansible_failed_result=failed
    )
    return environment.from_string(variables["__base_apt_trouble"]).render(__base_apt_said=heard)


@pytest.mark.parametrize(
    ("apt", "sentence"),
    [
        ("E: You don't have enough free space in /var/cache/apt/archives/.", "the disk is full"),
        (
            "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 4711",
            "another run of apt holds its lock",
        ),
        ("E: Unable to lock directory /var/lib/apt/lists/", "another run of apt holds its lock"),
        (
            "E: Packages need to be removed but remove is disabled.",
            "apt can not install packages",
        ),
        ("E: Unable to locate package chrony", "apt can not install packages"),
    ],
)
def test_sentence_fits_what_apt_said(apt, sentence):
    assert said(COMMAND + apt, apt).startswith(sentence)


def test_missing_python_module_is_named():
    msg = "python3-apt must be installed to use check mode. If run normally it is installed."
    assert said(msg).startswith("python3-apt is missing")
