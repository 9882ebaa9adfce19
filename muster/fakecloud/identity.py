"""Who calls: bearer tokens -> identities."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from muster.fakecloud.errors import unauthenticated

if TYPE_CHECKING:
    from muster.fakecloud.cloud import Cloud


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller: the email of a service account, or the person who owns the project."""

    email: str
    owner: bool = False


OWNER = Identity("owner@example.com", owner=True)


def identify(_cloud: "Cloud", headers: Mapping[str, str]) -> Identity:
    """The identity behind the Authorization header; header names are lower case."""
    if not headers.get("authorization", "").startswith("Bearer "):
        raise unauthenticated()
    return OWNER
