"""The program `launch`: what it starts, and what it says in place of that."""

import ipaddress
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from jobs_library import FILES
from muster_launch import frameworks, network

Recorded = Callable[[str], dict[str, str]]
SHOW = (
    "import os; print(os.getpid(), *(os.environ[n] for n in ('RANK', 'OMP_NUM_THREADS', 'MINE')))"
)
MAIN = "import sys; from muster_launch.launch import main; sys.exit(main(sys.argv[1:]))"
PROGRAM = FILES / "bin/launch"


@pytest.fixture
def environment(recorded: Recorded, tmp_path: Path) -> dict[str, str]:
    """Those of task 0 of two on this machine; scancel writes down what it is told."""
    scancel = tmp_path / "scancel"
    scancel.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/cancelled\n')
    scancel.chmod(0o755)
    return {
        **{name: value for name, value in recorded("block-0").items() if "GPU" not in name},
        "SLURMD_NODENAME": "localhost",
        "CUDA_VISIBLE_DEVICES": "",
        "ROCR_VISIBLE_DEVICES": "",
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_STEP_TASKS_PER_NODE": "2",
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": str(FILES / "lib/muster"),
    }


def launched(
    environment: dict[str, str], *words: str, proc: "Path | None" = None
) -> "subprocess.CompletedProcess[str]":
    """Run the program, with this checkout's library in place of the host's, and another /proc."""
    main = MAIN
    if proc is not None:
        other = f"inherited._PROC = pathlib.Path({str(proc)!r})"
        main = f"import pathlib; from muster_launch import inherited; {other}; {MAIN}"
    return subprocess.run(
        [sys.executable, "-c", main, *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def cancelled(environment: dict[str, str]) -> str:
    """What was ended."""
    path = Path(environment["PATH"].partition(":")[0]) / "cancelled"
    return path.read_text().strip() if path.exists() else ""


def test_the_wrapper_starts_what_the_role_installs() -> None:
    text = PROGRAM.read_text(encoding="utf-8")
    assert text.startswith("#!/usr/bin/python3 -I\n")
    assert 'sys.path.insert(0, "/usr/local/lib/muster")' in text
    assert "from muster_launch.launch import main" in text


def test_the_program_takes_the_place_of_launch(environment: dict[str, str]) -> None:
    command = [sys.executable, "-c", MAIN, sys.executable, "-c", SHOW]
    given = {**environment, "MINE": "kept"}
    with subprocess.Popen(command, env=given, stdout=subprocess.PIPE, text=True) as process:
        out, _ = process.communicate(timeout=60)
    assert out.split() == [str(process.pid), "0", "1", "kept"]


def test_what_is_set_already_stays(environment: dict[str, str]) -> None:
    given = {**environment, "OMP_NUM_THREADS": "7", "RANK": "9", "MASTER_PORT": "", "MINE": ""}
    assert launched(given, "--", sys.executable, "-c", SHOW).stdout.split()[1:] == ["9", "7"]
    port = launched(given, sys.executable, "-c", "import os; print(os.environ['MASTER_PORT'])")
    assert port.stdout.strip().isdigit()
    said = launched(given, "--explain").stdout
    assert "OMP_NUM_THREADS=7  # it was set already, and stays\n" in said


# -- within the launch of another job or step ------------------------------------------------------

SHOW_ALL = "import json, os; print(json.dumps(dict(os.environ)))"


def inherited(
    environment: dict[str, str], *, proc: "Path | None" = None, **changes: str
) -> dict[str, str]:
    """What sbatch or srun takes over from a program that `launch` has started."""
    done = launched(environment, sys.executable, "-c", SHOW_ALL, proc=proc)
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), **changes}


