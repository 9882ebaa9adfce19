"""`muster check CLUSTER --hosts`: a sentence for each thing that the machines have otherwise."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from odd_answers import variants

from muster.cli import check_hosts
from muster.definition import Definition, load, validate
from muster.verify import ansible_query, hardware
from muster.verify.ansible_query import Found

ROOT = Path(__file__).parents[3]
LAB = ROOT / "inventories/lab"
DEVICES = [f"/dev/nvidia{number}" for number in range(4)]


@pytest.fixture(scope="module")
def lab() -> Definition:
    return load(LAB)


def place(*path: str) -> str:
    return f"cluster.yml/{'.'.join(path)}"


def report(host: str, *, absent: tuple[str, ...] = (), **changed: Any) -> dict[str, Any]:
    """The report of a machine of the lab's definition, with these changes."""
    gpus = [path for path in DEVICES if "gpu" in host and path not in absent]
    kinds = dict.fromkeys(DEVICES, "absent") | dict.fromkeys(gpus, "device")
    kinds |= dict.fromkeys(("/home", "/apps", "/data"), "directory")
    return {
        "name": host,
        "os": "debian-12",
        "clock": 1000.0,
        "earliest": 999.5,
        "latest": 1000.5,
        "sockets": 2,
        "cores_per_socket": 12,
        "threads_per_core": 2,
        "memory_mib": 122880,
        "source": "slurmd",
        "gpus": gpus,
        "paths": kinds | dict.fromkeys(absent, "absent"),
        "unknown": None,
        **changed,
    }


def compared(
    definition: Definition, changed: dict[str, dict[str, Any]] | None = None
) -> hardware.Comparison:
    reports = {
        host: report(host, **(changed or {}).get(host, {}))
        for host in definition.hosts.groups["all"]
    }
    return hardware.compare(definition, reports, place)


def test_machines_as_defined_give_nothing_to_say(lab: Definition) -> None:
    assert compared(lab) == hardware.Comparison([], [], [])


def test_a_controller_may_have_any_processors_and_memory(lab: Definition) -> None:
    small = {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "memory_mib": 2000}
    assert compared(lab, {"lab-access": small}).problems == []


def test_more_memory_than_defined_is_no_problem(lab: Definition) -> None:
    assert compared(lab, {"lab-cpu-01": {"memory_mib": 128000}}).problems == []


FIX = "or fix the machine (its firmware may have switched some off)"

