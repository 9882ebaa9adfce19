"""What people see of quotas on a host without any; limits are tried in tests/vm."""

import pytest


@pytest.fixture
def as_person(host):
    """Return what runs a command as somebody without rights."""
    return lambda command: host.run(f"runuser -u nobody -- env HOME=/tmp {command}")


def test_a_person_without_quotas_is_told_so(as_person):
    done = as_person("muster-quota")
    assert (done.rc, done.stdout, done.stderr) == (0, "You have no quota here.\n", "")


def test_nothing_is_said_at_login_without_quotas(as_person):
    assert "nearly full" not in as_person("bash -lic 'echo in'").stdout
    assert "muster-quota" in as_person("bash -lxic true").stderr


def test_a_wrong_option_is_one_sentence(as_person):
    done = as_person("muster-quota --all")
    assert (done.rc, done.stderr) == (2, "usage: muster-quota [--near]\n")
