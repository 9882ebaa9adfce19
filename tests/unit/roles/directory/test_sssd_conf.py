"""What sssd.conf says by the role's variables."""

import configparser
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

ROLE = Path(__file__).parents[4] / "roles/directory"
VARIABLES: dict[str, Any] = {
    **yaml.safe_load((ROLE / "defaults/main.yml").read_text()),
    "directory_servers": ["ldaps://ldap1.example.org", "ldap://ldap2.example.org"],
    "directory_base": "dc=example,dc=org",
    "directory_groups": ["hpc", "guests"],
    "ansible_managed": "Written by a test",
    "__directory_ca_file": "/etc/muster/directory-ca.pem",
    "__directory_password_conf": "/etc/sssd/conf.d/50-muster-password.conf",
}


def rendered(**changed: Any) -> configparser.ConfigParser:
    environment = Environment(
        loader=FileSystemLoader(ROLE / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        autoescape=False,  # noqa: S701 - no HTML
    )
    environment.filters["comment"] = lambda text: f"# {text}"
    text = environment.get_template("etc/sssd/sssd.conf.j2").render({**VARIABLES, **changed})
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(text)
    return parser


def test_members_of_the_groups_log_in_where_they_may() -> None:
    domain = rendered(directory_login=True)["domain/directory"]
    assert domain["access_provider"] == "simple"
    assert domain["simple_allow_groups"] == "hpc, guests"


def test_elsewhere_nobody_does() -> None:
    domain = rendered()["domain/directory"]
    assert domain["access_provider"] == "deny"
    assert "simple_allow_groups" not in domain


@pytest.mark.parametrize("login", [True, False])
def test_passwords_and_rights_of_the_directory_count_nowhere(login: bool) -> None:
    domain = rendered(directory_login=login)["domain/directory"]
    assert {domain[key] for key in ("auth_provider", "chpass_provider", "sudo_provider")} == {
        "none"
    }


def test_connections_are_encrypted_and_certificates_verified() -> None:
    domain = rendered()["domain/directory"]
    assert domain["ldap_id_use_start_tls"] == "true"
    assert domain["ldap_tls_reqcert"] == "demand"
    assert domain["ldap_tls_cacert"] == "/etc/ssl/certs/ca-certificates.crt"
    own = rendered(directory_ca="-----BEGIN CERTIFICATE-----")["domain/directory"]
    assert own["ldap_tls_cacert"] == "/etc/muster/directory-ca.pem"


def test_the_host_s_own_names_are_not_looked_for() -> None:
    given = rendered(directory_hidden_users=["ada"], directory_hidden_groups=["ml", "ada"])["nss"]
    assert given["filter_users"] == "root, ada"
    assert given["filter_groups"] == "root, ml, ada"


def test_nobody_is_root_by_a_group_of_the_directory() -> None:
    assert {"root", "sudo", "wheel"} <= {*rendered()["nss"]["filter_groups"].split(", ")}


def test_numbers_of_the_system_belong_to_nobody() -> None:
    domain = rendered()["domain/directory"]
    assert (domain["min_id"], domain["max_id"]) == ("1000", "59999")


def test_the_host_that_makes_homes_hears_soon_of_new_members() -> None:
    parser = rendered(directory_create_homes=True, directory_home_root="/srv/home")
    assert parser["domain/directory"]["entry_cache_group_timeout"] == "30"
    assert parser["nss"]["memcache_timeout"] == "30"
    assert parser["nss"]["override_homedir"] == "/srv/home/%u"
