"""Checks of mail."""

import re
from collections.abc import Iterator

from muster.definition.checks.registry import Finding, check
from muster.definition.definition import Definition
from muster.definition.schema import patterns


@check("mail-relay")
def mail_relay(d: Definition) -> Iterator[Finding]:
    """A mail relay that is neither a host name nor an address."""
    if d.cluster.mail and not patterns.is_host(d.cluster.mail.relay):
        yield Finding(
            ("mail", "relay"),
            f'"{d.cluster.mail.relay}" is no host',
            "write its name or address alone; the port goes into `port`",
        )


@check("mail-domain")
def mail_domain(d: Definition) -> Iterator[Finding]:
    """A mail domain that can't be what follows the @."""
    if d.cluster.mail and not re.fullmatch(patterns.DOMAIN, d.cluster.mail.domain):
        yield Finding(
            ("mail", "domain"),
            f'"{d.cluster.mail.domain}" is no domain',
            "write what follows the @, such as example.org",
        )


@check("mail-sender")
def mail_sender(d: Definition) -> Iterator[Finding]:
    """A sender that is no address."""
    mail = d.cluster.mail
    if (
        mail
        and not re.fullmatch(patterns.EMAIL, mail.sender)
        and mail.sender != f"slurm@{mail.domain}"
    ):
        yield Finding(
            ("mail", "sender"),
            f'"{mail.sender}" is no address',
            "write it as slurm@example.org, or leave it out",
        )
