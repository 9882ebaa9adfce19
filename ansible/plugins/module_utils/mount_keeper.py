# SPDX-License-Identifier: Apache-2.0
"""Mounts of the network as systemd units: what nfs_mounts and ceph_mounts have in common.

What is mounted is learned from the kernel's table alone. No path on a server is looked at, since
that waits for as long as the server is away.
"""

import os
import re
import socket
import time
from collections.abc import Collection, Iterator
from typing import NoReturn

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.commands import output, run
from ansible_collections.muster.slurm.plugins.module_utils.mount_table import (
    automounts,
    mounted,
    read_table,
    unit_name,
)
from ansible_collections.muster.slurm.plugins.module_utils.mount_units import (
    AGAIN,
    AGAIN_NAME,
    MARK,
    Mount,
    Protocol,
    automount_text,
    missing_options,
    unit_text,
)
from ansible_collections.muster.slurm.plugins.module_utils.refused_error import RefusedError
from ansible_collections.muster.slurm.plugins.module_utils.text_files import read_text
from ansible_collections.muster.slurm.plugins.module_utils.unit_files import (
    UNITS,
    File,
    write_text,
)

AGAIN_PATH = f"{UNITS}/{AGAIN_NAME}"
# Below /run: what was mounted before this boot is no longer.
RECORDS = "/run/muster"

# Time limits of one mount in a play, and of an unmount.
MOUNT_SECONDS = 60
UMOUNT_SECONDS = 30


