"""The numbers that people have inside of containers: definition -> the role `containers`. Pure."""

from typing import Any

from muster.definition import Definition
from muster.definition.schema.people import first_container_id


def subids(definition: Definition) -> list[dict[str, Any]]:
    """Return the range of each person, by its first number; subuid(5) and subgid(5) have the same.

    People of a directory have none: their numbers are not known here.
    """
    return [
        {"name": name, "first": first_container_id(person.uid)}
        for name, person in definition.cluster.users.people.items()
        if person.state == "present"
    ]
