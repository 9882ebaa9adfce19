"""Run the project's modules as a host runs them: a process of their own, arguments on stdin."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ansible_collections.muster.slurm.plugins.module_utils import (
    ceph_command,
    ceph_device,
    commands,
)

ROOT = Path(__file__).parents[3]
MODULES = ROOT / "ansible/plugins/modules"
COLLECTIONS = str(ROOT / "ansible/collections")

# Ansible packs what modules share beside them, under the collection's name; here it is found there.
AS_A_HOST_DOES = """
import runpy, sys
sys.path.append(sys.argv[1])
exec(sys.argv[2])
sys.argv = sys.argv[3:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@dataclass(frozen=True)
class Outcome:
    """What a module run said: the result, and everything it printed."""

    result: dict[str, Any]
    printed: str
    code: int

    def __getitem__(self, key: str) -> Any:
        return self.result[key]


def arguments(given: Mapping[str, Any], *, check: bool = False) -> str:
    internal = {
        "_ansible_check_mode": check,
        "_ansible_diff": True,
        "_ansible_verbosity": 3,
        "_ansible_no_log": False,
        "_ansible_tracebacks_for": ["error", "warning"],
    }
    return json.dumps({"ANSIBLE_MODULE_ARGS": {**given, **internal}})


class ModuleServer:
    """A process that runs modules in forks of itself: their start takes a tenth of the time.

    One at a time: those that a test runs at once have a prefix.
    """

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("module_server.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        self.process.communicate(timeout=60)

    def run(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin and self.process.stdout
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())


@pytest.fixture(scope="session")
def module_server() -> Iterator[ModuleServer]:
    server = ModuleServer()
    yield server
    server.close()


@pytest.fixture
def run_module(module_server: ModuleServer) -> Callable[..., Outcome]:
    """Return `run(module, arguments, check=False, prefix=[], env=None, before="")`.

    `before` is Python that changes what modules share, such as a bound. With a `prefix` it is a
    command.
    """

    def run(
        module: str,
        given: Mapping[str, Any],
        *,
        check: bool = False,
        prefix: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        before: str = "",
    ) -> Outcome:
        file, standard_input = str(MODULES / f"{module}.py"), arguments(given, check=check)
        if prefix:
            done = subprocess.run(
                [*prefix, sys.executable, "-c", AS_A_HOST_DOES, COLLECTIONS, before, file],
                input=standard_input,
                capture_output=True,
                text=True,
                timeout=120,
                env=env,
                check=False,
            )
            return outcome(done.stdout, done.stderr, done.returncode)
        said = module_server.run(
            module=file,
            input=standard_input,
            before=before,
            collections=COLLECTIONS,
            cwd=str(Path.cwd()),
            env=dict(os.environ if env is None else env),
        )
        return outcome(said["out"], said["err"], said["code"])

    return run


@pytest.fixture
def answered_by(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return `use(run, module)`: `run` stands for what starts programs, in this test's process."""

    def use(run: Callable[..., tuple[int, str, str]], *modules: ModuleType) -> None:
        for module in (commands, ceph_command, ceph_device, *modules):
            monkeypatch.setattr(module, "run", run)

    return use


def outcome(out: str, err: str, code: int) -> Outcome:
    lines = [line for line in out.splitlines() if line.startswith("{")]
    return Outcome(json.loads(lines[0]) if lines else {}, out + err, code)


@pytest.fixture
def stand_ins(tmp_path: Path) -> Callable[[Mapping[str, str]], str]:
    """Return `make({program: shell script})`: puts programs before the real ones, returns PATH."""

    def make(programs: Mapping[str, str]) -> str:
        for name, text in programs.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / name).chmod(0o755)
        return f"{tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin"

    return make
