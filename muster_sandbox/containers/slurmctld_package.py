"""Build Debian's package slurmctld with a shorter PERIODIC_TIMEOUT: `make slurmctld-package`.

Its source comes from Debian's archive and is built in a container of the release; no file of it is
changed. docs/scheduling.md says why, and what it costs.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from muster_sandbox.containers import base_image, podman

SCRIPT = Path(__file__).with_name("slurmctld-package.sh")

OUTPUT = Path("build/packages")

LONGEST_SECONDS = 3 * 3600
"""Timeout of a build; it takes ten minutes on two idle cores."""

SAY_SECONDS = 30
"""Seconds between two lines of progress."""

# The base image has no deb-src lines: machines don't build packages.
SOURCES = "sed -n 's/^deb /deb-src /p' /etc/apt/sources.list >/etc/apt/sources.list.d/source.list"


def build(release: str) -> Path:
    """Build the package for `release`; return its file.

    Raises:
        podman.MachineError: podman, apt or the build failed.

    """
    OUTPUT.mkdir(parents=True, exist_ok=True)
    log = OUTPUT / f"slurmctld-{release}.log"
    name = f"muster-slurmctld-package-{release}"
    with tempfile.TemporaryDirectory(dir=OUTPUT) as folder:
        command = [
            *("podman", "run", "--rm", "--name", name, *podman.ulimits()),
            *("--volume", f"{SCRIPT}:/build.sh:ro", "--volume", f"{Path(folder).resolve()}:/out"),
            *(base_image.ensure(release), "sh", "-c", f"{SOURCES} && bash /build.sh /out"),
        ]
        try:
            with log.open("w", encoding="utf-8") as said:
                code = _wait(subprocess.Popen(podman.as_root(command), stderr=said), log)
        finally:
            # An interruption ends podman, but not the container.
            podman.podman("rm", "--force", "--ignore", "--time", "0", name)
        if code != 0:
            last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
            raise podman.MachineError(f"no package was built: {' | '.join(last)}; see {log}")
        (built,) = Path(folder).glob("*.deb")
        return built.rename(OUTPUT / built.name)


def _wait(process: subprocess.Popen[bytes], log: Path) -> int:
    """Wait for the build and print its progress; return its exit code.

    Raises:
        podman.MachineError: it takes longer than `LONGEST_SECONDS`.

    """
    begun = time.monotonic()
    while (passed := time.monotonic() - begun) < LONGEST_SECONDS:
        try:
            return process.wait(SAY_SECONDS)
        except subprocess.TimeoutExpired:
            files = log.read_text(encoding="utf-8", errors="replace").count("libtool: compile: ")
            if files:
                print(f"  {passed + SAY_SECONDS:4.0f} s, {files} files compiled", flush=True)  # noqa: T201
    raise podman.MachineError(f"no package after {LONGEST_SECONDS} s; see {log}")


def main() -> None:
    """Build for the release on the command line and say where the package is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("release", choices=base_image.RELEASES)
    release = parser.parse_args().release
    try:
        podman.check_machine()
        package = build(release)
    except podman.MachineError as error:
        sys.exit(f"error: {error}")
    print(  # noqa: T201
        f"{package}: copy it into packages/ of your inventory and set in cluster.yml\n"
        f"  slurmctld_package: packages/{package.name}"
    )


if __name__ == "__main__":
    main()
