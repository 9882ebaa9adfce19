"""What a VM fetches: the machine bundle, from which it configures itself, and the image bundle.

Both have only the files that are known to be needed. Other files in the checkout or in the
inventory's folder, such as secrets, are left out.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from muster.definition.definition import Definition
from muster.gcp import builder_vm, install_halves
from muster.gcp.archive import BundleError, digest, pack
from muster.render import lmod
from muster.render import nvidia_driver as nvidia

__all__ = ["BundleError", "digest", "image_bundle", "machine_bundle"]

# Per folder of the checkout: which of its files, by their path below it.
_CODE = {
    "ansible": re.compile(r".+\.yml"),
    install_halves.PLUGINS: re.compile(r".+\.py"),
    "muster": re.compile(r".+\.(py|json|conf|lua)"),
    "roles": re.compile(r"\w+/((defaults|meta|tasks|vars)/.+\.yml|templates/.+\.j2|files/.+)"),
}

# What Ansible reads of an inventory's variables: these endings or none.
_VARIABLES = re.compile(r"(group_vars|host_vars)/.+?(\.(yml|yaml|json)|/[^.]+)")

_SECRET_NAME = re.compile(
    r"\..*|secrets(\.(yml|yaml|json))?|.*\.(key|pem|p12)|id_(rsa|ecdsa|ed25519)|__pycache__"
)
"""Names of files and folders that are left out wherever they are."""

_PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_VAULT = re.compile(rb"^\$ANSIBLE_VAULT;|!vault\b", re.MULTILINE)
_REMEDY = (
    "remove it: a bundle takes no secrets, in the cloud the controller makes them and Secret "
    "Manager keeps them"
)


def machine_bundle(root: Path, inventory: Path, named: Sequence[str] = ()) -> bytes:
    """Return the archive from which a VM configures itself.

    `root` is the checkout, `inventory` the folder of the definition, `named` the files there that
    the definition names.

    Raises:
        BundleError: a file holds a secret, or is a link that leads out.

    """
    files = {"ansible.cfg": _content(root, root / "ansible.cfg")}
    for folder, wanted in _CODE.items():
        for path in _below(root / folder, root):
            name = path.relative_to(root / folder).as_posix()
            if wanted.fullmatch(name):
                files[f"{folder}/{name}"] = _content(root, path)
    for folder in ("group_vars", "host_vars"):
        for path in _below(inventory / folder, inventory):
            name = path.relative_to(inventory).as_posix()
            if _VARIABLES.fullmatch(name):
                content = _content(inventory, path)
                if _VAULT.search(content):
                    raise BundleError(f"{path} is encrypted, and no VM can read it; {_REMEDY}")
                files[f"inventory/{name}"] = content
    for name in named:
        files[f"inventory/{name}"] = _content(inventory, inventory / name)
    return pack(files)


def image_bundle(root: Path, definition: Definition) -> bytes:
    """Return the archive from which a VM builds the image; its digest is the image's identity.

    Of the definition it has the operating system, the version of SLURM, the driver of its GPUs and
    the packages of the distribution that modules need, and nothing else.

    Raises:
        BundleError: a file holds a secret, or it is not known what an install half reads.

    """
    cluster = definition.cluster
    files = install_halves.files(
        root,
        os=cluster.os,
        slurm_version=cluster.slurm_version,
        nvidia=nvidia.of_image(definition, builder_vm.KERNEL_FLAVOURS[cluster.os]),
        module_packages=lmod.packages(cluster.software, cluster.os),
    )
    for path, content in files.items():
        _refuse_secrets(path, content)
    return pack(files)


def _below(folder: Path, top: Path) -> Iterator[Path]:
    """All files below a folder, except those with a secret's name in their path."""
    for path in folder.rglob("*"):
        names = path.relative_to(top).parts
        if path.is_file() and not any(_SECRET_NAME.fullmatch(name) for name in names):
            yield path


def _content(top: Path, path: Path) -> bytes:
    """Return a file's content; of a link that of its target, which must be below `top`."""
    target = path.resolve()
    if not target.is_relative_to(top.resolve()):
        raise BundleError(f"{path} is a link that leads out of {top}; put the file itself there")
    if _SECRET_NAME.fullmatch(target.name):
        raise BundleError(f"{path} is a link to {target.name}, which stays on this machine")
    content = target.read_bytes()
    _refuse_secrets(str(path), content)
    return content


def _refuse_secrets(name: str, content: bytes) -> None:
    if _PRIVATE_KEY.search(content):
        raise BundleError(f"{name} holds a private key; {_REMEDY}")
