"""GPUs are cut as the definition says, when no job runs, and have the names of gres.conf."""

import json

import pytest
from mig import main
from mig.cards import Driver
from node import Gpu, Node

from muster.definition import Gpus
from muster.render.slurm.node_lines import MIG_DIR, _gres

FIRST, SECOND = "00000000:3B:00.0", "00000000:AF:00.0"


@pytest.fixture
def cut(tmp_path, capsys):
    """Run the program on a node; return its exit status and what it said."""

    def run(node, layout):
        node.write("etc/muster/mig.json", json.dumps(layout))
        status = main.main([], Driver(str(tmp_path), node.run))
        said = capsys.readouterr()
        return status, said.out + said.err

    return run


def changes(node):
    """Return the commands that changed something."""
    asks = ("--query", "-lgi", "nvidia-modprobe")
    return [line for line in node.said if not any(word in line for word in asks)]


def links(tmp_path):
    return {path.name: str(path.readlink()) for path in (tmp_path / "dev/muster-mig").iterdir()}


def test_whole_gpus_are_cut(tmp_path, cut):
    node = Node(tmp_path, Gpu(FIRST, 0), Gpu(SECOND, 1))
    said = "is partitioned as /etc/muster/mig.json says\n"
    assert cut(node, {"1g.10gb": 7}) == (0, f"{FIRST} {said}{SECOND} {said}")
    assert changes(node)[:2] == [
        f"nvidia-smi -i {FIRST} -mig 1",
        f"nvidia-smi mig -i {FIRST} -cgi {','.join(['1g.10gb'] * 7)} -C",
    ]
    assert [len(gpu.instances) for gpu in node.gpus] == [7, 7]


def test_instances_have_the_names_of_gres_conf(tmp_path, cut):
    """nvidia-smi counts by the bus, device files by the order in which the driver found GPUs."""
    node = Node(tmp_path, Gpu(FIRST, 1), Gpu(SECOND, 0))
    layout = {"3g.40gb": 1, "1g.10gb": 2}
    assert cut(node, layout)[0] == 0
    gpus = Gpus.model_validate({"count": 2, "type": "h100", "mig": layout})
    wanted = {file for line in _gres(gpus) for file in line["MultipleFiles"].split(",")}
    there = {f"{MIG_DIR}/{name}" for name in links(tmp_path)}
    assert wanted == there | {"/dev/nvidia0", "/dev/nvidia1"}


def test_names_lead_to_the_capabilities_of_instance_and_compute_instance(tmp_path, cut):
    node = Node(
        tmp_path, Gpu(FIRST, 1, cut=True, instances={9: ("1g.10gb", 4), 11: ("1g.10gb", 0)})
    )
    assert cut(node, {"1g.10gb": 2}) == (0, "")
    caps = "/dev/nvidia-caps/nvidia-cap"
    # By their place, not by their number: 11 begins first.
    assert links(tmp_path) == {
        "nvidia1-1g.10gb-0-gi": f"{caps}{3 + 135 + 99}",
        "nvidia1-1g.10gb-0-ci": f"{caps}{3 + 135 + 99 + 1}",
        "nvidia1-1g.10gb-1-gi": f"{caps}{3 + 135 + 81}",
        "nvidia1-1g.10gb-1-ci": f"{caps}{3 + 135 + 81 + 1}",
    }
    folder = "/proc/driver/nvidia/capabilities/gpu1/mig/gi11"
    assert f"nvidia-modprobe -f {folder}/access -f {folder}/ci0/access" in node.said


def test_gpus_that_are_cut_so_are_left_alone_under_jobs_too(tmp_path, cut):
    node = Node(tmp_path, Gpu(FIRST, 0, cut=True, instances={7: ("1g.10gb", 0)}))
    node.write("proc/4711/comm", "slurmstepd\n")
    assert cut(node, {"1g.10gb": 1}) == (0, "")
    before = links(tmp_path)
    assert cut(node, {"1g.10gb": 1}) == (0, "")
    assert changes(node) == []
    assert links(tmp_path) == before


@pytest.mark.parametrize(
    "gpu",
    [
        Gpu(FIRST, 0),
        Gpu(FIRST, 0, cut=True),
        Gpu(FIRST, 0, cut=True, instances={7: ("2g.20gb", 0)}),
        Gpu(FIRST, 0, cut=True, instances={7: ("1g.10gb", 0), 8: ("1g.10gb", 1)}),
        Gpu(FIRST, 0, cut=True, instances={7: ("1g.10gb", 0)}, empty={7}),
    ],
    ids=["whole", "without-instances", "another-profile", "one-too-many", "killed-between"],
)
def test_nothing_is_partitioned_again_while_a_job_runs(tmp_path, cut, gpu):
    node = Node(tmp_path, gpu)
    node.write("proc/4711/comm", "slurmstepd\n")
    status, said = cut(node, {"1g.10gb": 1})
    assert (status, changes(node)) == (1, [])
    assert said == (
        f"muster-mig: {FIRST} must be partitioned again (MIG), and jobs run here: "
        "drain the node, and when they have ended run `systemctl restart muster-nvidia slurmd`\n"
    )


