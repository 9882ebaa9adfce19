"""People and groups of a directory that is there already."""

from typing import Annotated, Literal

from pydantic import Field

from muster.definition.schema.base import Model


class Directory(Model):
    """A directory (LDAP) whose people may use the cluster, beside those of `people`."""

    servers: Annotated[
        list[str],
        Field(
            description="Its servers, the first that answers is asked: `ldaps://HOST`, or "
            "`ldap://HOST`, which is encrypted too (StartTLS). Certificates are always verified."
        ),
    ]
    base: Annotated[
        str,
        Field(
            description="Where its people and groups are, a distinguished name such as "
            "`dc=example,dc=org`."
        ),
    ]
    bind_dn: Annotated[
        str | None,
        Field(
            description="Entry that the hosts read it as, whose password is "
            "`secrets.directory_password`; null: without a login."
        ),
    ] = None
    ca: Annotated[
        str | None,
        Field(
            description="Certificate of the authority that signed those of the servers, as PEM "
            "text; null: one that the hosts trust already."
        ),
    ] = None
    ldap_schema: Annotated[
        Literal["rfc2307", "rfc2307bis"],
        Field(
            description="How a group names its members: rfc2307, by login (`memberUid`); "
            "rfc2307bis, by entry (`member`)."
        ),
    ] = "rfc2307"
    groups: Annotated[
        list[str],
        Field(
            description="Groups of the directory whose members may log in, where people of "
            "`people` may, and get a home. Nobody else of it does."
        ),
    ]
    min_id: Annotated[
        int,
        Field(
            description="Smallest number of its people and groups; one with a smaller number does "
            "not exist on the hosts."
        ),
    ] = 1000
    max_id: Annotated[int, Field(description="Largest number, likewise.")] = 59999
