"""What a task's environment gets, and what of the user's is left alone."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[4] / "roles/scratch/files/usr/local/lib/muster/task-prolog"

Run = Callable[..., dict[str, str]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    (folder / "7").mkdir(parents=True)
    return folder


@pytest.fixture
def run(tmp_path: Path, root: Path) -> Run:
    """Return what runs the program in a job 7 with an environment, and returns what it exports."""
    conf = tmp_path / "slurm.conf"
    conf.write_text(f"ClusterName=x\nTmpFS={root}\n")
    program = tmp_path / "task-prolog"
    program.write_text(PROGRAM.read_text().replace("/run/slurm/conf/slurm.conf", str(conf)))

    def task(**environment: str) -> dict[str, str]:
        done = subprocess.run(
            ["sh", str(program)],
            env={"HOME": "/home/ada", "SLURM_JOB_ID": "7", **environment},
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        lines = done.stdout.splitlines()
        assert all(line.startswith("export ") for line in lines)
        return dict(line.removeprefix("export ").split("=", 1) for line in lines)

    return task


def test_a_task_gets_a_folder_and_private_caches(run: Run, root: Path) -> None:
    own = str(root / "7")
    assert run() == {
        "TMPDIR": own,
        "PIP_CACHE_DIR": f"{own}/.cache/pip",
        "TRITON_CACHE_DIR": f"{own}/.cache/triton",
        "TORCHINDUCTOR_CACHE_DIR": f"{own}/.cache/torchinductor",
        "HF_XET_CACHE": f"{own}/.cache/xet",
        "UV_CACHE_DIR": f"{own}/.cache/uv",
        "UV_LINK_MODE": "copy",
    }


def test_what_the_user_has_set_stays(run: Run, root: Path) -> None:
    set_by_user = {
        "TMPDIR": "/tmp",
        "PIP_CACHE_DIR": "/home/ada/pip",
        "TRITON_CACHE_DIR": f"{root}/7/mine",
        "TORCHINDUCTOR_CACHE_DIR": "/home/ada/compiled here; $(false)",
        "HF_XET_CACHE": f"{root}/7",
        "UV_CACHE_DIR": "/home/ada/.cache/uv",
    }
    assert run(**set_by_user) == {}
    assert "UV_LINK_MODE" not in run(UV_LINK_MODE="symlink")


def test_what_another_job_left_in_the_environment_is_replaced(run: Run, root: Path) -> None:
    own = str(root / "7")
    environment = run(TMPDIR=f"{root}/77", UV_CACHE_DIR=f"{root}/6/.cache/uv", UV_LINK_MODE="copy")
    assert (environment["TMPDIR"], environment["UV_CACHE_DIR"]) == (own, f"{own}/.cache/uv")


def test_what_the_login_node_s_profile_sets_is_replaced(run: Run, root: Path) -> None:
    environment = run(TORCHINDUCTOR_CACHE_DIR="/home/ada/.cache/torchinductor")
    assert environment["TORCHINDUCTOR_CACHE_DIR"] == f"{root}/7/.cache/torchinductor"


def test_without_a_folder_nothing_is_set(run: Run, root: Path, tmp_path: Path) -> None:
    (root / "7").rmdir()
    assert run() == {}
    (tmp_path / "slurm.conf").write_text("ClusterName=x\n")
    assert run() == {}
    (tmp_path / "slurm.conf").unlink()
    assert run() == {}


def test_a_home_that_is_not_set_is_no_error(run: Run) -> None:
    assert run(HOME="")["TMPDIR"]
