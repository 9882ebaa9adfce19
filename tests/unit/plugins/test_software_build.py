"""What is missing gets built in its order, by the program that closes builds off."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.muster.slurm.plugins.module_utils.release_system import this_system

Run = Callable[..., Any]

# Without what closes builds off, which tests/unit/roles/software and tests/roles test.
PROGRAM = """[ "$1" = --timeout ] || exit 9
echo "$2" >>"$(dirname "$0")/timeouts"
shift 2
verify=true
if [ "$1" = --verify ]; then verify=$2; shift 2; fi
mkdir -p "$1"
/bin/sh -ec "$2 && $verify" >&2"""


@pytest.fixture
def build(run_module: Run, stand_ins: Callable[[Mapping[str, str]], str], tmp_path: Path) -> Run:
    """Return `build([(folder, command)], ...)`, which runs the module."""
    (tmp_path / "bin").mkdir()
    path = stand_ins({"bin/muster-build": PROGRAM}).replace(str(tmp_path), str(tmp_path / "bin"))

    def run(*wanted: tuple[Path, str | None], check: bool = False, **more: Any) -> Any:
        installations = [{"root": str(root), "build": command} for root, command in wanted]
        arguments = {"installations": installations, **more}
        return run_module("software_build", arguments, check=check, env={"PATH": path})

    return run


@pytest.fixture
def apps(tmp_path: Path) -> Path:
    return tmp_path / "apps"


def test_what_is_missing_is_built_once(build: Run, apps: Path) -> None:
    first = build((apps / "b", f"touch {apps}/b/1"), (apps / "a", f"touch {apps}/b/2"))
    assert first["changed"]
    assert first["paths"] == [str(apps / "b"), str(apps / "a")]
    assert (apps / "b/2").exists()
    assert not build((apps / "b", f"touch {apps}/b/3"))["changed"]
    assert not (apps / "b/3").exists()


def test_what_was_not_built_to_its_end_is_built_again(build: Run, apps: Path) -> None:
    (apps / "tool").mkdir(parents=True)
    (apps / "tool.building").touch()
    assert build((apps / "tool", "true"))["changed"]


def test_without_a_command_nothing_is_built(build: Run, apps: Path) -> None:
    assert not build((apps / "tool", None))["changed"]
    assert not apps.exists()


def test_check_mode_names_what_it_would_build(build: Run, apps: Path) -> None:
    shown = build((apps / "tool", "true"), check=True)
    assert shown["changed"]
    assert shown["paths"] == [str(apps / "tool")]
    assert not apps.exists()


def test_after_a_failure_what_was_built_before_stays(build: Run, apps: Path) -> None:
    failed = build((apps / "good", "true"), (apps / "bad", "echo why; exit 1"))
    assert failed["failed"]
    assert failed["paths"] == [str(apps / "good")]
    assert failed["msg"] == "why"


def test_before_it_builds_what_nobody_was_told_of_it_ends_and_says_what(
    build: Run, apps: Path
) -> None:
    wanted = (apps / "a", "true"), (apps / "b", None), (apps / "c", "true")
    for told, paths, following in (
        ([], [], "a"),
        ([apps / "a"], ["a"], "c"),
        ([apps / "a", apps / "c"], ["c"], None),
        ([], [], None),
    ):
        ran = build(*wanted, told=[str(path) for path in told])
        assert ran["paths"] == [str(apps / name) for name in paths]
        log = f"/var/log/muster-build/{str(apps).strip('/').replace('/', '_')}_{following}.log"
        wanted_next = {"root": str(apps / f"{following}"), "module": "", "log": log}
        assert ran.result.get("next") == (wanted_next if following else None)


def test_the_program_gets_the_time_that_one_build_may_take(
    build: Run, apps: Path, tmp_path: Path
) -> None:
    build((apps / "tool", "true"), timeout_seconds=7)
    assert (tmp_path / "bin/timeouts").read_text() == "7\n"


def test_without_the_program_nothing_is_built(run_module: Run, apps: Path) -> None:
    arguments = {"installations": [{"root": str(apps / "tool"), "build": "true"}]}
    refused = run_module("software_build", arguments, env={"PATH": "/usr/bin:/bin"})
    assert refused["failed"]
    assert "there is no program muster-build on this host; run the role software" in refused["msg"]
    assert not apps.exists()


def release(root: Path, **more: Any) -> dict[str, Any]:
    return {"root": str(root), "module": "libs/torch/2", "is_release": True, **more}


@pytest.fixture
def run(build: Run, run_module: Run, tmp_path: Path) -> Run:
    """Return `run([installation], ...)`, which runs the module on whole entries."""
    path = f"{tmp_path}/bin:/usr/bin:/bin"

    def run(*installations: dict[str, Any], check: bool = False, **more: Any) -> Any:
        arguments = {"installations": [*installations], **more}
        return run_module("software_build", arguments, check=check, env={"PATH": path})

    return run


def test_beside_a_release_is_what_a_rollback_needs(run: Run, apps: Path) -> None:
    root = apps / "torch/1234"
    built = release(root, build="true", requirements="torch==2\n", built_on=["/apps/python/3"])
    modulefiles = {"libs/torch/2.lua": "whatis()\n", "libs/torch/1.lua": "another\n"}
    assert run(built, modulefiles=modulefiles)["changed"]
    assert json.loads((apps / "torch/1234.json").read_text()) == {
        "module": "libs/torch/2",
        "built_on": ["/apps/python/3"],
        "system": this_system(),
        "modulefile": "whatis()\n",
    }
    assert (apps / "torch/1234.txt").read_text() == "torch==2\n"
    assert not run(built, modulefiles=modulefiles)["changed"]


def test_requirements_are_there_when_the_command_reads_them(run: Run, apps: Path) -> None:
    root = apps / "torch/1234"
    run(release(root, build=f"cp {root}.txt {root}/read", requirements="torch==2\n"))
    assert (root / "read").read_text() == "torch==2\n"


def test_another_modulefile_of_the_same_release_is_noted(run: Run, apps: Path) -> None:
    built = release(apps / "1234", build="true")
    run(built, modulefiles={"libs/torch/2.lua": "old"})
    again = run(built, modulefiles={"libs/torch/2.lua": "new"})
    assert (again["changed"], again["paths"]) == (True, [])
    assert json.loads((apps / "1234.json").read_text())["modulefile"] == "new"


def test_what_is_built_by_hand_is_noted_when_it_is_there(run: Run, apps: Path) -> None:
    by_hand = release(apps / "1234", requirements="torch==2\n")
    # The command that an administrator types reads it.
    assert run(by_hand)["changed"]
    assert sorted(path.name for path in apps.iterdir()) == ["1234.txt"]
    assert not run(by_hand)["changed"]
    (apps / "1234").mkdir()
    assert run(by_hand)["changed"]
    assert (apps / "1234.json").exists()


def test_what_was_built_is_verified(run: Run, apps: Path) -> None:
    root = apps / "1234"
    run(release(root, build=f"touch {root}/x", verify=f"mv {root}/x {root}/verified"))
    assert [path.name for path in root.iterdir()] == ["verified"]
    assert run(release(apps / "5678", build="true", verify="echo no libx; exit 1"))["failed"]
    assert not (apps / "5678.json").exists()


def test_nothing_is_written_for_a_release_that_was_not_built(run: Run, apps: Path) -> None:
    failed = run(release(apps / "1234", build="exit 1"))
    assert failed["failed"]
    assert not (apps / "1234.json").exists()


def test_beside_a_folder_of_others_nothing_is_written(run: Run, apps: Path) -> None:
    (apps / "tool").mkdir(parents=True)
    assert not run({"root": str(apps / "tool"), "module": "apps/tool/1"})["changed"]
    assert [path.name for path in apps.iterdir()] == ["tool"]


def test_check_mode_names_the_files_too_and_writes_none(run: Run, apps: Path) -> None:
    shown = run(release(apps / "1234", build="true", requirements="torch==2\n"), check=True)
    named = [part["after_header"] for part in shown["diff"]]
    assert named == [str(apps / "1234"), f"{apps}/1234.txt", f"{apps}/1234.json"]
    assert not apps.exists()


# Beside the folder it makes what tells that the folder was packed.
PACKING = """[ "$3" = --image ] || exit 9
mkdir -p "$(dirname "$4")" && touch "$4" && mkdir -p "$(dirname "$5")" && ln -s /nowhere "$5" """


def test_a_release_is_packed_once_and_never_entered(
    run_module: Run, stand_ins: Callable[[Mapping[str, str]], str], apps: Path, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    stand_ins({"bin/muster-build": PACKING})
    image, root = apps / "images/1234.squashfs", apps / "tool/1234"
    arguments = {"installations": [release(root, build="true", image=str(image))]}

    def run() -> Any:
        return run_module(
            "software_build", arguments, env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
        )

    first = run()
    assert first["paths"] == [str(root)]
    # The link leads nowhere: what looks into it finds nothing.
    assert (image.exists(), root.is_symlink(), root.exists()) == (True, True, False)
    assert not run()["changed"]
    Path(f"{root}.building").touch()
    root.unlink()
    assert run()["paths"] == [str(root)]


ELSEWHERE = """
import platform
platform.freedesktop_os_release = lambda: {"ID": "debian", "VERSION_ID": "99"}
"""


def test_a_release_of_another_system_is_not_published(
    run_module: Run, run: Run, apps: Path
) -> None:
    root = apps / "1234"
    entry = release(root, build="true")
    run(entry, modulefiles={"libs/torch/2.lua": "old"})
    beside = (apps / "1234.json").read_text()
    arguments = {"installations": [entry], "modulefiles": {"libs/torch/2.lua": "new"}}
    done = run_module("software_build", arguments, before=ELSEWHERE)
    distribution, version, machine = this_system().split()
    assert done["msg"] == (
        f"{root} was built on {distribution} {version} {machine}, and this is debian 99 {machine}, "
        "where its programs may not run; name the system of the hosts as `os` in the definition, "
        f"which has a release of its own for each, or, if no job uses it, remove {root} and "
        f"{root}.json; then run again"
    )
    assert (apps / "1234.json").read_text() == beside


def test_a_release_that_does_not_name_its_system_is_not_published(run: Run, apps: Path) -> None:
    root = apps / "1234"
    root.mkdir(parents=True)
    (apps / "1234.json").write_text('{"module": "libs/torch/2"}')
    # Another `os` would not help: it may be of the very system that the definition names.
    assert run(release(root, build="true"))["msg"] == (
        f"{root}.json does not say on which system {root} was built, and this is {this_system()}; "
        f"if no job uses it, remove {root} and {root}.json; then run again"
    )


def test_what_is_built_after_its_folder_was_removed_is_of_this_system(run: Run, apps: Path) -> None:
    apps.mkdir()
    (apps / "1234.json").write_text('{"system": "debian 11 x86_64"}')
    assert run(release(apps / "1234", build="true"))["changed"]
    assert json.loads((apps / "1234.json").read_text())["system"] == this_system()
