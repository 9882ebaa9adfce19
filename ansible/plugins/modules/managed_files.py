#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Bring a set of files, directories and links to a wanted state in one module run."""

import base64
import grp
import hashlib
import os
import pwd
import shutil
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.text.converters import to_bytes, to_text

DOCUMENTATION = r"""
module: managed_files
short_description: Write all files of a role in one run
description:
  - Brings files, directories and links to the wanted content, owner, group and mode.
  - Each module run costs an ssh round trip and the start of a Python on the host, whatever it does.
    A role that writes five files with five tasks pays five times, on every host and in every run;
    this module is paid once.
  - Contents arrive ready to write. Templates are rendered by the action plugin of the same name.
  - A file is written beside its destination, validated, and renamed over it, so a reader never sees
    half of it and a kill leaves the old one.
options:
  files:
    description: What to manage, in order. Missing parents of a file are created (root, 0755).
    type: list
    elements: dict
    required: true
    suboptions:
      dest:
        description: Absolute path.
        type: path
        required: true
      state:
        description: What should be there.
        type: str
        choices: [file, directory, link, absent]
        default: file
      template:
        description: Template in the role's templates folder; rendered by the action plugin into O(files[].content).
        type: str
      content:
        description: Text of the file. Without any content an existing file keeps its own.
        type: str
      secret_content_b64:
        description: Bytes of the file, base64; never shown in a diff, a log or a result.
        type: str
      target:
        description: What a link points to.
        type: str
      owner:
        description: Name of the owner.
        type: str
        default: root
      group:
        description: Name of the group.
        type: str
        default: root
      mode:
        description: Octal mode as text; 0644 for files and 0755 for directories when left out.
        type: str
      validate:
        description: Command that must succeed on the new file; C(%s) is its path.
        type: str
  validate_together:
    description:
      - Files that only make sense as a set, and the command that tries the new set before any of it is put in place.
      - It runs when a content differs, in check mode too if the program is there already.
    type: dict
    suboptions:
      files:
        description: The O(files[].dest) of the set.
        type: list
        elements: path
        required: true
      command:
        description: Command that must succeed; C(%s) is a folder that holds the new files under their base names.
        type: str
        required: true
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Write the files of munge
  managed_files:
    files:
      - {dest: /etc/munge, state: directory, owner: munge, group: munge, mode: "0700"}
      - {dest: /etc/munge/munge.key, secret_content_b64: "{{ munge_key_b64 }}", owner: munge, group: munge, mode: "0400"}
      - {dest: /etc/default/munge, template: etc/default/munge.j2}
"""

RETURN = r"""
paths:
  description: The paths that were changed, or would be in check mode.
  type: list
  elements: str
  returned: always
digests:
  description: For each changed path the SHA-256 of its wanted content, empty if it is to be no file. C(managed_service) takes it.
  type: dict
  returned: always
"""

SUBOPTIONS = {
    "dest": {"type": "path", "required": True},
    "state": {
        "type": "str",
        "default": "file",
        "choices": ["file", "directory", "link", "absent"],
    },
    "template": {"type": "str"},
    "content": {"type": "str"},
    "secret_content_b64": {"type": "str", "no_log": True},
    "target": {"type": "str"},
    "owner": {"type": "str", "default": "root"},
    "group": {"type": "str", "default": "root"},
    "mode": {"type": "str"},
    "validate": {"type": "str"},
}


TOGETHER = {
    "files": {"type": "list", "elements": "path", "required": True},
    "command": {"type": "str", "required": True},
}


class Refused(Exception):
    """A wanted state that can't be reached, said in a sentence."""


def kind_of(path):
    """Return what lies at `path`: link, directory, file or absent."""
    if os.path.islink(path):
        return "link"
    if os.path.isdir(path):
        return "directory"
    if os.path.exists(path):
        return "file"
    return "absent"


def read_bytes(path):
    """Return the content of the file at `path`, empty if there is none."""
    if kind_of(path) != "file":
        return b""
    with open(path, "rb") as stream:
        return stream.read()


