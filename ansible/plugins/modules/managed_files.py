#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Bring a set of files, directories and links to a wanted state in one module run."""

import base64
import binascii
import errno
import glob
import grp
import hashlib
import os
import pwd
import shutil
import tempfile
from typing import Any, TypedDict

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.text.converters import to_bytes, to_text
from ansible_collections.muster.slurm.plugins.module_utils.commands import output, run
from ansible_collections.muster.slurm.plugins.module_utils.refused_error import RefusedError
from ansible_collections.muster.slurm.plugins.module_utils.service_unit import (
    OPTIONS,
    Params,
    keep_running,
)
from ansible_collections.muster.slurm.plugins.module_utils.shared_folders import refuse_unavailable

DOCUMENTATION = r"""
module: managed_files
short_description: Write all files of a role in one run, and run its daemon with them
description:
  - Brings files, directories and links to the wanted content, owner, group and mode.
  - Each module run costs an ssh round trip and the start of a Python on the host, whatever it does.
    A role that writes five files with five tasks pays five times, on every host and in every run;
    this module is paid once.
  - Contents arrive ready to write. Templates are rendered by the action plugin of the same name.
  - A file is written beside its destination, validated, and renamed over it, so a reader never sees
    half of it and a kill leaves the old one.
  - Fails after a time limit where the server of a folder does not answer.
  - Fails too where the file system of a folder should be mounted and is not, by C(/etc/fstab), an enabled unit of systemd or
    C(muster-file-systems); in check mode it warns.
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
        description:
          - Template in the role's templates folder; rendered by the action plugin into
            O(files[].content).
        type: str
      content:
        description: Text of the file. Without any content an existing file keeps its own.
        type: str
      secret_content_b64:
        description: Bytes of the file, base64; never shown in a diff, a log or a result.
        type: str
      block:
        description:
          - Lines kept at the end of a file that others own, such as the start file of a shell,
            between two lines with O(files[].block.name). The rest of the file, its owner and its
            mode stay.
          - Where there is no such file none is made; its package is not installed.
        type: dict
        suboptions:
          name:
            description: Whose block it is, such as the name of the role.
            type: str
            required: true
          text:
            description: The lines.
            type: str
            required: true
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
        description: Octal mode as text. Left out it is 0644, of a secret 0600, of a directory 0755.
        type: str
      validate:
        description: Command that must succeed on the new file; C(%s) is its path.
        type: str
  whole_folders:
    description:
      - Folders, each with some of O(files) below it, that have nothing else. What else is there is removed
        once O(files) are in place, with folders that are empty then.
    type: list
    elements: path
    default: []
  validate_together:
    description:
      - Files that only make sense as a set, and the command that tries the new set before any of
        it is put in place.
      - It runs when one of them differs, in check mode too if the program is there already.
    type: dict
    suboptions:
      files:
        description: The O(files[].dest) of the set.
        type: list
        elements: path
        required: true
      command:
        description: Command that must succeed; C(%s) is a folder with the new files, by base name.
        type: str
        required: true
  must_run:
    description:
      - Command that must succeed with the files in place, in each run, such as the start of a
        program that is among them.
      - In check mode it runs if none of the files is to be changed.
    type: list
    elements: str
  service:
    description:
      - The daemon that reads the files, with the options of M(muster.slurm.managed_service). It is
        handled in the same run, after the files. C(pending) is for files of other tasks.
    type: dict
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Write the files of munge
  muster.slurm.managed_files:
    files:
      - {dest: /etc/munge, state: directory, owner: munge, group: munge, mode: "0700"}
      - dest: /etc/munge/munge.key
        secret_content_b64: "{{ munge_key_b64 }}"
        owner: munge
        group: munge
        mode: "0400"
      - {dest: /etc/default/munge, template: etc/default/munge.j2}

- name: Write sshd's settings and run it with them
  muster.slurm.managed_files:
    files:
      - {dest: /etc/ssh/sshd_config.d/50-muster.conf, template: etc/ssh/sshd_config.d/50-muster.conf.j2}
    service:
      name: ssh
      reload_config: [/etc/ssh/sshd_config.d/50-muster.conf]
"""

