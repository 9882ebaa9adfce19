"""What is built into which folder: its name changes with all that the software is made from."""

import hashlib
import shlex
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from broken_servers import told_server

from muster.definition.schema.software import Archive, Software
from muster.render import build_commands
from muster.render.releases import Release, releases

PYTHON = {"build": "python3 -m venv {root}"}
TEXTS = {"software/torch.txt": "torch==2 --hash=sha256:1"}
TORCH = {"environment": {"python": "apps/python/3", "requirements": "software/torch.txt"}}


def made(
    modules: dict[str, Any], os: str = "debian-12", texts: dict[str, str] | None = None
) -> dict[str, Release]:
    """Releases of modules given as `{"apps/python/3": {...}}`."""
    tree: dict[str, dict[str, Any]] = {}
    for name, data in modules.items():
        family, _, version = name.rpartition("/")
        tree.setdefault(family, {})[version] = data
    software = Software.model_validate({"modules": tree})
    return releases(software, "/apps", os, texts or TEXTS)


def root(data: dict[str, Any], **more: Any) -> str:
    return made({"apps/tool/1": data}, **more)["apps/tool/1"].root


def test_a_release_is_a_folder_of_its_version_and_stays_the_same() -> None:
    folder, _, digest = root({"build": "make {root}"}).rpartition("/")
    assert folder == "/apps/software/apps/tool/1"
    assert (len(digest), int(digest, 16) > 0) == (16, True)
    assert root({"build": "make {root}", "root": "/apps/tools"}) == f"/apps/tools/{digest}"


CHANGES: dict[str, dict[str, Any]] = {
    "the command": {"data": {"build": "make -j2 {root}", "packages": ["a"]}},
    "a package that it needs": {"data": {"build": "make {root}", "packages": ["a", "b"]}},
    "a package of the build": {
        "data": {"build": "make {root}", "packages": ["a"], "build_packages": ["c"]}
    },
    "the form": {"data": {"build": "make {root}", "packages": ["a"], "form": "squashfs"}},
    "what is verified": {"data": {"build": "make {root}", "packages": ["a"], "imports": ["a"]}},
    "the system": {"os": "debian-13"},
}


@pytest.mark.parametrize("change", CHANGES)
def test_it_is_another_one_after_a_change_of(change: str) -> None:
    given = {"data": {"build": "make {root}", "packages": ["a"]}, **CHANGES[change]}
    assert root(**given) != root({"build": "make {root}", "packages": ["a"]})


@pytest.mark.parametrize(
    "words", [{"whatis": "A tool"}, {"default": True}, {"env": {"A": "{root}"}}, {"built": False}]
)
def test_what_only_the_modulefile_says_makes_no_other_one(words: dict[str, Any]) -> None:
    assert root({"build": "make {root}", **words}) == root({"build": "make {root}"})


def test_requirements_are_a_part_of_an_environment() -> None:
    modules = {"apps/python/3": PYTHON, "libs/torch/2": TORCH}
    before, after = made(modules), made(modules, texts={"software/torch.txt": "torch==3"})
    assert before["apps/python/3"].root == after["apps/python/3"].root
    assert before["libs/torch/2"].root != after["libs/torch/2"].root
    assert after["libs/torch/2"].requirements == "torch==3"


def test_what_is_built_on_another_one_changes_with_it() -> None:
    modules = {
        "apps/python/3": PYTHON,
        "libs/torch/2": TORCH,
        "libs/tools/1": {"build": "{libs/torch/2}/bin/pip install {root}"},
        "apps/other/1": {"build": "make {root}"},
    }
    before = made(modules)
    after = made({**modules, "apps/python/3": {"build": "python3 -m venv --copies {root}"}})
    same = {name for name in modules if before[name].root == after[name].root}
    assert same == {"apps/other/1"}
    assert after["libs/tools/1"].built_on == (after["libs/torch/2"].root,)
    assert after["libs/torch/2"].built_on == (after["apps/python/3"].root,)


def test_one_that_stands_elsewhere_is_in_the_paths_of_what_is_built_on_it() -> None:
    modules = {"apps/python/3": {"root": "/opt/python"}, "libs/torch/2": TORCH}
    moved = {**modules, "apps/python/3": {"root": "/opt/python3"}}
    assert made(modules)["apps/python/3"].root == "/opt/python"
    torch = made(modules)["libs/torch/2"]
    assert torch.root != made(moved)["libs/torch/2"].root
    # It need not stay as long, as releases do: nobody here can say whether it is there.
    assert (torch.beside, torch.built_on) == (("/opt/python",), ())


def test_an_environment_is_made_by_the_interpreter_of_its_module_and_filled_by_uv() -> None:
    releases_of = made({"apps/python/3": PYTHON, "libs/torch/2": TORCH})
    python, torch = releases_of["apps/python/3"].root, releases_of["libs/torch/2"]
    assert torch.command is not None
    made_by, filled_by = torch.command.split(" && ")
    assert made_by == f"{python}/bin/python3 -m venv {torch.root}"
    words = shlex.split(filled_by)
    assert words[:5] == [
        "/opt/muster-uv/current/bin/uv",
        "pip",
        "install",
        "--python",
        f"{torch.root}/bin/python3",
    ]
    assert words[-3:] == ["--require-hashes", "--requirement", f"{torch.root}.txt"]


def test_an_archive_is_the_same_wherever_it_comes_from() -> None:
    archives = [
        {"archive": {"url": f"https://{host}/tool.tgz", "sha256": digit * 64}}
        for host, digit in (("a.example", "1"), ("b.example", "1"), ("a.example", "2"))
    ]
    first, elsewhere, another = map(root, archives)
    assert first == elsewhere != another
    release = made({"apps/tool/1": archives[0]})["apps/tool/1"]
    assert {"curl", "libarchive-tools"} <= {*release.packages}


