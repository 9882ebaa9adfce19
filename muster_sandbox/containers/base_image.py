"""The base image of a machine: Debian with systemd and sshd, made by mmdebstrap.

No registry is asked: the image comes from the distribution's own archive, and its tag is the
digest of its recipe, so it is built once per recipe and machine.
"""

import fcntl
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from muster_sandbox.containers import podman

RELEASES = {"bookworm": "debian-12", "trixie": "debian-13"}
"""Release -> `cluster.os`."""

PACKAGES = [
    "ca-certificates",
    "dbus",
    "iproute2",
    "less",
    "netbase",
    "openssh-server",
    "procps",
    "python3",
    "python3-aiosmtpd",  # a mail relay that keeps what it gets: mail-sink.service
    "python3-apt",
    "systemd",
    "systemd-sysv",
]
"""What a freshly installed Debian server has and Ansible needs; nothing that a role installs."""

CACHE = Path.home() / ".cache" / "muster"
"""What is worth keeping between runs on this machine."""

RECIPE = Path(__file__).parent / "recipe"
"""Files of the image; path = destination. Below etc/ what a container needs."""

COMPILED = "__pycache__"
"""Where Python keeps what it has compiled."""

CODE = "/var/cache/compiled-once"
"""Where the recipe's compiled_once.py keeps what it has compiled."""


CERTIFICATES = Path("/usr/local/share/ca-certificates")
"""https://manpages.debian.org/update-ca-certificates"""


def proxy_settings() -> str:
    """Return this machine's proxy for apt as apt configuration, empty if it has none."""
    lines = subprocess.run(
        ["apt-config", "dump", "--no-empty", "Acquire::http::Proxy", "Acquire::https::Proxy"],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return lines.stdout


def certificates() -> list[Path]:
    """Return the files of the authorities that this machine trusts besides the usual ones."""
    return sorted(CERTIFICATES.glob("*.crt"))


def files(recipe: Path) -> list[Path]:
    """Return the files of a recipe, sorted.

    Without what Python compiles beside a module that somebody imports: each checkout would make an
    image of its own.
    """
    found = (path for path in recipe.rglob("*") if COMPILED not in path.parts)
    return sorted(path for path in found if path.is_file())


def copy_recipe(to: Path) -> None:
    """Copy the recipe's `files` to a new folder."""
    shutil.copytree(RECIPE, to, ignore=shutil.ignore_patterns(COMPILED))


def tag(release: str) -> str:
    """Return the name of the image of `release`: it changes with the recipe."""
    digest = hashlib.sha256()
    digest.update(" ".join([release, *PACKAGES]).encode())
    digest.update(Path(__file__).read_bytes())
    for path in files(RECIPE):
        digest.update(str(path.relative_to(RECIPE)).encode() + path.read_bytes())
    digest.update(proxy_settings().encode())
    for path in certificates():
        digest.update(path.read_bytes())
    return f"localhost/muster-{release}:{digest.hexdigest()[:12]}"


def ensure(release: str) -> str:
    """Build the image of `release` unless it is there; return its name.

    Raises:
        podman.MachineError: mmdebstrap or podman failed.

    """
    name = tag(release)
    if podman.exists("image", name):
        return name
    CACHE.mkdir(parents=True, exist_ok=True)
    # Two runs that want the same image build it once: the second waits and finds it.
    with (CACHE / f"image-{release}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not podman.exists("image", name):
            build(release, name)
    return name


def build(release: str, name: str) -> None:
    """Build the image; takes about half a minute and 300 MB.

    Raises:
        podman.MachineError: mmdebstrap or podman failed.

    """
    with tempfile.TemporaryDirectory(prefix="muster-image-") as folder:
        archive = f"{folder}/root.tar"
        proxy = Path(folder) / "proxy.conf"
        proxy.write_text(proxy_settings(), encoding="utf-8")
        recipe = Path(folder) / "recipe"
        copy_recipe(recipe)
        podman.run(
            [
                "mmdebstrap",
                "--variant=minbase",
                f"--include={','.join(PACKAGES)}",
                # A user's umask or TMPDIR must not get into the image.
                '--aptopt=APT::Install-Recommends "false"',
                # An installed Debian has package lists: `--check` on a fresh host needs them.
                "--skip=cleanup/apt/lists",
                f"--customize-hook=copy-in {recipe}/etc {recipe}/usr /",
                f'--customize-hook=mkdir -m 700 "$1"{CODE}',
                f"--customize-hook=upload {proxy} /etc/apt/apt.conf.d/91proxy",
                # Without them https may fail: a company's proxy shows certificates of its own.
                *(f"--customize-hook=upload {path} {path}" for path in certificates()),
                '--customize-hook=chroot "$1" update-ca-certificates',
                '--customize-hook=chroot "$1" systemctl mask --quiet systemd-modules-load.service',
                '--customize-hook=chroot "$1" systemctl enable --quiet fake-gpus.service',
                # Each machine makes its own at its first start (ssh.service.d).
                '--customize-hook=rm -f "$1"/etc/ssh/ssh_host_*',
                release,
                archive,
            ],
            timeout=900,
        )
        podman.podman("import", "--change", 'CMD ["/sbin/init"]', archive, name)