RETURN = r"""
paths:
  description: The paths that were changed, or would be in check mode.
  type: list
  elements: str
  returned: always
digests:
  description:
    - For each changed path the SHA-256 of its wanted content, empty if it is to be no file.
    - C(managed_service) takes it.
  type: dict
  returned: always
action:
  description: What was done to the daemon, or would be in check mode, as by C(managed_service).
  type: str
  returned: with O(service)
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
    "block": {
        "type": "dict",
        "options": {
            "name": {"type": "str", "required": True},
            "text": {"type": "str", "required": True},
        },
    },
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


# What to do about what the operating system said; a quota or a limit is as good as a full disk.
ROOM = "make room in the file system of {folder} (df -h {folder}) and run again"
REMEDIES = {
    errno.ENOSPC: ROOM,
    errno.EDQUOT: ROOM,
    errno.EFBIG: ROOM,
    errno.EROFS: "mount the file system of {folder} writable and run again",
    errno.ENOTDIR: "a file is in the way of a folder above it; move it away and run again",
    errno.EEXIST: "a file is in the way of a folder above it; move it away and run again",
}


class Block(TypedDict):
    """Lines in a file of others."""

    name: str
    text: str


class Wanted(TypedDict):
    """An entry of the option files."""

    dest: str
    state: str
    template: str | None
    content: str | None
    secret_content_b64: str | None
    block: Block | None
    target: str | None
    owner: str
    group: str
    mode: str | None
    validate: str | None


class Together(TypedDict):
    """The option validate_together."""

    files: list[str]
    command: str


def sentence(path: str, error: OSError) -> str:
    """Return what the OSError says of the file or folder at `path`, and the remedy."""
    remedy = REMEDIES.get(error.errno or 0, "fix that and run again")
    return f"{path}: {error.strerror}; " + remedy.format(folder=os.path.dirname(path))


def kind_of(path: str) -> str:
    """Return what lies at `path`: link, directory, file or absent."""
    if os.path.islink(path):
        return "link"
    if os.path.isdir(path):
        return "directory"
    if os.path.exists(path):
        return "file"
    return "absent"


def read_bytes(path: str) -> bytes:
    """Return the content of the file at `path`, empty if there is none."""
    if kind_of(path) != "file":
        return b""
    with open(path, "rb") as stream:
        return stream.read()


def ownership(path: str) -> tuple[str, str, str]:
    """Return (owner, group, mode) of `path` as text, as a diff shows it."""
    state = os.stat(path)
    try:
        owner = pwd.getpwuid(state.st_uid).pw_name
    except KeyError:
        owner = str(state.st_uid)
    try:
        group = grp.getgrgid(state.st_gid).gr_name
    except KeyError:
        group = str(state.st_gid)
    return owner, group, f"{state.st_mode & 0o7777:04o}"


def with_block(text: str, name: str, lines: str) -> str:
    """Return `text` with the block `name` holding `lines`, at its end if it had none."""
    begin, end = f"# BEGIN Muster: {name}\n", f"# END Muster: {name}\n"
    block = begin + lines.rstrip("\n") + "\n" + end
    before, opened, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if opened and closed:
        return before + block + after
    return text + ("" if text.endswith("\n") or not text else "\n") + block


class Entry:
    """One wanted file, directory, link or absence."""

    def __init__(self, module: AnsibleModule, wanted: Wanted) -> None:
        self.module = module
        # A block goes into the file itself: a link stays a link.
        is_block = wanted["block"] is not None
        self.dest = os.path.realpath(wanted["dest"]) if is_block else wanted["dest"]
        self.state = wanted["state"]
        self.target = wanted["target"] or ""
        self.validate = wanted["validate"]
        self.secret = wanted["secret_content_b64"] is not None
        # A link to a folder is as good as the folder: /home often is one.
        is_folder = self.state == "directory" and os.path.isdir(self.dest)
        self.before = "directory" if is_folder else kind_of(self.dest)
        # What is found there when the attributes are set must be this one.
        self.place = os.path.realpath(self.dest) if is_folder else self.dest
        self.content_before = read_bytes(self.dest)
        self.wanted_content = self._content(wanted)
        self.attributes = (wanted["owner"], wanted["group"], self._mode(wanted["mode"]))
        self.has_no_place = is_block and self.before != "file"
        if is_block and self.before == "file":
            self.attributes = ownership(self.dest)

    def _content(self, wanted: Wanted) -> bytes | None:
        if wanted["template"] is not None:
            raise RefusedError(
                f"{self.dest}: the template was not rendered (action plugin missing)"
            )
        if wanted["secret_content_b64"] is not None:
            try:
                return base64.b64decode(wanted["secret_content_b64"], validate=True)
            except binascii.Error:
                # Without the cause: a traceback would show the secret.
                raise RefusedError(
                    f"{self.dest}: secret_content_b64 is no base64; pass it through b64encode"
                ) from None
        if wanted["block"] is not None:
            text = to_text(self.content_before, errors="surrogateescape")
            name, lines = wanted["block"]["name"], wanted["block"]["text"]
            return bytes(to_bytes(with_block(text, name, lines), errors="surrogateescape"))
        return None if wanted["content"] is None else bytes(to_bytes(wanted["content"]))

    def _mode(self, wanted: str | None) -> str:
        if wanted is None:
            wanted = "0755" if self.state == "directory" else "0600" if self.secret else "0644"
        try:
            return f"{int(wanted, 8):04o}"
        except ValueError:
            raise RefusedError(
                f"{self.dest}: mode {wanted} is not octal; write it as 0644"
            ) from None

    @property
    def content_differs(self) -> bool:
        """Whether the content (or the target of a link) must be written."""
        if self.state == "link":
            return self.before != "link" or os.readlink(self.dest) != self.target
        if self.state != "file":
            return False
        if self.wanted_content is None:
            return self.before != "file"
        return self.before != "file" or self.content_before != self.wanted_content

    @property
    def attributes_differ(self) -> bool:
        """Whether owner, group or mode must be set."""
        if self.state in ("link", "absent") or self.before != self.state:
            return False
        return ownership(self.dest) != self.attributes

    @property
    def differs(self) -> bool:
        """Whether anything must be changed."""
        if self.has_no_place:
            return False
        if self.state == "absent":
            return self.before != "absent"
        return self.before != self.state or self.content_differs or self.attributes_differ

    @property
    def digest(self) -> str:
        """SHA-256 of what the file will hold, empty if there will be none."""
        if self.state != "file":
            return ""
        return hashlib.sha256(self.new_content).hexdigest()

    @property
    def new_content(self) -> bytes:
        """What the file will hold; without a wanted content what it holds now."""
        return self.content_before if self.wanted_content is None else self.wanted_content

    def diff(self) -> list[dict[str, str]]:
        """Return the entry's part of the task's diff."""
        parts = []
        if self.content_differs or self.before != self.state:
            parts.append((self.dest, self._text_before(), self._text_after()))
        if self.attributes_differ:
            header = f"{self.dest} (owner group mode)"
            before, after = ownership(self.dest), self.attributes
            parts.append((header, " ".join(before) + "\n", " ".join(after) + "\n"))
        return [
            {"before_header": header, "after_header": header, "before": before, "after": after}
            for header, before, after in parts
        ]

    def _text_before(self) -> str:
        if self.before == "file":
            if self.secret:
                return "(secret)\n"
            return str(to_text(self.content_before, errors="replace"))
        if self.before == "link":
            return f"(link to {os.readlink(self.dest)})\n"
        return "" if self.before == "absent" else "(directory)\n"

    def _text_after(self) -> str:
        if self.state == "file":
            if self.secret:
                return "(secret, changed)\n"
            return str(to_text(self.new_content, errors="replace"))
        if self.state == "link":
            return f"(link to {self.target})\n"
        return "" if self.state == "absent" else "(directory)\n"

    def refuse_if_in_the_way(self) -> None:
        """Raise RefusedError where people's work would be lost: nothing below a folder goes."""
        if self.before in (self.state, "absent"):
            return
        if self.state == "absent" and (self.before != "directory" or not os.listdir(self.dest)):
            return
        if self.state in ("file", "link") and self.before != "directory":
            return
        wanted = "wanted is nothing" if self.state == "absent" else f"wanted is a {self.state}"
        raise RefusedError(
            f"{self.dest} is a {self.before}, {wanted}; move it away, its content may be needed"
        )

    def apply(self) -> None:
        """Make the change. Raises RefusedError or OSError."""
        if self.state == "absent":
            self._remove()
            return
        os.makedirs(os.path.dirname(self.dest), mode=0o755, exist_ok=True)
        if self.state == "directory":
            if self.before != "directory":
                os.mkdir(self.dest, 0o700)
            self._set_attributes_there(os.O_DIRECTORY)
        elif self.state == "link":
            self._link()
        elif self.content_differs:
            self._write()
        else:
            self._set_attributes_there()

    def _remove(self) -> None:
        if self.before == "directory":
            os.rmdir(self.dest)
        else:
            os.unlink(self.dest)

    def _temporary(self) -> str:
        """Return a name beside the destination, and remove what a killed run left under such."""
        folder, name = os.path.split(self.dest)
        # With a leading dot: most programs that read a folder of drop-ins skip it.
        stem = os.path.join(folder, f".{name}.muster-")
        own = f"{stem}{os.getpid()}"
        for path in glob.glob(f"{glob.escape(stem)}*"):
            if path == own or not os.path.exists(f"/proc/{path[len(stem) :]}"):
                os.unlink(path)
        return own

    def _link(self) -> None:
        temporary = self._temporary()
        os.symlink(self.target, temporary)
        os.replace(temporary, self.dest)

    def _set_attributes_there(self, flags: int = 0) -> None:
        """Set owner, group and mode of what is there; a link in its place is not followed."""
        flags |= os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        try:
            handle = os.open(self.place, flags)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            raise RefusedError(
                f"{self.dest} was replaced while it was looked at; run again"
            ) from error
        try:
            self._set_attributes(handle)
        finally:
            os.close(handle)

    def _set_attributes(self, handle: int) -> None:
        owner, group, mode = self.attributes
        try:
            uid, gid = pwd.getpwnam(owner).pw_uid, grp.getgrnam(group).gr_gid
        except KeyError as error:
            raise RefusedError(
                f"{self.dest}: owner {owner} or group {group} does not exist on this host; "
                "the package that creates it was not installed"
            ) from error
        os.fchown(handle, uid, gid)
        os.fchmod(handle, int(mode, 8))

    def _write(self) -> None:
        temporary = self._temporary()
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(self.wanted_content or b"")
                stream.flush()
                os.fsync(stream.fileno())
                self._set_attributes(stream.fileno())
            self._check(temporary)
            os.replace(temporary, self.dest)
        except BaseException:
            os.unlink(temporary)
            raise

    def _check(self, temporary: str) -> None:
        if not self.validate:
            return
        words = [word.replace("%s", temporary) for word in self.validate.split()]
        code, out, err = run(words)
        if code != 0:
            said = (err.strip() or out.strip()).replace(temporary, self.dest)
            if self.secret:
                said = f"`{self.validate}` ended with {code}; its words may quote the secret"
            raise RefusedError(f"{self.dest} is left as it was; the new one was refused: {said}")


