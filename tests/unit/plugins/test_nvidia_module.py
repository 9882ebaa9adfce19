"""What the module nvidia_module concludes from a host's kernels, DKMS and loaded drivers."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parents[3] / "ansible/plugins/modules/nvidia_module.py"
SPEC = importlib.util.spec_from_file_location("nvidia_module", FILE)
assert SPEC is not None and SPEC.loader is not None
nvidia_module = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(nvidia_module)

OLD, NEW = "6.1.0-38-amd64", "6.1.0-40-amd64"
STATUS = {
    # Debian 12 (DKMS 3.0.10), after a kernel came without headers.
    f"nvidia-current-open/535.261.03, {OLD}, x86_64: installed\n": {OLD: "installed"},
    # Ubuntu 22.04 (DKMS 2.8.7).
    "nvidia, 535.261.03, 5.15.0-60-generic, x86_64: installed\n": {
        "5.15.0-60-generic": "installed"
    },
    # The build failed: registered, built for no kernel.
    "nvidia-current/535.261.03: added\n": {},
    f"nvidia/580.95.05, {NEW}, x86_64: built\nzfs/2.1.11, {NEW}, x86_64: installed\n": {
        NEW: "built"
    },
    f"nvidia/580.95.05, {NEW}, x86_64: installed (WARNING! Diff between built and installed"
    " module!)\n": {NEW: "installed"},
}


def state(**changes: Any) -> Any:
    usual = {
        "running": NEW,
        "versions": {OLD: None, NEW: "535.261.03"},
        "with_headers": frozenset({NEW}),
    }
    return nvidia_module.State(**{**usual, **changes})


@pytest.mark.parametrize("text", STATUS)
def test_dkms_status_is_read(text: str) -> None:
    assert nvidia_module.dkms_states(text) == STATUS[text]


def test_an_old_kernel_without_headers_needs_no_module() -> None:
    assert nvidia_module.without_module(state()) == []


def test_the_kernel_that_runs_needs_one_headers_or_not() -> None:
    current = state(running=OLD)
    assert nvidia_module.without_module(current) == [OLD]
    said = nvidia_module.complaint(current, OLD, "")
    assert f"kernel {OLD} has no NVIDIA module and no headers" in said
    assert "boot the newest kernel" in said


def test_the_next_kernel_needs_one_too() -> None:
    current = state(
        running=OLD,
        versions={OLD: "535.261.03", NEW: None},
        with_headers=frozenset({OLD, NEW}),
        dkms={OLD: "installed"},
    )
    assert nvidia_module.without_module(current) == [NEW]


def test_an_image_is_for_the_kernels_with_headers_alone() -> None:
    current = state(running=OLD)
    assert nvidia_module.without_module(current, loading=False) == []
    current = state(running=OLD, versions={OLD: "535.261.03", NEW: None})
    assert nvidia_module.without_module(current, loading=False) == [NEW]


def test_an_image_whose_modules_come_ready_made_has_one() -> None:
    current = state(with_headers=frozenset())
    assert nvidia_module.without_module(current, loading=False) == []
    current = state(with_headers=frozenset(), versions={NEW: None})
    assert nvidia_module.without_module(current, loading=False) == [NEW]


def test_a_failed_build_is_told_with_the_end_of_its_log() -> None:
    current = state(versions={NEW: None}, dkms={})
    log = "error: implicit declaration of function 'foo'\n\nmake: *** [Makefile:82] Error 2\n"
    said = nvidia_module.complaint(current, NEW, log)
    assert f"kernel {NEW} has no NVIDIA module (DKMS has not built it)" in said
    assert f"`dkms autoinstall -k {NEW}`" in said
    assert said.endswith("function 'foo' | make: *** [Makefile:82] Error 2")


# What a package whose Makefile fails has left, by the DKMS of Debian 12 and of Debian 13.
LOGS = {
    "3.0.10": """\
DKMS make.log for nvidia-broken-1.0 for kernel 6.1.0-40-amd64 (x86_64)
Mon Nov 23 00:09:54 UTC 2026
nvidia.c: error: no such thing
make: *** [Makefile:2: all] Error 1
""",
    "3.2.2": """\
