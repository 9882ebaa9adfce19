#!/usr/bin/python3 -I
# SPDX-License-Identifier: Apache-2.0
"""Which packages are kept from unattended upgrades and have a newer version. Changes no package.

    muster-updates             what is pending, for people
    muster-updates --json      the same for programs
    muster-updates --metrics   write the numbers where Prometheus's node exporter reads them

apt knows of new versions since the last `apt-get update`. Without root too, but for --metrics.
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

UPDATED = Path("/var/lib/muster/apt-updated")
"""Touched by apt after each successful update: /etc/apt/apt.conf.d/52muster."""
METRICS = Path("/var/lib/prometheus/node-exporter/muster_updates.prom")
"""In the folder that Debian's prometheus-node-exporter reads; no file is written without it."""
KEPT = "Unattended-Upgrade::Package-Blacklist"
DAY_S = 86400


class Update(NamedTuple):
    """A package with a newer version than the installed one."""

    package: str
    installed: str
    version: str
    """The newest."""
    archive: str
    """Where that is, such as bookworm/main."""
    security: bool
    """Whether a version that is newer than the installed one comes from a security archive."""


def output(*command: str) -> str:
    """Return what a command prints in English.

    Raises:
        CalledProcessError: it failed.

    """
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "LANGUAGE": "C"}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout


def kept(dump: str) -> list[str]:
    """Return the patterns in what `apt-config dump` prints of the list."""
    return re.findall(rf'^{KEPT}:: "(.*)";$', dump, re.MULTILINE)


def names(installed: str, patterns: list[str]) -> list[str]:
    """Return the installed packages that a pattern matches at the start, as unattended-upgrades.

    `installed` is `ii NAME` a line.
    """
    rows = (line.split() for line in installed.splitlines())
    packages = {row[1] for row in rows if len(row) == 2 and row[0] == "ii"}
    return sorted(name for name in packages if any(re.match(part, name) for part in patterns))


def pending(policy: str) -> list[Update]:
    """Return the updates in what `apt-cache policy PACKAGE...` prints.

    A version that apt is told not to install, such as one of another branch of NVIDIA's driver, is
    none.
    """
    updates = []
    for block in re.split(r"^(?=\S)", policy, flags=re.MULTILINE):
        head, _, versions = block.partition("  Version table:\n")
        candidate = re.search(r"^  Candidate: (\S+)$", head, re.MULTILINE)
        archives: list[str] = []
        is_newer = False
        # Versions come from new to old; *** marks the installed one.
        for line in versions.splitlines():
            if match := re.match(r" \*\*\* (\S+)", line):
                if candidate and archives:
                    package = head.partition(":\n")[0]
                    security = any(name.split("/")[0].endswith("-security") for name in archives)
                    updates.append(Update(package, match[1], candidate[1], archives[0], security))
                break
            if match := re.match(r"     (\S+)", line):
                is_newer = is_newer or bool(candidate and match[1] == candidate[1])
            # `500 http://archive.example.org/debian bookworm/main amd64 Packages`
            elif is_newer and (match := re.match(r"\s+-?\d+ (\S+)(?: (\S+) \S+ Packages)?", line)):
                archives.append(match[2] or match[1])
    return updates


def updated(stamp: Path) -> float | None:
    """Return when apt's lists were updated, in seconds since 1970; None where it is not known."""
    try:
        return stamp.stat().st_mtime
    except FileNotFoundError:
        return None


def metrics(updates: list[Update], listed: float | None) -> str:
    """Return the numbers as Prometheus reads them; 0 is the time of lists of unknown age."""
    lines = [
        "# HELP muster_pending_updates Packages that are kept and have a newer version.",
        "# TYPE muster_pending_updates gauge",
    ]
    for security in (True, False):
        number = sum(update.security is security for update in updates)
        lines.append(f'muster_pending_updates{{security="{str(security).lower()}"}} {number}')
    lines += [
        "# HELP muster_package_lists_updated_seconds When apt last asked for new versions.",
        "# TYPE muster_package_lists_updated_seconds gauge",
        f"muster_package_lists_updated_seconds {int(listed or 0)}",
    ]
    return "\n".join(lines) + "\n"


def text(updates: list[Update], days: int | None) -> str:
    """Return what people read."""
    lines = [
        f"{update.package} {update.installed}: {update.version} in {update.archive}"
        f"{' (security)' if update.security else ''}"
        for update in updates
    ] or ["no newer version of a package that is kept from unattended upgrades"]
    since = (
        "it is not known when apt's lists were updated"
        if days is None
        else (f"apt's lists are {days} days old" if days else "apt's lists are of today")
    )
    return "\n".join([*lines, since]) + "\n"


def write(path: Path, content: str) -> None:
    """Put a file in place at once, for readers at any time."""
    new = path.with_name(path.name + ".new")
    new.write_text(content, encoding="utf-8")
    new.chmod(0o644)
    os.replace(new, path)


def main(words: list[str]) -> int:
    """Run as the command line says; return the exit status."""
    if words not in ([], ["--json"], ["--metrics"]):
        print(__doc__, file=sys.stderr)
        return 2
    if words == ["--metrics"] and not METRICS.parent.is_dir():
        return 0
    try:
        patterns = kept(output("apt-config", "dump", KEPT))
        installed = output("dpkg-query", "-W", "-f=${db:Status-Abbrev} ${Package}\n")
        found = names(installed, patterns)
        updates = pending(output("apt-cache", "policy", *found)) if found else []
    except subprocess.CalledProcessError as error:
        print(f"{error.cmd[0]}: {error.stderr.strip()}", file=sys.stderr)
        return 1
    listed = updated(UPDATED)
    days = None if listed is None else int((time.time() - listed) // DAY_S)
    if words == ["--json"]:
        rows = [update._asdict() for update in updates]
        print(json.dumps({"updates": rows, "lists_days": days}))
    elif words == ["--metrics"]:
        write(METRICS, metrics(updates, listed))
    else:
        print(text(updates, days), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