def absent(path: str) -> Wanted:
    """Return the entry of a path at which nothing is wanted."""
    return {
        "dest": path,
        "state": "absent",
        "template": None,
        "content": None,
        "secret_content_b64": None,
        "block": None,
        "target": None,
        "owner": "root",
        "group": "root",
        "mode": None,
        "validate": None,
    }


def strangers(folder: str, files: list[Wanted]) -> list[str]:
    """Return what lies below a folder and is not wanted there, the content of a folder before it.

    Raises RefusedError where nothing at all is wanted there.
    """
    wanted = {entry["dest"] for entry in files if entry["state"] != "absent"}
    wanted = {dest for dest in wanted if dest.startswith(f"{folder}/")}
    if not wanted:
        raise RefusedError(f"{folder}: no file is wanted in it; leave it out of whole_folders")
    for dest in list(wanted):
        while (dest := os.path.dirname(dest)) != folder:
            wanted.add(dest)
    return [
        path
        for parent, folders, names in os.walk(folder, topdown=False)
        for path in (os.path.join(parent, name) for name in sorted([*folders, *names]))
        if path not in wanted
    ]


def remove(module: AnsibleModule, path: str) -> list[dict[str, str]]:
    """Remove what is at `path`, unless in check mode; return its part of the diff."""
    entry = Entry(module, absent(path))
    diff = entry.diff()
    if not module.check_mode:
        entry.apply()
    return diff