DKMS (dkms-3.2.2) make.log for nvidia-broken/1.0 for kernel 6.1.0-40-amd64 (x86_64)
Mon Nov 23 00:09:55 UTC 2026

Building module(s)
# command: make -j2 KERNELRELEASE=6.1.0-40-amd64
nvidia.c: error: no such thing
make: *** [Makefile:2: all] Error 1

# exit code: 2
# elapsed time: 00:00:00
----------------------------------------------------------------
""",
}


@pytest.mark.parametrize("version", LOGS)
def test_what_dkms_itself_adds_to_a_log_hides_no_error(version: str) -> None:
    said = nvidia_module.complaint(state(versions={NEW: None}), NEW, LOGS[version])
    assert said.endswith("nvidia.c: error: no such thing | make: *** [Makefile:2: all] Error 1")


def test_of_a_long_log_the_end_is_told() -> None:
    log = "".join(f"line {number}\n" for number in range(100))
    said = nvidia_module.complaint(state(versions={NEW: None}), NEW, log)
    assert said.endswith(": line 95 | line 96 | line 97 | line 98 | line 99")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"loaded": "535.261.03"}, ""),
        # nvidia and nouveau side by side: the former has the GPUs.
        ({"loaded": "535.261.03", "nouveau": True}, ""),
        ({"loaded": "525.147.05"}, "driver 535.261.03 in place of 525.147.05"),
        ({"nouveau": True}, "driver 535.261.03 in place of nouveau"),
    ],
)
def test_a_reboot_is_for_another_driver_alone(changes: dict[str, Any], reason: str) -> None:
    assert nvidia_module.reboot_for(state(**changes)) == reason


STUBS = {
    "modinfo": 'for last; do :; done\n[ "$last" = nvidia-there ] && echo 535.261.03',
    "modprobe": 'echo "$@" >>"$MODPROBE_LOG"\n[ -z "$MODPROBE_SAYS" ] || '
    '{ echo "$MODPROBE_SAYS" >&2; exit 1; }',
    "dkms": "true",
}


@pytest.fixture
def tools(tmp_path: Path, stand_ins) -> dict[str, str]:
    """Programs in place of modinfo, modprobe and dkms; which modprobe was called is written."""
    log = tmp_path / "called"
    log.touch()
    return {"PATH": stand_ins(STUBS), "MODPROBE_LOG": str(log)}


def test_a_driver_is_loaded_where_none_is(tools, run_module) -> None:
    result = run_module("nvidia_module", {"name": "nvidia-there"}, env=tools)
    assert (result["changed"], result["installed"]) == (True, "535.261.03")
    assert Path(tools["MODPROBE_LOG"]).read_text().split() == ["nvidia", "nvidia-uvm"]


def test_into_an_image_nothing_is_loaded(tools, run_module) -> None:
    result = run_module("nvidia_module", {"name": "nvidia-there", "load": False}, env=tools)
    assert (result["changed"], result["installed"]) == (False, "535.261.03")
    assert Path(tools["MODPROBE_LOG"]).read_text() == ""
    missing = {"name": "nvidia-missing", "load": False}
    assert run_module("nvidia_module", missing, env=tools)["failed"]


def test_in_check_mode_nothing_is_loaded(tools, run_module) -> None:
    for name in ("nvidia-there", "nvidia-missing"):
        assert run_module("nvidia_module", {"name": name}, check=True, env=tools)["changed"]
    assert Path(tools["MODPROBE_LOG"]).read_text() == ""


def test_a_missing_module_fails(tools, run_module) -> None:
    result = run_module("nvidia_module", {"name": "nvidia-missing"}, env=tools)
    assert result["failed"]
    assert "has no NVIDIA module" in result["msg"]


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("modprobe: ERROR: could not insert: Key was rejected by service", "Secure Boot"),
        ("modprobe: ERROR: could not insert: No such device", "lspci -d 10de:"),
        ("modprobe: ERROR: could not insert: Exec format error", "dmesg | tail"),
    ],
)
def test_why_a_driver_is_not_loaded(tools, run_module, said: str, hint: str) -> None:
    result = run_module(
        "nvidia_module", {"name": "nvidia-there"}, env={**tools, "MODPROBE_SAYS": said}
    )
    assert result["failed"]
    assert said in result["msg"] and hint in result["msg"]
