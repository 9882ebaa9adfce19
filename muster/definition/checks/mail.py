"""Checks of mail."""

from collections.abc import Iterator

from muster.definition.checks.rows import Spelling, at, table
from muster.definition.definition import Definition
from muster.definition.schema import patterns
from muster.definition.yaml_file import KeyPath


def _sender(d: Definition) -> Iterator[tuple[KeyPath, str]]:
    mail = d.cluster.mail
    # The default is as right as the domain, which another check looks at.
    if mail and mail.sender != f"slurm@{mail.domain}":
        yield ("mail", "sender"), mail.sender


# fmt: off
table(
    Spelling("mail-relay",
        "A mail relay that is neither a host name nor an address",
        at("mail.relay"), patterns.is_host,
        '"{value}" is no host',
        "write its name or address alone; the port goes into `port`"),
    Spelling("mail-domain",
        "A mail domain that can't be what follows the @",
        at("mail.domain"), patterns.DOMAIN,
        '"{value}" is no domain',
        "write what follows the @, such as example.org"),
    Spelling("mail-sender",
        "A sender that is no address",
        _sender, patterns.EMAIL,
        '"{value}" is no address',
        "write it as slurm@example.org, or leave it out"),
)
# fmt: on
