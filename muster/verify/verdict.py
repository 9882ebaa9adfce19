"""Judge what the hosts and the controller reported after a play.

Pure: reports in, sentences out. The modules host_report and cluster_report make the reports, and
the role `verify` ends the play with these sentences.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from muster.catalog.hostlists import fold
from muster.verify import alike, reports

MAX_SKEW_SECONDS = 5.0
"""Clocks further apart than this are reported. Munge refuses credentials older than 300 s
(munged(8), TTL) and any from the future; logs and accounting are useless long before."""

HEALTHY = (
    "idle",
    "mixed",
    "allocated",
    "completing",
    "planned",
    "reserved",
    "blocked",
    "maint",
    "powering_up",
    "powering_down",
    "powered_down",
)
"""States of a node that works (sinfo(1), NODE STATE CODES), without their suffix."""

SUFFIXES = "~#!%$@^+-"
"""Flags behind a state, such as ~ for powered down. Not among them: * for not responding."""

NOT_A_PERSON = ("slurm", "unknown", "")
"""Users of a reason that slurmctld gave itself; sinfo says Unknown where there is none."""

HEALTH = "muster: health: "
"""Beginning of the reasons of the role `health`, which drains a node as root."""

REBOOTED = "Node unexpectedly rebooted"
"""slurmctld's reason for a node that SLURM did not reboot, and does not resume by itself."""

SHOWN_UPDATES = 5


def problems(
    hosts: Mapping[str, Mapping[str, Any]],
    cluster: Mapping[str, Any] | None,
    peers: Mapping[str, Sequence[str]],
    absent: Sequence[str] = (),
) -> list[str]:
    """Return a sentence for each thing that is wrong.

    `hosts` holds each host's report and `cluster` the controller's (None if it was not run; with
    `unanswered` it is the report of a host that only asked slurmctld for an answer). `peers` maps a
    node set to the hosts that should be alike; `absent` lists the hosts that this run lost. Of a
    report that can't be right nothing else is judged.
    """
    sentences = [
        f"{host}: not configured in this run (unreachable, or failed above); fix it and run again"
        for host in absent
    ]
    sentences += reports.problems(hosts)
    sound = reports.sound(hosts)
    sentences += _daemons(sound)
    sentences += _clocks(sound)
    sentences += alike.peers(sound, peers)
    sentences += alike.libraries(sound)
    if cluster is not None:
        sentences += _credentials(sound, cluster)
        if "unanswered" in cluster:
            sentences += _answer(hosts, cluster)
        else:
            sentences += _nodes(cluster)
            sentences += _jobs(cluster)
    return sentences


def notes(
    hosts: Mapping[str, Mapping[str, Any]],
    cluster: Mapping[str, Any] | None,
    peers: Mapping[str, Sequence[str]],
) -> list[str]:
    """Return what an administrator may want to know although nothing is wrong.

    Takes the same arguments as `problems`.
    """
    sound = reports.sound(hosts)
    rows = [*alike.other_packages(sound, peers), *_time_sources(sound), *_updates(sound)]
    if cluster is None or "unanswered" in cluster:
        return rows
    rows += [
        f"{node['name']}: {node['state']} by {node['user']}: {node['reason']}"
        for node in _unique(cluster["nodes"])
        if _drained_by_a_person(node)
    ]
    rows += [
        f"partition {name}: no test job ran: its limits take none of root's there, or only one of "
        "more nodes than are idle (with --limit: in this run)"
        for name in cluster["untried"]
    ]
    rows += [
        f"{_place(job)}: no test job ran, for a limit: {job['output']}"
        for job in cluster["jobs"]
        if job.get("limited")
    ]
    if not cluster["jobs"] and not cluster["untried"]:
        rows.append("no idle node to try a job on")
    return rows


