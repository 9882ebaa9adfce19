"""tests/bench/training: what a run says, the model, the table, the picture, and the job script."""

import json
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import cast
from xml.etree import ElementTree

import example_jobs
import frameworks
import pytest
from bench import training_table
from bench.training import lab, plot, table
from documentation import ROOT

from muster import definition
from muster_sandbox.demo import tour as demo
from muster_sandbox.demo.instance import Instance
from muster_sandbox.demo.showing import TourError

FOLDER = ROOT / "tests/bench/training"
SVG = "{http://www.w3.org/2000/svg}"

ONE = table.Result(
    nodes=1,
    start_up_s=5.0,
    seconds=8 * 469 * 0.050,
    steps=8 * 469,
    compute_s=0.049,
    data_s=0.001,
    small_s=0.0,
    large_s=0.0,
    sent_bytes=0.0,
    bytes=2_775_848,
    loss=0.05,
    accuracy=0.97,
    threads=1,
    cores=1,
    batch=128,
    epochs=8,
    images=60_000,
)
TWO = replace(
    ONE,
    nodes=2,
    seconds=8 * 235 * 0.058,
    steps=8 * 235,
    small_s=0.0002,
    large_s=0.0202,
    sent_bytes=2.8e6,
    accuracy=0.965,
)


def said(result: table.Result) -> str:
    return json.dumps({**vars(result), "more": 1})


def test_a_result_is_the_last_line_that_has_all_numbers() -> None:
    output = f'a warning\n{{"epoch": 8, "seconds": 9.5}}\n[]\n{said(ONE)}\na word at the end\n'
    assert table.parse(output) == ONE


@pytest.mark.parametrize(
    ("output", "end"),
    [("", "ends with: nothing"), ("a\nb\nImportError: torch\n", "a / b / ImportError: torch")],
)
def test_a_job_that_measured_nothing_is_told_with_its_last_words(output: str, end: str) -> None:
    with pytest.raises(table.TableError, match=end):
        table.parse(output)


@pytest.mark.parametrize(
    ("line", "done"),
    [
        ('{"epoch": 3, "seconds": 9.5}', (3, 9.5)),
        ('{"seconds": 9.5}', None),
        ("[3, 9.5]", None),
        ("no JSON", None),
    ],
)
def test_how_far_a_job_is(line: str, done: tuple[int, float] | None) -> None:
    assert table.progress(line) == done


# -- the model ------------------------------------------------------------------------------------


def test_the_exchange_is_what_a_step_takes_beyond_data_and_compute() -> None:
    assert ONE.exchange_s == 0
    assert TWO.exchange_s == pytest.approx(0.008)
    # A probe that was slower than the steps is no negative time.
    assert replace(TWO, compute_s=0.09).exchange_s == 0


def test_the_model_has_latency_and_bandwidth_of_the_largest_run() -> None:
    model = table.Model(TWO)
    assert model.latency_s == pytest.approx(0.0001)
    # Each of two nodes sends as much as the gradients are, in 0.02 s.
    assert model.bandwidth == pytest.approx(2_775_848 / 0.02)
    assert model.ring_s(2) == pytest.approx(TWO.large_s)
    assert model.ring_s(10) == pytest.approx(18 * 0.0001 + 1.8 * 0.02)


def test_the_model_says_of_its_own_base_what_was_measured() -> None:
    assert table.Model(TWO).seconds(2) == pytest.approx(TWO.seconds)


def test_the_model_adds_what_a_ring_of_more_nodes_takes() -> None:
    model = table.Model(TWO)
    longer = model.ring_s(4) - model.ring_s(2)
    assert model.seconds(4) == pytest.approx(8 * 118 * (0.050 + 0.008 + longer))


def test_a_network_too_fast_to_measure_is_infinite() -> None:
    assert table.Model(replace(TWO, large_s=TWO.small_s)).ring_s(4) == pytest.approx(0.0006)


# -- the table ------------------------------------------------------------------------------------


def test_the_original_s_efficiency_is_what_it_was() -> None:
    one = table.ORIGINAL[1]
    assert one / (2 * table.ORIGINAL[2]) == pytest.approx(0.466, abs=0.001)
    assert one / (10 * table.ORIGINAL[10]) == pytest.approx(0.388, abs=0.001)


def test_rows_are_measured_up_to_the_largest_run_and_the_model_s_beyond() -> None:
    found = table.rows([TWO, ONE])
    assert [row.nodes for row in found] == [1, 2, 3, 4, 6, 8, 10]
    assert [row.measured for row in found] == [ONE, TWO, *[None] * 5]
    assert found[0].efficiency == 1
    assert found[1].efficiency == pytest.approx(ONE.seconds / (2 * TWO.seconds))
    assert all(a.efficiency > b.efficiency for a, b in pairwise(found))


def test_a_single_node_has_no_model() -> None:
    assert [row.nodes for row in table.rows([ONE])] == [1]


def test_without_one_node_there_is_no_table() -> None:
    with pytest.raises(table.TableError, match="one node was not measured"):
        table.rows([TWO])


