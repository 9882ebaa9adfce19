"""Who calls: bearer tokens -> identities."""

import secrets
from collections.abc import Iterable, Mapping
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


OWNER_TOKEN = "owner"  # noqa: S105 (what people's tools send here; it opens nothing else)
OWNER = Identity("owner@example.com", owner=True)
LIFETIME_SECONDS = 3600


def issue(
    _cloud: "Cloud",
    _email: str,
    _scopes: Iterable[str],
    _lifetime_seconds: float = LIFETIME_SECONDS,
) -> str:
    """A new access token of a service account; ends `_lifetime_seconds` from now."""
    return f"ya29.{secrets.token_urlsafe(48)}"


def identify(_cloud: "Cloud", headers: Mapping[str, str]) -> Identity:
    """The identity behind the Authorization header; header names are lower case."""
    if not headers.get("authorization", "").startswith("Bearer "):
        raise unauthenticated()
    return OWNER
