"""Checks of a database server that Muster did not install."""

from collections.abc import Iterator

from muster.definition.checks.registry import Finding, check
from muster.definition.checks.rows import Spelling, at, table
from muster.definition.definition import Definition
from muster.definition.schema import patterns


@check("database-without-slurmdbd", reads_hosts=True)
def database_without_slurmdbd(d: Definition) -> Iterator[Finding]:
    """A database server, and no host for slurmdbd, which writes to it."""
    if d.cluster.database and not d.cluster.cloud and not d.hosts.groups.get("database"):
        yield Finding(
            ("database",),
            "no host is in the group `database`, and cluster.yml has a database server",
            "add the host that slurmdbd runs on; it may be the controller",
            "hosts",
        )


@check("database-in-the-cloud")
def database_in_the_cloud(d: Definition) -> Iterator[Finding]:
    """A database server for a cluster in the cloud, whose controller has its own."""
    if d.cluster.database and d.cluster.cloud:
        yield Finding(
            ("database",),
            "in the cloud the database is on the controller's state disk",
            "remove `database`",
        )


@check("database-is-muster-s", reads_hosts=True)
def database_is_muster_s(d: Definition) -> Iterator[Finding]:
    """A database server that is the host on which Muster would install one by itself."""
    server = d.cluster.database
    if server is None:
        return
    for host in d.hosts.groups.get("database", ()):
        address = d.hosts.vars.get(host, {}).get("ansible_host")
        if server.host in {host, address, "localhost", "127.0.0.1", "::1"}:
            yield Finding(
                ("database", "host"),
                f'"{server.host}" is the host that runs slurmdbd',
                "remove `database`: Muster installs MariaDB there, and leaves other databases of "
                "a MariaDB that is there alone",
            )


# fmt: off
table(
    Spelling("database-host",
        "A database server that is neither a host name nor an address",
        at("database.host"), patterns.is_host,
        '"{value}" is no host',
        "write its name or address alone; the port goes into `port`"),
    Spelling("database-name",
        "A name of a database that needs quotes",
        at("database.name"), patterns.DATABASE_NAME,
        '"{value}" is no name that slurmdbd can use for a database',
        "write it as letters, digits and _, at most 64"),
    Spelling("database-login",
        "A user of the database server with signs that slurmdbd.conf can't hold",
        at("database.login"), patterns.DATABASE_LOGIN,
        '"{value}" is no name that slurmdbd can use for a user',
        "write it as letters, digits and . _ -, at most 32"),
)
# fmt: on
