"""What slurmd -C and lscpu print -> what a machine has."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

PATH = Path(__file__).parents[3] / "ansible/plugins/modules/hardware_report.py"
SPEC = importlib.util.spec_from_file_location("hardware_report", PATH)
assert SPEC is not None and SPEC.loader is not None
hardware_report = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(hardware_report)

# slurmd -C, and sockets, cores per socket, threads per core, MiB.
SLURMD = {
    # Recorded: 22.05 and 24.11 in containers on two cores print the same.
    "virtual machine": (
        "NodeName=lab-cpu-01 CPUs=2 Boards=1 SocketsPerBoard=1 CoresPerSocket=2 ThreadsPerCore=1 "
        "RealMemory=24105\nUpTime=0-01:21:51\n",
        (1, 2, 1, 24105),
    ),
    # From here on by slurmd(8).
    "two boards": (
        "NodeName=big CPUs=192 Boards=2 SocketsPerBoard=2 CoresPerSocket=24 ThreadsPerCore=2 "
        "RealMemory=515000\nUpTime=3-00:00:00\n",
        (4, 24, 2, 515000),
    ),
    "with GPUs that it found": (
        "NodeName=lab-gpu-01 CPUs=48 Boards=1 SocketsPerBoard=2 CoresPerSocket=12 ThreadsPerCore=2 "
        "RealMemory=122880 Gres=gpu:rtx4080:4\n"
        "Found gpu:rtx4080:4 with Autodetect=nvml (Substring of gpu name may be used instead)\n"
        "UpTime=0-00:10:00\n",
        (2, 12, 2, 122880),
    ),
    "before boards": (
        "NodeName=old CPUs=8 Sockets=2 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=7976 "
        "TmpDisk=100\n",
        (2, 4, 1, 7976),
    ),
}

HEADER = """\
# The following is the parsable format, which can be fed to other
# programs. Each different item in every column has an unique ID
# starting usually from zero.
# CPU,Core,Socket
"""

# lscpu -p=CPU,CORE,SOCKET, and sockets, cores per socket, threads per core.
LSCPU = {
    # Recorded in a container on two cores.
    "virtual machine": ("0,0,0\n1,1,0\n", (1, 2, 1)),
    # From here on by lscpu(1): cores are numbered through, threads of a core share its number.
    "two sockets with two threads per core": (
        "".join(f"{cpu},{cpu % 24},{cpu % 24 // 12}\n" for cpu in range(48)),
        (2, 12, 2),
    ),
    "two sockets, hyper-threading off": (
        "".join(f"{cpu},{cpu},{cpu // 12}\n" for cpu in range(24)),
        (2, 12, 1),
    ),
    "cores numbered from 0 in each socket": (
        "".join(f"{cpu},{cpu % 4},{cpu // 4}\n" for cpu in range(8)),
        (2, 4, 1),
    ),
    "sockets that the kernel does not know": ("0,0,-\n1,1,-\n2,2,-\n3,3,-\n", (1, 4, 1)),
    "one processor": ("0,0,0\n", (1, 1, 1)),
    # Eight fast cores with two threads, eight small ones with one.
    "cores of two kinds": (
        "".join(f"{cpu},{cpu // 2},0\n" for cpu in range(16))
        + "".join(f"{cpu},{cpu - 8},0\n" for cpu in range(16, 24)),
        (1, 16, 1),
    ),
}

MEMINFO = "MemTotal:       24684084 kB\nMemFree:        17710908 kB\n"


def shape(hardware: dict[str, Any]) -> tuple[int, ...]:
    return (hardware["sockets"], hardware["cores_per_socket"], hardware["threads_per_core"])


@pytest.mark.parametrize("case", SLURMD)
def test_slurmd_is_understood(case: str) -> None:
    text, wanted = SLURMD[case]
    hardware = hardware_report.of_slurmd(text)
    assert (*shape(hardware), hardware["memory_mib"]) == wanted
    assert hardware["source"] == "slurmd"


@pytest.mark.parametrize("text", ["", "slurmd: error while loading shared libraries: libx.so.1"])
def test_what_is_no_answer_of_slurmd_is_noticed(text: str) -> None:
    with pytest.raises(KeyError):
        hardware_report.of_slurmd(text)


@pytest.mark.parametrize("case", LSCPU)
def test_lscpu_is_understood(case: str) -> None:
    text, wanted = LSCPU[case]
    assert shape(hardware_report.of_lscpu(HEADER + text, MEMINFO)) == wanted


def test_memory_is_what_slurmd_would_say() -> None:
    # The machine of the recorded slurmd -C: 24684084 KiB, RealMemory=24105.
    assert hardware_report.of_lscpu("0,0,0\n", MEMINFO)["memory_mib"] == 24105


@pytest.mark.parametrize(
    ("text", "system"),
    [
        (
            'PRETTY_NAME="Debian GNU/Linux 12"\nVERSION_ID="12"\nVERSION="12"\nID=debian\n',
            "debian-12",
        ),
        ('NAME="Ubuntu"\nVERSION_ID="22.04"\nID=ubuntu\nID_LIKE=debian\n', "ubuntu-22.04"),
        ('PRETTY_NAME="Debian GNU/Linux forky/sid"\nID=debian\n', "debian-unknown"),
    ],
)
def test_the_system_is_named_as_in_the_definition(text: str, system: str) -> None:
    assert hardware_report.os_of(text) == system


def test_this_machine_is_reported(tmp_path: Path, run_module: Any) -> None:
    file = tmp_path / "file"
    file.touch()
    paths = {str(tmp_path): "directory", str(file): "file", "/dev/null": "device", "/no": "absent"}
    report = run_module("hardware_report", {"paths": list(paths)}, check=True)["report"]
    assert report["paths"] == paths
    assert min(*shape(report), report["memory_mib"]) > 0
    assert report["name"]
    assert isinstance(report["gpus"], list)


def test_gpus_are_in_the_order_of_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["nvidia10", "nvidia2", "nvidia0", "nvidiactl", "nvidia-uvm", "nvidia0x"]
    monkeypatch.setattr(hardware_report.glob, "glob", lambda _: [f"/dev/{name}" for name in names])
    assert hardware_report.gpus() == ["/dev/nvidia0", "/dev/nvidia2", "/dev/nvidia10"]


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("passwd:         files systemd sss\ngroup: files\n", True),
        ("passwd: files # sss\ngroup: files sss\n", False),
        ("passwd: files systemd\n", False),
    ],
)
def test_a_machine_asks_a_directory_if_people_are_looked_for_in_sssd(
    text: str, asked: bool
) -> None:
    assert hardware_report.asks_directory(text) is asked


def test_names_that_a_machine_does_not_know_are_reported() -> None:
    unknown = hardware_report.unknown("passwd", ["root", "nobody-of-that-name", "daemon"])
    assert unknown == ["nobody-of-that-name"]
    assert hardware_report.unknown("group", []) == []
