"""The command of an environment, run as a build runs it, with uv and wheels that it makes."""

import hashlib
import http.server
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from muster.definition import requirements
from muster.render import build_commands

VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
UV = Path(sys.executable).with_name("uv")

Index = Callable[..., str]


def wheel(folder: Path, version: str, needs: str = "", name: str = "greeting") -> str:
    """Write a wheel of a package; return its requirement with the hash."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    texts = {
        f"{name}.py": f'VERSION = "{version}"\n',
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\ngreet = greeting:__name__.title\n",
    }
    texts[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*texts, f"{info}/RECORD"])
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in texts.items():
            archive.writestr(zipfile.ZipInfo(member), text)
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


class Build(NamedTuple):
    """What a build has left."""

    code: int
    said: str
    root: Path
    temporary: Path

    def run(self, *words: str) -> str:
        """Return what the environment's Python prints."""
        return subprocess.run(
            [self.root / "bin/python3", *words],
            env={"PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout


def build(folder: Path, text: str, config: str = "", *, pip: str = "--without-pip") -> Build:
    """Run the command as muster-build does: the folder is there, TMPDIR is all that it may use.

    Only where `pip` is empty the environment gets it, which takes longer than all else.
    """
    assert list(requirements.faults(text)) == []
    root, temporary, system = folder / "root", folder / "temporary", folder / "etc"
    for made in (root, temporary, system / "uv"):
        made.mkdir(parents=True)
    Path(f"{root}.txt").write_text(text, encoding="utf-8")
    (system / "uv/uv.toml").write_text(config, encoding="utf-8")
    prefix = folder / "python"
    (prefix / "bin").mkdir(parents=True)
    # As an interpreter module: a virtual environment is made from it.
    (prefix / "bin/python3").symlink_to(sys.executable)
    index = requirements.has_index(text)
    command = build_commands.environment(str(root), str(prefix), f"{root}.txt", has_index=index)
    command = command.replace(build_commands.UV, str(UV)).replace("-m venv", f"-m venv {pip}")
    done = subprocess.run(
        ["/bin/sh", "-ec", command],
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(temporary),
            "TMPDIR": str(temporary),
            "XDG_CONFIG_DIRS": str(system),
        },
        cwd="/",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return Build(done.returncode, done.stdout, root, temporary)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    """Return `index(name, version...)`, which serves wheels and returns an address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

        def __init__(self, *words: object, **more: object) -> None:
            super().__init__(*words, directory=str(tmp_path / "indexes"), **more)  # type: ignore[arg-type]

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def index(name: str, *versions: str) -> str:
        for version in versions:
            wheel(tmp_path / "indexes" / name / "greeting", version)
        return f"http://127.0.0.1:{server.server_port}/{name}"

    yield index
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """An environment of a folder with wheels."""
    folder = tmp_path_factory.mktemp("environment")
    requirement = wheel(folder / "wheels", "1")
    options = f"--no-index\n--find-links {folder}/wheels\n--only-binary :all:\n"
    made = build(folder, options + requirement, pip="")
    assert made.code == 0, made.said
    return made


def test_it_has_what_its_requirements_say_and_pip_for_users(built: Build) -> None:
    program = "import greeting, sys; print(greeting.VERSION, sys.prefix)"
    assert built.run("-c", program) == f"1 {built.root}\n"
    assert "greeting 1\n" in built.run("-m", "pip", "list", "--format=freeze").replace("==", " ")
    first = (built.root / "bin/greet").read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith(f"#!{built.root}/bin/python")


def test_a_user_who_can_not_write_there_finds_the_bytecode(built: Build) -> None:
    packages = built.root / "lib" / VERSION / "site-packages"
    assert [*packages.glob("__pycache__/greeting.*.pyc")]


def test_nothing_is_left_where_it_worked_and_nothing_is_linked_to_it(built: Build) -> None:
    assert [path for path in built.temporary.rglob("*") if path.is_file()] == []
    files = [path for path in built.root.rglob("*") if path.is_file() and not path.is_symlink()]
    assert {path.stat().st_nlink for path in files} == {1}


def test_a_wrong_file_is_refused(tmp_path: Path) -> None:
    requirement = wheel(tmp_path / "wheels", "1")
    options = f"--no-index\n--find-links {tmp_path}/wheels\n"
    made = build(tmp_path, f"{options}{requirement[:-64]}{'0' * 64}")
    assert made.code != 0
    assert "Hash mismatch for `greeting==1`" in made.said


def test_what_is_needed_and_not_in_the_file_is_refused(tmp_path: Path) -> None:
    requirement = wheel(tmp_path / "wheels", "1", "Requires-Dist: names\n")
    wheel(tmp_path / "wheels", "1", name="names")
    options = f"--no-index\n--find-links {tmp_path}/wheels\n"
    made = build(tmp_path, f"{options}{requirement}")
    assert made.code != 0
    assert "no trusted hash was provided for: `names`" in made.said


def test_of_several_indexes_the_hash_decides(tmp_path: Path, index: Index) -> None:
    """By itself uv takes the first that has the package, and looks at no other."""
    addresses = index("all", "1", "2"), index("newest", "2")
    requirement = wheel(tmp_path / "wheels", "1")
    options = f"--index-url {addresses[0]}\n--extra-index-url {addresses[1]}\n"
    made = build(tmp_path, options + requirement)
    assert made.code == 0, made.said


def test_a_mirror_of_the_host_is_asked(tmp_path: Path, index: Index) -> None:
    mirror = f'[[index]]\nurl = "{index("mirror", "1")}"\ndefault = true\n'
    made = build(tmp_path, wheel(tmp_path / "wheels", "1"), mirror)
    assert made.code == 0, made.said


def test_an_index_of_the_file_is_asked_and_not_the_host_s(tmp_path: Path, index: Index) -> None:
    mirror = f'[[index]]\nurl = "{index("mirror", "2")}"\ndefault = true\n'
    options = f"--index-url {index('own', '1')}\n"
    made = build(tmp_path, options + wheel(tmp_path / "wheels", "1"), mirror)
    assert made.code == 0, made.said


def test_a_file_that_wants_no_index_has_none_asked(tmp_path: Path) -> None:
    mirror = '[[index]]\nurl = "http://127.0.0.1:9/simple"\ndefault = true\n'
    requirement = wheel(tmp_path / "wheels", "1")
    made = build(tmp_path, f"--no-index\n--find-links {tmp_path}/wheels\n{requirement}", mirror)
    assert made.code == 0, made.said


def test_options_that_change_nothing_are_passed_over(tmp_path: Path) -> None:
    requirement = wheel(tmp_path / "wheels", "1")
    options = f"--no-index\n--find-links {tmp_path}/wheels\n--pre\n--prefer-binary\n"
    made = build(tmp_path, f"{options}--require-hashes\n{requirement}")
    assert made.code == 0, made.said
