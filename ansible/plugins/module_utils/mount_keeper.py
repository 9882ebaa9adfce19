# SPDX-License-Identifier: Apache-2.0
"""Mounts of the network as systemd units: what nfs_mounts and ceph_mounts have in common.

What is mounted is learned from the kernel's table alone. No path on a server is looked at, since
that waits for as long as the server is away.
"""

import os
import re
import socket
import time

from ansible.module_utils.mount_units import (
    AGAIN,
    AGAIN_NAME,
    MARK,
    automount_text,
    automounts,
    missing_options,
    mounted,
    unit_name,
    unit_text,
)
from ansible.module_utils.unit_files import UNITS, File, read_text, write_text

AGAIN_PATH = f"{UNITS}/{AGAIN_NAME}"
# Below /run: what was mounted before this boot is no longer.
RECORDS = "/run/muster"

# The bound of one try in a play, and of an unmount.
MOUNT_SECONDS = 60
UMOUNT_SECONDS = 30


class Unit:
    """The mount unit of one folder, its automount unit, and what the kernel has."""

    def __init__(self, module, protocol, path, wanted=None):
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
        table = read_text("/proc/self/mountinfo")
        self.found = mounted(table).get(path)
        self.automounted = automounts(table).get(path)

    def refuse_what_is_in_the_way(self):
        """End the task where something that is not ours is mounted at the path, or is to be."""
        for file in self.files:
            if file.before and not file.before.startswith(MARK):
                self.module.fail_json(
                    msg=f"{file.path} is not Muster's; take that file away, or say in the "
                    "definition that the folder exists (kind: existing)"
                )
        source = self.found[1] if self.found else self.automounted
        if source and self.wanted and not self.ours():
            self.module.fail_json(
                msg=f"{self.path} is mounted from {source} already; unmount that and take it "
                "out of /etc/fstab, or say in the definition that the folder exists (kind: existing)"
            )

    def ours(self):
        """Whether what is mounted is this unit's: of now, of before, or kept for its users."""
        if not self.found:
            return bool(self.automount.before)
        texts = self.file.before + (read_text(self.outdated) or "")
        sources = [line[5:] for line in texts.splitlines() if line.startswith("What=")]
        return self.found[1] in [*sources, self.wanted["source"]]

    def is_enabled(self):
        """Whether a boot starts what it is to start, and nothing else."""
        return all(file.is_enabled() == file.at_boot for file in self.files)

    def is_as_wanted(self):
        """Whether the mount, as far as the kernel tells, has the wanted source and options."""
        if bool(self.automounted) != self.on_entry:
            return False
        if not self.wanted or not self.found:
            # Nobody needs to have entered an automount yet.
            return not self.found and not self.writes() and (self.on_entry or not self.wanted)
        kind, source, options = self.found
        same = source == self.wanted["source"] and not os.path.exists(self.outdated)
        if kind in self.protocol.kinds:
            wanted = self.wanted["options"]
            same = same and not missing_options(self.protocol.shown, wanted, options)
        return same and not self.writes()

    def action(self):
        """Return what is to be done to the mount."""
        if self.is_as_wanted():
            return "none"
        if not self.wanted:
            return "unmount"
        return "remount" if self.found else "mount"

    def writes(self):
        """Whether a file is to be written; that of a mount that is not wanted goes last."""
        return bool(self.wanted) and any(file.before != file.after for file in self.files)

    def pending(self):
        """Whether anything is to be done."""
        if not self.wanted:
            return True
        return self.writes() or not self.is_enabled() or self.action() != "none"

    def write(self):
        """Bring the files to what is wanted; systemd learns of it from the caller."""
        if self.found and self.writes() and not os.path.exists(self.outdated):
            # First: a run that is killed now must leave word that the mount is older than its unit.
            write_text(self.outdated, self.file.before)
        for file in self.files:
            if file.before != file.after and file.after:
                write_text(file.path, file.after)

    def enable(self):
        """Have the next boot bring what is wanted, whatever becomes of the mount now."""
        for file in self.files:
            if file.is_enabled() != file.at_boot:
                word = "enable" if file.at_boot else "disable"
                self.module.run_command(["systemctl", word, "--quiet", file.name], check_rc=True)

    def forget_automount(self):
        """Remove its file if nobody's entry is waited for; while it waits, that says whose it is."""
        if self.automount.before.startswith(MARK) and not self.on_entry:
            os.unlink(self.automount.path)

    def remove(self):
        """Forget a unit that is no longer wanted and not mounted."""
        self.give_up(self.name)
        os.unlink(self.file.path)
        self.run("systemctl", "reset-failed", self.name, self.again)
        self.run("systemctl", "daemon-reload")

    def give_up(self, *names):
        """Stop units that may still try to mount, and the tries after them."""
        # A mount that is stopped while it waits has failed, so that more tries begin: OnFailure=.
        self.run("systemctl", "mask", "--runtime", "--quiet", self.again)
        self.run("systemctl", "stop", self.again, *names)
        self.run("systemctl", "unmask", "--runtime", "--quiet", self.again)

    def run(self, *command, seconds=MOUNT_SECONDS):
        """Run a command; return its exit code and its words. 124 or 137: it took too long."""
        code, out, err = self.module.run_command(["timeout", "-k", "5", str(seconds), *command])
        return code, (err.strip() or out.strip())

    def unmount(self):
        """Unmount; return whether nobody was using it."""
        code, _ = self.run("umount", self.path, seconds=UMOUNT_SECONDS)
        if code == 0 and os.path.exists(self.outdated):
            os.unlink(self.outdated)
        return code == 0

    def mount(self):
        """Mount through systemd; end the task with the cause if that fails."""
        self.wait_for_servers()
        os.makedirs(self.path, exist_ok=True)
        # To look into an automount is to enter it.
        hidden = [] if self.automounted else sorted(os.listdir(self.path))
        if hidden:
            self.module.warn(
                f"{self.path} of this host has files of its own, which the mount hides: "
                f"{', '.join(hidden[:5])}; move them away"
            )
        self.run("systemctl", "reset-failed", self.name, self.again)
        names = [self.automount.name, self.name] if self.on_entry else [self.name]
        code, said = self.run("systemctl", "start", *names)
        if code != 0:
            late = f"no answer within {MOUNT_SECONDS} s" if code in (124, 137) else said
            why = self.last_words() or late
            # It would go on trying, and the next run would find an automount.
            self.give_up(*names)
            self.module.fail_json(
                msg=f"{self.wanted['source']} can't be mounted at {self.path}: {why}; "
                f"{self.protocol.refused}"
            )

    def last_words(self):
        """Return what mount said last."""
        self.module.run_command(["journalctl", "--sync"])
        _, log, _ = self.module.run_command(
            ["journalctl", "--unit", self.name, "--lines=10", "--no-pager", "--output=cat"]
        )
        found = (self.protocol.words.search(line) for line in log.splitlines())
        return "; ".join(dict.fromkeys(words[0] for words in found if words))

    def wait_for_servers(self):
        """Return when a server listens; a mount without one would wait for minutes."""
        servers, port = self.protocol.servers(self.wanted), self.protocol.port
        seconds = self.module.params["wait_seconds"]
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

    def diff(self):
        """Return what changes, as Ansible shows it."""
        action = self.action()
        state = "mounted" if self.found else "not mounted"
        pairs = [(file.path, file.before, file.after) for file in self.files]
        pairs.append((self.path, f"{state}\n", f"{state if action == 'none' else action}\n"))
        return [
            {"before_header": header, "after_header": header, "before": old, "after": new}
            for header, old, new in pairs
            if old != new
        ]


