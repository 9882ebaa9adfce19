"""When the client of the Hugging Face hub is installed again, and what installing leaves."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from model_library import LIBRARY

PROGRAM = LIBRARY / "install-locked"
ROLE = Path(__file__).parents[4] / "roles/models"

PYTHON = """#!/bin/sh
if [ "$1 $2 $3" = "-I -m venv" ]; then
    mkdir -p "$4/bin" && cp "$0" "$4/bin/python"
else
    echo "$*" >>{calls}
    exit {code}
fi
"""


def client(distribution: str, major_version: str) -> str:
    """Return the folder of the client on a host of this system."""
    variables = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))
    environment = jinja2.Environment(autoescape=False)  # noqa: S701 (no HTML)
    environment.filters["hash"] = lambda text, _: f"hash-of-{text}"
    facts = {"distribution": distribution, "distribution_major_version": major_version}
    return environment.from_string(variables["__models_client"]).render(
        ansible_facts=facts, lookup=lambda *_, **__: "lock"
    )


def test_another_release_of_the_distribution_gets_another_one() -> None:
    """The Python that it was made with has gone; that of the new release does not find it."""
    assert client("Debian", "12") == "/opt/muster-models/hash-of-lock-debian-12"
    assert client("Debian", "13") == "/opt/muster-models/hash-of-lock-debian-13"


def test_the_program_is_told_the_folder_that_the_play_looks_for() -> None:
    tasks: list[dict[str, Any]] = yaml.safe_load((ROLE / "tasks/install.yml").read_text())
    command = next(task for task in tasks if "ansible.builtin.command" in task)
    words = command["ansible.builtin.command"]
    assert words["argv"][0] == f"/usr/local/lib/muster/{PROGRAM.name}"
    assert words["argv"][1] == words["creates"] == "{{ __models_client }}"
    variables = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))
    written = [file["dest"] for file in variables["__models_files"]]
    assert words["argv"][0] in written
    assert words["argv"][2] in written


@pytest.fixture
def install(tmp_path: Path):
    """Run the program with another Python, which only writes down what pip is told."""

    def install(
        folder: Path, code: int = 0, path: str = "/usr/bin:/bin"
    ) -> "subprocess.CompletedProcess[str]":
        python = tmp_path / "python3"
        python.write_text(PYTHON.format(calls=tmp_path / "calls", code=code))
        python.chmod(0o755)
        text = PROGRAM.read_text(encoding="utf-8").replace("/usr/bin/python3", str(python))
        words = [str(folder), "lock.txt", "the client", "do without", "--find-links", "/opt/a b"]
        return subprocess.run(
            ["sh", "-c", text, PROGRAM.name, *words],
            env={"PATH": path},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return install


def test_the_former_ones_go_when_the_new_one_is_there(install, tmp_path: Path) -> None:
    top = tmp_path / "opt"
    for name in ("lock", "lock-debian-12", "lock-debian-13"):
        done = install(top / name)
        assert (done.returncode, done.stderr) == (0, "")
        assert sorted(path.name for path in top.iterdir()) == ["current", name]
        assert (top / "current").readlink() == top / name
        assert (top / "current/bin/python").is_file()
    calls = (tmp_path / "calls").read_text()
    assert calls.startswith("-I -m pip install ")
    assert " --find-links /opt/a b --require-hashes --requirement lock.txt\n" in calls


def test_one_that_fails_leaves_the_former_one(install, tmp_path: Path) -> None:
    top = tmp_path / "opt"
    install(top / "lock-debian-12")
    done = install(top / "lock-debian-13", code=1)
    assert done.returncode == 1
    assert done.stderr == "the client can't be installed: do without\n"
    assert (top / "current").readlink() == top / "lock-debian-12"
    assert not (top / "lock-debian-13").exists()


def test_killed_at_any_step_it_is_whole_or_installed_again(install, tmp_path: Path) -> None:
    folder, count = tmp_path / "opt/lock-debian-13", tmp_path / "count"
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("find", "ln", "mkdir", "mv", "rm"):
        text = f"#!/bin/sh\nread n <{count}; echo $((n - 1)) >{count}\n"
        text += f'[ $n -gt 0 ] || kill -9 $PPID\nexec /bin/{name} "$@"\n'
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    for step in range(20):
        install(tmp_path / "opt/lock-debian-12")
        count.write_text(f"{step}\n")
        done = install(folder, path=f"{programs}:/usr/bin:/bin")
        # The play looks for the folder.
        if folder.exists():
            assert (folder.parent / "current").readlink() == folder
        if done.returncode == 0:
            break
        assert install(folder).returncode == 0
        assert (folder.parent / "current/bin/python").is_file()
        shutil.rmtree(folder.parent)
    assert step > 5