class Unit:
    """The mount unit of one folder, its automount unit, and what the kernel has."""

    def __init__(
        self, module: AnsibleModule, protocol: Protocol, path: str, wanted: Mount | None = None
    ) -> None:
        self.module = module
        self.protocol = protocol
        self.path = path
        self.wanted = wanted
        self.name = unit_name(path)
        self.on_entry = bool(wanted) and module.params["automount"]
        text = unit_text(protocol, wanted, on_entry=self.on_entry) if wanted else ""
        self.file = File(self.name, text, bool(wanted) and not self.on_entry)
        text = automount_text(protocol, path) if self.on_entry else ""
        self.automount = File(f"{self.name.removesuffix('mount')}automount", text, self.on_entry)
        self.again = AGAIN_NAME.replace("@", f"@{self.name.removesuffix('.mount')}")
        self.files = (self.file, self.automount)
        self.outdated = f"{RECORDS}/{self.name}.outdated"
        table = read_table()
        self.mounted = mounted(table).get(path)
        self.automounted = automounts(table).get(path)

    def refuse_what_is_in_the_way(self) -> None:
        """End the task where something that is not Muster's is or will be mounted at the path."""
        for file in self.files:
            if file.before and not file.before.startswith(MARK):
                self.module.fail_json(
                    msg=f"{file.path} is not Muster's; take that file away, or say in the "
                    "definition that the folder exists (kind: existing)"
                )
        source = self.mounted[1] if self.mounted else self.automounted
        if source and self.wanted and not self.ours(self.wanted):
            self.module.fail_json(
                msg=f"{self.path} is mounted from {source} already; unmount that and take it "
                "out of /etc/fstab, or say in the definition that the folder exists (kind: existing)"
            )

    def ours(self, wanted: Mount) -> bool:
        """Whether this unit mounted it: now, with earlier options, or kept because it is in use."""
        if not self.mounted:
            return bool(self.automount.before)
        texts = self.file.before + (read_text(self.outdated) or "")
        sources = [line[5:] for line in texts.splitlines() if line.startswith("What=")]
        return self.mounted[1] in [*sources, wanted["source"]]

    def is_enabled(self) -> bool:
        """Whether a boot starts the wanted units, and no other."""
        return all(file.is_enabled() == file.at_boot for file in self.files)

    def is_as_wanted(self) -> bool:
        """Whether the mount, as far as the kernel tells, has the wanted source and options."""
        if bool(self.automounted) != self.on_entry:
            return False
        if not self.wanted or not self.mounted:
            # An automount that nobody has entered is not mounted yet.
            return not self.mounted and not self.writes() and (self.on_entry or not self.wanted)
        kind, source, options = self.mounted
        same = source == self.wanted["source"] and not os.path.exists(self.outdated)
        if kind in self.protocol.kinds:
            wanted = self.wanted["options"]
            same = same and not missing_options(self.protocol.shown, wanted, options)
        return same and not self.writes()

    def action(self) -> str:
        """Return what is to be done to the mount."""
        if self.is_as_wanted():
            return "none"
        if not self.wanted:
            return "unmount"
        return "remount" if self.mounted else "mount"

    def writes(self) -> bool:
        """Whether a file must be written; the file of an unwanted mount is removed last."""
        return bool(self.wanted) and any(file.before != file.after for file in self.files)

    def pending(self) -> bool:
        """Whether anything has to be done."""
        if not self.wanted:
            return True
        return self.writes() or not self.is_enabled() or self.action() != "none"

    def write(self) -> None:
        """Write the wanted files; the caller reloads systemd."""
        if self.mounted and self.writes() and not os.path.exists(self.outdated):
            # First: if the run is killed now, this must show that the mount is older than its unit.
            write_text(self.outdated, self.file.before)
        for file in self.files:
            if file.before != file.after and file.after:
                write_text(file.path, file.after)

    def enable(self) -> None:
        """Let the next boot start what is wanted, whatever happens to the mount now."""
        for file in self.files:
            if file.is_enabled() != file.at_boot:
                word = "enable" if file.at_boot else "disable"
                output(["systemctl", word, "--quiet", file.name])

    def forget_automount(self) -> None:
        """Remove the automount's file, except while it waits: the file says whose it is."""
        if self.automount.before.startswith(MARK) and not self.on_entry:
            os.unlink(self.automount.path)

    def remove(self) -> None:
        """Forget a unit that is no longer wanted and not mounted."""
        self.give_up(self.name)
        os.unlink(self.file.path)
        self.run("systemctl", "reset-failed", self.name, self.again)
        self.run("systemctl", "daemon-reload")

    def give_up(self, *names: str) -> None:
        """Stop units that may still try to mount, and their retries."""
        # A mount that is stopped while it waits has failed, so that retries begin: OnFailure=.
        self.run("systemctl", "mask", "--runtime", "--quiet", self.again)
        self.run("systemctl", "stop", self.again, *names)
        self.run("systemctl", "unmask", "--runtime", "--quiet", self.again)

    def run(self, *command: str, seconds: int = MOUNT_SECONDS) -> tuple[int, str]:
        """Run a command; return its exit code and its output. 124 or 137: it took too long."""
        code, out, err = run(["timeout", "-k", "5", str(seconds), *command])
        return code, (err.strip() or out.strip())

    def unmount(self) -> bool:
        """Unmount; return False while somebody uses it."""
        code, _ = self.run("umount", self.path, seconds=UMOUNT_SECONDS)
        if code == 0 and os.path.exists(self.outdated):
            os.unlink(self.outdated)
        return code == 0

    def mount(self, wanted: Mount) -> None:
        """Mount through systemd; end the task with the cause if that fails."""
        self.wait_for_servers(wanted)
        os.makedirs(self.path, exist_ok=True)
        # Looking into an automount mounts it.
        hidden = [] if self.automounted else sorted(os.listdir(self.path))
        if hidden:
            self.module.warn(
                f"{self.path} of this host has files, which the mount hides: "
                f"{', '.join(hidden[:5])}; move them away"
            )
        self.run("systemctl", "reset-failed", self.name, self.again)
        names = [self.automount.name, self.name] if self.on_entry else [self.name]
        code, said = self.run("systemctl", "start", *names)
        if code != 0:
            late = f"no answer within {MOUNT_SECONDS} s" if code in (124, 137) else said
            why = self.last_words() or late
            # It would keep trying, and the next run would see an automount.
            self.give_up(*names)
            self.module.fail_json(
                msg=f"{wanted['source']} can't be mounted at {self.path}: {why}; "
                f"{self.protocol.refused}"
            )

    def last_words(self) -> str:
        """Return what mount said last."""
        run(["journalctl", "--sync"])
        _, log, _ = run(
            ["journalctl", "--unit", self.name, "--lines=10", "--no-pager", "--output=cat"]
        )
        matches = (self.protocol.words.search(line) for line in log.splitlines())
        return "; ".join(dict.fromkeys(words[0] for words in matches if words))

    def wait_for_servers(self, wanted: Mount) -> None:
        """Return when a server listens; a mount without one would wait for minutes."""
        servers, port = self.protocol.servers(wanted), self.protocol.port
        seconds: int = self.module.params["wait_seconds"]
        deadline = time.monotonic() + seconds
        while True:
            for server in servers:
                try:
                    bound = min(seconds, 10) / len(servers)
                    socket.create_connection((server, port), bound).close()
                    return
                except OSError as error:
                    last = error
            if time.monotonic() > deadline:
                does = "does" if len(servers) == 1 else "do"
                self.module.fail_json(
                    msg=f"{', '.join(servers)} {does} not answer on port {port} after {seconds} s "
                    f"({last}); {self.protocol.away}, or let this host through the firewall, and "
                    "run again"
                )
            time.sleep(0.5)

    def diff(self) -> list[dict[str, str]]:
        """Return what changes, as Ansible shows it."""
        action = self.action()
        state = "mounted" if self.mounted else "not mounted"
        pairs = [(file.path, file.before, file.after) for file in self.files]
        pairs.append((self.path, f"{state}\n", f"{state if action == 'none' else action}\n"))
        return [
            {"before_header": header, "after_header": header, "before": old, "after": new}
            for header, old, new in pairs
            if old != new
        ]


