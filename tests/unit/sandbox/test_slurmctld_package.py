"""The package of slurmctld that is built from Debian's source, with programs in place of apt's."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from muster_sandbox.containers import base_image, podman, slurmctld_package

VERSION = "22.05.8-4+deb12u3"
HEADER = "#ifndef PERIODIC_TIMEOUT\n#define\tPERIODIC_TIMEOUT\t30\n#endif\n"
CONTROL = f"""\
Package: slurmctld
Version: {VERSION}
Architecture: all
Maintainer: nobody <nobody@example.org>
Depends: slurm-client (= {VERSION})
Description: for a trial
"""

APT_GET = """
echo "$*" >>"$TRIAL/said"
if [ "$1" = source ]; then
    mkdir -p slurm-wlm-22.05.8/src/slurmctld
    cp "$TRIAL/slurmctld.h" slurm-wlm-22.05.8/src/slurmctld
fi
"""
BUILD = f"""
echo "$DEB_CPPFLAGS_APPEND" >"$TRIAL/flags"
mkdir -p package/DEBIAN
cp "$TRIAL/control" package/DEBIAN
dpkg-deb --build package ../slurmctld_{VERSION}_all.deb
"""
PROGRAMS = {
    "apt-get": APT_GET,
    "dpkg-buildpackage": BUILD,
    "dpkg-parsechangelog": f"echo {VERSION}",
}


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], None]:
    """Put shell scripts before the programs of their names."""

    def put(scripts: dict[str, str]) -> None:
        (tmp_path / "bin").mkdir()
        for name, text in scripts.items():
            (tmp_path / "bin" / name).write_text(f"#!/bin/sh -e\n{text}\n")
            (tmp_path / "bin" / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
        monkeypatch.setenv("TRIAL", str(tmp_path))

    return put


def field(package: Path, name: str) -> str:
    done = subprocess.run(
        ["dpkg-deb", "--field", package, name], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="there is no dpkg-deb on this machine")
class TestScript:
    @pytest.fixture
    def run(
        self, tmp_path: Path, programs: Callable[[dict[str, str]], None]
    ) -> Callable[[str], subprocess.CompletedProcess[str]]:
        """Run the script on a source with this header, into the folder `out`."""

        def run(header: str) -> subprocess.CompletedProcess[str]:
            programs(PROGRAMS)
            (tmp_path / "slurmctld.h").write_text(header)
            (tmp_path / "control").write_text(CONTROL)
            (tmp_path / "out").mkdir()
            return subprocess.run(
                ["bash", slurmctld_package.SCRIPT, str(tmp_path / "out")],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
                env={**os.environ, "TMPDIR": str(tmp_path)},
            )

        return run

    def test_the_package_is_newer_than_the_archive_s_and_needs_the_archive_s_others(
        self, tmp_path: Path, run: Callable[[str], subprocess.CompletedProcess[str]]
    ) -> None:
        done = run(HEADER)
        assert done.returncode == 0, done.stderr
        (package,) = (tmp_path / "out").iterdir()
        assert package.name == f"slurmctld_{VERSION}+0muster1_all.deb"
        assert field(package, "Version") == f"{VERSION}+0muster1"
        assert field(package, "Depends") == f"slurm-client (= {VERSION})"
        assert (tmp_path / "flags").read_text() == "-DPERIODIC_TIMEOUT=2\n"
        assert f"compiling {VERSION} with PERIODIC_TIMEOUT=2" in done.stdout

    def test_a_source_that_takes_no_other_value_is_not_built(
        self, tmp_path: Path, run: Callable[[str], subprocess.CompletedProcess[str]]
    ) -> None:
        done = run("#define\tPERIODIC_TIMEOUT\t30\n")
        assert done.returncode == 1
        assert "PERIODIC_TIMEOUT can't be set from outside" in done.stderr
        assert not (tmp_path / "flags").exists()


PODMAN = """
echo "$*" >>"$TRIAL/said"
if [ "$1" = run ]; then
    for word in "$@"; do
        case $word in *:/out) folder=${word%:/out} ;; esac
    done
    echo "what apt says" >&2
    DONE
fi
"""


class TestBuild:
    @pytest.fixture(autouse=True)
    def outside(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(base_image, "ensure", lambda release: f"image-of-{release}")
        monkeypatch.setattr(podman, "as_root", lambda command: command)

    def test_the_package_is_kept_and_the_container_is_not(
        self, tmp_path: Path, programs: Callable[[dict[str, str]], None]
    ) -> None:
        programs({"podman": PODMAN.replace("DONE", 'touch "$folder/slurmctld_1_all.deb"')})
        package = slurmctld_package.build("trixie")
        assert package == Path("build/packages/slurmctld_1_all.deb")
        assert sorted(path.name for path in package.parent.iterdir()) == [
            "slurmctld-trixie.log",
            "slurmctld_1_all.deb",
        ]
        run, remove = (tmp_path / "said").read_text().splitlines()
        assert "image-of-trixie" in run
        assert remove == "rm --force --ignore --time 0 muster-slurmctld-package-trixie"

    def test_a_build_that_fails_says_why(
        self, tmp_path: Path, programs: Callable[[dict[str, str]], None]
    ) -> None:
        programs({"podman": PODMAN.replace("DONE", "exit 100")})
        with pytest.raises(podman.MachineError, match=r"built: what apt says; see build/packages"):
            slurmctld_package.build("trixie")
        assert "rm --force" in (tmp_path / "said").read_text()
