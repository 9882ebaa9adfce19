"""muster-updates: what apt's programs print, and what follows from it."""

import importlib.util
from pathlib import Path

import pytest

FILE = Path(__file__).parents[4] / "roles/base/files/muster_updates.py"
spec = importlib.util.spec_from_file_location("muster_updates", FILE)
program = importlib.util.module_from_spec(spec)
spec.loader.exec_module(program)

# As apt 2.6 and 3.0 print it.
POLICY = """\
slurmd:
  Installed: 22.05.8-4+deb12u1
  Candidate: 22.05.8-4+deb12u3
  Version table:
     22.05.8-4+deb12u3 500
        500 http://archive.example.org/debian bookworm/main amd64 Packages
     22.05.8-4+deb12u2 500
        500 http://security.debian.org/debian-security bookworm-security/main amd64 Packages
 *** 22.05.8-4+deb12u1 100
        100 /var/lib/dpkg/status
munge:
  Installed: 0.5.15-2
  Candidate: 0.5.15-2
  Version table:
 *** 0.5.15-2 500
        500 http://archive.example.org/debian bookworm/main amd64 Packages
        100 /var/lib/dpkg/status
     0.5.14-4 500
        500 http://security.debian.org/debian-security bookworm-security/main amd64 Packages
mariadb-server:
  Installed: 1:10.11.6-0+deb12u1
  Candidate: 1:10.11.6-0+deb12u1
  Version table:
     1:10.11.14-0+deb12u2 -1
         -1 http://archive.example.org/debian bookworm/main amd64 Packages
 *** 1:10.11.6-0+deb12u1 100
        100 /var/lib/dpkg/status
nvidia-driver-libs:
  Installed: 580.1-1
  Candidate: 580.2-1
  Version table:
     590.1-1 500
        500 https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64  Packages
     580.2-1 990
        500 https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64  Packages
 *** 580.1-1 100
        100 /var/lib/dpkg/status
"""


def test_updates_are_told_with_their_archive() -> None:
    # Not mariadb-server: apt is told not to install that version.
    slurmd, nvidia = program.pending(POLICY)
    assert slurmd == ("slurmd", "22.05.8-4+deb12u1", "22.05.8-4+deb12u3", "bookworm/main", True)
    # As the role nvidia_driver pins it: another branch is no update.
    assert nvidia[:3] == ("nvidia-driver-libs", "580.1-1", "580.2-1")
    assert nvidia.archive.startswith("https://developer.download.nvidia.com/")
    assert not nvidia.security


def test_packages_are_those_that_unattended_upgrades_leaves_alone() -> None:
    dump = 'Unattended-Upgrade::Package-Blacklist "";\n'
    dump += 'Unattended-Upgrade::Package-Blacklist:: "slurm";\n'
    dump += 'Unattended-Upgrade::Package-Blacklist:: "libpmi";\n'
    assert program.kept(dump) == ["slurm", "libpmi"]
    installed = "ii  slurmd\nii  slurmd\nrc  slurmctld\nii  openssl\nii  libpmi0\nii  my-slurm\n"
    assert program.names(installed, ["slurm", "libpmi"]) == ["libpmi0", "slurmd"]


def test_metrics_have_a_line_for_both_kinds_and_the_age_of_the_lists() -> None:
    lines = program.metrics(program.pending(POLICY), 1767225600.9).splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        'muster_pending_updates{security="true"} 1',
        'muster_pending_updates{security="false"} 1',
        "muster_package_lists_updated_seconds 1767225600",
    ]
    assert "muster_package_lists_updated_seconds 0\n" in program.metrics([], None)


@pytest.mark.parametrize(
    ("days", "said"), [(None, "it is not known"), (0, "are of today"), (9, "are 9 days old")]
)
def test_the_age_of_apt_s_lists_is_said(days: int | None, said: str) -> None:
    assert said in program.text([], days)
    assert "no newer version" in program.text([], days)
    assert "munge" not in program.text(program.pending(POLICY), days)
    assert "slurmd 22.05.8-4+deb12u1: 22.05.8-4+deb12u3 in bookworm/main (security)\n" in (
        program.text(program.pending(POLICY), days)
    )
