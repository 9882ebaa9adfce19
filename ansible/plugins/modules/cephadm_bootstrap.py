#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Make the first monitor and manager of a Ceph cluster by cephadm, once."""

import glob
import os
import re

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.ceph_command import Ceph, CephError
from ansible_collections.muster.slurm.plugins.module_utils.commands import run

DOCUMENTATION = r"""
module: cephadm_bootstrap
short_description: Make the first monitor and manager of a Ceph cluster by cephadm
description:
  - Once. A bootstrap that was interrupted, and so has no data yet, is removed by C(cephadm
    rm-cluster) and made again.
  - No dashboard, no monitoring. Monitors and managers are not placed yet, which is for a
    specification to say.
  - A cluster that is there is asked whether it runs this image, and refused if it does not. An
    upgrade is a person's decision.
  - cephadm writes the keys that it makes into its log, which everybody may read; they are removed.
options:
  fsid:
    description: The cluster.
    type: str
    required: true
  image:
    description: The container image, which must be on the host.
    type: str
    required: true
  address:
    description: IP address of this host.
    type: str
    required: true
  user:
    description: As whom the manager reaches hosts by ssh; needs sudo without a password.
    type: str
    required: true
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Make the cluster
  muster.slurm.cephadm_bootstrap:
    fsid: 6f9a3c1e-0000-4000-8000-000000000001
    image: quay.io/ceph/ceph:v20.2.5
    address: 192.0.2.41
    user: cephadm
"""

STATE = "/var/lib/ceph"
BEGUN = "/var/lib/muster/cephadm-bootstrap"
"""There from the beginning of a bootstrap to its end."""

LOGS = "/var/log/ceph/cephadm.log*"
# 28 bytes in base64, the first of which is the kind of the key: CryptoKey in src/auth/Crypto.cc.
KEY = re.compile(r"\bAQ[A-Za-z0-9+/]{36}==")
BOUND_SECONDS = 900


def without_keys(text: str) -> str:
    """Return a text without Ceph's keys."""
    return KEY.sub("(a key)", text)


def clean(path: str) -> None:
    """Take keys out of a log, and keep it from others."""
    with open(path, encoding="utf-8", errors="surrogateescape") as stream:
        text = stream.read()
    os.chmod(path, 0o600)
    if KEY.search(text):
        with open(path, "w", encoding="utf-8", errors="surrogateescape") as stream:
            stream.write(without_keys(text))


class Bootstrap:
    """The bootstrap of one cluster."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.params = module.params

    def cephadm(self, *words: str) -> None:
        """Run cephadm, which must succeed."""
        image = self.params["image"]
        code, out, err = run(["timeout", str(BOUND_SECONDS), "cephadm", "--image", image, *words])
        for path in glob.glob(LOGS):
            clean(path)
        if code != 0:
            said = f"no end after {BOUND_SECONDS} s" if code == 124 else err or out
            self.module.fail_json(
                msg=f"cephadm {words[0]}: {without_keys(said.strip()[-2000:])}; "
                "/var/log/ceph/cephadm.log has the rest, and the next run starts again"
            )

    def make(self) -> None:
        """Make the cluster."""
        fsid = self.params["fsid"]
        if os.path.isdir(f"{STATE}/{fsid}"):
            self.cephadm("rm-cluster", "--fsid", fsid, "--force")
        os.makedirs(os.path.dirname(BEGUN), exist_ok=True)
        with open(BEGUN, "w", encoding="utf-8") as stream:
            stream.write(f"{fsid}\n")
        self.cephadm(
            *("bootstrap", "--fsid", fsid, "--mon-ip", self.params["address"]),
            *("--ssh-user", self.params["user"], "--allow-fqdn-hostname"),
            # What an interrupted one wrote to /etc/ceph; a foreign cluster's was refused before.
            "--allow-overwrite",
            # The host is prepared, and has the image.
            *("--skip-prepare-host", "--skip-pull"),
            *("--skip-dashboard", "--skip-monitoring-stack", "--orphan-initial-daemons"),
        )
        os.unlink(BEGUN)

    def is_made(self) -> bool:
        """Whether there is a cluster that was completed."""
        return os.path.isdir(f"{STATE}/{self.params['fsid']}") and not os.path.exists(BEGUN)

    def id_of(self, image: str) -> str:
        """Return the number of an image on this host; empty if it is not here."""
        code, out, _ = run(["podman", "image", "inspect", "--format", "{{.Id}}", image])
        return out.strip() if code == 0 else ""

    def refuse_another_image(self) -> None:
        """Fail unless the cluster runs the wanted image."""
        wanted, settings = self.params["image"], Ceph().ask("config", "dump")
        images = [entry["value"] for entry in settings if entry["name"] == "container_image"]
        for image in images:
            # The manager writes down the digest of what a tag meant.
            if image != wanted and self.id_of(image) != self.id_of(wanted):
                self.module.fail_json(
                    msg=f"the cluster runs {image}, and the definition says {wanted}; upgrade it by "
                    f"`ceph orch upgrade start --image {wanted}`, wait for the end that `ceph orch "
                    "upgrade status` tells, and run again; or write the former into storage.ceph"
                )


def main() -> None:
    """Run the module."""
    text = {"type": "str", "required": True}
    module = AnsibleModule(
        argument_spec={"fsid": text, "image": text, "address": text, "user": text},
        supports_check_mode=True,
    )
    bootstrap = Bootstrap(module)
    if bootstrap.is_made():
        try:
            bootstrap.refuse_another_image()
        except CephError as error:
            module.fail_json(msg=str(error))
        module.exit_json(changed=False)
    if not module.check_mode:
        bootstrap.make()
    line = f"{module.params['fsid']}: bootstrap of {module.params['image']}\n"
    module.exit_json(changed=True, diff={"before": "", "after": line})


if __name__ == "__main__":
    main()