def ownership(path):
    """Return (owner, group, mode) of `path` as text, as a diff shows it."""
    state = os.lstat(path)
    try:
        owner = pwd.getpwuid(state.st_uid).pw_name
    except KeyError:
        owner = str(state.st_uid)
    try:
        group = grp.getgrgid(state.st_gid).gr_name
    except KeyError:
        group = str(state.st_gid)
    return owner, group, f"{state.st_mode & 0o7777:04o}"


class Entry:
    """One wanted file, directory, link or absence."""

    def __init__(self, module, wanted):
        self.module = module
        self.dest = wanted["dest"]
        self.state = wanted["state"]
        self.target = wanted["target"]
        self.validate = wanted["validate"]
        self.secret = wanted["secret_content_b64"] is not None
        self.wanted_content = self._content(wanted)
        default_mode = "0755" if self.state == "directory" else "0644"
        self.attributes = (
            wanted["owner"],
            wanted["group"],
            f"{int(wanted['mode'] or default_mode, 8):04o}",
        )
        self.before = kind_of(self.dest)
        self.content_before = read_bytes(self.dest)

    def _content(self, wanted):
        if wanted["template"] is not None:
            raise Refused(f"{self.dest}: the template was not rendered (action plugin missing)")
        if self.secret:
            return base64.b64decode(wanted["secret_content_b64"], validate=True)
        return None if wanted["content"] is None else to_bytes(wanted["content"])

    @property
    def content_differs(self):
        """Whether the content (or the target of a link) must be written."""
        if self.state == "link":
            return self.before != "link" or os.readlink(self.dest) != self.target
        if self.state != "file":
            return False
        if self.wanted_content is None:
            return self.before == "absent"
        return self.before != "file" or self.content_before != self.wanted_content

    @property
    def attributes_differ(self):
        """Whether owner, group or mode must be set."""
        if self.state in ("link", "absent") or self.before != self.state:
            return False
        return ownership(self.dest) != self.attributes

    @property
    def differs(self):
        """Whether anything must be done."""
        if self.state == "absent":
            return self.before != "absent"
        return self.before != self.state or self.content_differs or self.attributes_differ

    @property
    def digest(self):
        """SHA-256 of what the file will hold, empty if there will be none."""
        if self.state != "file":
            return ""
        return hashlib.sha256(self.new_content).hexdigest()

    @property
    def new_content(self):
        """What the file will hold; without a wanted content what it holds now."""
        return self.content_before if self.wanted_content is None else self.wanted_content

    def diff(self):
        """Return the entry's part of the task's diff."""
        if self.secret:
            shown = {"before": "(secret)\n", "after": "(secret, changed)\n"}
        elif self.state in ("file", "absent") and self.before in ("file", "absent"):
            after = b"" if self.state == "absent" else (self.wanted_content or self.content_before)
            shown = {
                "before": to_text(self.content_before, errors="replace"),
                "after": to_text(after, errors="replace"),
            }
        else:
            after = f"{self.state} {self.target}\n" if self.target else f"{self.state}\n"
            shown = {"before": f"{self.before}\n", "after": after}
        parts = [{"before_header": self.dest, "after_header": self.dest, **shown}]
        if self.attributes_differ:
            header = f"{self.dest} (owner group mode)"
            parts.append(
                {
                    "before_header": header,
                    "after_header": header,
                    "before": " ".join(ownership(self.dest)) + "\n",
                    "after": " ".join(self.attributes) + "\n",
                }
            )
        return parts

    def apply(self):
        """Do it. Raises Refused or OSError."""
        if self.state == "absent":
            self._remove()
            return
        if self.before not in (self.state, "absent"):
            if self.before == "directory":
                raise Refused(
                    f"{self.dest} is a directory, wanted is a {self.state}; "
                    "move it away, its content may be needed"
                )
            os.unlink(self.dest)
        os.makedirs(os.path.dirname(self.dest), mode=0o755, exist_ok=True)
        if self.state == "directory":
            if self.before != "directory":
                os.mkdir(self.dest, 0o700)
            self._set_attributes(self.dest)
        elif self.state == "link":
            self._link()
        elif self.content_differs:
            self._write()
        else:
            self._set_attributes(self.dest)

    def _remove(self):
        if self.before == "directory":
            # Only empty ones: what people put below is theirs.
            os.rmdir(self.dest)
        else:
            os.unlink(self.dest)

    def _link(self):
        temporary = f"{self.dest}.muster-{os.getpid()}"
        os.symlink(self.target, temporary)
        os.replace(temporary, self.dest)

    def _set_attributes(self, path):
        owner, group, mode = self.attributes
        try:
            uid, gid = pwd.getpwnam(owner).pw_uid, grp.getgrnam(group).gr_gid
        except KeyError as error:
            raise Refused(
                f"{self.dest}: owner {owner} or group {group} does not exist on this host; "
                "the package that creates it was not installed"
            ) from error
        os.chown(path, uid, gid)
        os.chmod(path, int(mode, 8))

    def _write(self):
        folder = os.path.dirname(self.dest)
        handle, temporary = tempfile.mkstemp(prefix=".muster-", dir=folder)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(self.wanted_content or b"")
                stream.flush()
                os.fsync(stream.fileno())
            self._set_attributes(temporary)
            self._check(temporary)
            os.replace(temporary, self.dest)
        except BaseException:
            os.unlink(temporary)
            raise

    def _check(self, temporary):
        if not self.validate:
            return
        code, out, err = self.module.run_command(
            [word.replace("%s", temporary) for word in self.validate.split()]
        )
        if code != 0:
            said = (err.strip() or out.strip()).replace(temporary, self.dest)
            raise Refused(f"{self.dest} is left as it was; the new one was refused: {said}")


