#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Have a container image of Ceph on the host, and the cephadm from it."""

import filecmp
import os
import shutil
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.commands import run

DOCUMENTATION = r"""
module: cephadm_program
short_description: Have a container image of Ceph on the host, and the cephadm from it
description:
  - Pulls the image unless it is there, by podman.
  - Each image of Ceph has the cephadm of its own release, which the cluster's manager brings to all
    hosts by itself (C(cephadm_path) of mgr/cephadm). Taken from there it never is of another
    release than the image, whichever the distribution has.
options:
  image:
    description: The image, with its registry and its tag or digest.
    type: str
    required: true
  path:
    description: Where the program is to be.
    type: path
    default: /usr/local/sbin/cephadm
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Pull the image, and take cephadm from it
  muster.slurm.cephadm_program:
    image: quay.io/ceph/ceph:v20.2.5
"""

# src/mgr/cephadm: default of the setting cephadm_path.
IN_THE_IMAGE = "/usr/sbin/cephadm"
PULL_SECONDS = 900
CONTAINER = "muster-cephadm"


class Program:
    """The image and what is taken from it."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.image: str = module.params["image"]
        self.path: str = module.params["path"]
        self.lines: list[str] = []

    def podman(self, *words: str, bound: int = 120) -> str:
        """Run podman; return what it prints."""
        code, out, err = run(["timeout", str(bound), "podman", *words])
        if code != 0:
            said = f"no end after {bound} s" if code == 124 else (err or out).strip()[-1000:]
            self.module.fail_json(
                msg=f"podman {words[0]} {self.image}: {said}; this host must reach the image's "
                f"registry, or have it by `podman load`, and an image of Ceph has {IN_THE_IMAGE}"
            )
        return out.strip()

    def is_here(self) -> bool:
        """Whether the host has the image."""
        if self.module.check_mode and shutil.which("podman") is None:
            return False
        code, _, _ = run(["podman", "image", "exists", self.image])
        return code == 0

    def provide(self) -> None:
        """Have both."""
        if not self.is_here():
            self.lines.append(f"{self.image}: pull it")
            if self.module.check_mode:
                self.lines.append(f"{self.path}: take it from there")
                return
            self.podman("pull", "--quiet", self.image, bound=PULL_SECONDS)
        # Nothing of it is run: a container is the way in which podman gives out files.
        self.podman("create", "--replace", "--name", CONTAINER, self.image, "true")
        try:
            with tempfile.TemporaryDirectory(dir=os.path.dirname(self.path)) as folder:
                new = f"{folder}/cephadm"
                self.podman("cp", f"{CONTAINER}:{IN_THE_IMAGE}", new)
                self.take(new)
        finally:
            run(["podman", "rm", "--force", CONTAINER])

    def take(self, new: str) -> None:
        """Put the program in its place unless it is there."""
        if os.path.exists(self.path) and filecmp.cmp(new, self.path, shallow=False):
            return
        self.lines.append(f"{self.path}: take it from {self.image}")
        if not self.module.check_mode:
            os.chown(new, 0, 0)
            os.chmod(new, 0o755)  # noqa: S103 (a program for everybody)
            os.rename(new, self.path)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "image": {"type": "str", "required": True},
            "path": {"type": "path", "default": "/usr/local/sbin/cephadm"},
        },
        supports_check_mode=True,
    )
    program = Program(module)
    program.provide()
    diff = {"before": "", "after": "".join(f"{line}\n" for line in program.lines)}
    module.exit_json(changed=bool(program.lines), diff=diff)


if __name__ == "__main__":
    main()
