"""`make test` and `make proof`: what runs, what is printed, and what an end or a failure leaves."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import prove
import pytest

ROOT = Path(__file__).resolve().parents[2]
GIT = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
MAKEFILE = """\
Makefile always: ;
%: always
\t@if [ "$@$(MARK)" = "$$(cat build/fails)" ]; then echo "FAILED a::b"; exit 3; fi
\t@if [ -e build/sleeps ]; then trap 'echo removed' TERM; sleep 60 & wait; fi
\t@echo "$@ $(MARK)" >>build/ran
\t@echo "$@ $(TESTS)$(ROLE)" >>build/parts
"""
"""build/fails has the target and mark of what fails."""


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    """A repository in which each layer is a moment's work."""
    (tmp_path / "tests").mkdir()
    for name in ("prove.py", "changes.py", "since.py", "file_dependencies.py", "process_tree.py"):
        shutil.copy(Path(prove.__file__).with_name(name), tmp_path / "tests")
    (tmp_path / "build").mkdir()
    (tmp_path / ".gitignore").write_text("/build/\n__pycache__/\n")
    (tmp_path / "Makefile").write_text(MAKEFILE)
    (tmp_path / "build/fails").write_text("")
    commit(tmp_path)
    return tmp_path


def commit(folder: Path) -> None:
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "--allow-empty", "-m", "a"]):
        subprocess.run([*GIT, *words], cwd=folder, check=True, timeout=60)


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    for name in ("ran", "parts"):
        (folder / "build" / name).unlink(missing_ok=True)
    return subprocess.run(
        [sys.executable, "tests/prove.py", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def ran(folder: Path) -> list[str]:
    """The targets that ran to their end."""
    path = folder / "build/ran"
    return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []


def test_all_layers_run_and_their_seconds_are_printed(checkout):
    done = run(checkout, "test")
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(ran(checkout)) == sorted(layer.target for layer in prove.TEST)
    table = done.stdout.partition("=== seconds by layer\n")[2]
    assert {line.split()[1] for line in table.splitlines()[:-1]} == {x.name for x in prove.TEST}


def test_after_a_failure_the_others_run_and_it_is_named_with_its_log(checkout):
    (checkout / "build/fails").write_text("unit")
    done = run(checkout, "test")
    assert done.returncode == 1
    assert sorted(ran(checkout)) == sorted(x.target for x in prove.TEST if x.name != "unit")
    assert re.search(r"^ +\d+  unit +FAILED: build/prove/test/unit.log$", done.stdout, re.MULTILINE)
    assert "FAILED a::b\n" in (checkout / "build/prove/test/unit.log").read_text()
    assert done.stdout.splitlines()[-1] == "unit         | FAILED a::b"


def test_lines_of_layers_side_by_side_stay_whole():
    program = (
        "import threading, prove\n"
        "def talk(letter):\n"
        "    for _ in range(400): prove.say(letter * 40)\n"
        "threads = [threading.Thread(target=talk, args=(letter,)) for letter in 'abcdefgh']\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(prove.__file__).parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert {(len(line), len(set(line))) for line in done.stdout.splitlines()} == {(40, 1)}


def test_what_failed_is_said_at_the_end_pytests_summary_first(tmp_path):
    log = tmp_path / "log"
    log.write_text(
        "fatal: [a]: FAILED! => {}\nok: [a]\nE   assert 1 == 2\n"
        "muster/a.py:3: error: no such thing\nFAILED tests/a.py::test_a - assert 1 == 2\n"
    )
    assert prove.failures(log) == [
        "FAILED tests/a.py::test_a - assert 1 == 2",
        "fatal: [a]: FAILED! => {}",
        "E   assert 1 == 2",
        "muster/a.py:3: error: no such thing",
    ]
    assert prove.failures(tmp_path / "none") == []


def test_what_is_busy_runs_alone_and_no_two_share_what_there_is_once(checkout):
    done = run(checkout, "proof")
    assert done.returncode == 0, done.stdout + done.stderr
    layers = {layer.name: layer for layer in prove.PROOF}
    running: list[prove.Layer] = []
    for name, what in re.findall(r"^=== +\d+ s  (\S+) (begins|passed)", done.stdout, re.MULTILINE):
        if what == "begins":
            running.append(layers[name])
        else:
            running.remove(layers[name])
        assert sum(layer.places for layer in running) <= prove.PLACES
        once = [layer.resource for layer in running if layer.resource]
        assert len(once) == len(set(once))


def test_a_part_that_passed_at_this_commit_is_not_repeated(checkout):
    (checkout / "build/fails").write_text("engineproof")
    assert run(checkout, "proof").returncode == 1
    (checkout / "build/fails").write_text("")
    done = run(checkout, "proof")
    assert (done.returncode, ran(checkout)) == (0, ["engine"])
    assert "engine passed at this commit" not in done.stdout
    assert "schedules-1 passed at this commit; LAYER=schedules-1 repeats it" in done.stdout
    assert run(checkout, "proof", "--layer", "vm").returncode == 0
    assert ran(checkout) == ["vm"]


@pytest.mark.parametrize("changed", ["commit", "tree"])
def test_what_passed_before_a_change_is_repeated(checkout, changed):
    assert run(checkout, "proof").returncode == 0
    if changed == "commit":
        commit(checkout)
    else:
        (checkout / "file").touch()
    assert run(checkout, "proof").returncode == 0
    assert len(ran(checkout)) == len(prove.PROOF)


def test_a_part_that_there_is_not_is_refused_with_those_that_there_are(checkout):
    done = run(checkout, "proof", "--layer", "vn")
    assert done.returncode == 2
    assert f"no layer vn; there are {', '.join(x.name for x in prove.PROOF)}" in done.stderr


@pytest.fixture
def changed(checkout: Path) -> Path:
    """The repository with tests, some of them changed since the branch `before`."""
    for name in ("unit/test_a", "unit/test_b", "live/test_c", "live/test_d", "roles/test_munge"):
        path = checkout / f"tests/{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.touch()
    for role in ("munge", "users"):
        path = checkout / f"molecule/{role}/molecule.yml"
        path.parent.mkdir(parents=True)
        path.touch()
    commit(checkout)
    subprocess.run([*GIT, "branch", "before"], cwd=checkout, check=True, timeout=60)
    return checkout


def parts(folder: Path) -> list[str]:
    return sorted((folder / "build/parts").read_text().splitlines())


def test_since_runs_what_is_touched_and_says_what_it_leaves_out(changed):
    (changed / "tests/unit/test_a.py").write_text("import os\n")
    commit(changed)
    (changed / "tests/live/test_c.py").write_text("import os\n")
    (changed / "roles/munge").mkdir(parents=True)
    (changed / "roles/munge/README.md").touch()
    done = run(changed, "test", "--since", "before")
    assert done.returncode == 0, done.stdout + done.stderr
    assert parts(changed) == [
        *("cluster tests/live/test_c.py", "lint ", "molecule munge", "unit tests/unit/test_a.py")
    ]
    assert "\nroles/munge/README.md: molecule (munge)\n" in done.stdout
    for name in ("cloud", "engine", "vm"):
        reason = "left out: no changed path reaches its tests"
        assert re.search(rf"^     -  {name} +{reason}$", done.stdout, re.MULTILINE)


def test_since_what_others_changed_meanwhile_does_not_count(changed):
    (changed / "tests/unit/test_a.py").write_text("import os\n")
    commit(changed)
    for words in (["checkout", "-q", "before"], ["checkout", "-q", "-b", "mine"]):
        subprocess.run([*GIT, *words], cwd=changed, check=True, timeout=60)
    assert run(changed, "test", "--since", "HEAD").returncode == 0
    assert parts(changed) == ["lint "]
    subprocess.run([*GIT, "mv", "tests/live/test_c.py", "x"], cwd=changed, check=True, timeout=60)
    done = run(changed, "test", "--since", "before")
    assert "x: everything, no rule knows this path" in done.stdout
    assert "tests/live/test_c.py: " in done.stdout
    assert sorted(ran(changed)) == sorted(layer.target for layer in prove.TEST)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("test", "--since", "no-such-branch"), "no-such-branch"),
        (("proof", "--since", "before"), "--since is for the whole of `test`"),
        (("test", "--since", "before", "--layer", "unit"), "--since is for the whole of `test`"),
    ],
)
def test_since_what_is_refused(changed, words, said):
    done = run(changed, *words)
    assert (done.returncode, ran(changed)) == (2, [])
    assert said in done.stderr


