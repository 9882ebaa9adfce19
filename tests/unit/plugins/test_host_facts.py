"""The first thing that a run asks a host: which system it has."""

import pytest

AS = """
from ansible.module_utils.common import sys_info
sys_info.get_distribution = lambda: {system!r}
sys_info.get_distribution_version = lambda: {version!r}
"""


@pytest.mark.parametrize(
    ("system", "version"), [("Rocky", "9.4"), ("Redhat", "9.4"), ("OpenSuse", "15.6")]
)
def test_a_system_that_muster_does_not_configure_is_refused_first(
    run_module, tmp_path, system: str, version: str
) -> None:
    # No dpkg there: without the refusal the message would be about that.
    done = run_module(
        "host_facts",
        {},
        env={"PATH": str(tmp_path)},
        before=AS.format(system=system, version=version),
    )
    assert done["failed"]
    assert done["msg"] == (
        f"this host runs {system} {version}, which Muster does not configure; "
        "install Debian 12 or 13 on it, or take it out of hosts.yml"
    )


@pytest.mark.parametrize(("system", "version"), [("Debian", "12"), ("Ubuntu", "24.04")])
def test_a_debian_or_ubuntu_tells_its_version(run_module, system: str, version: str) -> None:
    done = run_module("host_facts", {}, before=AS.format(system=system, version=version))
    assert done["ansible_facts"]["distribution"] == system
    assert done["ansible_facts"]["distribution_version"] == version
