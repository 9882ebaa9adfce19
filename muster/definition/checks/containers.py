"""Checks of containers in jobs: where they can run, and the numbers that people have inside."""

from collections.abc import Iterator

from muster.definition.checks.registry import Finding, check
from muster.definition.definition import Definition
from muster.definition.schema.people import FIRST_CONTAINER_ID, first_container_id
from muster.definition.yaml_file import KeyPath

_KEY = ("storage", "images")


@check("containers-impossible")
def containers_impossible(d: Definition) -> Iterator[Finding]:
    """A store of images where no job can run them."""
    cluster = d.cluster
    if cluster.storage.images is None:
        return
    if cluster.cloud:
        yield Finding(
            _KEY,
            "VMs of the cloud give nobody numbers inside of containers, which run none",
            "leave it out",
        )
    elif cluster.os == "ubuntu-22.04":
        yield Finding(
            _KEY,
            "podman of ubuntu-22.04 knows neither netavark nor devices by CDI",
            "leave it out, or take a later system",
        )


def _numbers(d: Definition) -> Iterator[tuple[KeyPath, int]]:
    """Each number of a person, a group, or a directory at most."""
    users = d.cluster.users
    for name, person in users.people.items():
        yield ("users", "people", name, "uid"), person.uid
    for name, group in users.groups.items():
        yield ("users", "groups", name, "gid"), group.gid
    if users.directory is not None:
        yield ("users", "directory", "max_id"), users.directory.max_id


@check("container-number-taken")
def container_number_taken(d: Definition) -> Iterator[Finding]:
    """A number from those that people have inside of containers: they could be who has it."""
    if d.cluster.storage.images is None:
        return
    for path, number in _numbers(d):
        if number >= FIRST_CONTAINER_ID:
            yield Finding(
                path,
                f"{number} is one of the numbers inside of containers (storage.images), from "
                f"{FIRST_CONTAINER_ID} on",
                f"take one below {FIRST_CONTAINER_ID}, or leave storage.images out",
                because=_KEY,
            )


@check("container-numbers-twice")
def container_numbers_twice(d: Definition) -> Iterator[Finding]:
    """Two people with the same numbers inside of containers: each could read the other's files."""
    if d.cluster.storage.images is None:
        return
    owners: dict[int, str] = {}
    for name, person in d.cluster.users.people.items():
        if person.state == "absent":
            continue
        other = owners.setdefault(first_container_id(person.uid), name)
        if other != name:
            yield Finding(
                ("users", "people", name, "uid"),
                f"{person.uid} gives {name} the numbers inside of containers (storage.images) that "
                f"{other} has",
                "take another uid",
                because=_KEY,
            )
