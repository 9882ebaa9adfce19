"""The secrets of a cluster on metal: made once, kept outside git, never printed.

`inventories/X/group_vars/all/secrets.yml` holds the munge key and the database password. It is
plain YAML with mode 0600, ready for `ansible-vault encrypt`.
"""

import base64
import fcntl
import importlib
import os
import re
import secrets
import string
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.definition import yaml_file
from muster.definition.secret_names import DATABASE_PASSWORD, MUNGE_KEY, NAMES, misspelt
from muster.definition.yaml_file import VAULT_HEADER, Document, Vaulted

MUNGE_KEY_BYTES = 128
"""Length of a munge key in bytes; mungekey(8) makes 128, munged takes 32 to 1024."""

PASSWORD_CHARACTERS = 40
"""Length of a password; of letters and digits alone, so that no file format must quote it."""

HEADER = """\
# Made by `muster secrets`; whoever has the munge key is root on the cluster.
# Keep it out of git; encrypt it with: ansible-vault encrypt {path}
secrets:
"""

_START_AGAIN = "move it away and run again, then copy your own lines back"


class SecretsError(Exception):
    """The file of secrets can't be completed; the text says why."""


def _munge_key() -> str:
    return base64.b64encode(secrets.token_bytes(MUNGE_KEY_BYTES)).decode()


def _password() -> str:
    alphabet = string.ascii_letters + string.digits
    return "".join(secrets.choice(alphabet) for _ in range(PASSWORD_CHARACTERS))


MAKERS = {MUNGE_KEY: _munge_key, DATABASE_PASSWORD: _password}
"""Secret -> the function that makes it."""


def path_of(inventory: Path) -> Path:
    """Return where the secrets of `inventory` are."""
    return inventory / "group_vars" / "all" / "secrets.yml"


def make(inventory: Path) -> list[str]:
    """Make the secrets that `inventory` lacks; return their names.

    Existing secrets stay. A file that ansible-vault has encrypted is not changed.

    Raises:
        SecretsError: the file lacks a secret and has no mapping `secrets:` with a line per secret,
            or it has a secret in another place or under another name.
        FileNotFoundError: `inventory` has no folder group_vars/all.
        OSError: the file can't be read or written.

    """
    path = path_of(inventory)
    with _alone_in(path.parent):
        if path.exists():
            document = yaml_file.read(path, str(path))
            if document.encrypted:
                return []
            text = path.read_text(encoding="utf-8")
            known = _known(path, document)
        else:
            text, known = HEADER.format(path=path), {}
        missing = [name for name in MAKERS if name not in known]
        if missing:
            lines = [f"{name}: {MAKERS[name]()}\n" for name in missing]
            _write(path.resolve(), _with_lines(path, text, lines))
    return missing


@dataclass(frozen=True)
class VaultPassword:
    """Where the password of ansible-vault is, besides where Ansible's settings say."""

    file: Path | None = None
    """A file with it, or a program that prints it."""
    ask: bool = False
    """Whether to ask for it; without any password it is asked for too."""


def is_encrypted(path: Path) -> bool:
    """Whether ansible-vault has encrypted the file at `path` as a whole.

    Raises OSError.
    """
    with path.open("rb") as stream:
        return stream.read(len(VAULT_HEADER)) == VAULT_HEADER.encode()


def rotate(inventory: Path, name: str, password: VaultPassword | None = None) -> None:
    """Put a new value in the place of the secret `name`; an encrypted file stays encrypted.

    Raises:
        SecretsError: Muster can't make this secret, it is not there in one line, or the password
            does not fit.
        OSError: the file can't be read or written.

    """
    if name not in MAKERS:
        raise SecretsError(
            f"Muster can't make `{name}`: it makes {' and '.join(MAKERS)}; write it yourself"
        )
    path = path_of(inventory)
    with _alone_in(path.parent):
        if not path.exists():
            raise SecretsError(f"{path} is not there; run: muster secrets {inventory.name}")
        text, value = path.read_text(encoding="utf-8"), MAKERS[name]()
        if is_encrypted(path):
            plain, encrypt = _decrypted(path, text, password or VaultPassword())
            changed = encrypt(_with_value(path, plain, name, value))
        else:
            changed = _with_value(path, text, name, value)
        _write(path.resolve(), changed)