def test_a_job_that_is_submitted_within_another_one_is_no_part_of_it(
    environment: dict[str, str],
) -> None:
    """A training that submits the next one: else each task of that trains alone, as rank 0."""
    alone = {**environment, "SLURM_STEP_TASKS_PER_NODE": "1"}
    first = inherited(alone)
    assert (first["RANK"], first["WORLD_SIZE"]) == ("0", "1")
    of_second = {"SLURM_JOB_ID": "77", "SLURM_STEP_TASKS_PER_NODE": "2"}
    second = inherited(first, **of_second, SLURM_PROCID="1", SLURM_LOCALID="1")
    fresh = {**environment, **of_second, "SLURM_PROCID": "1", "SLURM_LOCALID": "1"}
    assert inherited(second) == inherited(fresh)
    got = inherited(second)
    assert (got["RANK"], got["WORLD_SIZE"], got["LOCAL_RANK"]) == ("1", "2", "1")
    assert got["MASTER_PORT"] != first["MASTER_PORT"]
    assert got["MUSTER_METRICS"].endswith("/metrics-77.jsonl")


def test_a_step_within_another_one_is_no_part_of_it(environment: dict[str, str]) -> None:
    first = inherited(environment)
    within = {"SLURM_STEP_ID": "1", "SLURM_STEP_TASKS_PER_NODE": "1"}
    got = inherited({**first, **within})
    assert got == inherited({**environment, **within})
    assert got["WORLD_SIZE"] == "1"


def test_a_step_of_a_script_that_launch_has_started_is_no_part_of_it(
    environment: dict[str, str],
) -> None:
    """The script counts as step 0 for its port."""
    script = {name: value for name, value in environment.items() if "STEP" not in name}
    script |= {"SLURM_JOB_NODELIST": "localhost", "SLURM_NTASKS": "1"}
    first = inherited(script)
    assert first["WORLD_SIZE"] == "1"
    step = {name: value for name, value in environment.items() if "STEP" in name}
    assert inherited({**first, **step})["WORLD_SIZE"] == "2"


CGROUPS = {
    "v2": "0::/system.slice/slurmstepd.scope/job_77/step_{step}/user/task_0\n",
    "v1": "5:memory:/slurm/uid_1000/job_77/step_{step}/task_0\n1:name=systemd:/system.slice\n",
    "a shell": "0::/system.slice/lab-cpu-01_slurmstepd.scope/job_77/step_{step}\n",
}


def proc_of(folder: Path, cgroup: str, **variables: str) -> Path:
    """Another /proc: the cgroup of `launch`, and what process 241, its task, was started with."""
    proc = folder / "proc"
    for name in ("self", "241"):
        (proc / name).mkdir(parents=True, exist_ok=True)
    (proc / "self/cgroup").write_text(cgroup)
    lines = [f"{name}={value}\0" for name, value in variables.items()]
    (proc / "241/environ").write_text("".join(lines))
    return proc


@pytest.mark.parametrize("cgroup", CGROUPS.values(), ids=CGROUPS)
@pytest.mark.parametrize("first_by_launch", [True, False])
def test_a_script_that_a_step_has_submitted_is_in_no_step(
    environment: dict[str, str], tmp_path: Path, cgroup: str, first_by_launch: bool
) -> None:
    """It has the step's variables, and slurmd sets none of them for a script."""
    first = inherited(environment) if first_by_launch else environment
    second = {"SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": "localhost", "SLURM_TASKS_PER_NODE": "1"}
    script = {**first, **second}
    step = inherited(script, proc=proc_of(tmp_path, cgroup.format(step="0")))
    assert (step["WORLD_SIZE"], step["SLURM_STEP_ID"]) == ("2", "0")
    proc = proc_of(tmp_path, cgroup.format(step="batch"))
    got = inherited(script, proc=proc)
    assert (got["RANK"], got["WORLD_SIZE"]) == ("0", "1")
    assert got["MUSTER_LAUNCH"].startswith("77.batch ")
    assert not [name for name in got if name.startswith("SLURM_STEP")]
    said = launched(script, "--explain", proc=proc).stdout
    assert said.startswith("task 0 of 1, on localhost:\n")
    [line] = [line for line in said.splitlines() if " of another step: " in line]
    assert "SLURM_STEP_ID" in line
    assert "SLURM_NTASKS" in line


