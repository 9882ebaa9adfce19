"""What the module apt_source makes of the sources that a host has."""

import hashlib
import importlib.util
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FILE = Path(__file__).parents[3] / "ansible/plugins/modules/apt_source.py"
CONTRIB = ["contrib", "non-free"]
MIRROR = "http://mirror.example.org/debian/"


@pytest.fixture(scope="module")
def module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("apt_source", FILE)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def targets(*rows: str, entry: str = "/etc/apt/sources.list:1") -> list[dict[str, str]]:
    """As `apt-get indextargets` says it: release/component, of one archive."""
    return [
        {
            "SOURCESENTRY": entry,
            "REPO_URI": MIRROR,
            "RELEASE": row.split("/")[0],
            "COMPONENT": row.split("/")[1],
            "ORIGIN": "Debian",
        }
        for row in rows
    ]


def plain(path: str) -> str:
    return f"deb {MIRROR} bookworm main\n"


def test_components_come_from_the_mirror_that_the_host_uses(module: ModuleType) -> None:
    stanzas = module.wanted_stanzas(targets("bookworm/main"), CONTRIB, plain)
    assert stanzas == [
        f"Types: deb\nURIs: {MIRROR}\nSuites: bookworm\nComponents: contrib non-free"
    ]


def test_what_the_host_has_already_is_left_out(module: ModuleType) -> None:
    there = targets("bookworm/main", "bookworm/contrib")
    assert "Components: non-free" in module.wanted_stanzas(there, CONTRIB, plain)[0]
    there += targets("bookworm/non-free")
    assert module.wanted_stanzas(there, CONTRIB, plain) == []


def test_each_suite_gets_them(module: ModuleType) -> None:
    there = targets("bookworm/main", "bookworm-updates/main", "bookworm-security/main")
    stanzas = module.wanted_stanzas(there, CONTRIB, plain)
    assert [line.split("Suites: ")[1].split("\n")[0] for line in stanzas] == [
        "bookworm",
        "bookworm-updates",
        "bookworm-security",
    ]


def test_a_foreign_repository_is_no_part_of_the_distribution(module: ModuleType) -> None:
    foreign = [{**target, "ORIGIN": "cloud-sdk"} for target in targets("bookworm/main")]
    assert module.wanted_stanzas(foreign, CONTRIB, plain) == []


@pytest.mark.parametrize(
    ("entry", "text", "key"),
    [
        ("/etc/apt/sources.list:2", "# x\ndeb [signed-by=/k.gpg arch=amd64] u s main\n", "/k.gpg"),
        ("/etc/apt/sources.list:1", "deb u s main\n", ""),
        (
            "/etc/apt/sources.list.d/debian.sources:2",
            "Types: deb\n# http://x\nSigned-By: /one.gpg\n\nTypes: deb\nSigned-By: /two.gpg\n",
            "/two.gpg",
        ),
        ("/etc/apt/sources.list.d/debian.sources:1", "Types: deb\nURIs: u\n", ""),
        (
            "/etc/apt/sources.list.d/own.sources:1",
            "Types: deb\nSigned-By:\n -----BEGIN\n .\n abc\nURIs: u\n",
            "\n -----BEGIN\n .\n abc",
        ),
    ],
)
def test_the_key_is_the_one_of_the_entry(
    module: ModuleType, entry: str, text: str, key: str
) -> None:
    """Two keys for one archive are an error of apt's."""
    assert module.key_of(text, entry) == key


@pytest.mark.skipif(not shutil.which("apt-get"), reason="no apt here")
def test_apt_itself_takes_the_file_and_names_its_lists(
    module: ModuleType, tmp_path: Path, run_module: Callable[..., Any]
) -> None:
    """Real apt with a folder of its own as its whole world: an archive of files."""
    archive = tmp_path / "archive"
    release = archive / "dists/bookworm"
    lines = ["Origin: Debian", "Codename: bookworm", "Components: main contrib"]
    lines += ["Architectures: amd64", "Date: Sat, 10 Jun 2023 08:00:00 UTC", "SHA256:"]
    for component in ("main", "contrib"):
        index = release / component / "binary-amd64/Packages"
        index.parent.mkdir(parents=True)
        text = f"Package: of-{component}\nVersion: 1\nArchitecture: amd64\nFilename: x\nSize: 1\n"
        index.write_text(text)
        digest = hashlib.sha256(text.encode()).hexdigest()
        lines.append(f" {digest} {len(text)} {index.relative_to(release)}")
    (release / "Release").write_text("\n".join([*lines, ""]))
    parts = tmp_path / "etc/sources.list.d"
    parts.mkdir(parents=True)
    (parts / "own.list").write_text(f"deb file:{archive} bookworm main\n")
    (tmp_path / "lists/partial").mkdir(parents=True)
    config = tmp_path / "apt.conf"
    config.write_text(
        f'Dir::Etc "{tmp_path}/etc"; Dir::State::lists "{tmp_path}/lists";\n'
        f'Dir::Cache "{tmp_path}"; APT::Architecture "amd64"; APT::Sandbox::User "root";\n'
        # The archive is signed by nobody.
        'Acquire::AllowInsecureRepositories "true";\n'
    )
    copy = tmp_path / "apt_source.py"
    copy.write_text(FILE.read_text().replace('"/etc/apt/sources.list.d"', f'"{parts}"'))
    env = {**os.environ, "APT_CONFIG": str(config)}
    given = {"name": "trial", "components": ["contrib"]}

    first = run_module(str(copy.with_suffix("")), given, env=env)
    assert first["changed"], first.printed
    written = (parts / "muster-trial.sources").read_text()
    assert f"URIs: file:{archive}/\nSuites: bookworm\nComponents: contrib" in written
    lists = [file.name for file in (tmp_path / "lists").iterdir()]
    assert any("contrib" in name for name in lists), lists

    assert not run_module(str(copy.with_suffix("")), given, env=env)["changed"]
    # As after a run that was killed between the file and its lists.
    for file in (tmp_path / "lists").glob("*contrib*"):
        file.unlink()
    again = run_module(str(copy.with_suffix("")), given, env=env)
    assert again["changed"], again.printed
