#!/usr/bin/python3 -IS
# SPDX-License-Identifier: Apache-2.0
"""Start the units of this VM's role, which its metadata names: all VMs boot from one image."""

import http.client
import subprocess
import sys
import time

# The address needs no DNS: https://cloud.google.com/compute/docs/metadata/querying-metadata
METADATA = "169.254.169.254"
ROLE = "/computeMetadata/v1/instance/attributes/muster-role"
UNITS = {
    "controller": "muster-configure.service",
    "login": "muster-configure.service",
    "node": "muster-node.target",
}
PAUSE_S = 0.2
REQUEST_S = 5
PATIENCE_S = 60
"""Then the unit fails, which the console shows, and systemd restarts it."""


def role() -> str | None:
    """Return the attribute; None where there is none.

    Raises:
        OSError, HTTPException: the metadata server does not answer yet.

    """
    connection = http.client.HTTPConnection(METADATA, timeout=REQUEST_S)
    try:
        connection.request("GET", ROLE, headers={"Metadata-Flavor": "Google"})
        answer = connection.getresponse()
        text = answer.read().decode()
    finally:
        connection.close()
    if answer.status == 200:
        return text
    if answer.status == 404:
        return None
    raise OSError(f"the metadata server answers {answer.status}")


def main() -> int:
    """Ask until there is an answer."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            vm_role = role()
            break
        except (OSError, http.client.HTTPException) as error:
            if time.monotonic() > deadline:
                print(f"muster: no role: {error}", file=sys.stderr)
                return 1
            time.sleep(PAUSE_S)
    if vm_role not in UNITS:
        return 0  # a builder, or not Muster's
    return subprocess.run(
        ["systemctl", "start", "--no-block", UNITS[vm_role]], check=False
    ).returncode


sys.exit(main())
