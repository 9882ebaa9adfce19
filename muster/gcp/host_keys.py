"""The VMs' host keys as the VMs publish them: ssh checks a VM from the first connection on.

A VM publishes its keys in its guest attributes, which root on that VM alone can write:
https://cloud.google.com/compute/docs/metadata/manage-guest-attributes
"""

import re
from collections.abc import Mapping
from pathlib import Path

from muster.gcp import ssh
from muster.gcp.api import CloudError, Compute
from muster.gcp.pulumi_stack import Stack

_KIND, _KEY = re.compile(r"[a-z0-9.@-]+"), re.compile(r"[A-Za-z0-9+/]+={0,2}")


def keys_of(compute: Compute, zone: str, host: str) -> dict[str, str]:
    """Return the host keys of a VM by kind, such as `ssh-ed25519`.

    Raises:
        CloudError: it has published none yet, doesn't exist, or you may not ask.

    """
    answer = compute.get(f"zones/{zone}/instances/{host}/getGuestAttributes", queryPath="hostkeys/")
    items = answer.get("queryValue", {}).get("items", [])
    return {
        item["key"]: item["value"]
        for item in items
        if _KIND.fullmatch(item["key"]) and _KEY.fullmatch(item["value"])
    }


def merged(text: str, keys: Mapping[str, Mapping[str, str]]) -> str:
    """Return a known_hosts file with these keys (alias -> kind -> key) in place of older ones."""
    kept = [line for line in text.splitlines() if line.split(" ")[0] not in keys]
    new = [
        f"{alias} {kind} {key}"
        for alias, host_keys in sorted(keys.items())
        for kind, key in sorted(host_keys.items())
    ]
    return "".join(f"{line}\n" for line in [*kept, *new])


def write(stack: Stack) -> dict[str, str]:
    """Write the known_hosts file of a cluster; return why keys of a VM are not in it, by VM.

    Keys of other VMs stay in the file.
    """
    keys: dict[str, dict[str, str]] = {}
    missing: dict[str, str] = {}
    for host in stack.hosts:
        try:
            keys[ssh.alias(stack, host)] = keys_of(Compute(stack.project), stack.zone, host)
        except CloudError as error:
            missing[host] = str(error)
    file = Path(ssh.known_hosts(stack)).expanduser()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    file.write_text(merged(before, keys), encoding="utf-8")
    return missing