def forgotten(module: AnsibleModule, protocol: Protocol, wanted: Collection[str]) -> Iterator[Unit]:
    """Return the units of this protocol whose folder is no longer asked for."""
    for name in sorted(os.listdir(UNITS)):
        text = read_text(f"{UNITS}/{name}") if name.endswith(".mount") else None
        if text and text.startswith(protocol.mark):
            where = re.search(r"^Where=(.*)$", text, re.MULTILINE)
            path = where[1].replace("%%", "%") if where else ""
            if path and path not in wanted:
                yield Unit(module, protocol, path)


def settle(unit: Unit) -> str | None:
    """Mount, remount or unmount as wanted; return what was done, None while somebody uses it."""
    action = unit.action()
    if unit.mounted and action in ("remount", "unmount") and not unit.unmount():
        # What is mounted there says whose it is.
        unit.forget_automount()
        return None
    if unit.automounted and not unit.on_entry:
        unit.run("systemctl", "stop", unit.automount.name)
    unit.forget_automount()
    if unit.wanted and action in ("mount", "remount"):
        unit.mount(unit.wanted)
    if not unit.wanted:
        unit.remove()
    return action


def apply(units: list[Unit]) -> list[str]:
    """Make units and mounts as wanted; return the folders that somebody uses. Raises RefusedError."""
    for unit in units:
        unit.write()
    # Always: a run that was killed may have left systemd with an older unit.
    output(["systemctl", "daemon-reload"])
    for unit in units:
        unit.enable()
    return [unit.path for unit in units if settle(unit) is None]


def keep(module: AnsibleModule, protocol: Protocol, mounts: list[Mount]) -> NoReturn:
    """Make the host's mounts of `protocol` those of `mounts`, and end the module."""
    wanted = {mount["path"]: mount for mount in mounts}
    units = [Unit(module, protocol, path, mount) for path, mount in wanted.items()]
    for unit in units:
        unit.refuse_what_is_in_the_way()
    units += forgotten(module, protocol, wanted)

    pending = [unit for unit in units if unit.pending()]
    diff = [part for unit in pending for part in unit.diff()]
    tries = any(unit.file.at_boot for unit in units) and read_text(AGAIN_PATH) != AGAIN
    if tries and not module.check_mode:
        write_text(AGAIN_PATH, AGAIN)
    in_use: list[str] = []
    try:
        if (pending or tries) and not module.check_mode:
            in_use = apply(pending)
    except RefusedError as error:
        module.fail_json(msg=str(error))
    if in_use:
        module.warn(
            f"{', '.join(in_use)}: somebody uses it, so it stays mounted as it is; the next run "
            "after that, or a boot, changes it"
        )
    # A mount that only waits for its users is no change of this run.
    changed = tries or any(unit.path not in in_use or unit.writes() for unit in pending)
    module.exit_json(changed=changed, in_use=in_use, diff=diff)
