"""A program of an image as a task of a job: podman's words, its environment, its storage."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from oci_images import layout

PODMAN = """#!/bin/sh
echo "$XDG_RUNTIME_DIR|$CONTAINERS_STORAGE_CONF|$DBUS_SESSION_BUS_ADDRESS|$*" >>{log}
[ "$1 $2 $4 $5" = "--log-level=error --root --storage-driver overlay" ] || exit 99
shift 5
case $1 in
    image) [ -e {unpacked} ] ;;
    pull)
        if [ -e {answer} ]; then cat {answer} >&2; exit 125; fi
        folder=${{3#oci:}}
        case $folder in
            *[!a-z0-9._/-]*) echo "normalizing name: invalid reference format" >&2; exit 125 ;;
        esac
        readlink "$folder" >>{log} && [ -e "$folder/index.json" ] && touch {unpacked}
        ;;
esac
"""
"""As podman 4.3 does, it makes a name of the path of a layout."""
JOB = {"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "0", "HOME": "/home/ada"}


class BecameError(Exception):
    """What the program would have become."""


@pytest.fixture
def job(
    tmp_path: Path,
    store: Path,
    program: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., int]:
    """The program in a job, with an image tool:1 in the store."""
    layout(store / "tool/=1", b"layer", variables=("PATH=/opt/bin", "LANG=C"))
    (tmp_path / "scratch/12").mkdir(parents=True)
    podman = tmp_path / "bin/podman"
    podman.write_text(
        PODMAN.format(
            log=tmp_path / "calls", answer=tmp_path / "answer", unpacked=tmp_path / "unpacked"
        )
    )
    podman.chmod(0o755)
    for name, value in JOB.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/run/user/1/bus")

    def became(program: str, words: list[str], environment: dict[str, str]) -> None:
        raise BecameError(words, environment)

    monkeypatch.setattr(os, "execvpe", became)
    return program


def test_it_becomes_podman_on_storage_of_the_job(
    job: Callable[..., int], tmp_path: Path, store: Path
) -> None:
    with pytest.raises(BecameError) as became:
        job("run", "tool:1", "python3", "-c", "print(1)")
    words, environment = became.value.args
    assert words[8:10] == ["run", "--rm"]
    assert words[-3:] == ["python3", "-c", "print(1)"]
    folder = tmp_path / "scratch/12/.containers"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert environment["XDG_RUNTIME_DIR"].startswith(f"{folder}/run-0-")
    assert "DBUS_SESSION_BUS_ADDRESS" not in environment
    # What the person has set for podman in the home counts for nothing.
    assert environment["CONTAINERS_STORAGE_CONF"] == "/etc/muster/containers/storage.conf"
    assert words[:3] == ["podman", "--log-level=error", "--root"]
    assert words[3].startswith(f"{folder}/task-0-")
    assert words[4:8] == [
        *("--storage-driver", "overlay"),
        *("--storage-opt", f"overlay.imagestore={folder}/images"),
    ]
    exists, pull, link = (tmp_path / "calls").read_text().splitlines()
    assert f"--root {folder}/images " in exists
    assert " overlay image exists " in exists
    assert pull.endswith(" overlay pull --quiet oci:image")
    assert link == f"{store}/tool/=1"


def test_the_path_of_an_image_may_have_any_characters(
    job: Callable[..., int], tmp_path: Path
) -> None:
    folder = layout(tmp_path / "Try 1:2@x=y", b"layer")
    with pytest.raises(BecameError):
        job("run", str(folder), "true")
    assert (tmp_path / "calls").read_text().splitlines()[-1] == str(folder)


def test_a_second_task_unpacks_nothing(job: Callable[..., int], tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(BecameError):
            job("run", "tool:1", "true")
    assert (tmp_path / "calls").read_text().count("pull --quiet") == 1


def test_a_job_keeps_the_version_that_it_started_with(
    job: Callable[..., int], tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def digest() -> str:
        with pytest.raises(BecameError) as became:
            job("run", "tool:1", "true")
        return str(became.value.args[0][-2])

    first = digest()
    layout(tmp_path / "source", b"another layer", variables=("KIND=new",))
    shutil.rmtree(store / "tool/=1")
    assert job("pull", "docker.io/library/tool:1") == 0
    assert digest() == first
    assert job("remove", "tool:1") == 0
    assert digest() == first
    # Another job takes what is there now.
    assert job("pull", "docker.io/library/tool:1") == 0
    (tmp_path / "scratch/13").mkdir()
    monkeypatch.setenv("SLURM_JOB_ID", "13")
    assert digest() != first


def test_an_image_that_did_not_unpack_is_not_kept(
    job: Callable[..., int], tmp_path: Path, store: Path
) -> None:
    (tmp_path / "answer").write_text("Error: unexpected EOF\n")
    assert job("run", "tool:1", "true") == 1
    (tmp_path / "answer").unlink()
    shutil.rmtree(store / "tool/=1")
    new = layout(store / "tool/.=1=a", b"another layer")
    (store / "tool/=1").symlink_to(new.name)
    with pytest.raises(BecameError):
        job("run", "tool:1", "true")
    # podman got one version, whatever the name leads to meanwhile.
    assert (tmp_path / "calls").read_text().splitlines()[-1] == str(new)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("write /x: no space left on device", "takes no more files (the disk is full)"),
        ("write /x: disk quota exceeded", "takes no more files (a quota is full)"),
        ("exec: newuidmap: not found", "you have no subordinate UIDs on this node"),
        ("cannot clone: Operation not permitted", "this node lets nobody run containers"),
        ("unexpected EOF", "could not be unpacked: unexpected EOF; pull it again"),
    ],
)
def test_what_podman_says_is_a_sentence(
    job: Callable[..., int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    answer: str,
    sentence: str,
) -> None:
    (tmp_path / "answer").write_text(f"Error: {answer}\n")
    assert job("run", "tool:1", "true") == 1
    text = capsys.readouterr().err
    assert sentence in text
    assert text.count("\n") == 1


def test_an_image_for_another_architecture_is_not_unpacked(
    job: Callable[..., int], tmp_path: Path, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout(store / "tool/=2", b"layer", architecture="arm64")
    assert job("run", "tool:2", "true") == 1
    assert "tool:2 is for linux/arm64 and this host is linux/" in capsys.readouterr().err
    assert not (tmp_path / "calls").exists()


def test_what_an_image_is_for_is_said_without_control_characters(
    job: Callable[..., int], store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout(store / "tool/=2", b"layer", architecture="arm64\x1b]0;title\x07")
    assert job("run", "tool:2", "true") == 1
    assert "tool:2 is for linux/arm64?]0;title? and" in capsys.readouterr().err


def test_an_image_that_is_not_there_is_a_sentence(
    job: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert job("run", "tool:9") == 1
    assert "has no image tool:9 (there is tool:1): pull it" in capsys.readouterr().err


def test_outside_of_a_job_nothing_runs(
    job: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID")
    assert job("run", "tool:1", "true") == 1
    assert "this is no job: type `srun muster-container run" in capsys.readouterr().err


def test_a_shell_of_salloc_on_a_login_node_is_told_of_srun(
    job: Callable[..., int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "nothing").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert job("run", "tool:1", "true") == 1
    assert (
        "this host runs no containers: in a shell of salloc put srun before it"
        in capsys.readouterr().err
    )
    # Nothing is made there, which no epilog would remove.
    assert list((tmp_path / "scratch/12").iterdir()) == []


def test_a_folder_of_somebody_else_is_not_used(job: Callable[..., int], tmp_path: Path) -> None:
    from muster_containers.errors import ContainerError
    from muster_containers.job import task_of
    from muster_containers.settings import Settings

    (tmp_path / "12").mkdir()
    (tmp_path / "12/.containers").symlink_to(tmp_path)
    with pytest.raises(ContainerError, match="belongs to somebody else"):
        task_of(Settings("/images", (), str(tmp_path)), dict(os.environ), 7, os.getuid())


def test_the_image_s_variables_and_paths_win_over_the_job_s() -> None:
    from muster_containers.run import passed

    environment = {
        **dict.fromkeys(("PATH", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "BASH_FUNC_ml%%"), "x"),
        **dict.fromkeys(("RANK", "SLURM_PROCID", "CUDA_VISIBLE_DEVICES", "HOME"), "x"),
    }
    assert passed(environment, {"LANG"}) == ["CUDA_VISIBLE_DEVICES", "HOME", "RANK", "SLURM_PROCID"]


def test_gpus_of_the_job_come_by_cdi() -> None:
    from muster_containers.errors import ContainerError
    from muster_containers.run import gpus

    has = {"SLURM_STEP_GPUS": "1"}
    assert gpus(has, lambda _: True) == ["nvidia.com/gpu=all"]
    assert gpus({}, lambda _: True) == []
    assert gpus(has, lambda _: False) == []
    with pytest.raises(ContainerError, match=r"set `nvidia: \{cdi: true\}`"):
        gpus(has, lambda path: path == "/dev/nvidiactl")
