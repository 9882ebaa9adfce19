"""What muster-cache says, of files of the kernel that virtual machines of Debian 12 and 13 had.

`cached`: after files of /apps were read, forgotten and read again. `stopped`: the same moment, and
then cachefilesd was stopped.
"""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
PROGRAM = HERE.parents[3] / "roles/fscache/files/muster_cache.py"
SPEC = importlib.util.spec_from_file_location("muster_cache", PROGRAM)
assert SPEC and SPEC.loader
cache: Any = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(cache)


def report(state: str, system: str = "debian-12") -> dict[str, Any]:
    answer: dict[str, Any] = cache.report(f"{HERE}/{system}/{state}", "/nonexistent")
    return answer


def test_what_was_read_of_a_cached_folder_did_not_come_from_the_server() -> None:
    folders = {folder["path"]: folder for folder in report("cached")["folders"]}
    assert list(folders) == ["/apps", "/data", "/home"]
    # 8 MiB read several times; the server was asked once.
    assert folders["/apps"] == {
        "path": "/apps",
        "asked": True,
        "read_bytes": 58720256,
        "from_server_bytes": 8388608,
        "read_calls": 65,
    }
    assert cache.spared(folders["/apps"]) == "86 %"
    assert (folders["/data"]["asked"], folders["/data"]["read_calls"]) == (False, 514)
    assert cache.spared(folders["/data"]) == "0 %"
    assert cache.spared(folders["/home"]) == "-"


def test_what_a_newer_kernel_reads_by_another_call_is_counted_too() -> None:
    answer = report("cached", "debian-13")
    calls = {folder["path"]: folder["read_calls"] for folder in answer["folders"]}
    # 8 MiB of each, read three times: /apps once and a part of it from the server.
    assert calls == {"/apps": 88, "/home": 192}
    assert (answer["active"], answer["disk_reads"] > 0) == (True, True)


def test_the_table_says_yes_only_of_what_is_cached() -> None:
    cached = {line.split()[0]: line.split()[1] for line in cache.lines(report("cached"))}
    assert (cached["/apps"], cached["/data"]) == ("yes", "no")
    stopped = {line.split()[0]: line.split()[1] for line in cache.lines(report("stopped"))}
    assert stopped["/apps"] == "no"


def test_a_daemon_that_does_not_run_is_a_problem_though_the_folder_is_mounted_with_fsc() -> None:
    assert report("cached")["problem"] == ""
    assert report("stopped")["problem"] == cache.NOT_RUNNING


def test_nothing_is_wrong_where_nothing_should_be_cached() -> None:
    answer = report("stopped")
    for folder in answer["folders"]:
        folder["asked"] = False
    assert cache.problem(answer) == ""


@pytest.mark.parametrize(("free", "said"), [(2, cache.FULL), (4, "")])
def test_a_full_disk_is_a_problem(free: int, said: str) -> None:
    answer = report("cached") | {"disk": {"bytes": 100, "free_bytes": free}}
    assert cache.problem(answer) == said


def test_a_mount_with_a_strange_name_hides_no_other(tmp_path: Path) -> None:
    kernel = HERE / "debian-12/cached"
    (tmp_path / "fs").symlink_to(kernel / "fs")
    (tmp_path / "self").mkdir()
    strange = b"device x\x1f mounted on /tmp/.\r\xff\xc2\x85\x1f with fstype fuse.x\r\n"
    table = (kernel / "self/mountstats").read_bytes()
    table = table.replace(b" mounted on /home ", b" mounted on /home\xff\xc2\xa0h ")
    (tmp_path / "self/mountstats").write_bytes(strange + table)
    answer = cache.report(str(tmp_path), "/nonexistent")
    paths = [folder["path"] for folder in answer["folders"]]
    assert paths == ["/apps", "/data", "/home\\xff\xa0h"]
    assert "\n".join(cache.lines(answer)).encode()


def test_a_kernel_without_the_cache_and_without_nfs_is_no_error() -> None:
    answer = cache.report(str(HERE / "none"), "/nonexistent")
    assert (answer["active"], answer["folders"], cache.problem(answer)) == (False, [], "")
    assert json.loads(json.dumps(answer)) == answer
