#!/usr/bin/python3
"""In place of podman, cephadm, ceph and lvs on a machine that reaches no registry of containers.

One program under four names. It knows the commands of the role `cephadm` and refuses any other, so
a word that is wrong fails. Users, ssh, files and the disk's label are real.
"""

import argparse
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, "/usr/local/lib/stand-in")
from cluster import CLUSTER, ETC, KEY, STATE, apply, ceph, entry, fail, new_key, read, write

IMAGE = "localhost/ceph:v18.2.7"
CONTAINER = "muster-cephadm"
VOLUMES = STATE / "volumes.json"


# -- podman ---------------------------------------------------------------------------------------


def podman(words: list[str]) -> None:
    pulled, made = STATE / "pulled", STATE / "container"
    if words == ["image", "exists", IMAGE]:
        sys.exit(0 if pulled.exists() else 1)
    elif words == ["pull", "--quiet", IMAGE]:
        pulled.touch()
    elif words == ["create", "--replace", "--name", CONTAINER, IMAGE, "true"]:
        made.touch()
    elif words[:2] == ["cp", f"{CONTAINER}:/usr/sbin/cephadm"] and made.exists():
        shutil.copy(__file__, words[2])
    elif words == ["rm", "--force", CONTAINER]:
        made.unlink()
    else:
        fail(125, f"Error: podman {' '.join(words)}")


# -- cephadm --------------------------------------------------------------------------------------


def cephadm(words: list[str]) -> None:
    parser = argparse.ArgumentParser("cephadm", allow_abbrev=False)
    parser.add_argument("--image", required=True, choices=[IMAGE])
    commands = parser.add_subparsers(required=True)
    boot = commands.add_parser("bootstrap", allow_abbrev=False)
    for name in ("--fsid", "--mon-ip", "--ssh-user"):
        boot.add_argument(name, required=True)
    for name in ("--allow-fqdn-hostname", "--allow-overwrite", "--skip-prepare-host"):
        boot.add_argument(name, action="store_true", required=True)
    for name in ("--skip-dashboard", "--skip-monitoring-stack", "--orphan-initial-daemons"):
        boot.add_argument(name, action="store_true", required=True)
    boot.add_argument("--skip-pull", action="store_true", required=True)
    boot.set_defaults(run=bootstrap)
    remove = commands.add_parser("rm-cluster", allow_abbrev=False)
    remove.add_argument("--fsid", required=True)
    remove.add_argument("--force", action="store_true", required=True)
    remove.add_argument("--zap-osds", action="store_true")
    remove.set_defaults(run=rm_cluster)
    given = parser.parse_args(words)
    given.run(given)


def bootstrap(given: argparse.Namespace) -> None:
    host, key = socket.gethostname(), new_key()
    log = Path("/var/log/ceph/cephadm.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as stream:
        stream.write(f"DEBUG /usr/bin/ceph-authtool: stdout {key}\n")
    folder = Path("/var/lib/ceph", given.fsid)
    (folder / f"mon.{host}").mkdir(parents=True)
    if (STATE / "fails").exists():
        fail(1, f"ERROR: no answer with key {key}")
    KEY.unlink(missing_ok=True)
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(KEY)], check=True
    )
    public = KEY.with_suffix(".pub").read_text()
    ETC.mkdir(exist_ok=True)
    (ETC / "ceph.conf").write_text(
        f"[global]\n\tfsid = {given.fsid}\n\tmon_host = {given.mon_ip}\n"
    )
    (ETC / "ceph.client.admin.keyring").write_text(f"[client.admin]\n\tkey = {key}\n")
    (ETC / "ceph.client.admin.keyring").chmod(0o600)
    (ETC / "ceph.pub").write_text(public)
    user = pwd.getpwnam(given.ssh_user)
    home = Path(user.pw_dir, ".ssh")
    home.mkdir(exist_ok=True)
    with (home / "authorized_keys").open("a") as stream:
        stream.write(public)
    for path in (home, home / "authorized_keys"):
        os.chown(path, user.pw_uid, user.pw_gid)
    unmanaged = [
        {"service_type": kind, "service_name": kind, "placement": {"count": 5}, "unmanaged": True}
        for kind in ("mon", "mgr")
    ]
    write(
        CLUSTER,
        {
            "fsid": given.fsid,
            "user": given.ssh_user,
            "hosts": [],
            "services": unmanaged,
            "osds": {},
            "config": [{"section": "global", "name": "container_image", "value": given.image}],
            "auth": [entry("client.admin", key, {"mds": "allow *", "mon": "allow *"})],
            "rules": [{"rule_name": "replicated_rule", "rule_id": 0}],
            "pools": [],
            "filesystems": [],
            "folders": {"/": {"mode": 0o755}},
        },
    )
    apply([{"service_type": "host", "hostname": host, "addr": given.mon_ip, "labels": ["_admin"]}])


def rm_cluster(given: argparse.Namespace) -> None:
    kept = []
    for volume in read(VOLUMES, []):
        if given.zap_osds and volume["fsid"] == given.fsid:
            with Path(volume["device"]).open("r+b") as stream:
                stream.write(bytes(2048))
        else:
            kept.append(volume)
    write(VOLUMES, kept)
    shutil.rmtree(f"/var/lib/ceph/{given.fsid}", ignore_errors=True)
    for name in ("ceph.conf", "ceph.client.admin.keyring", "ceph.pub"):
        (ETC / name).unlink(missing_ok=True)
    CLUSTER.unlink(missing_ok=True)


# -- lvs ------------------------------------------------------------------------------------------


def lvs(words: list[str]) -> None:
    volumes = read(VOLUMES, [])
    if words == ["--reportformat", "json", "--options", "lv_tags,devices"]:
        rows = [
            {
                "lv_tags": f"ceph.cluster_fsid={volume['fsid']},ceph.osd_id={volume['id']},"
                "ceph.type=block",
                "devices": f"{volume['device']}(0)",
            }
            for volume in volumes
        ]
        print(json.dumps({"report": [{"lv": rows}]}))
    elif words[0] == "--make":
        device = os.path.realpath(words[1])
        with Path(device).open("r+b") as stream:
            stream.seek(512)
            stream.write(b"LABELONE")
        Path("/var/lib/ceph", words[3], f"osd.{words[2]}").mkdir(parents=True)
        write(VOLUMES, [*volumes, {"device": device, "id": words[2], "fsid": words[3]}])
    else:
        fail(3, f"lvs {' '.join(words)}")


STATE.mkdir(exist_ok=True)
{"podman": podman, "cephadm": cephadm, "ceph": ceph, "lvs": lvs}[Path(sys.argv[0]).name](
    sys.argv[1:]
)