def test_only_gpus_that_differ_are_partitioned_again(tmp_path, cut):
    good = Gpu(FIRST, 0, cut=True, instances={7: ("1g.10gb", 0)})
    node = Node(tmp_path, good, Gpu(SECOND, 1, cut=True, instances={7: ("2g.20gb", 0)}))
    assert cut(node, {"1g.10gb": 1})[0] == 0
    assert changes(node) == [
        f"nvidia-smi mig -i {SECOND} -dci",
        f"nvidia-smi mig -i {SECOND} -dgi",
        f"nvidia-smi mig -i {SECOND} -cgi 1g.10gb -C",
    ]


def test_another_order_is_tried_where_instances_stand_in_each_others_way(tmp_path, cut):
    """With the small ones first, no place is left for the large one."""
    node = Node(tmp_path, Gpu(FIRST, 0))
    assert cut(node, {"1g.10gb": 4, "3g.40gb": 1})[0] == 0
    small = ",".join(["1g.10gb"] * 4)
    assert [line.partition(f"mig -i {FIRST} ")[2] for line in changes(node)[1:]] == [
        f"-cgi {small},3g.40gb -C",
        "-dci",
        "-dgi",
        f"-cgi 3g.40gb,{small} -C",
    ]
    assert len(node.gpus[0].instances) == 5


def test_a_layout_without_room_is_one_sentence(tmp_path, cut):
    node = Node(tmp_path, Gpu(FIRST, 0))
    status, said = cut(node, {"1g.10gb": 7, "3g.40gb": 1})
    assert status == 1
    assert "Insufficient Resources" in said
    assert "fix mig in the definition" in said
    assert not node.gpus[0].instances


def test_a_gpu_that_can_not_be_reset_waits_for_a_reboot(tmp_path, cut):
    node = Node(tmp_path, Gpu(FIRST, 0, stuck=True))
    status, said = cut(node, {"1g.10gb": 7})
    assert status == 1
    assert said == (
        f"muster-mig: {FIRST} switches MIG on at a reset only, and something uses it: reboot the "
        "node (scontrol reboot ASAP nextstate=RESUME NODE)\n"
    )


def test_gpus_are_whole_again_when_the_definition_says_so(tmp_path, cut):
    node = Node(tmp_path, Gpu(FIRST, 0, cut=True, instances={7: ("1g.10gb", 0)}))
    assert cut(node, {"1g.10gb": 1})[0] == 0
    assert cut(node, {})[0] == 0
    assert (node.gpus[0].cut, node.gpus[0].instances) == (False, {})
    assert links(tmp_path) == {}


def test_mig_without_instances_is_switched_off_too(tmp_path, cut):
    node = Node(tmp_path, Gpu(FIRST, 0, cut=True))
    assert cut(node, {})[0] == 0
    assert changes(node) == [f"nvidia-smi -i {FIRST} -mig 0"]


def test_a_node_without_mig_is_only_looked_at(tmp_path, cut):
    node = Node(tmp_path, Gpu(FIRST, 0))
    node.broken = {"nvidia-smi --query-gpu": (0, f"{FIRST}, [N/A]\n")}
    assert cut(node, {}) == (0, "")
    assert len(node.said) == 2


def test_a_driver_that_takes_the_instances_and_has_none_is_not_believed(tmp_path, cut):
    node = Node(tmp_path, Gpu(FIRST, 0, cut=True))
    node.broken = {f"nvidia-smi mig -i {FIRST} -cgi": (0, "Successfully created\n")}
    status, said = cut(node, {"1g.10gb": 1})
    assert (status, "does not have them" in said) == (1, True)


@pytest.mark.parametrize(
    ("command", "answer", "words"),
    [
        (
            "nvidia-smi --query",
            (9, "NVIDIA-SMI has failed\n"),
            "lists no GPUs (NVIDIA-SMI has failed)",
        ),
        ("nvidia-smi --query", (0, ""), "lists no GPUs (it said nothing)"),
        ("nvidia-smi --query", (0, "garbage\n"), "lists no GPUs (garbage)"),
        (
            f"nvidia-smi mig -i {FIRST} -lgi",
            (4, "Insufficient Permissions"),
            "can't list the instances",
        ),
        (
            f"nvidia-smi mig -i {FIRST} -dgi",
            (6, "In use by another client"),
            "In use by another client",
        ),
        ("nvidia-modprobe", (1, ""), "ends with 1: it said nothing"),
    ],
)
def test_what_fails_is_said(tmp_path, cut, command, answer, words):
    node = Node(tmp_path, Gpu(FIRST, 0, cut=True, instances={7: ("2g.20gb", 0)}))
    node.broken = {command: answer}
    status, said = cut(node, {"1g.10gb": 1})
    assert status == 1
    assert words in said


def test_tools_that_are_missing_are_named(tmp_path, capsys):
    def missing(words, **_):
        raise FileNotFoundError(words[0])

    assert main.main([], Driver(str(tmp_path), missing)) == 1
    assert "nvidia-smi is not installed: run site.yml" in capsys.readouterr().err


def test_help_and_anything_else_change_nothing(tmp_path, capsys):
    node = Node(tmp_path, Gpu(FIRST, 0))
    assert main.main(["--help"], Driver(str(tmp_path), node.run)) == 0
    assert main.main(["now"], Driver(str(tmp_path), node.run)) == 2
    assert node.said == []
    assert "usage: muster-mig" in capsys.readouterr().out
