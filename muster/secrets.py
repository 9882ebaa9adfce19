"""The secrets of a cluster on metal: made once, kept outside git, never printed.

`inventories/X/group_vars/all/secrets.yml` holds the munge key and the database password. It is
plain YAML with mode 0600, ready for `ansible-vault encrypt`.
"""

import base64
import os
import secrets
import string
from pathlib import Path

MUNGE_KEY_BYTES = 128
"""Length of a munge key in bytes; mungekey(8) makes 128, munged takes 32 to 1024."""

PASSWORD_CHARACTERS = 40
"""Length of a password; of letters and digits alone, so that no file format must quote it."""

HEADER = """\
# Made by `muster secrets`; who has the munge key is root on the cluster.
# Keep it out of git; encrypt it with: ansible-vault encrypt {path}
"""


def path_of(inventory: Path) -> Path:
    """Return where the secrets of `inventory` are."""
    return inventory / "group_vars" / "all" / "secrets.yml"


def make(inventory: Path) -> Path | None:
    """Make the secrets of `inventory` unless it has them; return the new file, or None.

    Raises:
        FileNotFoundError: `inventory` has no folder group_vars/all.
        OSError: the file can't be written.

    """
    path = path_of(inventory)
    if path.exists():
        return None
    alphabet = string.ascii_letters + string.digits
    password = "".join(secrets.choice(alphabet) for _ in range(PASSWORD_CHARACTERS))
    key = base64.b64encode(secrets.token_bytes(MUNGE_KEY_BYTES)).decode()
    text = (
        HEADER.format(path=path)
        + "secrets:\n"
        + f"  munge_key: {key}\n"
        + f"  slurmdbd_password: {password}\n"
    )
    # O_EXCL: two runs at once make one file; the mode is right from the first byte on.
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.link(temporary, path)
    except FileExistsError:
        return None
    finally:
        temporary.unlink()
    return path
