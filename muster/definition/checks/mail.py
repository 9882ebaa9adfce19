"""Checks of mail."""

from collections.abc import Iterator

from muster.definition.checks.registry import Finding, check
from muster.definition.checks.rows import Spelling, at, table
from muster.definition.definition import Definition
from muster.definition.schema import patterns
from muster.definition.yaml_file import KeyPath


def _sender(d: Definition) -> Iterator[tuple[KeyPath, str]]:
    mail = d.cluster.mail
    # The default is as right as the domain, which another check looks at.
    if mail and mail.sender != f"slurm@{mail.domain}":
        yield ("mail", "sender"), mail.sender


def _domains(d: Definition) -> Iterator[tuple[KeyPath, str]]:
    for path, value in at("mail.domains.[]")(d):
        if value != "*":
            yield path, value


@check("mail-login-unencrypted")
def mail_login_unencrypted(d: Definition) -> Iterator[Finding]:
    """A password for the relay that would go over the network as it is."""
    mail = d.cluster.mail
    if mail and mail.login and mail.tls == "none":
        yield Finding(
            ("mail", "login"),
            "its password would go to the relay unencrypted",
            "set mail.tls to starttls or tls, or mail.port to 587 or 465",
        )


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
    Spelling("mail-domains",
        "A domain for users' mail that can't be what follows the @",
        _domains, patterns.DOMAIN,
        '"{value}" is no domain',
        'write what follows the @, such as example.org, or "*" for any'),
    Spelling("mail-login",
        "A login at the mail relay with signs that its file can't hold",
        at("mail.login"), patterns.MAIL_LOGIN,
        '"{value}" is no login',
        "write it as letters, digits and . _ % + @ -"),
    Spelling("mail-sender",
        "A sender that is no address",
        _sender, patterns.EMAIL,
        '"{value}" is no address',
        "write it as slurm@example.org, or leave it out"),
)
# fmt: on