def test_a_script_of_several_tasks_says_so_wherever_it_was_submitted(
    environment: dict[str, str], tmp_path: Path
) -> None:
    second = {"SLURM_JOB_ID": "77", "SLURM_TASKS_PER_NODE": "2", "SLURM_NTASKS": "2"}
    proc = proc_of(tmp_path, CGROUPS["v2"].format(step="batch"))
    script = {**inherited(environment), **second, "SLURM_JOB_NODELIST": "localhost"}
    done = launched(script, "true", proc=proc)
    assert done.returncode == 1
    assert "the job has 2 tasks or nodes and this is only one: type `srun launch" in done.stderr


def of_the_shell(environment: dict[str, str], tasks: int) -> dict[str, str]:
    """What the shell of salloc has: srun has started it as a step with a number of SLURM's own."""
    return {
        **environment,
        "SLURM_JOB_ID": "77",
        "SLURM_JOB_NODELIST": "localhost",
        "SLURM_NTASKS": str(tasks),
        "SLURM_TASKS_PER_NODE": "1",
        "SLURM_STEP_ID": "4294967290",
        "SLURM_STEPID": "4294967290",
        "SLURM_STEP_TASKS_PER_NODE": "1",
        "SLURM_SRUN_COMM_HOST": "192.0.2.9",
    }


@pytest.mark.parametrize("cgroup", CGROUPS.values(), ids=CGROUPS)
@pytest.mark.parametrize("first_by_launch", [True, False])
def test_the_shell_of_salloc_keeps_the_variables_of_its_step(
    environment: dict[str, str], tmp_path: Path, cgroup: str, first_by_launch: bool
) -> None:
    first = inherited(environment) if first_by_launch else environment
    shell = of_the_shell(first, 1)
    proc = proc_of(tmp_path, cgroup.format(step="interactive"))
    got = inherited(shell, proc=proc)
    assert (got["RANK"], got["WORLD_SIZE"]) == ("0", "1")
    of_slurm = [name for name in shell if name.startswith("SLURM_")]
    assert {name: got.get(name) for name in of_slurm} == {name: shell[name] for name in of_slurm}
    assert " of another step: " not in launched(shell, "--explain", proc=proc).stdout


def test_the_shell_of_salloc_is_told_of_the_other_tasks(
    environment: dict[str, str], tmp_path: Path
) -> None:
    proc = proc_of(tmp_path, CGROUPS["v2"].format(step="interactive"))
    done = launched(of_the_shell(environment, 2), "true", proc=proc)
    assert done.returncode == 1
    assert "the job has 2 tasks or nodes and this is only one: type `srun launch" in done.stderr


OF_TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
    "ROLE_NAME": "default",
    "ROLE_RANK": "3",
    "ROLE_WORLD_SIZE": "4",
    "MASTER_ADDR": "lab-gpu-01",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "1",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "TORCHELASTIC_ERROR_FILE": "/tmp/torchelastic_a/1_b/attempt_0/1/error.json",
}


@pytest.mark.parametrize("first_by_launch", [True, False])
def test_a_job_that_torchrun_s_process_has_submitted_is_no_part_of_it(
    environment: dict[str, str], tmp_path: Path, first_by_launch: bool
) -> None:
    first = inherited(environment) if first_by_launch else environment
    second = {**first, **OF_TORCHRUN, "SLURM_JOB_ID": "77", "SLURM_TASK_PID": "241"}
    proc = proc_of(tmp_path, "0::/\n", **OF_TORCHRUN)
    got = inherited(second, proc=proc)
    fresh = {**environment, "SLURM_JOB_ID": "77", "SLURM_TASK_PID": "241"}
    assert got == inherited(fresh, proc=proc)
    said = launched(second, "--explain", proc=proc).stdout
    assert "# not kept, as they are of another step: " in said
    assert "TORCHELASTIC_RUN_ID" in said