def test_since_a_file_that_can_not_be_read_is_named(changed):
    (changed / "tests/unit/test_a.py").write_text("import\n")
    done = run(changed, "test", "--since", "before")
    assert (done.returncode, ran(changed)) == (2, [])
    assert "tests/unit/test_a.py:1: " in done.stderr


@pytest.fixture
def sleeping(checkout: Path) -> Iterator[subprocess.Popen[str]]:
    """A run whose first layer waits to be ended."""
    (checkout / "build/sleeps").touch()
    with subprocess.Popen(
        [sys.executable, "tests/prove.py", "test"], cwd=checkout, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        begun = time.monotonic()
        while f"{prove.TEST[0].name} begins" not in process.stdout.readline():
            assert time.monotonic() < begun + 60
        time.sleep(1)
        yield process
        process.kill()


@pytest.mark.parametrize(
    "numbers",
    [[signal.SIGINT], [signal.SIGTERM], [signal.SIGHUP], [signal.SIGINT] * 3],
    ids=["Ctrl-C", "ended", "hung up", "Ctrl-C again and again"],
)
def test_after_a_signal_what_runs_cleans_up(checkout, sleeping, numbers):
    for number in numbers:
        sleeping.send_signal(number)
        time.sleep(0.1)
    said, _ = sleeping.communicate(timeout=60)
    assert sleeping.returncode == 130, said
    assert "| removed\n" in said
    assert ran(checkout) == []
    assert "unit          FAILED: build/prove/test/unit.log" in said


def test_a_closed_terminal_does_not_stop_the_clean_up(checkout, sleeping):
    sleeping.stdout.close()
    sleeping.send_signal(signal.SIGHUP)
    assert sleeping.wait(timeout=60) == 130
    assert "removed\n" in (checkout / "build/prove/test/unit.log").read_text()


def test_who_stops_reading_stops_nothing(checkout):
    with subprocess.Popen(
        [sys.executable, "tests/prove.py", "test"], cwd=checkout, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(timeout=60) == 0
    assert len(ran(checkout)) == len(prove.TEST)


def test_a_log_that_can_not_be_written_fails_its_layer_alone(checkout):
    (checkout / "build/prove/test/unit.log").mkdir(parents=True)
    done = run(checkout, "test")
    assert done.returncode == 1
    assert "unit killed, for its log can't be written: [Errno 21] Is a directory" in done.stdout
    assert len(ran(checkout)) >= len(prove.TEST) - 1


def test_variables_of_one_layer_change_no_tier(checkout):
    (checkout / "Makefile").write_text('%:\n\t@echo "$@ $(ROLE)$(RELEASE)|" >>build/ran\n')
    (checkout / "build/ran").unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, "tests/prove.py", "test"],
        cwd=checkout,
        env=os.environ | {"ROLE": "munge", "RELEASE": "trixie", "MAKEFLAGS": "ROLE=munge"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    said = (checkout / "build/ran").read_text().splitlines()
    assert sorted(said) == sorted(f"{layer.target} |" for layer in prove.TEST)


REFUSED = {
    "test ROLE=munge": "make test does not use ROLE; it uses SINCE",
    "test MARK=proof": "make test does not use MARK; it uses SINCE",
    "test RELEASE=trixie": "make test does not use RELEASE; it uses SINCE",
    "test TESTS=x": "make test does not use TESTS; it uses SINCE",
    "test LAYER=vm": "make test does not use LAYER; it uses SINCE",
    "proof SINCE=main": "make proof does not use SINCE; it uses LAYER",
    "unit SINCE=main": "make unit does not use SINCE; it uses MARK TESTS",
    "molecule MARK=proof": "make molecule does not use MARK; it uses ROLE",
    "isolated-slurm ROLE=munge": "make isolated-slurm does not use ROLE; it uses no variable",
}


@pytest.mark.parametrize("words", REFUSED)
def test_make_refuses_a_variable_that_the_target_does_not_use(words):
    done = subprocess.run(
        ["make", "--dry-run", *words.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert REFUSED[words] in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("test SINCE=main", "prove.py test --since main"),
        ("proof LAYER=vm", "prove.py proof --layer vm"),
        ("isolated ROLE=munge", "scenarios.py --bare munge"),
        ("vm MARK=proof RELEASE=trixie", "tests/vm -m 'proof'"),
    ],
)
def test_make_gives_a_target_its_variables(words, said):
    done = subprocess.run(
        ["make", "--dry-run", *words.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert said in done.stdout


def test_a_test_that_starts_make_has_other_variables_than_its_own_make():
    done = subprocess.run(
        [
            "make",
            "--no-print-directory",
            "--eval",
            'flags: ; @echo "flags:$${MAKEFLAGS:-}"',
            "flags",
            "WORD=a",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "flags:\n"


def test_of_a_run_with_other_tests_nothing_is_remembered(checkout, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("PYTEST_ADDOPTS", "--maxfail=1")
        assert run(checkout, "proof").returncode == 0
    assert run(checkout, "proof").returncode == 0
    assert len(ran(checkout)) == len(prove.PROOF)


def test_a_layer_that_prints_nothing_for_long_is_said_to_run(checkout):
    program = checkout / "tests/prove.py"
    text = program.read_text(encoding="utf-8")
    assert "\nSILENT_SECONDS = 60\n" in text
    program.write_text(text.replace("\nSILENT_SECONDS = 60\n", "\nSILENT_SECONDS = 1\n"))
    (checkout / "Makefile").write_text("%:\n\t@printf 'test_one '; sleep 2; echo PASSED\n")
    done = run(checkout, "proof", "--layer", "vm")
    assert re.search(
        r"^=== +\d+ s  vm still runs, silent for 1 s: test_one$", done.stdout, re.MULTILINE
    )
    assert "\ntest_one PASSED\n" in done.stdout


def test_what_a_layer_leaves_behind_holds_nothing_up(checkout):
    program = checkout / "tests/prove.py"
    text = program.read_text(encoding="utf-8")
    program.write_text(text.replace("\nSILENT_SECONDS = 60\n", "\nSILENT_SECONDS = 1\n"))
    (checkout / "Makefile").write_text("%:\n\t@sleep 90 & echo $$!\n")
    begun = time.monotonic()
    done = run(checkout, "proof", "--layer", "vm")
    assert done.returncode == 0
    assert time.monotonic() < begun + 60
    os.kill(int(re.search(r"^(\d+)$", done.stdout, re.MULTILINE)[1]), signal.SIGTERM)


@pytest.mark.parametrize("missing", ["repository", "program"])
def test_without_git_all_parts_run(checkout, missing, monkeypatch):
    if missing == "repository":
        shutil.rmtree(checkout / ".git")
    else:
        programs = checkout / "build/programs"
        programs.mkdir()
        for name in ("make", "sh", "cat"):
            (programs / name).symlink_to(str(shutil.which(name)))
        monkeypatch.setenv("PATH", str(programs))
    for _ in range(2):
        assert run(checkout, "proof").returncode == 0
        assert len(ran(checkout)) == len(prove.PROOF)


HAS_PROOF = re.compile(r"^(@|pytestmark = )pytest\.mark\.proof\(", re.MULTILINE)


def test_each_layer_is_a_target_of_the_makefile():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))
    assert {layer.target for layer in (*prove.TEST, *prove.PROOF)} <= targets


@pytest.mark.parametrize(
    ("target", "folder"), [("cluster", "live"), ("vm", "vm"), ("unit", "unit")]
)
def test_each_file_of_the_proof_is_in_one_layer(target, folder):
    files = [
        path
        for layer in prove.PROOF
        if layer.target == target
        for variable in layer.variables
        if variable.startswith("TESTS=")
        for path in variable.removeprefix("TESTS=").partition(" -k ")[0].split()
    ]
    # Three layers have the tests of one file by the words of -k.
    in_time = "tests/unit/autoscaler/reconcile/test_reconcile_in_time.py"
    if in_time in files:
        assert files.count(in_time) == len(prove.SCHEDULES)
        files = [*(path for path in files if path != in_time), in_time]
    there = (ROOT / "tests" / folder).rglob("test_*.py")
    if folder == "unit":
        there = (path for path in there if HAS_PROOF.search(path.read_text(encoding="utf-8")))
    assert sorted(files) == sorted(str(path.relative_to(ROOT)) for path in there)
