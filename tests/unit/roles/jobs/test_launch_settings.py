"""What `launch` sets, for variables that SLURM 22.05 and 24.11 have set."""

import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import replace

import jobs_library  # noqa: F401 (makes muster_launch importable)
import pytest
from muster_launch.cores import narrowed, threads
from muster_launch.errors import LaunchError
from muster_launch.gpus import Gpus, gpus_of
from muster_launch.settings import FIRST_PORT, LAST_PORT, Facts, port_of, settings
from muster_launch.step import Step, step_of

Recorded = Callable[[str], dict[str, str]]


def set_for(environment: Mapping[str, str]) -> dict[str, str]:
    step = step_of(environment)
    facts = Facts(interface="eth0", threads=3, gpus=gpus_of(step, environment))
    found = settings(step, facts, port_of(step, environment), environment)
    assert all(setting.why for setting in found)
    return {setting.name: setting.value for setting in found}


def test_a_task_knows_its_place(recorded: Recorded) -> None:
    got = set_for(recorded("block-3"))
    assert {name: got[name] for name in got if "RANK" in name or "SIZE" in name} == {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
    }
    assert got["MASTER_ADDR"] == "lab-gpu-01"
    assert got["NCCL_SOCKET_IFNAME"] == "=eth0"
    assert got["GLOO_SOCKET_IFNAME"] == "eth0"
    assert got["OMP_NUM_THREADS"] == got["TF_NUM_INTRAOP_THREADS"] == "3"


@pytest.mark.parametrize(("given", "threads"), [("7", "7"), ("4,2", "4"), ("", "3"), ("x", "3")])
def test_threads_that_the_user_has_set_hold_for_all(
    recorded: Recorded, given: str, threads: str
) -> None:
    got = set_for({**recorded("block-3"), "OMP_NUM_THREADS": given})
    of_all = {name: value for name, value in got.items() if name.endswith("_THREADS")}
    # PyTorch takes MKL's before OpenMP's.
    assert of_all.pop("MKL_NUM_THREADS") == threads
    assert set(of_all.values()) == {threads}


def test_all_tasks_meet_at_one_place(recorded: Recorded) -> None:
    first, last = set_for(recorded("block-0")), set_for(recorded("block-3"))
    same = ("MASTER_ADDR", "MASTER_PORT", "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES")
    assert [first[name] for name in same] == [last[name] for name in same]
    clusters = [json.loads(got["TF_CONFIG"])["cluster"] for got in (first, last)]
    assert clusters[0] == clusters[1]


def test_jax_meets_where_pytorch_does(recorded: Recorded) -> None:
    got = set_for(recorded("block-3"))
    assert got["JAX_COORDINATOR_ADDRESS"] == f"lab-gpu-01:{got['MASTER_PORT']}"
    assert (got["JAX_NUM_PROCESSES"], got["JAX_PROCESS_ID"]) == ("4", "3")


def test_jax_takes_all_gpus_of_a_task_and_no_other_s(recorded: Recorded) -> None:
    assert set_for(recorded("block-3"))["JAX_LOCAL_DEVICE_IDS"] == "1"
    assert set_for(recorded("per-task-1"))["JAX_LOCAL_DEVICE_IDS"] == "0"
    # One task on each node, for both GPUs of it.
    assert set_for(recorded("cyclic-1"))["JAX_LOCAL_DEVICE_IDS"] == "0,1"


@pytest.mark.parametrize(
    ("task", "workers", "index"),
    [
        (
            "block-3",
            [("lab-gpu-01", 0), ("lab-gpu-01", 1), ("lab-gpu-02", 0), ("lab-gpu-02", 1)],
            3,
        ),
        ("cyclic-1", [("lab-gpu-01", 0), ("lab-gpu-02", 0)], 1),
        ("plane-0", [("lab-gpu-01", 0), ("lab-gpu-01", 1), ("lab-gpu-02", 0)], 0),
        ("plane-1", [("lab-gpu-01", 0), ("lab-gpu-01", 1), ("lab-gpu-02", 0)], 1),
        ("plane-2", [("lab-gpu-01", 0), ("lab-gpu-01", 1), ("lab-gpu-02", 0)], 2),
    ],
)
def test_tensorflow_gets_a_port_for_each_task_of_a_node(
    recorded: Recorded, task: str, workers: list[tuple[str, int]], index: int
) -> None:
    got = set_for(recorded(task))
    port = int(got["MASTER_PORT"])
    assert json.loads(got["TF_CONFIG"]) == {
        "cluster": {"worker": [f"{node}:{port + local}" for node, local in workers]},
        "task": {"type": "worker", "index": index},
    }


