"""A cluster `lab` in fakecloud: its controller's metadata and rights, and a scontrol that listens.

What is replaced is SLURM alone. The controller's VM has 127.0.0.1, from where the tests ask the
metadata server; what it may do is what muster.cloud.rights says, as pulumi/ grants it.
"""

import io
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import httpx
import pytest

from muster.cloud import resume, resume_failed, rights, suspend
from muster.cloud.names import Names
from muster.fakecloud import identity
from muster.fakecloud.server import Server

PROJECT = "projects/demo-project"
ZONES = ("europe-west4-a", "europe-west4-b")
REGION = "regions/europe-west4"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
SCONTROL = """#!/bin/sh
printf '%s\\n' "$*" >>{log}
exit {status}
"""


class Lab:
    """The cluster; `.run("resume", "lab-debug-0")` is the program as slurmctld starts it."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.http = httpx.Client(
            base_url=server.url, headers={"Authorization": "Bearer owner"}, trust_env=False
        )
        self.environment: dict[str, str] = {}
        self.settings = folder / "autoscaler.json"
        self.configure()
        self.scontrol()
        self.said = ""
        self._raise()

    def configure(self, resume_s: float = 20, suspend_s: float = 20) -> None:
        """Write the programs' settings."""
        found = {
            "cluster": "lab",
            "compute_endpoint": f"{self.server.url}/compute/v1/",
            "log_file": str(self.folder / "autoscaler.log"),
            "resume_timeout_s": resume_s,
            "suspend_timeout_s": suspend_s,
            "scontrol": str(self.folder / "scontrol"),
        }
        self.settings.write_text(json.dumps(found))

    def scontrol(self, status: int = 0) -> None:
        """Put the scontrol in place that notes how it is called."""
        program = self.folder / "scontrol"
        program.write_text(SCONTROL.format(log=self.folder / "calls", status=status))
        program.chmod(0o755)

    def _raise(self) -> None:
        compute = f"/compute/v1/{PROJECT}"
        self.ok(f"{compute}/global/networks", {"name": "lab", "autoCreateSubnetworks": False})
        # Its second address is a gateway's, so it begins before 127.0.0.0.
        subnet = {"name": "lab", "network": "global/networks/lab", "ipCidrRange": "126.0.0.0/7"}
        self.ok(f"{compute}/{REGION}/subnetworks", subnet)
        self.accounts = accounts = {
            name: self._account(name) for name in ("lab-controller", "lab-compute")
        }
        self._grant(accounts["lab-controller"], accounts["lab-compute"])
        for name in ("debug", "big"):
            properties = self.properties(accounts["lab-compute"])
            body = {"name": f"lab-{name}", "properties": properties}
            self.ok(f"{compute}/global/instanceTemplates", body)
        controller = self.properties(accounts["lab-controller"])
        controller |= {
            "name": "lab-controller",
            "machineType": f"zones/{ZONES[0]}/machineTypes/e2-small",
        }
        controller["networkInterfaces"][0]["networkIP"] = "127.0.0.1"
        self.ok(f"{compute}/zones/{ZONES[0]}/instances", controller)
        self.templates(
            debug={"template": self.template("debug"), "zones": ZONES},
            big={"template": self.template("big"), "zones": ZONES[:1]},
        )
        email = accounts["lab-controller"]
        token = self.server.do(lambda cloud: identity.issue(cloud, email, (SCOPE,)))
        self.environment = {
            "GOOGLE_OAUTH_ACCESS_TOKEN": token,
            "GCE_METADATA_HOST": self.server.metadata_url.removeprefix("http://"),
        }

    def properties(self, account: str) -> dict[str, Any]:
        """What a VM of the cluster is made with."""
        image = "projects/debian-cloud/global/images/family/debian-12"
        return {
            "machineType": "n1-standard-2",
            "disks": [
                {"boot": True, "autoDelete": True, "initializeParams": {"sourceImage": image}}
            ],
            "networkInterfaces": [{"subnetwork": f"{PROJECT}/{REGION}/subnetworks/lab"}],
            "serviceAccounts": [{"email": account, "scopes": [SCOPE]}],
            "labels": {"muster-cluster": "lab"},
        }

    def template(self, name: str) -> str:
        return f"{PROJECT}/global/instanceTemplates/lab-{name}"

    def templates(self, text: str = "", **sets: Any) -> None:
        """Set the controller's attribute muster-templates."""
        where = f"/compute/v1/{PROJECT}/zones/{ZONES[0]}/instances/lab-controller"
        present = self.http.get(where).json()["metadata"]
        item = {"key": "muster-templates", "value": text or json.dumps(sets)}
        body = {"fingerprint": present["fingerprint"], "items": [item]}
        self.ok(f"{where}/setMetadata", body)

    def ok(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        assert "error" not in answer.json(), answer.text
        return answer.json()

    def _account(self, name: str) -> str:
        path = f"/iam/v1/{PROJECT}/serviceAccounts"
        return self.ok(path, {"accountId": name, "serviceAccount": {"displayName": name}})["email"]

    def _role(self, name: str, permissions: tuple[str, ...]) -> str:
        body = {"roleId": name, "role": {"title": name, "includedPermissions": permissions}}
        return self.ok(f"/iam/v1/{PROJECT}/roles", body)["name"]

    def _grant(self, email: str, compute: str) -> None:
        member = [f"serviceAccount:{email}"]
        mine = {
            "title": "mine",
            "expression": rights.own_names(Names("lab", "demo-project"), ZONES),
        }
        project = [
            {"role": self._role("lab_nodes", rights.OWN), "members": member, "condition": mine},
            {"role": self._role("lab_lists", rights.ANYWHERE), "members": member},
        ]
        where = f"/cloudresourcemanager/v1/{PROJECT}"
        policy = self.ok(f"{where}:getIamPolicy", {"options": {"requestedPolicyVersion": 3}})
        policy["bindings"] = [*policy.get("bindings", []), *project]
        self.ok(f"{where}:setIamPolicy", {"policy": policy | {"version": 3}})
        use = {"role": self._role("lab_net", ("compute.subnetworks.use",)), "members": member}
        net = f"/compute/v1/{PROJECT}/{REGION}/subnetworks/lab"
        self.ok(f"{net}/setIamPolicy", {"policy": {"bindings": [use]}})
        act = {"role": self._role("lab_acts", ("iam.serviceAccounts.actAs",)), "members": member}
        account = f"/iam/v1/{PROJECT}/serviceAccounts/{compute}"
        self.ok(f"{account}:setIamPolicy", {"policy": {"bindings": [act]}})

    def start(self, program: str, *words: str) -> subprocess.Popen[str]:
        """Start a program in a process of its own, with the environment that the launcher gives."""
        return subprocess.Popen(
            [sys.executable, "-c", RUN.format(program=program, path=self.settings), *words],
            env={"PATH": os.defpath} | self.environment,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, program: str, *words: str) -> int:
        """Run a program to its end, in this process; its exit status. `said` is its stderr."""
        said = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stderr(said):
            # Put back what the program sets for itself.
            patch.setenv("GOOGLE_COMPUTE_CUSTOM_ENDPOINT", "")
            for name, value in self.environment.items():
                patch.setenv(name, value)
            status = PROGRAMS[program](list(words), self.settings)
            for handler in logging.getLogger("muster").handlers:
                handler.close()
        self.said = said.getvalue()
        return status

    def vms(self) -> dict[str, dict[str, Any]]:
        """Name -> VM, without the controller."""
        found = self.http.get(f"/compute/v1/{PROJECT}/aggregated/instances").json()["items"]
        listed = [vm for place in found.values() for vm in place.get("instances", [])]
        return {vm["name"]: vm for vm in listed if vm["name"] != "lab-controller"}

    def states(self) -> dict[str, str]:
        """Name -> "STATUS zone's letter"."""
        return {name: f"{vm['status']} {vm['zone'][-1]}" for name, vm in self.vms().items()}

    def calls(self) -> list[str]:
        """How scontrol was called."""
        file = self.folder / "calls"
        return file.read_text().splitlines() if file.exists() else []

    def make(self, name: str, zone: str = ZONES[0], **more: Any) -> None:
        """Make a VM by hand."""
        body = self.properties(self.accounts["lab-compute"]) | {"name": name} | more
        body["machineType"] = f"zones/{zone}/machineTypes/n1-standard-2"
        self.ok(f"/compute/v1/{PROJECT}/zones/{zone}/instances", body)

    def do(self, work: Callable[[Any], Any]) -> Any:
        """Run a function of the cloud on its thread."""
        return self.server.do(work)


def until(state: Callable[[], object], what: str, seconds: float = 20) -> None:
    """Wait for a state, within a bound."""
    deadline = time.monotonic() + seconds
    while not state():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


PROGRAMS = {"resume": resume.main, "suspend": suspend.main, "resume_failed": resume_failed.main}
RUN = """
import sys
from pathlib import Path
from muster.cloud import {program}
sys.exit({program}.main(sys.argv[1:], Path("{path}")))
"""
