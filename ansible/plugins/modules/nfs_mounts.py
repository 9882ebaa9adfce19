#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Keep the NFS mounts of a host as systemd units, mounted with the options that are asked for."""

import os
import re
import socket
import time

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: nfs_mounts
short_description: All NFS mounts of a host, as systemd units
description:
  - Writes a mount unit per folder, so that a daemon with C(RequiresMountsFor=) waits for it, enables
    it and mounts it.
  - Learns what is mounted from the kernel's table alone. No path on a server is looked at, since
    that waits for as long as the server is away.
  - NFS takes most options at the mount only. A folder whose options have changed is unmounted and
    mounted again if nobody uses it. If somebody does it stays as it is and the task says so; a
    later run does it, or the next boot.
  - A unit of this module that is no longer asked for is removed, on the same terms.
options:
  mounts:
    description: The mounts.
    type: list
    elements: dict
    required: true
    suboptions:
      source: {type: str, required: true, description: "Server and folder, C(server:/folder)."}
      path: {type: path, required: true, description: Where it is mounted.}
      type: {type: str, choices: [nfs4], default: nfs4, description: Type of the file system.}
      options: {type: str, required: true, description: Options of mount(8).}
  wait_seconds:
    description: How long to wait for a server that does not answer yet.
    type: int
    default: 10
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Mount the folders
  nfs_mounts:
    mounts:
      - {source: "storage1:/home", path: /home, options: "rw,hard,vers=4.2"}
"""

RETURN = r"""
in_use:
  description: Folders that stay mounted as they are until nobody uses them.
  type: list
  elements: str
  returned: always
"""

UNITS = "/etc/systemd/system"
MARK = "# Written by Muster's nfs_mounts: changes here are lost\n"
# Below /run: what was mounted before this boot is no longer.
RECORDS = "/run/muster"

# At a boot the server may come up later than its clients. Until then they wait; people can't log
# in, and slurmd does not start. After that the unit fails, and people can.
BOOT_MINUTES = 10

# The bound of one try in a play, and of an unmount.
MOUNT_SECONDS = 60
UMOUNT_SECONDS = 30
NFS_PORT = 2049

# Options that the kernel's table shows as they were given.
SHOWN = re.compile(r"rw|ro|hard|soft|noatime|nosuid|nodev|noexec|nocto|fsc|vers=.*|proto=.*")

UNIT = """\
{mark}[Unit]
Description=Shared folder {path}

[Mount]
What={source}
Where={path}
Type={type}
Options={options},retry={retry}
TimeoutSec={seconds}

[Install]
WantedBy=remote-fs.target
"""


def unit_name(path):
    """Return the name that systemd demands of the mount unit of `path` (systemd-escape(1))."""
    escaped = "".join(
        char if re.match(r"[A-Za-z0-9_.:]", char) else "-" if char == "/" else f"\\x{ord(char):02x}"
        for char in path.strip("/")
    )
    # A leading dot would be a hidden file.
    return (escaped if not escaped.startswith(".") else "\\x2e" + escaped[1:]) + ".mount"


def unit_text(mount):
    """Return the unit of `mount`."""
    literal = {key: value.replace("%", "%%") for key, value in mount.items()}
    # mount.nfs gives up in time for systemd to tell its last words.
    minutes = BOOT_MINUTES
    return UNIT.format(mark=MARK, retry=minutes - 1, seconds=60 * minutes, **literal)


def mounted(table):
    """Return mount point -> (type, source, set of options) of a /proc/self/mountinfo."""
    found = {}
    for line in table.splitlines():
        own, _, of_system = line.partition(" - ")
        path, own_options = own.split()[4:6]
        kind, source, options = of_system.split()[:3]
        # proc_pid_mountinfo(5): space, tab, newline and backslash are in octal. The last one wins.
        path = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), path)
        # The mount's own rw or ro is what counts, not that of the connection it shares.
        shared = {option for option in options.split(",") if option not in ("rw", "ro")}
        found[path] = (kind, source, shared | {*own_options.split(",")})
    return found


def missing_options(wanted, actual):
    """Return the options of `wanted` (text) that a mount with `actual` (set) shows not to have."""
    return [word for word in wanted.split(",") if SHOWN.fullmatch(word) and word not in actual]


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

    def __init__(self, module, path, wanted=None):
        self.module = module
        self.path = path
        self.wanted = wanted
        self.name = unit_name(path)
        self.file = f"{UNITS}/{self.name}"
        self.before = read_text(self.file) or ""
        self.after = unit_text(wanted) if wanted else ""
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
        if kind.startswith("nfs"):
            same = same and not missing_options(self.wanted["options"], options)
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
        self.wait_for_server()
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
            self.module.fail_json(
                msg=f"{self.wanted['source']} can't be mounted at {self.path}: "
                f"{self.last_words() or said}; does the server serve it to this host's address?"
            )

    def last_words(self):
        """Return what mount said last."""
        self.module.run_command(["journalctl", "--sync"])
        _, log, _ = self.module.run_command(
            ["journalctl", "--unit", self.name, "--lines=10", "--no-pager", "--output=cat"]
        )
        return "; ".join(dict.fromkeys(x for x in log.splitlines() if x.startswith("mount")))

    def wait_for_server(self):
        """Return when the server listens; a mount without one would wait for minutes."""
        server = self.wanted["source"].rpartition(":/")[0].strip("[]")
        seconds = self.module.params["wait_seconds"]
        deadline = time.monotonic() + seconds
        while True:
            try:
                socket.create_connection((server, NFS_PORT), min(seconds, 10)).close()
                return
            except OSError as error:
                if time.monotonic() > deadline:
                    self.module.fail_json(
                        msg=f"{server} does not answer on port {NFS_PORT} after {seconds} s ({error}); start its "
                        "NFS server, or let this host through its firewall, and run again"
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


def forgotten(module, wanted):
    """Return the units of this module whose folder is no longer asked for."""
    for name in sorted(os.listdir(UNITS)):
        text = read_text(f"{UNITS}/{name}") if name.endswith(".mount") else None
        if text and text.startswith(MARK):
            where = re.search(r"^Where=(.*)$", text, re.MULTILINE)[1].replace("%%", "%")
            if where not in wanted:
                yield Unit(module, where)


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


def main():
    """Run the module."""
    options = {
        "source": {"type": "str", "required": True},
        "path": {"type": "path", "required": True},
        "type": {"type": "str", "choices": ["nfs4"], "default": "nfs4"},
        "options": {"type": "str", "required": True},
    }
    module = AnsibleModule(
        argument_spec={
            "mounts": {"type": "list", "elements": "dict", "required": True, "options": options},
            "wait_seconds": {"type": "int", "default": 10},
        },
        supports_check_mode=True,
    )
    wanted = {mount["path"]: mount for mount in module.params["mounts"]}
    units = [Unit(module, path, mount) for path, mount in wanted.items()]
    for unit in units:
        unit.refuse_what_is_in_the_way()
    units += forgotten(module, wanted)

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


if __name__ == "__main__":
    main()