def test_the_order_of_a_file_is_not_guessed(recorded: Recorded) -> None:
    assert "TF_CONFIG" not in set_for({**recorded("block-3"), "SLURM_DISTRIBUTION": "arbitrary"})


def test_a_distribution_that_the_own_place_contradicts_is_none(recorded: Recorded) -> None:
    step = step_of({**recorded("plane-1"), "SLURM_DISTRIBUTION": "cyclic"})
    assert step.places() is None


def test_cyclic_order_passes_nodes_that_are_full() -> None:
    step = Step(1, 0, True, ("a", "b", "c"), (1, 3, 2), "cyclic:block", 0, 3, 1, 1)
    assert step.places() == [(0, 0), (1, 0), (2, 0), (1, 1), (2, 1), (1, 2)]


def test_thousands_of_workers_are_no_variable() -> None:
    names = tuple(f"a-node-with-a-long-name-{number}" for number in range(4000))
    step = Step(1, 0, True, names, (1,) * 4000, "", 0, 0, 0, 0)
    found = settings(step, Facts("eth0", 1, Gpus(0, is_own=False)), 20000, {})
    assert "TF_CONFIG" not in [setting.name for setting in found]
    assert max(len(setting.value) for setting in found) < 100_000


def test_without_an_interface_none_is_set(recorded: Recorded) -> None:
    step = step_of(recorded("block-0"))
    found = settings(step, Facts(None, 1, Gpus(0, is_own=False)), 20000, {})
    assert not [setting.name for setting in found if "IFNAME" in setting.name]


def test_an_address_and_a_port_of_the_user_s_hold_for_all(recorded: Recorded) -> None:
    got = set_for({**recorded("block-3"), "MASTER_ADDR": "192.0.2.7", "MASTER_PORT": "4711"})
    assert (got["MASTER_ADDR"], got["MASTER_PORT"]) == ("192.0.2.7", "4711")
    assert got["JAX_COORDINATOR_ADDRESS"] == "192.0.2.7:4711"
    got = set_for({**recorded("block-3"), "MASTER_ADDR": "2001:db8::7", "MASTER_PORT": "4711"})
    assert got["JAX_COORDINATOR_ADDRESS"] == "[2001:db8::7]:4711"


def test_metrics_lie_where_the_job_was_submitted(recorded: Recorded) -> None:
    assert set_for(recorded("block-3"))["MUSTER_METRICS"] == "/out/metrics-1.jsonl"
    assert set_for(recorded("alone"))["MUSTER_METRICS"] == "/out/metrics-2_3.jsonl"


# -- ports ----------------------------------------------------------------------------------------


def test_ports_are_those_that_the_documentation_names(recorded: Recorded) -> None:
    step = step_of(recorded("block-0"))
    for job in range(1, 200_000, 37):
        port = port_of(replace(step, job=job), {})
        assert port >= FIRST_PORT
        assert port + max(step.tasks_on) - 1 <= LAST_PORT


def test_jobs_and_steps_beside_each_other_have_other_ports(recorded: Recorded) -> None:
    step = step_of(recorded("block-0"))
    ports = [
        port_of(replace(step, job=job, number=number), {})
        for job in range(1000, 1016)
        for number in range(4)
    ]
    ports.sort()
    assert min(after - before for before, after in itertools.pairwise(ports)) >= 2
    jobs = sorted(port_of(replace(step, job=job), {}) for job in range(1000, 1064))
    assert min(after - before for before, after in itertools.pairwise(jobs)) >= 16


@pytest.mark.parametrize("word", ["http", "0", "65536", "-1", "²"])
def test_a_wrong_port_is_refused(recorded: Recorded, word: str) -> None:
    with pytest.raises(LaunchError, match=r"MASTER_PORT is .*unset it, or set a number"):
        port_of(step_of(recorded("block-0")), {"MASTER_PORT": word})


# -- GPUs -----------------------------------------------------------------------------------------


def test_tasks_that_see_all_gpus_take_the_one_of_their_number(recorded: Recorded) -> None:
    environment = recorded("block-3")
    assert gpus_of(step_of(environment), environment) == Gpus(2, is_own=False)


