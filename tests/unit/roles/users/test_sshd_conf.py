"""Whom sshd refuses, by the role's variables."""

import configparser
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

ROLE = Path(__file__).parents[4] / "roles/users"
VARIABLES: dict[str, Any] = {
    **yaml.safe_load((ROLE / "defaults/main.yml").read_text()),
    "ansible_managed": "Written by a test",
    "__users_barred": [],
}
OWN = ["192.0.2.0/24", "2001:db8::7"]


def matches(**changed: Any) -> dict[str, list[str]]:
    """Return the lines below each Match of the file."""
    environment = Environment(
        loader=FileSystemLoader(ROLE / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        autoescape=False,  # noqa: S701 - no HTML
    )
    environment.filters["comment"] = lambda text: f"# {text}"
    template = environment.get_template("etc/ssh/sshd_config.d/50-muster.conf.j2")
    blocks: dict[str, list[str]] = {}
    where = ""
    for line in template.render({**VARIABLES, **changed}).splitlines():
        if line.startswith("Match "):
            where = line.removeprefix("Match ")
        elif line and not line.startswith("#"):
            blocks.setdefault(where, []).append(line.strip())
    return blocks


def test_administrators_come_from_their_networks_and_from_no_node() -> None:
    blocks = matches(
        users_admin_logins=["root", "ada"],
        users_refused_from=["192.0.2.21"],
        users_admin_networks=OWN,
        __users_barred=["bob"],
    )
    # A list of DenyUsers below Match takes the place of the one above.
    refused = ["DenyUsers bob root ada"]
    assert blocks["Address 192.0.2.21"] == refused
    assert blocks["Address *,!192.0.2.0/24,!2001:db8::7"] == refused


def test_without_networks_they_come_from_everywhere_but_nodes() -> None:
    blocks = matches(users_admin_logins=["root"], users_refused_from=["192.0.2.21"])
    assert set(blocks) == {"", "User root", "Address 192.0.2.21"}


def test_networks_say_nothing_where_there_are_no_administrators() -> None:
    assert set(matches(users_admin_networks=OWN)) == {"", "User root"}


def test_no_address_alone_takes_all_connections() -> None:
    options = dict(line.split(" ", 1) for line in matches()[""])
    bound = int(options["PerSourceMaxStartups"])
    # From the first number on sshd refuses some at random, at the last one all.
    some, _, all_of_them = map(int, options["MaxStartups"].split(":"))
    assert 3 * bound < some
    assert 10 * bound <= all_of_them
    # Through a jump host the connections to all hosts come to it from one address.
    forks = configparser.ConfigParser(interpolation=None)
    forks.read(ROLE.parents[1] / "ansible.cfg")
    assert bound > forks.getint("defaults", "forks")