def test_what_the_torchrun_of_the_same_task_has_set_stays(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """The task was started without it: torchrun is between the task and launch."""
    given = {**environment, **OF_TORCHRUN, "MASTER_ADDR": "localhost", "SLURM_TASK_PID": "241"}
    got = inherited(given, proc=proc_of(tmp_path, "0::/\n", TORCHELASTIC_RUN_ID="of another"))
    assert (got["RANK"], got["TORCHELASTIC_RUN_ID"]) == ("3", "1")
    got = inherited({**given, "SLURM_TASK_PID": "242"}, proc=tmp_path / "proc")
    assert got["RANK"] == "3"


def test_two_torchruns_with_the_id_that_both_have_by_default_are_two(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """Both also begin with rank 0 and port 29500; each process has a file for errors of its own."""
    outer = {**OF_TORCHRUN, "TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "localhost"}
    inner = {**outer, "TORCHELASTIC_ERROR_FILE": "/tmp/torchelastic_c/none_d/error.json"}
    proc = proc_of(tmp_path, "0::/\n", **outer)
    given = {**environment, "SLURM_TASK_PID": "241"}
    got = inherited({**given, **inner}, proc=proc)
    assert {name: got.get(name) for name in inner} == inner
    assert inherited({**given, **outer}, proc=proc)["RANK"] == "0"


def test_launch_within_launch_in_one_task_keeps_all(environment: dict[str, str]) -> None:
    first = inherited(environment)
    twice = inherited(first)
    assert twice == first
    later = inherited({**twice, "SLURM_JOB_ID": "77"})
    assert later["MUSTER_METRICS"].endswith("/metrics-77.jsonl")


def test_what_a_user_sets_within_a_launched_program_stays(environment: dict[str, str]) -> None:
    given = {**environment, "OMP_NUM_THREADS": "7", "MUSTER_METRICS": "/out/mine.jsonl"}
    first = inherited(given)
    # Before launch, and after it.
    second = inherited(first, SLURM_JOB_ID="77", MASTER_PORT="20001")
    got = inherited(second)
    assert (got["OMP_NUM_THREADS"], got["MKL_NUM_THREADS"]) == ("7", "7")
    assert got["MUSTER_METRICS"] == "/out/mine.jsonl"
    assert got["MASTER_PORT"] == "20001"


def test_variables_that_do_not_fit_the_new_job_are_gone(environment: dict[str, str]) -> None:
    """TF_CONFIG is not set for `arbitrary`: that of the other job is worse than none."""
    first = inherited(environment)
    assert "TF_CONFIG" in first
    arbitrary = {**first, "SLURM_JOB_ID": "77", "SLURM_DISTRIBUTION": "arbitrary"}
    assert "TF_CONFIG" not in inherited(arbitrary)


def test_it_explains_what_it_does_not_keep(environment: dict[str, str]) -> None:
    said = launched({**inherited(environment), "SLURM_JOB_ID": "77"}, "--explain").stdout
    assert "# not kept, as launch has set them for 1.0: MASTER_ADDR, MASTER_PORT, RANK, " in said
    assert "it was set already" not in said
    assert "# MUSTER_LAUNCH: names job, step and what is set here" in said
    within = launched(inherited(environment), "--explain").stdout
    assert "# not kept" not in within
    assert "RANK=0  # it was set already, and stays\n" in within


@pytest.mark.parametrize("note", ["", "1.1", "x", "77.0 RANK", "77.0  =x RANK= =", "77.0\nRANK=1"])
def test_a_note_that_says_nothing_changes_nothing(environment: dict[str, str], note: str) -> None:
    given = {**environment, "RANK": "9", "MUSTER_LAUNCH": note}
    assert inherited(given)["RANK"] == "9"


def test_the_program_s_own_options_and_exit_code_are_its_own(environment: dict[str, str]) -> None:
    code = "import sys; sys.exit(len(sys.argv) + 40)"
    assert launched(environment, sys.executable, "-c", code, "--explain", "-h").returncode == 43


def test_it_explains_and_starts_nothing(environment: dict[str, str], tmp_path: Path) -> None:
    done = launched(environment, "--explain", "touch", str(tmp_path / "started"))
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "started").exists()
    lines = done.stdout.splitlines()
    assert lines[0] == "task 0 of 2, on localhost:"
    assert "GLOO_SOCKET_IFNAME=lo  # Gloo: it holds the address of this node" in lines
    assert lines[-1] == "# MPI: left to PMIx (srun --mpi=pmix)"
    assert all(" # " in line or line.startswith("# ") for line in lines[1:])


def test_only_the_first_task_explains(environment: dict[str, str]) -> None:
    second = {**environment, "SLURM_PROCID": "1", "SLURM_LOCALID": "1"}
    done = launched(second, "--explain")
    assert (done.returncode, done.stdout) == (0, "")


def test_without_a_command_there_is_nothing_to_start(environment: dict[str, str]) -> None:
    done = launched(environment)
    assert done.returncode == 2
    assert "there is no COMMAND to start" in done.stderr


def test_outside_of_a_job_nothing_is_started(environment: dict[str, str]) -> None:
    del environment["SLURM_JOB_ID"]
    done = launched(environment, "echo", "started")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("launch: this is no job: ")
    assert cancelled(environment) == ""


def test_a_program_that_is_not_there_ends_the_step(environment: dict[str, str]) -> None:
    done = launched(environment, "no-such-program")
    assert done.returncode == 1
    assert done.stderr == (
        "launch: no-such-program is not there: load the module that has it (module load, before "
        "srun), or name it by its path\n"
    )
    assert cancelled(environment) == "1.0"


def test_a_file_that_is_no_program_is_told(environment: dict[str, str], tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()
    done = launched(environment, str(script))
    assert done.stderr == (
        f"launch: {script} is no program: type the one that runs it first (python, bash), or type "
        f"chmod +x {script} and name it by its path, such as ./train.py\n"
    )


def test_a_step_of_another_component_is_not_ended(environment: dict[str, str]) -> None:
    """All components of a heterogeneous job have the number of the first in their variables."""
    done = launched({**environment, "SLURM_HET_SIZE": "2"}, "no-such-program")
    assert done.returncode == 1
    assert "launch: the other tasks go on: end the job by scancel 1\n" in done.stderr
    assert cancelled(environment) == ""


def test_a_task_alone_has_no_step_to_end(environment: dict[str, str]) -> None:
    done = launched({**environment, "SLURM_STEP_TASKS_PER_NODE": "1"}, "no-such-program")
    assert done.returncode == 1
    assert cancelled(environment) == ""


def test_a_step_that_can_t_be_ended_is_told(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "scancel").unlink()
    done = launched({**environment, "PATH": str(tmp_path)}, "no-such-program")
    assert "type scancel 1.0\n" in done.stderr


def test_a_program_of_no_known_form_is_told(environment: dict[str, str], tmp_path: Path) -> None:
    odd = tmp_path / "odd"
    odd.write_bytes(b"\x7fELF, but not really")
    odd.chmod(0o755)
    done = launched(environment, str(odd))
    assert done.stderr == (
        f"launch: {odd} can't be started (Exec format error): name a program for this machine, or "
        "begin the script with a line such as #!/bin/bash\n"
    )


@pytest.fixture
def taken():
    """A port of this machine on which something listens."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def test_a_taken_port_is_told_by_the_first_task(environment: dict[str, str], taken: int) -> None:
    given = {**environment, "MASTER_PORT": str(taken)}
    done = launched(given, "echo", "started")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"launch: port {taken} of localhost is in use: set MASTER_PORT to another one from 20000 "
        "to 24999, before srun\n"
    )
    assert cancelled(environment) == "1.0"
    others = {**given, "SLURM_PROCID": "1", "SLURM_LOCALID": "1"}
    assert launched(others, "echo", "started").stdout == "started\n"


def test_a_task_alone_takes_the_next_port(taken: int) -> None:
    assert network.free_port(taken, taken + 50) > taken
    assert network.free_port(taken, taken) == taken


def test_a_port_whose_connection_was_just_closed_is_free() -> None:
    # It lets others have the port, as servers do. It is none of those that the kernel gives to
    # other programs' connections, which may take it meanwhile.
    port = network.free_port(20000, 24999)
    with (
        socket.create_server(("127.0.0.1", port)) as listening,
        socket.create_connection(("127.0.0.1", port)) as client,
    ):
        accepted, _ = listening.accept()
        accepted.close()
        client.recv(1)
    assert not network.is_taken(port)


# -- nodes ----------------------------------------------------------------------------------------


def test_a_node_without_an_address_is_told(environment: dict[str, str]) -> None:
    name = "no-such-node.invalid"
    given = {**environment, "SLURM_STEP_NODELIST": name, "SLURMD_NODENAME": name}
    done = launched(given, "true")
    assert done.returncode == 1
    assert "launch: the name of node no-such-node.invalid can't be resolved here (" in done.stderr
    assert "(--exclude)" in done.stderr


def test_the_interface_is_that_of_the_own_address(monkeypatch: pytest.MonkeyPatch) -> None:
    assert network.interface("localhost", None) == "lo"
    monkeypatch.setattr(network, "address_of", {"lab-cpu-01": "192.0.2.213"}.__getitem__)
    assert network.interface("lab-cpu-01", None) is None


def test_a_name_of_the_loopback_is_not_taken_for_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian gives a machine's own name the address 127.0.1.1."""
    addresses = {"me": "127.0.1.1", "other": "192.0.2.213"}
    monkeypatch.setattr(network, "address_of", addresses.__getitem__)
    monkeypatch.setattr(network, "_source", {"192.0.2.213": "192.0.2.9"}.__getitem__)
    holders = {ipaddress.ip_address("192.0.2.9"): "ens4"}
    monkeypatch.setattr(network, "_ipv4_holders", lambda: holders)
    assert network.interface("me", "other") == "ens4"


def test_addresses_of_both_kinds_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "if_inet6"
    table.write_text(
        "00000000000000000000000000000001 01 80 10 80       lo\n"
        "20010db8000000000000000000000002 02 40 00 80     ens4\n"
    )
    monkeypatch.setattr(network, "_INET6", str(table))
    assert network._ipv6_holders()[ipaddress.ip_address("2001:db8::2")] == "ens4"
    assert network._ipv4_holders()[ipaddress.ip_address("127.0.0.1")] == "lo"
    monkeypatch.setattr(network, "_INET6", str(tmp_path / "none"))
    assert network._ipv6_holders() == {}


def test_an_interface_that_a_file_of_nccl_s_names_is_left_to_it(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """NCCL prefers the environment: an administrator's fast network would be left out."""
    file = tmp_path / "nccl.conf"
    file.write_text("# all nodes\nNCCL_DEBUG=WARN\nNCCL_SOCKET_IFNAME==ib0\n")
    given = {**environment, "NCCL_CONF_FILE": str(file)}
    said = launched(given, "--explain").stdout
    assert "# NCCL_SOCKET_IFNAME: not set, as a file of NCCL's (nccl.conf) has it\n" in said
    assert "NCCL_SOCKET_IFNAME=" not in said
    assert "GLOO_SOCKET_IFNAME=lo " in said
    file.write_text("#NCCL_SOCKET_IFNAME==ib0\n")
    assert "NCCL_SOCKET_IFNAME==lo " in launched(given, "--explain").stdout


def test_without_files_of_nccl_s_nothing_is_set_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "_NCCL_CONF", str(tmp_path / "nccl.conf"))
    none = {"NCCL_CONF_FILE": str(tmp_path / "none")}
    assert network.set_for_nccl(none) == set()
    (tmp_path / "nccl.conf").write_text("NCCL_IB_HCA = mlx5\n")
    assert network.set_for_nccl(none) == {"NCCL_IB_HCA"}


# -- frameworks -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "script"),
    [
        (["python", "train.py", "--lr", "1"], "train.py"),
        (["/apps/bin/python3.11", "-u", "a/train.py"], "a/train.py"),
        (["python3", "-m", "train"], None),
        (["python3", "-c", "print()"], None),
        (["bash", "train.py"], None),
        (["python3"], None),
    ],
)
def test_a_script_is_found_where_the_command_names_it(
    command: list[str], script: "str | None"
) -> None:
    assert frameworks.script_of(command) == (Path(script) if script else None)


def test_imports_are_those_that_the_start_needs() -> None:
    text = """
import os, torch.nn as nn
from tensorflow.keras import layers
from .jax import x
try:
    import mpi4py
except ImportError:
    mpi4py = None
def later():
    import horovod
"""
    assert frameworks.imports(text) == ["torch", "tensorflow"]
    assert frameworks.imports("print 'two'") == frameworks.imports("\0") == []


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text("import os\nimport horovod\nprint('started')\n")
    return path


def test_a_framework_that_is_not_loaded_is_told_once(
    environment: dict[str, str], script: Path
) -> None:
    done = launched(environment, sys.executable, str(script))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"launch: {script} imports horovod, which ")
    assert "load the module that has it (module avail, module load), before srun" in done.stderr
    second = {**environment, "SLURM_PROCID": "1", "SLURM_LOCALID": "1"}
    assert "ModuleNotFoundError" in launched(second, sys.executable, str(script)).stderr


def test_what_lies_beside_the_script_is_found(environment: dict[str, str], script: Path) -> None:
    (script.parent / "horovod.py").touch()
    assert launched(environment, sys.executable, str(script)).stdout == "started\n"


@pytest.mark.parametrize("adds", ["sys.path.insert(0, {!r})", "site.addsitedir({!r})"])
def test_a_script_that_names_folders_itself_is_started(
    environment: dict[str, str], script: Path, tmp_path: Path, adds: str
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/horovod.py").touch()
    script.write_text(f"import site, sys\n{adds.format(str(tmp_path / 'src'))}\nimport horovod\n")
    done = launched(environment, sys.executable, str(script))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_folder_of_a_framework_s_name_is_none(environment: dict[str, str], script: Path) -> None:
    """As the copy of examples/jax is."""
    (script.parent / "horovod").mkdir()
    done = launched(environment, sys.executable, str(script))
    assert f"{script} imports horovod, which " in done.stderr
    (script.parent / "horovod/__init__.py").touch()
    assert launched(environment, sys.executable, str(script)).stdout == "started\n"


def test_a_script_that_the_node_does_not_see_is_told(
    environment: dict[str, str], tmp_path: Path
) -> None:
    done = launched(environment, sys.executable, str(tmp_path / "none.py"))
    assert "can't be read here (No such file or directory): name it by a path" in done.stderr


def test_a_slow_file_system_is_no_reason_to_start_nothing(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frameworks, "_TRY_TIMEOUT_S", 0.1)
    interpreter = tmp_path / "python"
    interpreter.write_text("#!/bin/sh\nexec sleep 600\n")
    interpreter.chmod(0o755)
    frameworks.check(str(interpreter), script)


def test_cpus_that_srun_left_out_are_told(environment: dict[str, str]) -> None:
    done = launched({**environment, "SLURM_CPUS_PER_TASK": "4096"}, "true")
    assert done.returncode == 0
    assert "of the 4096 CPUs that the job asks for: type srun --cpus-per-task=" in done.stderr
