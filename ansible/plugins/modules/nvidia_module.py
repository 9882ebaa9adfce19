#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Check that NVIDIA's kernel module is built for each kernel; load it if none is loaded."""

import glob
import os
import re
from dataclasses import dataclass, field

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.commands import run
from ansible_collections.muster.slurm.plugins.module_utils.text_files import read_text

DOCUMENTATION = r"""
module: nvidia_module
short_description: Check that NVIDIA's kernel module was built, and load it
description:
  - apt succeeds when the build of a module has failed. So the module is looked for in the kernel
    that runs and in each one with headers; where it is missing, the end of the build's log is a
    part of the message.
  - It is loaded where no driver is. A loaded driver is never unloaded, since jobs may use
    it; then RV(reboot_for) says what a reboot would change.
options:
  name:
    description: File name of the module without its ending, such as C(nvidia-current-open).
    type: str
    required: true
  load:
    description:
      - Whether the kernel that runs loads it. If not, it is looked for in those with headers alone,
        of which an image boots the newest.
    type: bool
    default: true
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Load the driver
  muster.slurm.nvidia_module:
    name: nvidia
"""

RETURN = r"""
installed:
  description: Version of the module for the kernel that runs, or that would be loaded.
  type: str
  returned: success
reboot_for:
  description: What only a reboot can change, as a part of a sentence; empty if nothing.
  type: str
  sample: driver 550.163.01 in place of 535.261.03
  returned: success
"""

LOG_LINES = 5


@dataclass(frozen=True)
class State:
    """What this host has."""

    running: str
    """The kernel that runs."""
    versions: dict[str, str | None]
    """Kernel -> version of the module that it would load, None if there is none."""
    with_headers: frozenset[str]
    """Kernels that modules can be built for."""
    loaded: str | None = None
    """Version of the NVIDIA driver that is loaded."""
    nouveau: bool = False
    """Whether the kernel's own driver for these GPUs is loaded."""
    dkms: dict[str, str] = field(default_factory=dict)
    """Kernel -> what DKMS says of NVIDIA's modules, such as built or installed."""


def dkms_states(text: str) -> dict[str, str]:
    """Return kernel -> state from what C(dkms status) prints.

    nvidia-current/535.261.03, 6.1.0-40-amd64, x86_64: installed (DKMS 3; before, a comma stood
    between name and version). A module that was built for no kernel has neither kernel nor machine.
    """
    pattern = r"^nvidia[^,/]*(?:/|, )[^,]+, (?P<kernel>[^,]+), [^:]+: (?P<state>\w+)"
    return {match["kernel"]: match["state"] for match in re.finditer(pattern, text, re.MULTILINE)}


def without_module(state: State, loading: bool = True) -> list[str]:
    """Return the kernels that should have the module and have not, the one that runs first.

    That one needs it where it is to be loaded. Modules that come ready-made need no headers, so one
    kernel at least must have it.
    """
    kernels = {state.running, *state.with_headers} if loading else {*state.with_headers}
    if not any(state.versions.values()):
        kernels.add(state.running)
    missing = [kernel for kernel in kernels if not state.versions.get(kernel)]
    return sorted(missing, key=lambda kernel: (kernel != state.running, kernel))


def complaint(state: State, kernel: str, log: str) -> str:
    """Return what is wrong with the module of `kernel`, and the remedy."""
    if kernel not in state.with_headers:
        return (
            f"kernel {kernel} has no NVIDIA module and no headers to build one with; boot the "
            "newest kernel that is installed, whose headers are there, and run again"
        )
    said = state.dkms.get(kernel)
    what = f"DKMS says {said}" if said else "DKMS has not built it"
    # DKMS 3.2 adds its command, the exit code, the time and a line of dashes.
    lines = [line for line in log.splitlines() if not re.match(r"\s*$|# |-+$", line)]
    end = " | ".join(lines[-LOG_LINES:]) or "no log was written"
    return (
        f"kernel {kernel} has no NVIDIA module ({what}); fix what the end of its log says, try "
        f"`dkms autoinstall -k {kernel}` and run again: {end}"
    )


def reboot_for(state: State) -> str:
    """Return what only a reboot can change; empty if nothing."""
    installed = state.versions[state.running]
    if state.loaded and state.loaded != installed:
        return f"driver {installed} in place of {state.loaded}"
    if state.nouveau and not state.loaded:
        return f"driver {installed} in place of nouveau"
    return ""


def last_log() -> str:
    """Return the newest log of a build."""
    logs = glob.glob("/var/lib/dkms/nvidia*/*/build/make.log")
    newest = max(logs, key=os.path.getmtime, default="")
    return read_text(newest, errors="replace") or ""


def look(module: AnsibleModule) -> State:
    """Return the state of this host."""
    name, running = module.params["name"], os.uname().release
    kernels = {running, *(os.path.basename(path) for path in glob.glob("/lib/modules/*"))}
    # In check mode on a fresh host it may not be there yet.
    modinfo = module.get_bin_path("modinfo")
    versions: dict[str, str | None] = {}
    for kernel in kernels:
        # By the file's name: modinfo follows no `install` line of modprobe.d, by which Debian
        # gives `nvidia` to one of its packages.
        command = [modinfo, "-k", kernel, "-F", "version", name]
        code, out, _ = run(command) if modinfo else (1, "", "")
        versions[kernel] = out.strip() if code == 0 else None
    headers = {kernel for kernel in kernels if os.path.isdir(f"/lib/modules/{kernel}/build")}
    dkms = module.get_bin_path("dkms")
    said = run([dkms, "status"])[1] if dkms else ""
    return State(
        running,
        versions,
        frozenset(headers),
        (read_text("/sys/module/nvidia/version") or "").strip() or None,
        os.path.isdir("/sys/module/nouveau"),
        dkms_states(said),
    )


def load(module: AnsibleModule) -> None:
    """Load the driver, and the part of it that CUDA needs."""
    for name in ("nvidia", "nvidia-uvm"):
        code, _, err = run(["modprobe", name])
        if code != 0:
            hint = "see `dmesg | tail`"
            if "Key was rejected" in err:
                hint = "Secure Boot takes signed modules alone: turn it off or enrol DKMS's key"
            elif "No such device" in err:
                hint = "no GPU answers that this driver knows: see `lspci -d 10de:`"
            module.fail_json(msg=f"can't load {name}: {err.strip()}; {hint}, and run again")


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "load": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    loading = module.params["load"]
    state = look(module)
    missing = without_module(state, loading)
    if missing and module.check_mode:
        module.exit_json(changed=True, installed="", reboot_for="")
    if missing:
        module.fail_json(msg=complaint(state, missing[0], last_log()))
    if not loading:
        built = next(version for version in state.versions.values() if version)
        module.exit_json(changed=False, installed=built, reboot_for="")
    absent = state.loaded is None and not state.nouveau
    if absent and not module.check_mode:
        load(module)
    module.exit_json(
        changed=absent, installed=state.versions[state.running], reboot_for=reboot_for(state)
    )


if __name__ == "__main__":
    main()
