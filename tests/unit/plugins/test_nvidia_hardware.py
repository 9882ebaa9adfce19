"""What the module nvidia_hardware makes of a kernel's name and of PCI devices."""

import importlib.util
import os
from pathlib import Path

import pytest

FILE = Path(__file__).parents[3] / "ansible/plugins/modules/nvidia_hardware.py"
SPEC = importlib.util.spec_from_file_location("nvidia_hardware", FILE)
assert SPEC is not None and SPEC.loader is not None
nvidia_hardware = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(nvidia_hardware)


@pytest.mark.parametrize(
    ("kernel", "flavour"),
    [
        ("6.1.0-40-amd64", "amd64"),
        ("6.1.0-40-cloud-amd64", "cloud-amd64"),
        ("6.1.0-40-rt-amd64", "rt-amd64"),
        ("6.12.43+deb13-amd64", "amd64"),
        ("6.12.43+deb13-cloud-amd64", "cloud-amd64"),
        ("6.12.43+deb12-1-amd64", "amd64"),
        ("6.8.0-45-generic", "generic"),
        ("6.8.0-1014-gcp", "gcp"),
        ("5.15.0-1060-gcp", "gcp"),
    ],
)
def test_flavour_of_a_kernel(kernel: str, flavour: str) -> None:
    assert nvidia_hardware.flavour_of(kernel) == flavour


def test_gpus_and_nvswitches_are_told_apart() -> None:
    # HGX A100: eight GPUs (3D), six switches; an audio part of a card and other makers' devices.
    devices = [
        *[("0x10de", "0x030200")] * 8,
        *[("0x10de", "0x068000")] * 6,
        ("0x10de", "0x040300"),
        ("0x102b", "0x030000"),
        ("0x8086", "0x068000"),
        ("", ""),
    ]
    assert nvidia_hardware.counted(devices) == {"gpus": 8, "nvswitches": 6}


def test_a_card_with_a_display_counts() -> None:
    assert nvidia_hardware.counted([("0x10de", "0x030000")])["gpus"] == 1


def test_jobs_use_gpus_and_caretakers_do_not_count() -> None:
    processes = [
        ("1", "systemd", ["/dev/null"]),
        ("7", "nvidia-persiste", ["/dev/nvidiactl", "/dev/nvidia0"]),
        ("4711", "python", ["/dev/pts/0", "/dev/nvidia-uvm", "/dev/nvidia3"]),
        ("4712", "bash", ["/home/ada/nvidia.log"]),
    ]
    assert nvidia_hardware.using(processes) == ["python (4711)"]


def test_each_step_of_a_job_has_a_process_of_slurm_s() -> None:
    names = ["systemd", "slurmd", "slurmstepd", "python", "slurmstepd"]
    assert nvidia_hardware.steps([("1", name, []) for name in names]) == 2


def test_this_process_is_among_those_that_are_looked_at() -> None:
    with FILE.open() as stream:
        files_by_pid = {pid: files for pid, _, files in nvidia_hardware.processes()}
        assert os.path.realpath(stream.name) in files_by_pid[str(os.getpid())]


def test_the_module_reports_this_machine(run_module) -> None:
    result = run_module("nvidia_hardware", {})
    assert (result["changed"], result["kernel"]) == (False, os.uname().release)
    assert result["kernel"].endswith(result["flavour"])
    assert isinstance(result["jobs"], int)
