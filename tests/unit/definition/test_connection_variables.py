"""The variables with which Ansible connects are known: compared with Ansible's own plugins."""

import pytest
from ansible import constants
from ansible.plugins.loader import become_loader, connection_loader, shell_loader

from muster.definition.checks import connection

PLUGINS = [
    ("connection", "ssh", connection_loader),
    ("connection", "local", connection_loader),
    ("become", "sudo", become_loader),
    ("shell", "sh", shell_loader),
]
# Names of ssh alone for what has a name for all connections too: Muster reads that one. And what is
# of other connections, or what Ansible sets itself.
OTHERS = {
    *("ansible_ssh_host", "ansible_ssh_port", "ansible_ssh_user"),
    *("ansible_docker_extra_args", "ansible_network_os", "ansible_connection_user"),
}


def test_the_known_variables_are_ansible_s() -> None:
    read: set[str] = set().union(*constants.MAGIC_VARIABLE_MAPPING.values())
    for kind, name, loader in PLUGINS:
        assert loader.get(name, class_only=True)  # which reads its options too
        for option in constants.config.get_configuration_definitions(kind, name).values():
            read |= {variable["name"] for variable in option.get("vars", [])}
    read = {name for name in read if name.startswith("ansible_")}
    assert read - connection.KNOWN == OTHERS
    # Of no plugin: Ansible looks for Python before each task.
    assert connection.KNOWN - read == {"ansible_python_interpreter"}


def test_passwords_are_among_them() -> None:
    assert set(connection.PASSWORDS) <= connection.KNOWN


@pytest.mark.parametrize(
    "name", ["mail_password", "site_user", "become", "rack", "ansible_managed"]
)
def test_a_variable_of_a_site_is_none_of_them(name: str) -> None:
    assert connection._meant(name) is None