def validate_together(module, entries, command):
    """Run `command` on a folder with the wanted files of `entries`. Raises Refused.

    The folder is readable for all, as the daemon that tries the files may not be root.
    """
    words = command.split()
    if module.check_mode and not os.access(words[0], os.X_OK):
        return
    folder = tempfile.mkdtemp(prefix="muster-new-")
    try:
        os.chmod(folder, 0o755)
        for entry in entries:
            if entry.state == "file":
                path = os.path.join(folder, os.path.basename(entry.dest))
                with open(path, "wb") as stream:
                    stream.write(entry.new_content)
        code, out, err = module.run_command([word.replace("%s", folder) for word in words])
    finally:
        shutil.rmtree(folder)
    if code != 0:
        names = ", ".join(entry.dest for entry in entries)
        said = err.strip() or out.strip()
        raise Refused(f"{names} stay as they were; the new ones were refused: {said}")


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "files": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": SUBOPTIONS,
                "mutually_exclusive": [("content", "secret_content_b64", "template")],
                "required_if": [("state", "link", ("target",))],
            },
            "validate_together": {"type": "dict", "options": TOGETHER},
        },
        supports_check_mode=True,
    )
    paths, digests, diffs = [], {}, []
    together = module.params["validate_together"] or {"files": [], "command": ""}
    tried = False
    entry = None
    try:
        for wanted in module.params["files"]:
            entry = Entry(module, wanted)
            if not entry.differs:
                continue
            if entry.dest in together["files"] and not tried:
                tried = True
                members = [w for w in module.params["files"] if w["dest"] in together["files"]]
                entries = [Entry(module, member) for member in members]
                if any(member.content_differs for member in entries):
                    validate_together(module, entries, together["command"])
            paths.append(entry.dest)
            digests[entry.dest] = entry.digest
            diffs.extend(entry.diff())
            if not module.check_mode:
                entry.apply()
    except Refused as error:
        module.fail_json(msg=str(error), paths=paths, diff=diffs, changed=bool(paths))
    except OSError as error:
        path = error.filename or (entry.dest if entry else "?")
        module.fail_json(
            msg=f"{path}: {error.strerror}; nothing was lost, the next run completes",
            paths=paths,
            diff=diffs,
            changed=bool(paths),
        )
    module.exit_json(changed=bool(paths), paths=paths, digests=digests, diff=diffs)


if __name__ == "__main__":
    main()