def validate_together(module: AnsibleModule, entries: list[Entry], command: str) -> None:
    """Run `command` on a folder with the wanted files of `entries`. Raises RefusedError.

    The folder is readable for all, as the daemon that tries the files may not be root; so the
    set must hold no secret.
    """
    words = command.split()
    if module.check_mode and not os.access(words[0], os.X_OK):
        return
    folder = tempfile.mkdtemp(prefix="muster-new-")
    try:
        os.chmod(folder, 0o755)  # noqa: S103 (what it holds is readable for all anyway)
        for entry in entries:
            if entry.state == "file":
                path = os.path.join(folder, os.path.basename(entry.dest))
                with open(path, "wb") as stream:
                    stream.write(entry.new_content)
        code, out, err = run([word.replace("%s", folder) for word in words])
    except OSError as error:
        raise RefusedError(sentence(f"{folder}/", error)) from error
    finally:
        shutil.rmtree(folder)
    if code != 0:
        names = ", ".join(entry.dest for entry in entries)
        said = err.strip() or out.strip()
        raise RefusedError(f"{names} stay as they were; the new ones were refused: {said}")


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "files": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": SUBOPTIONS,
                "mutually_exclusive": [("content", "secret_content_b64", "template", "block")],
                "required_if": [("state", "link", ("target",))],
            },
            "whole_folders": {"type": "list", "elements": "path", "default": []},
            "validate_together": {"type": "dict", "options": TOGETHER},
            "must_run": {"type": "list", "elements": "str", "default": []},
            "service": {"type": "dict", "options": OPTIONS},
        },
        supports_check_mode=True,
    )
    # The caller's umask must not narrow the folders that are made on the way.
    os.umask(0o022)
    files: list[Wanted] = module.params["files"]
    together: Together | None = module.params["validate_together"]
    service: Params | None = module.params["service"]
    refuse_unavailable(module, sorted({os.path.dirname(wanted["dest"]) for wanted in files}))
    paths: list[str] = []
    digests: dict[str, str] = {}
    diffs: list[dict[str, str]] = []
    tried = False
    dest = ""
    try:
        for wanted in files:
            dest = wanted["dest"]
            entry = Entry(module, wanted)
            if not entry.differs:
                continue
            if together and entry.dest in together["files"] and not tried:
                tried = True
                members = [member for member in files if member["dest"] in together["files"]]
                validate_together(
                    module, [Entry(module, member) for member in members], together["command"]
                )
            entry.refuse_if_in_the_way()
            diff = entry.diff()
            if not module.check_mode:
                entry.apply()
            paths.append(entry.dest)
            digests[entry.dest] = entry.digest
            diffs.extend(diff)
        for folder in module.params["whole_folders"]:
            for dest in strangers(os.path.normpath(folder), files):
                diffs.extend(remove(module, dest))
                paths.append(dest)
                digests[dest] = ""
        command: list[str] = module.params["must_run"]
        if command and not (module.check_mode and paths):
            output(command)
    except RefusedError as error:
        module.fail_json(msg=str(error), paths=paths, diff=diffs, changed=bool(paths))
    except OSError as error:
        module.fail_json(
            msg=sentence(dest, error),
            paths=paths,
            diff=diffs,
            changed=bool(paths),
        )
    result: dict[str, Any] = {"changed": bool(paths), "paths": paths, "digests": digests}
    if service is None:
        module.exit_json(**result, diff=diffs)
    try:
        outcome = keep_running(module, {**service, "pending": service["pending"] | digests})
    except RefusedError as error:
        module.fail_json(msg=str(error), **result, diff=diffs)
    result["changed"] = bool(paths) or outcome["changed"]
    module.exit_json(**result, action=outcome["action"], diff=diffs + outcome["diff"])


if __name__ == "__main__":
    main()
