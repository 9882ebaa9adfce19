"""The program `launch`: what it starts, and what it says in place of that."""

import ipaddress
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


def launched(environment: dict[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    """Run the program, with this checkout's library in place of the host's."""
    return subprocess.run(
        [sys.executable, "-c", MAIN, *words],
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
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frameworks, "_TRY_TIMEOUT_S", 0.001)
    frameworks.check(sys.executable, script)


def test_cpus_that_srun_left_out_are_told(environment: dict[str, str]) -> None:
    done = launched({**environment, "SLURM_CPUS_PER_TASK": "4096"}, "true")
    assert done.returncode == 0
    assert "of the 4096 CPUs that the job asks for: type srun --cpus-per-task=" in done.stderr