def test_a_packed_release_has_a_file_of_its_own_and_the_build_gets_what_packs() -> None:
    # Commands that are alike make folders with one name, in two modules.
    alike = {"build": "make {root}"}
    packed = {"build": "make {root}", "form": "squashfs"}
    folders = made({"apps/a/1": alike, "apps/b/1": alike})
    first, second = made({"apps/a/1": packed, "apps/b/1": packed}).values()
    assert {release.image for release in folders.values()} == {None}
    assert len({release.root.rpartition("/")[2] for release in folders.values()}) == 1
    for release in (first, second):
        name = release.root.rpartition("/")[2]
        assert release.image == f"/apps/.muster/images/{name}.squashfs"
        assert release.packages == ("squashfs-tools",)
    assert first.image != second.image


# The command of an archive, run as a build runs it. bsdtar stands in if it is not installed.

BSDTAR = """#!/usr/bin/python3
import os, pathlib, shutil, sys, tarfile, tempfile, zipfile
words = sys.argv[1:]
value = {name: words[i + 1] for i, name in enumerate(words) if name.startswith("--")
         and name in ("--file", "--directory", "--strip-components")}
zipped = zipfile.is_zipfile(value["--file"])
opened = (zipfile.ZipFile if zipped else tarfile.open)(value["--file"])
if "--list" in words:
    print("\\n".join(opened.namelist() if zipped else [
        m.name + ("/" if m.isdir() else "") for m in opened.getmembers()]))
else:
    strip = int(value["--strip-components"])
    for entry in opened.infolist() if zipped else opened.getmembers():
        name = entry.filename if zipped else entry.name
        # As libarchive counts: a dot in front is a component too.
        rest = name.split("/", strip)[strip:]
        if rest and rest[0] and not name.endswith("/") and (zipped or entry.isfile()):
            there = pathlib.Path(value["--directory"], rest[0])
            there.parent.mkdir(parents=True, exist_ok=True)
            with (opened.open if zipped else opened.extractfile)(entry) as stream:
                there.write_bytes(stream.read())
"""


@pytest.fixture
def unpack(tmp_path: Path) -> Callable[[Path, str | None], "subprocess.CompletedProcess[str]"]:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "bsdtar").write_text(BSDTAR)
    (programs / "bsdtar").chmod(0o755)
    (tmp_path / "tmp").mkdir()

    def unpack(file: Path, sha256: str | None = None) -> "subprocess.CompletedProcess[str]":
        there = tmp_path / "root"
        there.mkdir()
        source = Archive(
            url=f"file://{file}",
            sha256=sha256 or hashlib.sha256(file.read_bytes()).hexdigest(),
        )
        path = f"/usr/bin:/bin:{programs}"
        return subprocess.run(
            ["/bin/sh", "-ec", build_commands.archive(str(there), source)],
            env={"PATH": path, "TMPDIR": str(tmp_path / "tmp")},
            capture_output=True,
            text=True,
            check=False,
        )

    return unpack


def files_below(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


LAYOUTS = {
    "a folder around it": (["tool-1.0/bin/tool", "tool-1.0/README"], ["README", "bin/tool"]),
    "several at the top": (["bin/tool", "README"], ["README", "bin/tool"]),
    "one file": (["tool"], ["tool"]),
    "with a dot in front": (["./tool-1.0/bin/tool", "./tool-1.0/README"], ["README", "bin/tool"]),
    "with dots in front of several": (["./bin/tool", "./README"], ["README", "bin/tool"]),
    "with a dot in front of one": (
        ["./tool/bin/tool", "tool/README"],
        ["tool/README", "tool/bin/tool"],
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
def test_an_archive_is_unpacked_without_the_one_folder_around_it(
    layout: str, kind: str, tmp_path: Path, unpack
) -> None:
    names, expected = LAYOUTS[layout]
    file = tmp_path / f"tool.{kind}"
    content = tmp_path / "content"
    content.write_text("x")
    if kind == "zip":
        with zipfile.ZipFile(file, "w") as opened:
            for name in names:
                opened.writestr(name, "x")
    else:
        with tarfile.open(file, "w:gz") as packed:
            for name in names:
                packed.add(content, name)
    done = unpack(file)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert files_below(tmp_path / "root") == expected


def test_an_archive_with_another_digest_is_not_unpacked(tmp_path: Path, unpack) -> None:
    file = tmp_path / "tool.tar"
    with tarfile.open(file, "w") as packed:
        packed.add(__file__, "tool")
    real = hashlib.sha256(file.read_bytes()).hexdigest()
    done = unpack(file, "0" * 64)
    assert done.returncode == 1
    assert done.stdout == (f"file://{file} has another sha256 than the definition says: {real}\n")
    assert files_below(tmp_path / "root") == []


def test_a_server_that_fails_for_a_moment_is_asked_again(tmp_path: Path) -> None:
    with told_server([(503, ""), (200, "another")]) as (host, paths):
        source = Archive(url=f"http://{host}/tool.tar", sha256="0" * 64)
        done = subprocess.run(
            ["/bin/sh", "-ec", build_commands.archive(str(tmp_path), source)],
            env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert "has another sha256 than the definition says" in done.stdout
    assert len(paths) == 2


def test_an_archive_that_is_not_there_ends_the_build(tmp_path: Path, unpack) -> None:
    done = unpack(tmp_path / "none.tar", "0" * 64)
    assert done.returncode != 0
    assert "none.tar" in done.stderr