def _daemons(hosts: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for host, report in hosts.items():
        for unit, state in report["inactive"].items():
            yield f"{host}: {unit} is {state}; journalctl -u {unit} there says why"
        yield from (f"{host}: {sentence}" for sentence in report["failed"])


def skew(report: Mapping[str, Any]) -> str | None:
    """Return how far a host's clock is off, as `12 s behind`; None within `MAX_SKEW_SECONDS`.

    The host's clock was read between two moments of the control machine's.
    """
    behind = report["earliest"] - report["clock"]
    ahead = report["clock"] - report["latest"]
    seconds = max(behind, ahead)
    if seconds <= MAX_SKEW_SECONDS:
        return None
    return f"{seconds:.0f} s {'behind' if behind > ahead else 'ahead of'}"


def _clocks(hosts: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for host, report in hosts.items():
        off = skew(report)
        if off is not None:
            yield f"{host}: its clock is {off} this machine's; `chronyc tracking` there says why"


def _time_sources(hosts: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    # None: chronyd does not answer, which its unit's state says.
    adrift = [
        host
        for host, report in hosts.items()
        if report["time_sources"] is not None and "*" not in report["time_sources"].values()
    ]
    if adrift:
        yield (
            f"{fold(adrift)}: chronyd follows no time source, so the clock is right by chance; "
            "`chronyc sources` there says why"
        )


def _updates(hosts: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for the hosts that have the same updates to wait for."""
    pending: dict[tuple[str, ...], list[str]] = {}
    for host, report in hosts.items():
        rows = tuple(
            f"{row['package']} {row['version']}{' (security)' if row['security'] else ''}"
            for row in report["updates"]
        )
        if rows:
            pending.setdefault(rows, []).append(host)
    for rows, names in pending.items():
        more = len(rows) - SHOWN_UPDATES
        yield (
            f"{fold(names)}: newer versions of what unattended upgrades leave alone: "
            f"{', '.join(rows[:SHOWN_UPDATES])}{f' and {more} more' if more > 0 else ''}; "
            "install them when no jobs run (`muster updates` has all)"
        )


def _credentials(
    hosts: Mapping[str, Mapping[str, Any]], cluster: Mapping[str, Any]
) -> Iterator[str]:
    for host, report in hosts.items():
        if "error" in report["credential"]:
            yield f"{host}: can't make a munge credential: {report['credential']['error']}"
    alone = "unanswered" in cluster
    for host, reason in cluster["undecoded"].items():
        said = (
            "it can't decode its own munge credential"
            if alone
            else "the controller can't decode its munge credential"
        )
        yield f"{host}: {said}: {reason}; its munge key or its clock differs"


def _answer(hosts: Mapping[str, Mapping[str, Any]], cluster: Mapping[str, Any]) -> Iterator[str]:
    if cluster["unanswered"]:
        yield (
            f"{fold(hosts)}: slurmctld gives no answer ({cluster['unanswered']}); is it up, and "
            "does this host have its munge key? journalctl -u slurmctld on the controller says more"
        )


def _nodes(cluster: Mapping[str, Any]) -> Iterator[str]:
    for node in _unique(cluster["nodes"]):
        state = node["state"].rstrip(SUFFIXES)
        if state in HEALTHY or _drained_by_a_person(node):
            continue
        reason = "" if node["reason"] in ("none", "") else f": {node['reason']}"
        more = (
            f"`scontrol show node {node['name']}` and, on the node, journalctl -u slurmd say more"
        )
        if node["reason"] == REBOOTED:
            more = f"`scontrol update nodename={node['name']} state=resume` takes it back"
        silent = " and does not answer" if node["state"].endswith("*") else ""
        yield f"{node['name']}: the node is {node['state'].rstrip('*')}{silent}{reason}; {more}"


def _jobs(cluster: Mapping[str, Any]) -> Iterator[str]:
    for job in cluster["jobs"]:
        if job.get("limited"):
            continue
        if job["code"] != 0:
            output = job["output"] or "it did not end within its time limit"
            yield f"{_place(job)}: the test job failed: {output}"
        elif job.get("accounted") is False:
            yield f"{_place(job)}: the test job ran but is not in accounting; is slurmdbd up?"


def _place(job: Mapping[str, Any]) -> str:
    return f"partition {job['partition']} on {fold(job['nodes'])}"


def _drained_by_a_person(node: Mapping[str, str]) -> bool:
    # slurmctld drains as SlurmUser; a person who runs scontrol leaves another name.
    no_person = node["user"].lower() in NOT_A_PERSON or node["reason"].startswith(HEALTH)
    return node["state"].startswith("drain") and not no_person


def _unique(nodes: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """Return each node once; sinfo lists it once per partition."""
    ordered = sorted(nodes, key=lambda node: node["name"])
    return [next(rows) for _, rows in groupby(ordered, key=lambda node: node["name"])]