def test_gpus_that_no_task_takes_are_told(recorded: Recorded) -> None:
    step = step_of(recorded("cyclic-1"))
    found = settings(step, Facts("eth0", 1, Gpus(2, is_own=False)), 20000, {})
    (why,) = [setting.why for setting in found if setting.name == "LOCAL_RANK"]
    assert why.endswith("; a node has 2 GPUs, and each task takes one")


def test_tasks_with_gpus_of_their_own_take_the_first(recorded: Recorded) -> None:
    got = set_for(recorded("per-task-1"))
    assert (got["RANK"], got["LOCAL_RANK"], got["LOCAL_WORLD_SIZE"]) == ("1", "0", "1")
    assert (got["GROUP_RANK"], got["GROUP_WORLD_SIZE"]) == ("1", "4")


def seen(recorded: Recorded, visible: str, on_node: int, tasks: int) -> tuple[Step, dict[str, str]]:
    """Return the last task and its variables, on nodes where each task sees these GPUs."""
    environment = {
        **recorded("block-3"),
        "CUDA_VISIBLE_DEVICES": visible,
        "SLURM_GPUS_ON_NODE": str(on_node),
        "SLURM_STEP_TASKS_PER_NODE": f"{tasks}(x2)",
        "SLURM_PROCID": str(2 * tasks - 1),
        "SLURM_LOCALID": str(tasks - 1),
    }
    return step_of(environment), environment


@pytest.mark.parametrize(
    ("visible", "on_node", "tasks", "gpus"),
    [
        ("0,1", 2, 2, Gpus(2, is_own=False)),
        ("0,1,2,3", 4, 2, Gpus(4, is_own=False)),
        # --gpus-per-task: two for each of two, and four.
        ("2,3", 4, 2, Gpus(2, is_own=True)),
        ("4,5,6,7", 8, 2, Gpus(4, is_own=True)),
        ("MIG-8f1c,MIG-77aa", 2, 2, Gpus(2, is_own=False)),
        ("MIG-77aa", 2, 2, Gpus(1, is_own=True)),
        ("-1", 2, 2, Gpus(0, is_own=False)),
        ("0,-1,1", 1, 1, Gpus(1, is_own=False)),
    ],
)
def test_gpus_are_shared_out_or_each_task_s_own(
    recorded: Recorded, visible: str, on_node: int, tasks: int, gpus: Gpus
) -> None:
    step, environment = seen(recorded, visible, on_node, tasks)
    assert gpus_of(step, environment) == gpus


def test_jax_takes_each_of_several_own_gpus(recorded: Recorded) -> None:
    _, environment = seen(recorded, "2,3", 4, 2)
    got = set_for(environment)
    assert (got["JAX_LOCAL_DEVICE_IDS"], got["LOCAL_RANK"]) == ("0,1", "0")


@pytest.mark.parametrize(
    ("visible", "on_node", "tasks", "said"),
    [
        (
            "0",
            1,
            2,
            "2 tasks on lab-gpu-02 have 1 GPU: ask for --ntasks-per-node=1, or for more GPUs "
            "(--gpus-per-node=2); if they are to share them, set LOCAL_RANK",
        ),
        # --gpu-bind=closest, with two sockets.
        (
            "4,5,6,7",
            8,
            8,
            "8 tasks on lab-gpu-02 see 4 of its 8 GPUs each, so that some would take the same: "
            "leave --gpu-bind out, or ask for GPUs by --gpus-per-task",
        ),
    ],
)
def test_tasks_that_would_take_the_same_gpu_are_refused(
    recorded: Recorded, visible: str, on_node: int, tasks: int, said: str
) -> None:
    step, environment = seen(recorded, visible, on_node, tasks)
    with pytest.raises(LaunchError) as raised:
        gpus_of(step, environment)
    assert str(raised.value) == said
    for name in ("SLURM_SHARDS_ON_NODE", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "LOCAL_RANK"):
        assert gpus_of(step, {**environment, name: "2"}).is_own


def test_a_job_without_gpus_has_none(recorded: Recorded) -> None:
    environment = {name: value for name, value in recorded("block-3").items() if "GPUS" not in name}
    del environment["CUDA_VISIBLE_DEVICES"], environment["ROCR_VISIBLE_DEVICES"]
    assert gpus_of(step_of(environment), environment) == Gpus(0, is_own=False)
    got = set_for(environment)
    assert got["LOCAL_RANK"] == "1"
    assert "JAX_LOCAL_DEVICE_IDS" not in got


