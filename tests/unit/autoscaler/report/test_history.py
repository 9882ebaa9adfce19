import gzip
import json

import pytest
from viewkit import Watched, cold_start

from muster.autoscaler.report.history import HistoryError, history, moment, read_log


@pytest.fixture
def watched(tmp_path):
    made = Watched(tmp_path)
    made.round(90, nodes={"debug-[0-3]": "off"}, vms={})
    yield made
    made.events.close()


def logged(watched, begin=0, end=1000):
    return history(read_log(watched.log_file), begin, end)


def spans(watched, node="lab-debug-0", **when):
    node_spans = logged(watched, **when).nodes.get(node, [])
    return [(span.stage.value, span.begin, span.end) for span in node_spans]


def test_a_node_s_stages_follow_each_other(watched):
    cold_start(watched)
    assert spans(watched) == [
        ("inserting", 99, 105),
        ("created", 105, 110),
        ("booting", 110, 130),
        ("busy", 130, 1000),
    ]


def test_a_stage_says_on_what_its_node_is_made(watched):
    powering_up = {"debug-0": "powering_up"}
    asked = {"r": {"at": 99, "nodes": "debug-0"}}
    watched.round(100, sets={"debug": ["n1 t4:1 spot in a"]}, nodes=powering_up, requests=asked)
    (span,) = logged(watched).nodes["lab-debug-0"]
    assert span.where == "n1 t4:1 spot europe-west4-a"


def test_a_node_that_is_off_is_no_row(watched):
    cold_start(watched)
    assert list(logged(watched).nodes) == ["lab-debug-0"]


def test_only_what_is_asked_for_is_there(watched):
    cold_start(watched)
    assert spans(watched, begin=107, end=112) == [("created", 107, 110), ("booting", 110, 112)]
    assert spans(watched, begin=10, end=95) == []


def test_a_job_waits_until_its_nodes_are_there_and_ends_with_the_first_that_has_none(watched):
    both = {"debug-0": "powering_up busy", "debug-1": "powering_up busy"}
    vms = dict.fromkeys(both, "RUNNING in a since 100")
    watched.round(
        100,
        nodes=both,
        vms={},
        requests={"r": {"at": 100, "nodes": "debug-[0-1]", "jobs": {"7": "debug-[0-1]"}}},
    )
    watched.round(105, events=["made debug-[0-1]"], vms=vms)
    watched.round(120, nodes={"debug-0": "up busy"})
    watched.round(125, nodes={"debug-1": "up busy"})
    watched.round(200, nodes={"debug-0": "up", "debug-1": "up busy"})
    [job] = logged(watched).jobs
    assert (job.id, job.nodes) == (7, ("lab-debug-0", "lab-debug-1"))
    assert (job.begin, job.ready, job.end, job.lost) == (100, 125, 200, False)


def test_a_job_that_still_waits_and_one_that_runs(watched):
    cold_start(watched)
    watched.round(
        150,
        nodes={"debug-1": "powering_up busy"},
        requests={"r2": {"at": 150, "nodes": "debug-1", "jobs": {"8": "debug-1"}}},
    )
    runs, waits = logged(watched, end=160).jobs
    assert (runs.ready, runs.end, runs.lost) == (130, 160, False)
    assert (waits.begin, waits.ready, waits.end, waits.lost) == (150, 160, 160, False)


def test_a_job_whose_nodes_are_released_was_lost(watched):
    request = {"r": {"at": 100, "nodes": "debug-0", "jobs": {"7": "debug-0"}}}
    watched.round(100, nodes={"debug-0": "powering_up busy"}, vms={}, requests=request)
    watched.round(110, events=["refused debug-0: forbidden"])
    [job] = logged(watched).jobs
    assert (job.ready, job.end, job.lost) == (110, 110, True)


def test_a_job_that_ended_before_its_nodes_were_seen_busy_was_not_lost(watched):
    both = {"debug-0": "powering_up busy", "debug-1": "powering_up busy"}
    request = {"r": {"at": 100, "nodes": "debug-[0-1]", "jobs": {"7": "debug-[0-1]"}}}
    watched.round(100, nodes=both, vms={}, requests=request)
    vms = dict.fromkeys(both, "RUNNING in a since 100")
    watched.round(105, events=["made debug-[0-1]"], vms=vms)
    watched.round(120, nodes={"debug-0": "up busy", "debug-1": "powering_up busy"})
    watched.round(122, nodes={"debug-0": "up", "debug-1": "up"})
    [job] = logged(watched).jobs
    assert (job.ready, job.end, job.lost) == (122, 122, False)


def test_a_node_that_was_idle_before_a_job_asked_is_not_the_job_s_end(watched):
    watched.round(100, nodes={"debug-0": "up"}, vms={"debug-0": "RUNNING in a since 95"})
    request = {"r": {"at": 110, "nodes": "debug-0", "jobs": {"7": "debug-0"}}}
    watched.round(112, requests=request)
    watched.round(120, nodes={"debug-0": "up busy"})
    [job] = logged(watched).jobs
    assert (job.begin, job.ready, job.end, job.lost) == (110, 120, 1000, False)


def test_what_a_new_machine_finds_is_the_beginning(watched):
    cold_start(watched)
    watched.status_file.unlink()
    watched.restart()
    watched.round(300, nodes={"debug-0": "off"}, vms={})
    assert spans(watched)[-1] == ("busy", 130, 300)


def test_a_stage_that_began_in_a_log_that_is_gone_is_there(watched):
    cold_start(watched)
    kept = [line for line in watched.log_file.read_text().splitlines() if '"busy", "was"' in line]
    watched.log_file.write_text("\n".join(kept))
    assert spans(watched) == [("booting", 110, 130), ("busy", 130, 1000)]


def test_logs_that_were_put_aside_are_read_first(watched):
    cold_start(watched)
    lines = watched.log_file.read_text().splitlines(keepends=True)
    folder, name = watched.log_file.parent, watched.log_file.name
    with gzip.open(folder / f"{name}.10.gz", "wt") as oldest:
        oldest.writelines(lines[:3])
    (folder / f"{name}.2").write_text("".join(lines[3:5]))
    (folder / f"{name}.bak").write_text("never read")
    watched.log_file.write_text("".join(lines[5:]))
    assert [line["event"] for line in read_log(watched.log_file)] == [
        json.loads(line)["event"] for line in lines
    ]
    assert [stage for stage, _, _ in spans(watched)] == ["inserting", "created", "booting", "busy"]


def test_a_line_that_was_cut_is_left_out(watched):
    cold_start(watched)
    with watched.log_file.open("a") as log:
        log.write('{"time": "1970-01-01T00:05:00.0')
    assert len(spans(watched)) == 4


def test_a_log_that_is_not_there(tmp_path):
    with pytest.raises(HistoryError, match="No such file or directory; the log is on"):
        list(read_log(tmp_path / "events.jsonl"))


@pytest.mark.parametrize(
    ("text", "at"),
    [("90m", 4600), ("2.5h", 1000), ("10s", 9990), ("1970-01-01T01:00:00+00:00", 3600)],
)
def test_a_moment(text, at):
    assert moment(text, 10_000) == at


@pytest.mark.parametrize("text", ["", "2", "h", "-3h", "2 weeks", "1970-13-01"])
def test_what_is_no_moment(text):
    with pytest.raises(HistoryError, match="is no time; write 90m"):
        moment(text, 10_000)
