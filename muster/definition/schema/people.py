"""People, their groups and the accounts that their jobs are charged to."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from muster.definition.schema import patterns
from muster.definition.schema.base import Model, named
from muster.definition.schema.directory import Directory
from muster.definition.schema.limits import Association, Shares
from muster.definition.schema.storage import LEAST_FILES

CONTAINER_IDS = 65536
"""Numbers of a person's range: an image may have files of any user up to nobody, 65534."""
FIRST_CONTAINER_ID = 524288
"""From here on: systemd's UIDS-GIDS.md has this for containers, and sssd takes no more by default
than 59999. The last range ends at 2**31 - 1."""
_RANGES = (2**31 - FIRST_CONTAINER_ID) // CONTAINER_IDS


def first_container_id(uid: int) -> int:
    """Return the first of the numbers that a person has inside of containers (subuid(5)).

    It follows from the uid alone: it is the same on all nodes, and stays when others come and go.
    Two people get one range only where their uids differ by a multiple of 32760.
    """
    return FIRST_CONTAINER_ID + (uid - 1000) % _RANGES * CONTAINER_IDS


class Group(Model):
    """A UNIX group, the same on all hosts."""

    gid: Annotated[int, Field(description="Number of the group, 1000 to 59999 or above 65535.")]


class Person(Model):
    """A login; its primary group has the same name and number."""

    uid: Annotated[
        int,
        Field(
            description="Number of the user and of the user's own group, 1000 to 59999 or above "
            "65535."
        ),
    ]
    groups: Annotated[list[str], Field(description="Further groups.")] = []
    ssh_keys: Annotated[
        list[str],
        Field(
            description="Public keys that may log in, one line each. Keys in homes have no effect."
        ),
    ] = []
    email: Annotated[
        str | None,
        Field(description="Where mail about jobs goes; null: to login@`mail.domain`."),
    ] = None
    shell: Annotated[str, Field(description="Login shell, absolute path.")] = "/bin/bash"
    default_account: Annotated[
        str | None,
        Field(
            description="Account of jobs that name none; null: the first account that lists them."
        ),
    ] = None
    admin: Annotated[
        bool,
        Field(
            description="May log in by ssh to every host, not only to login hosts, and has a local "
            "home on controller, database and storage hosts; in the cloud also root by sudo, with "
            "a key in an ssh agent. On machines of your own, rights of root are given elsewhere."
        ),
    ] = False
    admin_level: Annotated[
        Literal["none", "operator", "administrator"],
        Field(
            description="Rights in SLURM over all jobs and accounts (`AdminLevel`). operator: "
            "accounts, users, limits of others and all jobs; administrator: everything."
        ),
    ] = "none"
    quota_gib: Annotated[
        int | None,
        Field(
            ge=1,
            json_schema_extra={"x-unit": "GiB"},
            description="How much this person's home may hold; null: `storage.home.quota_gib`.",
        ),
    ] = None
    quota_files: Annotated[
        int | None,
        Field(
            ge=LEAST_FILES,
            description="How many files and folders it may have; null: `storage.home.quota_files`.",
        ),
    ] = None
    state: Annotated[
        Literal["present", "absent"],
        Field(description="absent: the login is removed everywhere; home and number are kept."),
    ] = "present"


class Users(Model):
    """Who may use the cluster."""

    groups: Annotated[
        dict[str, Group],
        Field(description="Groups by name.", json_schema_extra=named(patterns.LOGIN_NAME)),
    ] = {}
    people: Annotated[
        dict[str, Person],
        Field(description="People by login name.", json_schema_extra=named(patterns.LOGIN_NAME)),
    ] = {}
    admin_networks: Annotated[
        list[str],
        Field(
            description="Addresses and networks that root and administrators may come from, by ssh "
            "to controller, database and storage hosts; empty: from all but compute nodes. For own "
            "machines: VMs of a cloud are reached through IAP.",
            examples=[["192.0.2.0/24", "2001:db8::7"]],
        ),
    ] = []
    directory: Annotated[
        Directory | None,
        Field(
            description="A directory (LDAP) with more of them; null: there is none. What is in "
            "`people` and `groups` too is taken from there.",
            examples=[
                {
                    "servers": ["ldaps://ldap.example.org"],
                    "base": "dc=example,dc=org",
                    "groups": ["hpc"],
                }
            ],
        ),
    ] = None


class Account(Association):
    """An account of SLURM: a project or team that jobs are charged to."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"users": ["ada"]}]})

    parent: Annotated[str | None, Field(description="Account above this one; null: `root`.")] = None
    fairshare: Annotated[
        Shares, Field(description="Share of the machine, relative to the accounts beside it.")
    ] = 1
    users: Annotated[
        list[str],
        Field(description="People who may charge jobs to it, those of `users.directory` too."),
    ] = []
    coordinators: Annotated[
        list[str],
        Field(
            description="People who may manage it and the accounts below with sacctmgr: users, "
            "limits, and their jobs. What they change by hand is kept unless `accounts_prune` is "
            "true."
        ),
    ] = []
    associations: Annotated[
        dict[str, Association],
        Field(
            description="Limits of some of its `users`, by login, in place of the account's for "
            "each user.",
            examples=[{"ada": {"max_jobs": 4}}],
            json_schema_extra=named(patterns.LOGIN_NAME),
        ),
    ] = {}
    description: Annotated[str, Field(description="Free text, shown by sacctmgr.")] = ""
    organization: Annotated[str, Field(description="Free text, shown by sacctmgr.")] = ""