# -- threads --------------------------------------------------------------------------------------


@pytest.fixture
def cores(tmp_path):
    """A machine with eight cores of two CPUs each: 0 and 8, 1 and 9, and so on."""
    for cpu in range(16):
        folder = tmp_path / f"cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{cpu % 8},{cpu % 8 + 8}\n")
    return tmp_path


@pytest.mark.parametrize(
    ("cpus", "variables", "wanted"),
    [
        ({0, 8, 1, 9}, {"SLURM_CPUS_PER_TASK": "4"}, 2),  # bound to its own
        ({0, 1, 2, 3}, {"SLURM_CPUS_PER_TASK": "4"}, 4),  # a CPU of each core
        (set(range(16)), {"SLURM_CPUS_ON_NODE": "16"}, 4),  # shared by both tasks
        (set(range(16)), {"SLURM_CPUS_ON_NODE": "16", "SLURM_CPUS_PER_TASK": "4"}, 2),
        ({3}, {"SLURM_CPUS_ON_NODE": "2", "SLURM_CPUS_PER_TASK": "20"}, 1),
        ({0, 8}, {"SLURM_CPUS_ON_NODE": "1"}, 1),
        (set(), {}, 1),
    ],
)
def test_a_thread_for_each_core_of_a_task(
    recorded: Recorded, cores, cpus: set[int], variables: dict[str, str], wanted: int
) -> None:
    assert threads(step_of(recorded("block-0")), variables, cpus, cores) == wanted


def test_cpus_that_srun_did_not_take_from_sbatch_are_told() -> None:
    said = narrowed({"SLURM_CPUS_PER_TASK": "20"}, {4})
    assert said.startswith("each task has 1 of the 20 CPUs")
    assert narrowed({"SLURM_CPUS_PER_TASK": "2"}, {4, 5}) == narrowed({}, {4}) == ""


# -- steps ----------------------------------------------------------------------------------------


def test_outside_of_a_job_there_is_none() -> None:
    with pytest.raises(LaunchError, match="this is no job: type `srun launch"):
        step_of({"HOME": "/home/ada"})


def test_a_script_with_several_tasks_starts_them_with_srun(recorded: Recorded) -> None:
    with pytest.raises(LaunchError, match=r"the job has 4 tasks .*type `srun launch"):
        step_of(recorded("batch"))


def test_the_shell_of_salloc_is_as_a_script(recorded: Recorded) -> None:
    with pytest.raises(LaunchError, match="the job has 4 tasks"):
        step_of({**recorded("block-0"), "SLURM_STEP_ID": "4294967290"})


def test_a_script_with_one_task_needs_no_srun(recorded: Recorded) -> None:
    step = step_of(recorded("alone"))
    assert (step.size, step.rank, step.nodes, step.started_by_srun) == (
        1,
        0,
        ("lab-gpu-01",),
        False,
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"SLURM_STEP_NODELIST": ""},
            "SLURM_STEP_NODELIST is not set; start the program with srun",
        ),
        ({"SLURM_STEP_NODELIST": "a[1-"}, "SLURM's list 'a[1-' can't be read"),
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x"}, "SLURM's list '2(x' can't be read"),
        ({"SLURM_STEP_TASKS_PER_NODE": "2"}, "variables of step 1.0 don't fit together"),
        ({"SLURM_PROCID": "9"}, "variables of step 1.0 don't fit together"),
        ({"SLURM_NODEID": "2"}, "variables of step 1.0 don't fit together"),
        # Of a job within which this one was submitted.
        ({"SLURMD_NODENAME": "lab-gpu-07"}, "and submit jobs outside of other jobs"),
        # Components of a heterogeneous job: nodes by their names, tasks by their component.
        ({"SLURM_STEP_NODELIST": "lab-gpu-02,lab-gpu-01"}, "with a srun of its own (--het-group)"),
        ({"SLURM_PROCID": "one"}, "SLURM_PROCID is 'one', no number"),
    ],
)
def test_variables_that_can_t_be_are_one_sentence(
    recorded: Recorded, changes: dict[str, str], said: str
) -> None:
    with pytest.raises(LaunchError) as raised:
        step_of({**recorded("block-3"), **changes})
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