def forgotten(module, protocol, wanted):
    """Return the units of this protocol whose folder is no longer asked for."""
    for name in sorted(os.listdir(UNITS)):
        text = read_text(f"{UNITS}/{name}") if name.endswith(".mount") else None
        if text and text.startswith(protocol.mark):
            where = re.search(r"^Where=(.*)$", text, re.MULTILINE)[1].replace("%%", "%")
            if where not in wanted:
                yield Unit(module, protocol, where)


def settle(unit):
    """Bring the mount to what is wanted; return what was done, None while somebody uses it."""
    action = unit.action()
    if unit.found and action in ("remount", "unmount") and not unit.unmount():
        # What is mounted there says whose it is.
        unit.forget_automount()
        return None
    if unit.automounted and not unit.on_entry:
        unit.run("systemctl", "stop", unit.automount.name)
    unit.forget_automount()
    if action in ("mount", "remount"):
        unit.mount()
    if not unit.wanted:
        unit.remove()
    return action


def apply(module, units):
    """Bring units and mounts to what is wanted; return the folders that somebody uses."""
    for unit in units:
        unit.write()
    # Always: a run that was killed may have left systemd with an older unit.
    module.run_command(["systemctl", "daemon-reload"], check_rc=True)
    for unit in units:
        unit.enable()
    return [unit.path for unit in units if settle(unit) is None]


def keep(module, protocol, mounts):
    """Bring the host's mounts of `protocol` to `mounts`, and end the module."""
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
    in_use = apply(module, pending) if (pending or tries) and not module.check_mode else []
    if in_use:
        module.warn(
            f"{', '.join(in_use)}: somebody uses it, so it stays mounted as it is; the next run "
            "after that, or a boot, changes it"
        )
    # What only waits for its users is no change of this run.
    changed = tries or any(unit.path not in in_use or unit.writes() for unit in pending)
    module.exit_json(changed=changed, in_use=in_use, diff=diff)
