"""The cluster that `cephadm bootstrap` makes on such a machine, and `ceph`, which asks it.

Answers have the shape that Ceph 16.2 and 18.2 give them.
"""

import argparse
import base64
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

STATE = Path("/var/lib/stand-in")
CLUSTER = STATE / "cluster.json"
KEY = STATE / "id_ed25519"
ETC = Path("/etc/ceph")
VERSION = "ceph version 18.2.7 (6b0e988052ec84cf2d4a54ff9bbbc5e720b621ad) reef (stable)"


Cluster = dict[str, Any]
"""The file of the cluster: what Ceph would answer, by kind."""


def fail(code: int, said: str) -> NoReturn:
    print(said, file=sys.stderr)
    sys.exit(code)


def read(path: Path, otherwise: Any) -> Any:
    return json.loads(path.read_text()) if path.exists() else otherwise


def write(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=1))


def new_key() -> str:
    """A key as Ceph makes them: type, time, length, secret."""
    head = (1).to_bytes(2, "little") + int(time.time()).to_bytes(4, "little") + bytes(4)
    return base64.b64encode(head + (16).to_bytes(2, "little") + os.urandom(16)).decode()


def reach(address: str, *command: str) -> str:
    """Run a command on a host as the manager does: by its key, and as root by sudo."""
    options = ("BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null")
    flags = [word for option in options for word in ("-o", option)]
    user = read(CLUSTER, {})["user"]
    done = subprocess.run(
        ["ssh", "-i", str(KEY), *flags, f"{user}@{address}", "sudo", "-n", *command],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        fail(22, f"Error EINVAL: Failed to connect to {address}. {done.stderr.strip()}")
    return done.stdout.strip()


def entry(name: str, key: str, caps: dict[str, str]) -> dict[str, Any]:
    return {"entity": name, "key": key, "caps": caps}


def apply(specs: list[dict[str, Any]]) -> None:
    """Place hosts and services, as the manager's orchestrator does over time."""
    cluster = read(CLUSTER, {})
    hosts = {host["hostname"]: host for host in cluster["hosts"]}
    for spec in specs:
        if spec["service_type"] == "host":
            name = reach(spec["addr"], "hostname")
            if name != spec["hostname"]:
                fail(22, f"Error EINVAL: hostname {name} does not match {spec['hostname']}")
            hosts[name] = {key: spec[key] for key in ("hostname", "addr", "labels")} | {
                "status": ""
            }
            continue
        placed = [hosts[name] for name in spec["placement"]["hosts"]]
        name = ".".join(filter(None, (spec["service_type"], spec.get("service_id"))))
        if spec["service_type"] == "osd":
            spec["spec"] |= {"filter_logic": "AND", "objectstore": "bluestore"}
            for host in placed:
                for device in spec["spec"]["data_devices"]["paths"]:
                    osd(cluster, host, device)
        cluster["services"] = [
            *(service for service in cluster["services"] if service["service_name"] != name),
            {**spec, "service_name": name},
        ]
    write(CLUSTER, {**cluster, "hosts": list(hosts.values())})


def osd(cluster: Cluster, host: dict[str, Any], device: str) -> None:
    """Make an OSD on a host's device unless there is one."""
    place = f"{host['hostname']}:{device}"
    if place not in cluster["osds"]:
        number = len(cluster["osds"])
        reach(host["addr"], "/usr/local/sbin/lvs", "--make", device, str(number), cluster["fsid"])
        cluster["osds"][place] = number


def tree(cluster: Cluster) -> dict[str, Any]:
    hosts: dict[str, list[int]] = {}
    for place, number in cluster["osds"].items():
        hosts.setdefault(place.split(":")[0], []).append(number)
    nodes = [
        {"id": -index, "name": name, "type": "host", "children": ids}
        for index, (name, ids) in enumerate(hosts.items(), 2)
    ]
    osds = cluster["osds"].values()
    nodes += [{"id": id_, "name": f"osd.{id_}", "type": "osd", "status": "up"} for id_ in osds]
    return {"nodes": nodes, "stray": []}


def shown(spec: dict[str, Any]) -> dict[str, Any]:
    size = len(spec["placement"].get("hosts", []))
    return {**spec, "status": {"running": size, "size": size}}


def answers(cluster: Cluster) -> dict[str, Any]:
    """What is asked with `--format json`."""
    return {
        "versions": {"mon": {VERSION: 1}, "mgr": {VERSION: 1}},
        "config dump": cluster["config"],
        "auth ls": {"auth_dump": cluster["auth"]},
        "fs dump": {
            "filesystems": [{"mdsmap": filesystem} for filesystem in cluster["filesystems"]]
        },
        "health detail": {"status": "HEALTH_OK", "checks": {}, "mutes": []},
        "osd crush rule dump": cluster["rules"],
        "osd dump": {"osds": [{"osd": n, "up": 1, "in": 1} for n in cluster["osds"].values()]},
        "osd pool ls detail": cluster["pools"],
        "osd tree": tree(cluster),
        "orch host ls": cluster["hosts"],
        "orch ls": [shown(spec) for spec in cluster["services"]],
        "orch ls --export": cluster["services"],
    }


def tell(cluster: Cluster, words: list[str]) -> bool:
    """Run a command; False for an unknown one."""
    match words:
        case ["config", "set", section, name, value]:
            which = {"section": section, "name": name}
            rest = [known for known in cluster["config"] if not which.items() <= known.items()]
            cluster["config"] = [*rest, {**which, "value": value}]
        case ["osd", "crush", "rule", "create-replicated", name, "default", "host" | "osd"]:
            cluster["rules"].append({"rule_name": name, "rule_id": len(cluster["rules"])})
        case ["osd", "pool", "create", name, *_, "replicated", rule]:
            number = next(
                known["rule_id"] for known in cluster["rules"] if known["rule_name"] == rule
            )
            settings = {"size": 3, "min_size": 2, "pg_autoscale_mode": "on"}
            pool = {"pool_name": name, "crush_rule": number, "flags_names": "hashpspool"}
            cluster["pools"].append({**pool, **settings})
        case ["osd", "pool", "set", name, "bulk", "true"]:
            named(cluster["pools"], "pool_name", name)["flags_names"] += ",bulk"
        case ["osd", "pool", "set", name, "size" | "min_size" as key, value, *_]:
            named(cluster["pools"], "pool_name", name)[key] = int(value)
        case ["fs", "new", name, _, _]:
            cluster["filesystems"].append({"fs_name": name, "standby_count_wanted": 0})
        case ["fs", "set", name, "standby_count_wanted", value]:
            named(cluster["filesystems"], "fs_name", name)["standby_count_wanted"] = int(value)
        case ["auth", "add" | "caps" as verb, name, *caps]:
            there = None if verb == "add" else named(cluster["auth"], "entity", name)
            rest = [user for user in cluster["auth"] if user["entity"] != name]
            pairs = dict(zip(caps[::2], caps[1::2], strict=True))
            secret = there["key"] if there else new_key()
            cluster["auth"] = [*rest, entry(name, secret, pairs)]
        case _:
            return False
    return True


def named(entries: list[dict[str, Any]], key: str, name: str) -> dict[str, Any]:
    return next(item for item in entries if item[key] == name)


def ceph(words: list[str]) -> None:
    parser = argparse.ArgumentParser("ceph", allow_abbrev=False)
    parser.add_argument("--connect-timeout")
    parser.add_argument("--name", choices=["client.admin"])
    parser.add_argument("--format", choices=["json"])
    given, words = parser.parse_known_args(words)
    if not (ETC / "ceph.client.admin.keyring").exists():
        fail(1, "Error initializing cluster client: ObjectNotFound('RADOS object not found')")
    cluster, command = read(CLUSTER, {}), " ".join(words)
    if given.format and command in answers(cluster):
        print(json.dumps(answers(cluster)[command]))
    elif words == ["cephadm", "get-pub-key"]:
        print((ETC / "ceph.pub").read_text(), end="")
    elif words == ["orch", "apply", "-i", "-"]:
        apply([json.loads(text) for text in sys.stdin.read().split("\n---\n")])
    elif words[:2] == ["auth", "get-key"]:
        print(named(cluster["auth"], "entity", words[2])["key"], end="")
    elif not given.format and tell(cluster, words):
        write(CLUSTER, cluster)
    else:
        fail(22, f"no valid command found: {command}")
