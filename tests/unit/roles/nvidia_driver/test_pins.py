"""What apt makes of the role's pins, with a repository of NVIDIA's that has everything newer.

Its package lists are written here: nothing is fetched.
"""

import subprocess
from pathlib import Path

import jinja2
import pytest
from ansible.plugins.filter.urlsplit import FilterModule

from muster.catalog.nvidia import dcgm

ROLE = Path(__file__).parents[4] / "roles/nvidia_driver"
PREFERENCES = "etc/apt/preferences.d/muster-nvidia.j2"
SOURCE = dcgm("debian-12", 535)
DEBIAN = {"libcuda1": "535.261.03-1", "nvidia-persistenced": "535.171.04-1", "curl": "7.88.1-10"}
NVIDIA = {
    "libcuda1": "535.288.01-1",
    "nvidia-persistenced": "595.45-1",
    "curl": "9.0-1",
    "cuda-drivers": "595.45-1",
    "datacenter-gpu-manager-4-core": "1:4.7.0-1",
    "datacenter-gpu-manager-exporter": "4.8.2-1",
}


def rendered(*sources) -> str:
    environment = jinja2.Environment(  # noqa: S701 - no HTML
        loader=jinja2.FileSystemLoader(ROLE / "templates"), trim_blocks=True
    )
    environment.filters |= FilterModule().filters() | {"comment": str}
    return environment.get_template(PREFERENCES).render(
        ansible_managed="", nvidia_driver_branch=535, __nvidia_driver_sources=sources
    )


def write_lists(folder: Path, name: str, release: str, packages: dict[str, str]) -> None:
    """Write what apt would have fetched of a repository."""
    stanzas = [
        f"Package: {package}\nVersion: {version}\nArchitecture: amd64\nMaintainer: X <x@x.org>\n"
        f"Filename: {package}.deb\nSize: 1\nDescription: {package}\n"
        for package, version in packages.items()
    ]
    (folder / f"{name}_Packages").write_text("\n".join(stanzas))
    release_file = f"{name.partition('_non-free')[0]}_Release"
    (folder / release_file).write_text(f"{release}\nDate: Sat, 21 Nov 2026 00:00:00 UTC\n")


@pytest.fixture
def candidate(tmp_path):
    """Return what tells which version apt would install of a package, under preferences."""
    lists = tmp_path / "lists"
    (lists / "partial").mkdir(parents=True)
    debian = "debian.example.org_debian_dists_bookworm"
    write_lists(
        lists,
        f"{debian}_non-free_binary-amd64",
        "Origin: Debian\nCodename: bookworm\nComponents: non-free\nArchitectures: amd64",
        DEBIAN,
    )
    nvidia = SOURCE.repository.removeprefix("https://").rstrip("/")
    # As apt writes an address in the name of a file.
    name = nvidia.replace("_", "%5f").replace("/", "_")
    write_lists(lists, name, "Origin: NVIDIA", NVIDIA)
    (tmp_path / "sources.list").write_text(
        "deb [trusted=yes] https://debian.example.org/debian bookworm non-free\n"
        f"deb [trusted=yes] {SOURCE.repository} /\n"
    )
    (tmp_path / "status").touch()

    def ask(package: str, preferences: str) -> str:
        (tmp_path / "preferences").write_text(preferences)
        options = {
            "Dir::Etc::SourceList": tmp_path / "sources.list",
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::Etc::Preferences": tmp_path / "preferences",
            "Dir::Etc::PreferencesParts": "/dev/null",
            "Dir::State::Lists": lists,
            "Dir::State::Status": tmp_path / "status",
            "Dir::Cache": tmp_path,
            "APT::Architecture": "amd64",
            "APT::Architectures": "amd64",
        }
        words = [word for pair in options.items() for word in ("-o", "{}={}".format(*pair))]
        command = ["apt-cache", *words, "policy", package]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
        assert done.stderr == ""
        policy = dict(line.strip().split(": ", 1) for line in done.stdout.splitlines()[1:3])
        return policy["Candidate"]

    return ask


def test_without_pins_of_the_repository_the_driver_would_come_from_it(candidate):
    """The version that the role asks for is there too, and a higher one."""
    assert candidate("libcuda1", rendered()) == NVIDIA["libcuda1"]


@pytest.mark.parametrize("package", DEBIAN)
def test_nvidias_repository_replaces_nothing_of_the_distribution(candidate, package):
    assert candidate(package, rendered(SOURCE)) == DEBIAN[package]


def test_it_gives_what_it_was_added_for(candidate):
    for package in ("datacenter-gpu-manager-4-core", "datacenter-gpu-manager-exporter"):
        assert candidate(package, rendered(SOURCE)) == NVIDIA[package]


def test_it_gives_nothing_else(candidate):
    assert candidate("cuda-drivers", rendered(SOURCE)) == "(none)"