def test_the_table_has_a_line_for_each_row_and_marks_the_model_s() -> None:
    lines = table.table(table.rows([ONE, TWO])).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert {len(line) for line in cells} == {len(table.HEAD)}
    one = dict(zip(table.HEAD, cells[2], strict=True))
    assert one["original"] == "393.8 s, 1.00"
    assert one["compute"] == "49.0 ms"
    assert one["accuracy"] == "0.9700"
    last = dict(zip(table.HEAD, cells[-1], strict=True))
    assert last["nodes"] == "10 (model)"
    assert last["original"] == "101.4 s, 0.39"
    assert last["accuracy"] == ""
    assert last["sent in a step"] == "5.00 MB"


def test_what_is_switched_off_stands_beside_the_whole() -> None:
    shown = table.effects(
        TWO, {"threads": replace(TWO, seconds=2 * TWO.seconds, threads=2), "other": "failed"}
    )
    assert "| nothing | 109.0 | 1.00 | 1 | 5.0 s |\n" in shown
    assert "| threads | 218.1 | 2.00 | 2 | 5.0 s |\n" in shown
    assert "| other | failed | | | |\n" in shown


@pytest.mark.parametrize(
    ("seconds", "accuracy", "words"),
    [
        (TWO.seconds, 0.97, ("0.86, the goal of 0.85 is reached", "within 0.01")),
        (ONE.seconds, 0.99, ("0.50, the goal of 0.85 is not reached", "not within 0.01")),
    ],
)
def test_the_goals_are_named(seconds: float, accuracy: float, words: tuple[str, str]) -> None:
    found = table.rows([ONE, replace(TWO, seconds=seconds)])
    efficiency, limit, alike = table.verdicts(found, replace(ONE, batch=256, accuracy=accuracy))
    assert words[0] in efficiency
    assert "(original: 0.47)" in efficiency
    assert "takes 49.0 ms on one node, and 49.0 ms while 2 compute" in limit
    assert "would be 1.00," in limit
    assert alike.endswith(words[1])


def test_a_table_of_one_node_has_no_goals() -> None:
    assert table.verdicts(table.rows([ONE]), None) == []


# -- the picture ----------------------------------------------------------------------------------


def drawn(*results: table.Result) -> ElementTree.Element:
    text = plot.draw(table.rows(results), table.ORIGINAL, "today, load < 1 & quiet")
    return ElementTree.fromstring(text)  # noqa: S314 (our own)


def test_both_curves_are_in_both_charts_and_the_model_s_part_is_dashed() -> None:
    lines = list(drawn(ONE, TWO).iter(f"{SVG}polyline"))
    kinds = [(line.get("stroke"), line.get("class")) for line in lines]
    assert kinds == 2 * [
        (plot.ORIGINAL, "line"),
        (plot.OURS, "line"),
        (plot.OURS, "line model"),
    ]
    lengths = [len((line.get("points") or "").split()) for line in lines]
    # The model's begins where the measured one ends.
    assert lengths == 2 * [7, 2, 6]


def test_points_are_what_was_measured_and_all_lies_in_the_picture() -> None:
    svg = drawn(ONE, TWO)
    circles = list(svg.iter(f"{SVG}circle"))
    assert len(circles) == 2 * (7 + 2)
    for circle in circles:
        assert 0 < float(circle.get("cx") or 0) < 2 * plot.WIDTH
        assert plot.TOP - 1 < float(circle.get("cy") or 0) <= plot.HEIGHT - plot.BOTTOM
    assert "today, load < 1 & quiet" in [text.text for text in svg.iter(f"{SVG}text")]


def test_one_node_is_a_point_and_no_line() -> None:
    svg = drawn(ONE)
    assert [line.get("stroke") for line in svg.iter(f"{SVG}polyline")] == 2 * [plot.ORIGINAL]


@pytest.mark.parametrize(
    ("value", "end"), [(1.0, 1), (0.93, 1), (422.2, 600), (0.07, 0.08), (101, 200), (10, 10)]
)
def test_an_axis_ends_at_a_round_number(value: float, end: float) -> None:
    assert plot.nice(value) == pytest.approx(end)


# -- the lab --------------------------------------------------------------------------------------


def test_each_node_has_cores_of_its_own() -> None:
    assert lab.nodes_for(2, 1, None) == 2
    assert lab.nodes_for(64, 2, None) == 10
    assert lab.nodes_for(64, 2, 32) == 32
    with pytest.raises(table.TableError, match="ask for --nodes 2 or less"):
        lab.nodes_for(2, 1, 3)
    with pytest.raises(table.TableError, match="ask for --cores 2 or less"):
        lab.nodes_for(2, 4, None)


def test_the_original_s_numbers_of_nodes_are_measured_and_the_largest() -> None:
    assert lab.sizes(1) == [1]
    assert lab.sizes(5) == [1, 2, 3, 4, 5]
    assert lab.sizes(10) == sorted(table.ORIGINAL)