PROBLEMS: dict[str, tuple[dict[str, dict[str, Any]], str]] = {
    "GPUs missing": (
        {"lab-gpu-01": {"absent": ("/dev/nvidia2", "/dev/nvidia3")}},
        "lab-gpu-01: 2 GPUs (/dev/nvidia0, /dev/nvidia1), the definition says 4 in "
        "nodes.gpu.gpus.count (cluster.yml/nodes.gpu.gpus.count); set it to 2 or find the missing "
        "ones (nvidia-smi -L there; without its driver there is none)",
    ),
    "no GPU at all": (
        {"lab-gpu-01": {"absent": tuple(DEVICES)}},
        "lab-gpu-01: 0 GPUs, the definition says 4 in nodes.gpu.gpus.count "
        "(cluster.yml/nodes.gpu.gpus.count); find the missing ones (nvidia-smi -L there; without "
        "its driver there is none)",
    ),
    "more GPUs": (
        {"lab-gpu-02": {"gpus": [*DEVICES, "/dev/nvidia4"]}},
        "lab-gpu-02: 5 GPUs (/dev/nvidia0, /dev/nvidia1, /dev/nvidia2, /dev/nvidia3, "
        "/dev/nvidia4), the definition says 4 in nodes.gpu.gpus.count "
        "(cluster.yml/nodes.gpu.gpus.count); set it to 5 or the others stay unused",
    ),
    "other device files": (
        {"lab-gpu-01": {"absent": ("/dev/nvidia0",), "gpus": [*DEVICES[1:], "/dev/nvidia4"]}},
        "lab-gpu-01: 4 GPUs (/dev/nvidia1, /dev/nvidia2, /dev/nvidia3, /dev/nvidia4), the "
        "definition says /dev/nvidia[0-3] in nodes.gpu.gpus.devices "
        "(cluster.yml/nodes.gpu.gpus.devices); set it to /dev/nvidia[1-4]",
    ),
    "a GPU where none is defined": (
        {"lab-cpu-02": {"gpus": ["/dev/nvidia0"]}},
        "lab-cpu-02: 1 GPU (/dev/nvidia0), the definition has none in nodes.cpu "
        "(cluster.yml/nodes.cpu); add gpus: {count: 1}",
    ),
    "sockets": (
        {"lab-cpu-01": {"sockets": 1, "source": "lscpu"}},
        "lab-cpu-01: sockets 1 by lscpu, the definition says 2 in nodes.cpu.sockets "
        f"(cluster.yml/nodes.cpu.sockets); set it to 1 {FIX}",
    ),
    "cores, the same on two hosts": (
        {"lab-cpu-01": {"cores_per_socket": 16}, "lab-cpu-02": {"cores_per_socket": 16}},
        "lab-cpu-[01-02]: cores_per_socket 16 by slurmd, the definition says 12 in "
        f"nodes.cpu.cores_per_socket (cluster.yml/nodes.cpu.cores_per_socket); set it to 16 {FIX}",
    ),
    "hyper-threading off": (
        {"lab-gpu-02": {"threads_per_core": 1}},
        "lab-gpu-02: threads_per_core 1 by slurmd, the definition says 2 in "
        f"nodes.gpu.threads_per_core (cluster.yml/nodes.gpu.threads_per_core); set it to 1 {FIX}",
    ),
    "memory": (
        {"lab-cpu-01": {"memory_mib": 122879}},
        "lab-cpu-01: 122879 MiB of memory, the definition says 122880 in nodes.cpu.memory_mib "
        "(cluster.yml/nodes.cpu.memory_mib); set it to 122879 or less, or SLURM drains the node",
    ),
    "system": (
        {"lab-access": {"os": "debian-13"}},
        "lab-access: runs debian-13, the definition says debian-12 in os (cluster.yml/os); set it "
        "to what the machines run, or install that",
    ),
    "clock behind": (
        {"lab-cpu-02": {"clock": 900.0}},
        "lab-cpu-02: its clock is 100 s behind this machine's; set the clock that is wrong "
        "(timedatectl, chronyc makestep)",
    ),
    "clock ahead": (
        {"lab-cpu-02": {"clock": 1010.0}},
        "lab-cpu-02: its clock is 10 s ahead of this machine's; set the clock that is wrong "
        "(timedatectl, chronyc makestep)",
    ),
    "no shared folder": (
        {"lab-access": {"absent": ("/data",)}},
        "lab-access: has no folder /data, storage.data.path of the definition "
        "(cluster.yml/storage.data.path); mount or make it there, or set another path",
    ),
    "the machine of another host": (
        {"lab-gpu-01": {"name": "lab-gpu-02.example.org"}},
        "lab-gpu-01: the machine at this address calls itself lab-gpu-02, another host of the "
        "cluster; correct ansible_host of both in hosts.yml",
    ),
}


@pytest.mark.parametrize("case", PROBLEMS)
def test_a_difference_is_one_sentence(case: str, lab: Definition) -> None:
    changed, sentence = PROBLEMS[case]
    assert compared(lab, changed).problems == [sentence]


@pytest.fixture
def with_directory(lab: Definition) -> Definition:
    """The lab with a directory, an account of a person in it, and a partition of its staff."""
    cluster = lab.cluster.model_dump(exclude_unset=True)
    cluster["users"]["directory"] = {
        "servers": ["ldaps://ldap.example.org"],
        "base": "dc=example,dc=org",
        "groups": ["hpc"],
    }
    cluster["accounts"]["LAB-test"]["users"].append("eve")
    cluster["partitions"]["ml-gpu"]["groups"] = ["staff"]
    return validate(cluster, lab.hosts.groups)


def test_who_is_named_and_not_in_the_directory_is_one_sentence(with_directory: Definition) -> None:
    hosts = with_directory.hosts.groups["all"]
    missing = {"people": ["eve"], "groups": ["hpc", "staff"]}
    said = compared(with_directory, {host: {"unknown": missing} for host in hosts})
    assert said.notes == []
    assert [text.partition(": ")[2] for text in said.problems] == [
        "knows nobody with the login eve, who is in accounts.LAB-test.users "
        "(cluster.yml/accounts.LAB-test.users); correct it, or add the person to the directory or "
        "to users.people",
        "knows no group hpc, which is in users.directory.groups "
        "(cluster.yml/users.directory.groups); correct it, or add the group to the directory or to "
        "users.groups",
        "knows no group staff, which is in partitions.ml-gpu.groups "
        "(cluster.yml/partitions.ml-gpu.groups); correct it, or add the group to the directory or "
        "to users.groups",
    ]


