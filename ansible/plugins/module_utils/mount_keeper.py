# SPDX-License-Identifier: Apache-2.0
"""Mounts of the network as systemd units: what nfs_mounts and ceph_mounts have in common.

What is mounted is learned from the kernel's table alone. No path on a server is looked at, since
that waits for as long as the server is away.
"""

import os
import re
import socket
import time

from ansible.module_utils.mount_units import missing_options, mounted, unit_name, unit_text

UNITS = "/etc/systemd/system"
# Below /run: what was mounted before this boot is no longer.
RECORDS = "/run/muster"

# The bound of one try in a play, and of an unmount.
MOUNT_SECONDS = 60
UMOUNT_SECONDS = 30


def read_text(path):
    """Return the text at `path`, or None."""
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def write_text(path, text):
    """Write `text` to `path` in one step."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(f"{path}.new", "w", encoding="utf-8") as stream:
        stream.write(text)
    os.replace(f"{path}.new", path)


class Unit:
    """The mount unit of one folder: its file, and what the kernel has."""

    def __init__(self, module, protocol, path, wanted=None):
        self.module = module
        self.protocol = protocol
        self.path = path
        self.wanted = wanted
        self.name = unit_name(path)
        self.file = f"{UNITS}/{self.name}"
        self.before = read_text(self.file) or ""
        self.after = unit_text(protocol, wanted) if wanted else ""
        self.outdated = f"{RECORDS}/{self.name}.outdated"
        self.found = mounted(read_text("/proc/self/mountinfo")).get(path)

    def refuse_what_is_in_the_way(self):
        """End the task where something that is not ours is mounted at the path."""
        if self.found and self.wanted and not self.ours():
            self.module.fail_json(
                msg=f"{self.path} is mounted from {self.found[1]} already; unmount that and take it "
                "out of /etc/fstab, or say in the definition that the folder exists (kind: existing)"
            )

    def ours(self):
        """Whether what is mounted is this unit's: of now, of before, or kept for its users."""
        texts = self.before + (read_text(self.outdated) or "")
        sources = [line[5:] for line in texts.splitlines() if line.startswith("What=")]
        return self.found[1] in [*sources, self.wanted["source"]]

    def is_enabled(self):
        """Whether a boot mounts it."""
        return os.path.lexists(f"{UNITS}/remote-fs.target.wants/{self.name}")

    def is_as_wanted(self):
        """Whether the mount, as far as the kernel tells, has the wanted source and options."""
        if not self.wanted or not self.found:
            return not self.wanted and not self.found
        kind, source, options = self.found
        same = source == self.wanted["source"] and not os.path.exists(self.outdated)
        if kind in self.protocol.kinds:
            wanted = self.wanted["options"]
            same = same and not missing_options(self.protocol.shown, wanted, options)
        return same and self.before == self.after

    def action(self):
        """Return what is to be done to the mount."""
        if self.is_as_wanted():
            return "none"
        if not self.found:
            return "mount"
        return "remount" if self.wanted else "unmount"

    def writes(self):
        """Whether the file is to be written."""
        return bool(self.wanted) and self.before != self.after

    def pending(self):
        """Whether anything is to be done."""
        if not self.wanted:
            return True
        return self.writes() or not self.is_enabled() or self.action() != "none"

    def write(self):
        """Bring the file to what is wanted; systemd learns of it from the caller."""
        if self.found and self.writes() and not os.path.exists(self.outdated):
            # First: a run that is killed now must leave word that the mount is older than its unit.
            write_text(self.outdated, self.before)
        if self.writes():
            write_text(self.file, self.after)

    def remove(self):
        """Forget a unit that is no longer wanted and not mounted."""
        os.unlink(self.file)
        self.run("systemctl", "reset-failed", self.name)
        self.run("systemctl", "daemon-reload")

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
        hidden = sorted(os.listdir(self.path))
        if hidden:
            self.module.warn(
                f"{self.path} of this host has files of its own, which the mount hides: "
                f"{', '.join(hidden[:5])}; move them away"
            )
        self.run("systemctl", "reset-failed", self.name)
        code, said = self.run("systemctl", "start", self.name)
        if code != 0:
            # It would go on trying, up to its own bound.
            self.run("systemctl", "stop", self.name)
            late = f"no answer within {MOUNT_SECONDS} s" if code in (124, 137) else said
            self.module.fail_json(
                msg=f"{self.wanted['source']} can't be mounted at {self.path}: "
                f"{self.last_words() or late}; {self.protocol.refused}"
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
        pairs = [
            (self.file, self.before, self.after),
            (self.path, f"{state}\n", f"{state if action == 'none' else action}\n"),
        ]
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
    if not unit.wanted:
        # Whatever becomes of the mount now, the next boot does not bring it back.
        unit.run("systemctl", "disable", "--quiet", unit.name)
    if action in ("remount", "unmount") and not unit.unmount():
        return None
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
        if unit.wanted and not unit.is_enabled():
            module.run_command(["systemctl", "enable", "--quiet", unit.name], check_rc=True)
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
    in_use = apply(module, pending) if pending and not module.check_mode else []
    if in_use:
        module.warn(
            f"{', '.join(in_use)}: somebody uses it, so it stays mounted as it is; the next run "
            "after that, or a boot, changes it"
        )
    # What only waits for its users is no change of this run.
    changed = any(unit.path not in in_use or unit.writes() for unit in pending)
    module.exit_json(changed=changed, in_use=in_use, diff=diff)