def test_the_lab_s_definition_is_valid_and_has_a_node_for_each_share(tmp_path: Path) -> None:
    instance = Instance(tmp_path / "muster-training")
    instance.create(ROOT / "inventories/demo", "bookworm", subnet=lab.SUBNET)
    torch = frameworks.modules()["libs/python/torch"]
    lab.adapt_files(instance, torch, nodes=3, cpus=6)
    found = definition.load(instance.folder)
    assert found.hosts.groups["cpu"] == [f"lab-cpu-0{number}" for number in (1, 2, 3)]
    assert found.cluster.software.modules["libs/python/torch"]["1.13.1"].built
    fleet = instance.fleet()
    assert {machine.name: machine.cores for machine in fleet.machines} == {
        "lab-access": 2,
        **dict.fromkeys(found.hosts.groups["cpu"], 6),
    }
    assert len({machine.address for machine in fleet.machines}) == 4


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The folder of the job, with a step of two tasks in place of SLURM, and launch that tells."""
    folder = tmp_path / "job"
    folder.mkdir()
    shutil.copy(FOLDER / "training.sbatch", folder)
    example_jobs.stand_in(tmp_path, "module", "")
    example_jobs.stand_in(tmp_path, "nproc", "echo 4")
    example_jobs.stand_in(tmp_path, "taskset", 'exec "${@:3}"')
    example_jobs.stand_in(
        tmp_path,
        "srun",
        "while [[ $1 == --* ]]; do shift; done\nfor SLURM_PROCID in 0 1; do\n"
        'export SLURM_PROCID; "$@"; done',
    )
    example_jobs.stand_in(tmp_path, "launch", f"echo $OMP_NUM_THREADS >>'{tmp_path}/threads.log'")
    return folder


@pytest.mark.parametrize(
    ("off", "placed", "threads", "launched"),
    [
        ("nothing", True, "", "env python3"),
        ("threads", True, "4", "env python3"),
        ("placement", False, "2", "env python3"),
        ("interface", True, "", "env -u GLOO_SOCKET_IFNAME -u NCCL_SOCKET_IFNAME python3"),
        ("all", False, "4", "env -u GLOO_SOCKET_IFNAME -u NCCL_SOCKET_IFNAME python3"),
    ],
)
def test_a_job_switches_off_one_thing(
    job: Path, off: str, placed: bool, threads: str, launched: str
) -> None:
    words = ("bash", "training.sbatch", "2", off, "--epochs", "1")
    done = example_jobs.run(job, *words, SLURM_CPUS_PER_TASK="4")
    assert (done.returncode, done.stderr) == (0, "")
    task = f"{launched} train.py --epochs 1"
    assert example_jobs.called(job.parent, "launch") == [task] * 2
    assert example_jobs.called(job.parent, "threads") == [threads] * 2
    given = f"OMP_NUM_THREADS={threads} " if threads else ""
    bound = [f"--cpu-list {cores} env {given}launch {task}" for cores in ("0-1", "2-3")]
    assert example_jobs.called(job.parent, "taskset") == (bound if placed else [])


class Session:
    """Ada's shell, in which one command fails."""

    def __init__(self, fails: str) -> None:
        self.fails = fails
        self.ran: list[str] = []

    def run(self, command: str, **_: str) -> str:
        self.ran.append(command)
        if self.fails in command:
            raise TourError(f"`{command}` did not end within 60 s")
        return "7\n" if "sbatch" in command else "RUNNING\n"


def cluster(session: Session) -> lab.Lab:
    return lab.Lab(cast("demo.Session", session), 2, 1, lambda _: None)


@pytest.mark.parametrize("fails", ["mkdir", "cat"])
def test_a_lab_that_does_not_answer_is_a_sentence(fails: str) -> None:
    with pytest.raises(table.TableError, match="did not end within 60 s"):
        cluster(Session(fails)).prepare()


def test_a_job_that_can_t_be_followed_leaves_its_nodes_to_the_next_one() -> None:
    session = Session("sacct")
    with pytest.raises(table.TableError, match="sacct"):
        cluster(session).train(2)
    assert session.ran[-1] == "scancel 7"


def test_the_switches_are_those_of_the_job() -> None:
    text = (FOLDER / "training.sbatch").read_text(encoding="utf-8")
    for off in lab.SWITCHES:
        assert off in text


def test_the_program_says_what_it_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for word, code, wanted in (
        ("--help", 0, "--trial"),
        ("--nodes=0", 2, "0 is not 1 or more"),
        ("--nodes=two", 2, "invalid"),
    ):
        monkeypatch.setattr("sys.argv", ["training_table.py", word])
        with pytest.raises(SystemExit) as end:
            training_table.main()
        assert end.value.code == code
        assert wanted in "".join(capsys.readouterr())


def test_nodes_that_do_not_fit_are_refused_before_anything_is_raised(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["training_table.py", "--nodes=9999"])
    assert training_table.main() == 1
    assert "9999 nodes with 1 cores each do not fit" in capsys.readouterr().err