def _with_value(path: Path, text: str, name: str, value: str) -> str:
    """Return `text` with another value of a secret; all else stays."""
    before = _known(path, yaml_file.parse(text, str(path)))
    if name not in before:
        raise SecretsError(f"`{name}` is not in {path}; run muster secrets without --rotate")
    if isinstance(before[name], Vaulted):
        raise SecretsError(
            f"`{name}` in {path} is encrypted by itself; take it out, run muster secrets without "
            "--rotate, and encrypt the whole file"
        )
    lines = text.splitlines(keepends=True)
    place = yaml_file.parse(text, str(path)).line(("secrets", name)) or 1
    key = rf"([ \t]+)[\"']?{re.escape(name)}[\"']?[ \t]*:[ \t].*"
    lines[place - 1] = re.sub(key, rf"\g<1>{name}: {value}", lines[place - 1])
    changed = "".join(lines)
    document = yaml_file.parse(changed, str(path))
    if document.faults or _known(path, document) != {**before, name: value}:
        raise SecretsError(
            f"`{name}` in {path} is not in a line of its own; write it so, as in {name}: TEXT"
        )
    return changed


def _decrypted(path: Path, text: str, password: VaultPassword) -> tuple[str, Callable[[str], str]]:
    """Return what an encrypted file holds, and a function that encrypts with the same password.

    Ansible finds the password: in what `password` says, in ANSIBLE_VAULT_PASSWORD_FILE and
    ANSIBLE_VAULT_IDENTITY_LIST, in ansible.cfg; else it asks for it.
    """
    # Ansible takes a second to import, and nothing else here needs it. Its functions have no types.
    from ansible.errors import AnsibleError  # noqa: PLC0415

    settings: Any = importlib.import_module("ansible.constants")
    command_line: Any = importlib.import_module("ansible.cli").CLI
    loader: Any = importlib.import_module("ansible.parsing.dataloader").DataLoader()
    vault_class: Any = importlib.import_module("ansible.parsing.vault").VaultLib
    try:
        vault = vault_class(
            command_line.setup_vault_secrets(
                loader,
                vault_ids=list(settings.DEFAULT_VAULT_IDENTITY_LIST),
                vault_password_files=[str(password.file)] if password.file else [],
                ask_vault_pass=password.ask,
            )
        )
        plain, _, secret = vault.decrypt_and_get_vault_id(text)
    except (AnsibleError, EOFError) as error:
        said = str(error).splitlines()[0].rstrip(".") if str(error) else "no password was given"
        raise SecretsError(
            f"{path} can't be decrypted: {said}; name the file of its password in "
            "ANSIBLE_VAULT_PASSWORD_FILE or with --vault-password-file"
        ) from error
    # $ANSIBLE_VAULT;VERSION;CIPHER, and a label if it has one.
    label = next(iter(text.splitlines()[0].split(";")[3:]), None)

    def encrypt(changed: str) -> str:
        encrypted: bytes = vault.encrypt(changed, secret, vault_id=label)
        return encrypted.decode()

    shown: str = plain.decode()
    return shown, encrypt


def _known(path: Path, document: Document) -> dict[str, object]:
    """Return what is below `secrets:`."""
    for fault in document.faults:
        if fault.kind in ("yaml-syntax", "yaml-bounds"):
            raise SecretsError(f"{path}:{fault.line} is no YAML ({fault.text}); correct that first")
    data = document.data if isinstance(document.data, dict) else {}
    for name in NAMES:
        if name in data:
            raise SecretsError(f"`{name}` in {path} is beside `secrets:`; indent it below")
    known = data.get("secrets")
    if not isinstance(known, dict | None):
        raise SecretsError(f"`secrets` in {path} is no mapping; {_START_AGAIN}")
    for name, meant in misspelt(known or {}).items():
        raise SecretsError(f"`{name}` in {path} has no meaning; if you mean {meant}, rename it")
    return known or {}


def is_open_to_git(path: Path) -> bool:
    """Whether git has the file at `path`, or would take it with `git add .`."""
    try:
        answer = subprocess.run(
            ["git", "check-ignore", "--quiet", path.name],
            cwd=path.parent,
            capture_output=True,
            timeout=10,
            check=False,
        )
    except FileNotFoundError:
        return False  # no git here
    # git-check-ignore(1): 0 ignored, 1 not ignored or tracked, 128 no repository.
    return answer.returncode == 1


def _with_lines(path: Path, text: str, lines: list[str]) -> str:
    """Return `text` with `lines` as the first ones below `secrets:`; comments and order stay."""
    head = re.search(r"^secrets:[ \t]*(#.*)?\n", text, re.MULTILINE)
    below = re.match(r"(?:[ \t]*(?:#.*)?\n)*([ ]+)(\S)", text[head.end() :]) if head else None
    if head is None or (below and below[2] == "{"):
        raise SecretsError(
            f"{path} has no line `secrets:` with a line per secret below; {_START_AGAIN}"
        )
    indent = below[1] if below else "  "
    added = "".join(indent + line for line in lines)
    return text[: head.end()] + added + text[head.end() :]


def _write(path: Path, text: str) -> None:
    """Put `text` at `path`: all of it, or nothing if this run is killed.

    mkstemp makes it 0600 whatever the umask; .gitignore has the temporary name.
    """
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink()
        raise


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Let one run at a time work in `folder`."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
