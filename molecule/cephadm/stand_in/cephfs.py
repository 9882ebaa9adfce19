"""In place of python3-cephfs: folders in a file. It has what the module ceph_folder uses."""

import json
from pathlib import Path
from typing import Any

CLUSTER = Path("/var/lib/stand-in/cluster.json")
QUOTA = "ceph.quota.max_bytes"


class Error(Exception):
    pass


class ObjectNotFound(Error):
    pass


class NoData(Error):
    pass


class LibCephFS:
    def __init__(self, conffile: str, auth_id: str) -> None:
        if (conffile, auth_id) != ("/etc/ceph/ceph.conf", "admin"):
            raise Error(f"no such client: {auth_id} of {conffile}")
        self.cluster: dict[str, Any] = json.loads(CLUSTER.read_text())
        self.folders: dict[str, dict[str, Any]] = {}

    def conf_set(self, name: str, value: str) -> None:
        if name != "client_mount_timeout":
            raise Error(f"unknown setting {name}")

    def init(self) -> None:
        pass

    def mount(self, filesystem_name: bytes) -> None:
        names = [filesystem["fs_name"] for filesystem in self.cluster["filesystems"]]
        servers = [service["service_name"] for service in self.cluster["services"]]
        name = filesystem_name.decode()
        if name not in names or f"mds.{name}" not in servers:
            raise Error(f"no active metadata server of {name}")
        self.folders = self.cluster["folders"]

    def stat(self, path: str) -> dict[str, Any]:
        if path not in self.folders:
            raise ObjectNotFound(path)
        return self.folders[path]

    def getxattr(self, path: str, name: str) -> bytes:
        if name not in self.stat(path):
            raise NoData(name)
        quota: str = self.stat(path)[name]
        return quota.encode()

    def setxattr(self, path: str, name: str, value: bytes, flags: int) -> None:
        if name != QUOTA or flags:
            raise Error(f"{name}, {flags}")
        self.stat(path)[name] = value.decode()

    def mkdirs(self, path: str, mode: int) -> None:
        self.folders[path] = {"mode": mode}

    def mkdir(self, path: str, mode: int) -> None:
        if path in self.folders:
            raise Error(f"{path} is there")
        self.folders[path] = {"mode": mode}

    def chmod(self, path: str, mode: int) -> None:
        self.stat(path)["mode"] = mode

    def unmount(self) -> None:
        CLUSTER.write_text(json.dumps(self.cluster, indent=1))

    def shutdown(self) -> None:
        pass
