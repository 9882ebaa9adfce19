#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Provide one database of MariaDB and the user who owns it, in one module run."""

import hashlib
import re
import shutil
import subprocess

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.refused_error import RefusedError

DOCUMENTATION = r"""
module: mariadb_database
short_description: Provide a database and the one user who owns it
description:
  - Makes the database if it is absent (it is never dropped) and gives one user all privileges on it
    and none elsewhere, from exactly the named hosts.
  - Runs the C(mariadb) client as root over the local socket, so it needs no Python driver on the
    host. The server gets the hash of the password, on the client's standard input; the password
    itself reaches neither a process argument nor a log of the server.
options:
  name:
    description: The database.
    type: str
    required: true
  user:
    description: The user.
    type: str
    required: true
  hosts:
    description:
      - Hosts the user may come from, as MariaDB writes them. The user is dropped for all others.
    type: list
    elements: str
    default: [localhost]
  password:
    description: Password of the user.
    type: str
    required: true
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Provide slurmdbd's database
  muster.slurm.mariadb_database:
    name: slurm_acct_db
    user: slurm
    password: "{{ mariadb_password }}"
  no_log: true
"""

RETURN = r"""
database_created:
  description: Whether the database was made, or would be in check mode.
  type: bool
  returned: always
"""

TIMEOUT_SECONDS = 60
# Characters allowed in a name: none needs to be escaped inside SQL quotes.
NAME = re.compile(r"[A-Za-z0-9_]{1,64}")
HOST = re.compile(r"[A-Za-z0-9_.:%/-]{1,255}")


Grants = dict[str, list[str]]
"""Host -> what SHOW GRANTS says of a user there."""


def password_hash(password: str) -> str:
    """Return what MariaDB stores for `password` (plugin mysql_native_password)."""
    once = hashlib.sha1(password.encode()).digest()  # noqa: S324 - the server's own scheme
    return "*" + hashlib.sha1(once).hexdigest().upper()  # noqa: S324


def ask(sql: str) -> list[list[str]]:
    """Run `sql` as root over the local socket; return the rows as lists of text.

    Raises:
        RefusedError: there is no client or server, or the server refused.

    """
    client = shutil.which("mariadb")
    if client is None:
        raise RefusedError("no `mariadb` client on this host; install mariadb-server first")
    try:
        done = subprocess.run(
            [client, "--batch", "--raw", "--skip-column-names", "--protocol=socket"],
            input=sql,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RefusedError(
            f"MariaDB did not answer within {TIMEOUT_SECONDS} s; see journalctl -u mariadb"
        ) from error
    if done.returncode != 0:
        raise RefusedError(
            f"MariaDB refused: {done.stderr.strip()}; this needs root on the database host and "
            "a running server (systemctl status mariadb)"
        )
    return [line.split("\t") for line in done.stdout.splitlines()]


def wanted_grants(name: str, user: str, host: str, hashed: str) -> list[str]:
    """Return what SHOW GRANTS must answer for this user and host."""
    # In a GRANT `_` matches any character; MariaDB shows the escape as it was given.
    pattern = name.replace("_", r"\_")
    return [
        f"GRANT USAGE ON *.* TO `{user}`@`{host}` IDENTIFIED BY PASSWORD '{hashed}'",
        f"GRANT ALL PRIVILEGES ON `{pattern}`.* TO `{user}`@`{host}`",
    ]


def read(name: str, user: str) -> tuple[bool, Grants]:
    """Return whether the database exists, and the user's grants."""
    # `checked` let these names pass: nothing in them ends a quote.
    schemata = "information_schema.SCHEMATA"
    databases = f"SELECT 'database' FROM {schemata} WHERE SCHEMA_NAME = '{name}';"  # noqa: S608
    users = f"SELECT 'host', Host FROM mysql.user WHERE User = '{user}' ORDER BY Host;"  # noqa: S608
    rows = ask(f"{databases}\n{users}")
    hosts = [row[1] for row in rows if row[0] == "host"]
    grants = {
        host: [row[0] for row in ask(f"SHOW GRANTS FOR '{user}'@'{host}';")] for host in hosts
    }
    return ["database"] in rows, grants


def privileges(grant: str) -> str:
    """Return a line of SHOW GRANTS without how the user logs in."""
    return grant.partition(" IDENTIFIED ")[0]


def statements(name: str, user: str, wanted: Grants, exists: bool, current: Grants) -> list[str]:
    """Return the SQL that leads from the current grants to the wanted ones."""
    sql = [] if exists else [f"CREATE DATABASE `{name}`;"]
    sql += [f"DROP USER '{user}'@'{host}';" for host in current if host not in wanted]
    for host, grants in wanted.items():
        account = f"'{user}'@'{host}'"
        have = current.get(host, [])
        hashed = grants[0].rsplit("'", 2)[1]
        login = f"{account} IDENTIFIED VIA mysql_native_password USING '{hashed}';"
        if not have:
            sql.append(f"CREATE USER {login}")
        elif grants[0] not in have:
            sql.append(f"ALTER USER {login}")
        too_much = {privileges(line) for line in have} - {privileges(line) for line in grants}
        if too_much:
            sql.append(f"REVOKE ALL PRIVILEGES, GRANT OPTION FROM {account};")
        if too_much or grants[1] not in have:
            sql.append(grants[1].replace(f"`{user}`@`{host}`", account) + ";")
    return sql


def shown(exists: bool, grants: Grants, name: str) -> str:
    """Return a state as the lines of a diff, without the hashes."""
    lines = [f"database {name}"] if exists else []
    for host in sorted(grants):
        lines += [privileges(line) for line in grants[host]]
    return "".join(line + "\n" for line in lines)


def checked(pattern: re.Pattern[str], what: str, value: str) -> str:
    """Return `value` if it is a name that needs no quoting."""
    if not pattern.fullmatch(value):
        raise RefusedError(
            f'{what} "{value}" holds characters that are not allowed in it; choose another'
        )
    return value


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "user": {"type": "str", "required": True},
            "hosts": {"type": "list", "elements": "str", "default": ["localhost"]},
            "password": {"type": "str", "required": True, "no_log": True},
        },
        supports_check_mode=True,
    )
    try:
        name = checked(NAME, "database name", module.params["name"])
        user = checked(NAME, "database user", module.params["user"])
        hosts = [
            checked(HOST, "host of the database user", host) for host in module.params["hosts"]
        ]
        hashed = password_hash(module.params["password"])
        wanted = {host: wanted_grants(name, user, host, hashed) for host in hosts}
        try:
            exists, current = read(name, user)
        except RefusedError:
            # In check mode on a fresh host there is no server yet: everything will be made.
            if not module.check_mode:
                raise
            exists, current = False, {}
        sql = statements(name, user, wanted, exists, current)
        if sql and not module.check_mode:
            ask("\n".join(sql))
            if read(name, user) != (True, wanted):
                raise RefusedError(
                    f"MariaDB took the changes for user {user} and still shows other grants; "
                    f"compare SHOW GRANTS FOR '{user}'@'{hosts[0]}'"
                )
    except RefusedError as error:
        module.fail_json(msg=str(error))
    before, after = shown(exists, current, name), shown(True, wanted, name)
    if sql and before == after:
        after += "(the password changes)\n"
    module.exit_json(
        changed=bool(sql),
        database_created=not exists,
        diff={
            "before_header": "MariaDB",
            "after_header": "MariaDB",
            "before": before,
            "after": after,
        },
    )


if __name__ == "__main__":
    main()