def test_machines_that_ask_no_directory_yet_are_a_note(with_directory: Definition) -> None:
    knows = {"unknown": {"people": [], "groups": []}}
    asked = {host: knows for host in with_directory.hosts.groups["all"] if "cpu" not in host}
    said = compared(with_directory, asked)
    assert said.problems == []
    assert said.notes == [
        "lab-cpu-[01-02]: asks no directory yet; run site.yml, and then this again"
    ]


def test_a_clock_is_judged_by_the_moments_between_which_it_was_read(lab: Definition) -> None:
    # Read somewhere in a minute in which the connection hung.
    slow = {"clock": 960.0, "earliest": 950.0, "latest": 1010.0}
    assert compared(lab, {"lab-cpu-01": slow}).problems == []


def test_a_machine_that_has_no_name_yet_is_a_note(lab: Definition) -> None:
    said = compared(lab, {"lab-cpu-01": {"name": "debian"}})
    assert said.problems == []
    assert said.notes == [
        "lab-cpu-01: calls itself debian; site.yml will name it as hosts.yml does"
    ]


def test_the_node_set_that_would_fit_is_shown(lab: Definition) -> None:
    changed = {"cores_per_socket": 16, "absent": ("/dev/nvidia3",)}
    said = compared(
        lab,
        {"lab-gpu-01": {**changed, "memory_mib": 96000}, "lab-gpu-02": changed},
    )
    assert said.suggestions == [
        "    gpu:  # cluster.yml/nodes.gpu: lab-gpu-[01-02]\n"
        "      sockets: 2\n"
        "      cores_per_socket: 16\n"
        "      threads_per_core: 2\n"
        "      memory_mib: 96000\n"
        "      gpus: {count: 3}"
    ]


def test_hosts_of_one_set_that_differ_take_two(lab: Definition) -> None:
    said = compared(lab, {"lab-cpu-02": {"sockets": 1, "memory_mib": 60000}})
    assert said.suggestions[0] == "The hosts of cpu differ, so it takes 2 node sets:"
    assert [text.splitlines()[0].split(": ")[-1] for text in said.suggestions[1:]] == [
        "lab-cpu-02",
        "lab-cpu-01",
    ]
    assert [text.splitlines()[-1].strip() for text in said.suggestions[1:]] == [
        "memory_mib: 60000",
        "memory_mib: 122880",
    ]


ODD: dict[str, list[Any]] = {
    "name": [7],
    "os": [["debian-12"]],
    "clock": [float("nan"), 10**400, "1000"],
    "sockets": [-1, 2.5, True, "2", 10**400, float("nan")],
    "cores_per_socket": [None],
    "threads_per_core": [float("inf")],
    "memory_mib": [-1, 10**4000],
    "source": [{}],
    "gpus": ["all", [7], [""], ["/dev/nvidia[0-9]"], ["/dev/nvidia[0-"], ["/dev/sda"]],
    "paths": [[], {}, {"/home": "directory"}],
    # Nobody was asked for.
    "unknown": [[], {"people": ["eve"], "groups": []}, {"people": [], "groups": [[]]}],
}


