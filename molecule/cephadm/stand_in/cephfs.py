"""In place of python3-cephfs: folders in a file. It has what the module ceph_folder uses."""

import json
from pathlib import Path

CLUSTER = Path("/var/lib/stand-in/cluster.json")
QUOTA = "ceph.quota.max_bytes"


class Error(Exception):
    pass


class ObjectNotFound(Error):
    pass


class NoData(Error):
    pass


class LibCephFS:
    def __init__(self, conffile, auth_id):
        if (conffile, auth_id) != ("/etc/ceph/ceph.conf", "admin"):
            raise Error(f"no such client: {auth_id} of {conffile}")
        self.cluster = json.loads(CLUSTER.read_text())
        self.folders = {}

    def conf_set(self, name, value):
        if name != "client_mount_timeout":
            raise Error(f"unknown setting {name}")

    def init(self):
        pass

    def mount(self, filesystem_name):
        names = [filesystem["fs_name"] for filesystem in self.cluster["filesystems"]]
        servers = [service["service_name"] for service in self.cluster["services"]]
        name = filesystem_name.decode()
        if name not in names or f"mds.{name}" not in servers:
            raise Error(f"no active metadata server of {name}")
        self.folders = self.cluster["folders"]

    def stat(self, path):
        if path not in self.folders:
            raise ObjectNotFound(path)
        return self.folders[path]

    def getxattr(self, path, name):
        if name not in self.stat(path):
            raise NoData(name)
        return self.stat(path)[name].encode()

    def setxattr(self, path, name, value, flags):
        if name != QUOTA or flags:
            raise Error(f"{name}, {flags}")
        self.stat(path)[name] = value.decode()

    def mkdirs(self, path, mode):
        self.folders[path] = {"mode": mode}

    def mkdir(self, path, mode):
        if path in self.folders:
            raise Error(f"{path} is there")
        self.folders[path] = {"mode": mode}

    def chmod(self, path, mode):
        self.stat(path)["mode"] = mode

    def unmount(self):
        CLUSTER.write_text(json.dumps(self.cluster, indent=1))

    def shutdown(self):
        pass