@pytest.mark.parametrize("field", ODD)
def test_a_report_that_can_not_be_right_leaves_the_others_their_comparison(
    field: str, lab: Definition, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Root of a host says what it likes."""
    sound = report("lab-cpu-01")
    without = {key: value for key, value in sound.items() if key != field}
    for odd in (without, *({**sound, field: value} for value in ODD[field])):
        reports = {"lab-cpu-01": odd, "lab-access": report("lab-access", absent=("/data",))}
        found = Found({host: {"report": said} for host, said in reports.items()}, [])
        monkeypatch.setattr(check_hosts, "ask", lambda *_, found=found: found)
        assert check_hosts.run(LAB, lab) == 4
        wrong, other = capsys.readouterr().err.splitlines()
        assert wrong == (
            f"lab-cpu-01: its report can't be right: {field} is missing or of another type; find "
            "out who changed programs there, or install the host again"
        )
        assert other.startswith("lab-access: has no folder /data, ")


def test_whatever_a_machine_reports_all_are_compared(with_directory: Definition) -> None:
    people, groups = ["eve"], ["hpc", "staff"]
    fields = hardware.fields(hardware.paths(with_directory), people, groups)
    unknown = {"people": people, "groups": groups}
    lacking = report("lab-access", absent=("/data",), unknown=unknown)
    # These two are the action plugin's, for which a report that is no mapping is an error.
    moments = {key: lacking[key] for key in ("earliest", "latest")}
    for odd in variants(report("lab-gpu-01", unknown=unknown)):
        if not isinstance(odd, dict):
            continue
        found = Found({"lab-gpu-01": odd | moments, "lab-access": lacking}, [])
        sound = ansible_query.sound(found, fields)
        assert len(sound.answers) + len(sound.unreached) == 2
        said = hardware.compare(with_directory, sound.answers, place)
        folders = [line for line in said.problems if "has no folder /data, " in line]
        assert "lab-access" in folders[0]


def test_hosts_without_report_are_left_to_the_caller(lab: Definition) -> None:
    reports = {"lab-cpu-01": report("lab-cpu-01")}
    assert hardware.compare(lab, reports, place) == hardware.Comparison([], [], [])


def test_output_of_ansible_between_the_answers_does_not_matter() -> None:
    result = {"report": {"name": "x"}}
    text = f"[WARNING]: something\n{json.dumps({'lab-cpu-01': result})}\n{{}}\nmore"
    assert ansible_query.results_of(text) == {"lab-cpu-01": result}


@pytest.mark.parametrize("text", ["", "ERROR! the inventory", "{ broken", '{"n1": {}}\n'])
def test_output_without_an_end_is_noticed(text: str) -> None:
    assert ansible_query.results_of(text) is None


@pytest.fixture
def this_machine(tmp_path: Path) -> Path:
    """An inventory whose hosts are all this machine, without ssh; one node set can't fit it."""
    folder = tmp_path / "lab"
    shutil.copytree(LAB, folder, ignore=shutil.ignore_patterns("secrets.yml*"))
    hosts = (folder / "hosts.yml").read_text()
    # A template: `muster check` refuses a cluster whose hosts are all this machine.
    local = hosts.replace("ansible_user: root", "ansible_connection: \"{{ 'local' }}\"")
    assert local != hosts
    (folder / "hosts.yml").write_text(local)
    definition = folder / "group_vars/all/cluster.yml"
    text = definition.read_text().replace("memory_mib: 122880", "memory_mib: 900000", 1)
    definition.write_text(text)
    return folder


def command(inventory: Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "muster", "check", "--hosts", str(inventory)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_command_asks_the_machines(this_machine: Path) -> None:
    done = command(this_machine)
    assert done.returncode == 2, done.stderr
    definition = this_machine / "group_vars/all/cluster.yml"
    lines = definition.read_text().splitlines()
    line = 1 + next(number for number, text in enumerate(lines) if "900000" in text)
    said = [text for text in done.stderr.splitlines() if "of memory" in text]
    assert said[0].startswith("lab-cpu-[01-02]: ")
    assert f"the definition says 900000 in nodes.cpu.memory_mib ({definition}:{line})" in said[0]
    assert "    cpu:  # " in done.stdout


def test_it_can_be_run_from_any_folder(this_machine: Path) -> None:
    assert command(this_machine, this_machine).returncode == 2


def test_a_host_that_can_not_be_reached_is_named(this_machine: Path) -> None:
    hosts = this_machine / "hosts.yml"
    text = hosts.read_text()
    # Nothing listens on port 1 of this machine.
    gone = (
        "lab-gpu-02: {ansible_host: 192.0.2.32, ansible_connection: ssh, "
        "ansible_ssh_common_args: -o HostName=127.0.0.1 -o Port=1}"
    )
    text = text.replace("lab-gpu-02: {ansible_host: 192.0.2.32}", gone)
    assert gone in text
    hosts.write_text(text)
    done = command(this_machine)
    assert done.returncode == 4
    first, *others = done.stderr.splitlines()
    assert first.startswith("lab-gpu-02: could not be asked: ")
    assert "Connection refused" in first
    assert first.endswith(f"try: ansible -i {this_machine} lab-gpu-02 -m ping")
    # The others were.
    assert any(text.startswith("lab-cpu-[01-02]: ") for text in others)


def test_secrets_that_can_not_be_decrypted_are_said_in_a_sentence(this_machine: Path) -> None:
    secrets = this_machine / "group_vars/all/secrets.yml"
    secrets.write_text("$ANSIBLE_VAULT;1.1;AES256\n6162\n")
    secrets.chmod(0o600)
    done = command(this_machine)
    assert done.returncode == 4
    assert done.stderr.count("\n") == 1
    assert "ANSIBLE_VAULT_PASSWORD_FILE" in done.stderr
