"""Reports -> sentences: what the last play calls wrong, what it only notes, and what it names."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from muster.verify import verdict

HOSTS = ["lab-access", "lab-cpu-01", "lab-cpu-02"]
PACKAGES = {"slurmd": "22.05.8-4", "munge": "0.5.15-2", "libssl3": "3.0.15-1"}
OTHERS = {**PACKAGES, **{f"libslurm{number}": "2" for number in range(1, 7)}}
MODULE_PACKAGES = {"python3-distutils": "3.11.2-3", "python3-torch": "1.13.1+dfsg-4"}
PEERS = {"cpu": ["lab-cpu-01", "lab-cpu-02"]}
JOB = {
    "partition": "ml-cpu",
    "nodes": ["lab-cpu-01", "lab-cpu-02"],
    "code": 0,
    "output": "",
    "accounted": True,
}


def host(**changed: Any) -> dict[str, Any]:
    return {
        "inactive": {},
        "failed": [],
        "clock": 1000.0,
        "earliest": 999.0,
        "latest": 1001.0,
        "system": "12",
        "kernel": "6.1.0-30-amd64",
        "driver": "none",
        "python": "3.11.2",
        "packages": PACKAGES,
        "module_packages": MODULE_PACKAGES,
        "updates": [],
        "time_sources": {"192.0.2.1": "*", "192.0.2.2": "+"},
        "credential": {"text": "MUNGE:AwQ..."},
        **changed,
    }


def node(name: str = "lab-cpu-01", state: str = "idle", **changed: str) -> dict[str, str]:
    usual = {"partition": "ml-cpu", "user": "Unknown", "reason": "none"}
    return {"name": name, "state": state, **usual, **changed}


def cluster(**changed: Any) -> dict[str, Any]:
    nodes = [node("lab-cpu-01"), node("lab-cpu-02")]
    return {"undecoded": {}, "nodes": nodes, "jobs": [JOB], "untried": [], **changed}


def hosts(**changed: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: host(**changed.get(name.replace("-", "_"), {})) for name in HOSTS}


def said(
    reports: Mapping[str, Mapping[str, Any]] | None = None,
    controller: Mapping[str, Any] | None = None,
    absent: Sequence[str] = (),
) -> list[str]:
    return verdict.problems(reports or hosts(), controller or cluster(), PEERS, absent)


def noted(
    reports: Mapping[str, Mapping[str, Any]] | None = None,
    controller: Mapping[str, Any] | None = None,
) -> list[str]:
    return verdict.notes(reports or hosts(), controller or cluster(), PEERS)


def test_a_cluster_that_works_gives_nothing_to_say() -> None:
    assert said() == []
    assert noted() == []


HOST_PROBLEMS: dict[str, tuple[dict[str, dict[str, Any]], str]] = {
    "a daemon is down": (
        {"lab_cpu_02": {"inactive": {"slurmd": "failed"}}},
        "lab-cpu-02: slurmd is failed; journalctl -u slurmd there says why",
    ),
    "a program that failed": (
        {"lab_access": {"failed": ["users reach the metadata server"]}},
        "lab-access: users reach the metadata server",
    ),
    "a clock behind": (
        {"lab_cpu_01": {"clock": 899.0}},
        "lab-cpu-01: its clock is 100 s behind this machine's; `chronyc tracking` there says why",
    ),
    "a clock ahead": (
        {"lab_cpu_01": {"clock": 1007.0}},
        "lab-cpu-01: its clock is 6 s ahead of this machine's; `chronyc tracking` there says why",
    ),
    "another release than its peer": (
        {"lab_cpu_02": {"system": "13"}},
        "lab-cpu-02: system 13, its peer lab-cpu-01 of cpu has 12; bring them to the same",
    ),
    "another kernel than its peer": (
        {"lab_cpu_02": {"kernel": "6.1.0-31-amd64"}},
        "lab-cpu-02: kernel 6.1.0-31-amd64, its peer lab-cpu-01 of cpu has 6.1.0-30-amd64; bring "
        "them to the same",
    ),
    "another build of SLURM, and a package less": (
        {"lab_cpu_02": {"packages": {"slurmd": "22.05.8-5", "libssl3": "3.0.15-1"}}},
        "lab-cpu-02: packages differ from its peer lab-cpu-01 of cpu: munge missing / 0.5.15-2, "
        "slurmd 22.05.8-5 / 22.05.8-4; bring them to the same versions",
    ),
    "many packages": (
        {"lab_cpu_02": {"packages": OTHERS}},
        "lab-cpu-02: packages differ from its peer lab-cpu-01 of cpu: libslurm1 2 / missing, "
        "libslurm2 2 / missing, libslurm3 2 / missing, libslurm4 2 / missing, libslurm5 2 / "
        "missing and 1 more; bring them to the same versions",
    ),
    "another driver than its peer": (
        {"lab_cpu_02": {"driver": "535.216"}},
        "lab-cpu-02: driver 535.216, its peer lab-cpu-01 of cpu has none; bring them to the same",
    ),
    "a package less that a module needs": (
        {"lab_cpu_02": {"module_packages": {**MODULE_PACKAGES, "python3-distutils": None}}},
        "lab-cpu-02: python3-distutils is not installed there, which modules need to run; run "
        "site.yml, which installs what is missing",
    ),
    "another version of a package that a module needs": (
        {"lab_cpu_01": {"module_packages": {**MODULE_PACKAGES, "python3-torch": "2.6.0"}}},
        "lab-cpu-01: python3-torch 2.6.0, its peers lab-cpu-02,lab-access have 1.13.1+dfsg-4, and "
        "a module may run on one and fail on another; bring them to the same version",
    ),
    "another Python than all others": (
        {"lab_access": {"python": "3.13.5"}},
        "lab-access: Python 3.13.5, its peers lab-cpu-[01-02] have 3.11.2, and a module may run on "
        "one and fail on another; bring them to the same version",
    ),
    "no credential": (
        {"lab_access": {"credential": {"error": "Socket is missing"}}},
        "lab-access: can't make a munge credential: Socket is missing",
    ),
}


@pytest.mark.parametrize("case", HOST_PROBLEMS)
def test_what_a_host_reports_is_one_sentence_that_names_it(case: str) -> None:
    changed, sentence = HOST_PROBLEMS[case]
    assert said(hosts(**changed)) == [sentence]


REPORT_FIELDS: dict[str, Any] = {
    "inactive": {"slurmd": ["failed"]},
    "failed": "all",
    "clock": float("nan"),
    "system": 12,
    "kernel": ["6.1.0"],
    "driver": {},
    "python": None,
    "packages": {"slurmd": ["22.05.8-4"]},
    "module_packages": {"python3-torch": [None]},
    "updates": [{"package": "slurmd", "version": "2"}],
    "time_sources": ["*"],
    "credential": {"text": 7},
}


@pytest.mark.parametrize("field", REPORT_FIELDS)
def test_a_report_that_can_not_be_right_leaves_the_others_their_verdict(field: str) -> None:
    """Root of a host says what it likes."""
    without = {key: value for key, value in host().items() if key != field}
    for report in ({**host(), field: REPORT_FIELDS[field]}, without):
        reports = hosts(lab_access={"inactive": {"munge": "failed"}})
        reports["lab-cpu-02"] = report
        assert said(reports) == [
            f"lab-cpu-02: its report can't be right: {field} is missing or of another type; find "
            "out who changed programs there, or install the host again",
            "lab-access: munge is failed; journalctl -u munge there says why",
        ]
        assert noted(reports) == []


def test_so_does_one_that_is_none() -> None:
    reports: dict[str, Any] = {**hosts(), "lab-cpu-02": []}
    assert [line.partition(";")[0] for line in said(reports)] == [
        "lab-cpu-02: its report can't be right: inactive is missing or of another type"
    ]
    assert noted(reports) == []


def test_who_gave_no_report_is_not_suspected() -> None:
    """The role verify has an empty one for a host without."""
    reports: dict[str, Any] = {**hosts(), "lab-cpu-02": {}}
    assert said(reports) == ["lab-cpu-02: it gave no report; run again"]
    assert noted(reports) == []


def test_a_clock_of_many_digits_is_none() -> None:
    assert "clock is missing" in said(hosts(lab_cpu_01={"clock": 10**400}))[0]


@pytest.mark.parametrize(
    "report",
    [
        {"clock": 1005.9},
        {"clock": 994.1},
        # The connection hung for a minute; the clock was read somewhere in it.
        {"clock": 960.0, "earliest": 950.0, "latest": 1010.0},
    ],
)
def test_a_clock_is_only_judged_as_well_as_it_was_read(report: dict[str, float]) -> None:
    assert said(hosts(lab_cpu_01=report)) == []


@pytest.mark.parametrize(
    "package",
    [
        *("slurmd", "slurm-wlm-basic-plugins", "libslurm38", "libmunge2", "libc6", "libpmix2"),
        *("nvidia-driver", "libnvidia-compute-535", "libcuda1", "cuda-toolkit-12-4", "libcudnn9"),
        *("libopenmpi3", "openmpi-bin", "mpich", "libmpich12", "libnccl2", "libucx0"),
    ],
)
def test_what_a_job_of_several_nodes_shares_must_agree(package: str) -> None:
    reports = hosts(lab_cpu_02={"packages": {**PACKAGES, package: "0.9"}})
    (sentence,) = said(reports)
    assert f"of cpu: {package} 0.9 / " in sentence
    assert noted(reports) == []


def test_packages_that_only_concern_their_host_are_a_line_per_node_set() -> None:
    upgraded = {"packages": {**PACKAGES, "libssl3": "3.0.16-1", "libcurl4": "7", "libc6-dev": "2"}}
    reports = hosts(lab_cpu_01=upgraded)
    reports["lab-cpu-03"] = host()
    peers = {"cpu": ["lab-cpu-01", "lab-cpu-02", "lab-cpu-03"], "gpu": ["lab-access", "lost"]}
    assert verdict.problems(reports, cluster(), peers) == []
    assert verdict.notes(reports, cluster(), peers) == [
        "cpu: its hosts differ in libc6-dev, libcurl4, libssl3; upgrade them when it suits you"
    ]


def test_a_line_about_many_packages_stays_short() -> None:
    upgraded = {"packages": {**PACKAGES, **{f"lib{letter}": "2" for letter in "abcdefg"}}}
    assert noted(hosts(lab_cpu_01=upgraded)) == [
        "cpu: its hosts differ in liba, libb, libc, libd, libe and 2 more packages; upgrade them "
        "when it suits you"
    ]


@pytest.mark.parametrize("sources", [{}, {"192.0.2.1": "?"}, {"192.0.2.1": "x", "192.0.2.2": "~"}])
def test_hosts_that_follow_no_time_source_are_one_line(sources: dict[str, str]) -> None:
    adrift = {"time_sources": sources}
    reports = hosts(lab_cpu_01=adrift, lab_cpu_02=adrift)
    assert said(reports) == []
    assert noted(reports) == [
        "lab-cpu-[01-02]: chronyd follows no time source, so the clock is right by chance; "
        "`chronyc sources` there says why"
    ]


def test_a_chronyd_that_does_not_answer_is_said_once_as_a_daemon() -> None:
    down = {"time_sources": None, "inactive": {"chrony": "failed"}}
    reports = hosts(lab_cpu_01=down)
    assert len(said(reports)) == 1
    assert noted(reports) == []


def test_the_odd_one_out_is_named_even_if_it_comes_first() -> None:
    reports = hosts(lab_cpu_01={"kernel": "6.12"})
    reports |= {"lab-cpu-03": host(), "lab-cpu-04": host(kernel="6.12")}
    nodes = [name for name in reports if "cpu" in name] + ["lab-cpu-05"]
    reports["lab-cpu-05"] = host()
    assert verdict.problems(reports, cluster(), {"cpu": nodes}) == [
        "lab-cpu-[01,04]: kernel 6.12, their peers lab-cpu-[02-03,05] of cpu have "
        "6.1.0-30-amd64; bring them to the same"
    ]


def test_a_host_that_loads_no_modules_may_have_another_python() -> None:
    assert said(hosts(lab_access={"module_packages": {}, "python": "3.13.5"})) == []


def test_what_all_hosts_lack_is_said_once() -> None:
    lacking = {"module_packages": {**MODULE_PACKAGES, "python3-torch": None}}
    (sentence,) = said(hosts(lab_access=lacking, lab_cpu_01=lacking, lab_cpu_02=lacking))
    assert sentence.startswith("lab-cpu-[01-02],lab-access: python3-torch is not installed there")


def test_a_host_that_is_nobodys_peer_may_differ() -> None:
    assert said(hosts(lab_access={"packages": {"slurmctld": "22.05.8-4"}, "kernel": "6.12"})) == []


def test_peers_that_did_not_report_are_not_compared() -> None:
    reports = hosts(lab_cpu_02={"kernel": "6.12"})
    del reports["lab-cpu-01"]
    assert said(reports) == []


def test_a_wrong_key_on_one_node_names_the_node() -> None:
    sentences = said(controller=cluster(undecoded={"lab-cpu-02": "Invalid credential"}))
    assert sentences == [
        "lab-cpu-02: the controller can't decode its munge credential: Invalid credential; its "
        "munge key or its clock differs"
    ]


def test_hosts_that_the_run_lost_are_named() -> None:
    assert said(absent=["lab-gpu-01", "lab-gpu-02"]) == [
        f"{name}: not configured in this run (unreachable, or failed above); fix it and run again"
        for name in ("lab-gpu-01", "lab-gpu-02")
    ]


@pytest.mark.parametrize(
    "state",
    [
        *("idle", "mixed", "allocated", "completing", "planned", "reserved", "maint", "blocked"),
        # Powered down, powering up, powering down, to be powered down; completing besides jobs;
        # waiting for a reboot; planned for a job.
        *("idle~", "idle#", "idle%", "idle!", "mixed~", "powered_down", "powering_down"),
        *("allocated+", "mixed@", "idle^", "mixed-"),
    ],
)
def test_a_node_that_works_or_sleeps_is_healthy(state: str) -> None:
    nodes = [node(state=state)]
    assert said(controller=cluster(nodes=nodes)) == []
    assert noted(controller=cluster(nodes=nodes)) == []


@pytest.mark.parametrize(
    "state",
    [
        # Not responding, whatever it was.
        *("idle*", "mixed*", "allocated*", "down*", "idle~*", "unknown", "unk*"),
        *("down", "fail", "failing", "inval", "no_respond", "error", "down~", "power_down_failed"),
    ],
)
def test_a_node_that_does_not_work_is_named(state: str) -> None:
    nodes = [node(state=state), node("lab-cpu-02")]
    shown = f"{state[:-1]} and does not answer" if state.endswith("*") else state
    assert said(controller=cluster(nodes=nodes)) == [
        f"lab-cpu-01: the node is {shown}; `scontrol show node lab-cpu-01` and, on the node, "
        "journalctl -u slurmd say more"
    ]


@pytest.mark.parametrize("state", ["drained", "draining", "drained*", "draining@", "drain"])
def test_a_node_that_a_person_drained_is_a_note(state: str) -> None:
    nodes = [node(state=state, user="root", reason="new fan"), node("lab-cpu-02")]
    assert said(controller=cluster(nodes=nodes)) == []
    assert noted(controller=cluster(nodes=nodes)) == [f"lab-cpu-01: {state} by root: new fan"]


@pytest.mark.parametrize("user", ["slurm", "Unknown", "unknown", ""])
def test_a_node_that_slurmctld_drained_is_a_problem_with_its_reason(user: str) -> None:
    nodes = [node(state="drained", user=user, reason="Low RealMemory")]
    assert said(controller=cluster(nodes=nodes)) == [
        "lab-cpu-01: the node is drained: Low RealMemory; `scontrol show node lab-cpu-01` and, on "
        "the node, journalctl -u slurmd say more"
    ]
    assert noted(controller=cluster(nodes=nodes)) == []


def test_a_node_that_rebooted_by_itself_is_taken_back_by_whoever_looked_at_it() -> None:
    nodes = [node(state="down", user="slurm", reason="Node unexpectedly rebooted")]
    assert said(controller=cluster(nodes=nodes)) == [
        "lab-cpu-01: the node is down: Node unexpectedly rebooted; "
        "`scontrol update nodename=lab-cpu-01 state=resume` takes it back"
    ]


def test_a_node_that_its_health_check_drained_is_a_problem_with_its_reason() -> None:
    why = "muster: health: gpus: the driver is not loaded"
    nodes = [node(state="drained", user="root", reason=why)]
    assert said(controller=cluster(nodes=nodes)) == [
        f"lab-cpu-01: the node is drained: {why}; `scontrol show node lab-cpu-01` and, on "
        "the node, journalctl -u slurmd say more"
    ]
    assert noted(controller=cluster(nodes=nodes)) == []


def test_a_node_in_two_partitions_is_said_once() -> None:
    nodes = [node(state="down"), node(state="down", partition="ml-gpu")]
    assert len(said(controller=cluster(nodes=nodes))) == 1
    nodes = [node(state="drained", user="root", partition=name) for name in ("ml-cpu", "ml-gpu")]
    assert len(noted(controller=cluster(nodes=nodes))) == 1


@pytest.mark.parametrize(
    ("job", "sentence"),
    [
        (
            {"code": 1, "output": "srun: error: Unable to allocate resources"},
            "the test job failed: srun: error: Unable to allocate resources",
        ),
        ({"code": 124}, "the test job failed: it did not end within its time limit"),
        (
            {"accounted": False},
            "the test job ran but is not in accounting; is slurmdbd up?",
        ),
    ],
)
def test_a_job_that_did_not_do_names_its_partition(job: dict[str, Any], sentence: str) -> None:
    sentences = said(controller=cluster(jobs=[{**JOB, **job}]))
    assert sentences == [f"partition ml-cpu on lab-cpu-[01-02]: {sentence}"]


def test_without_accounting_no_record_is_missed() -> None:
    job = {key: value for key, value in JOB.items() if key != "accounted"}
    assert said(controller=cluster(jobs=[job])) == []


def test_a_busy_cluster_is_a_note() -> None:
    busy = cluster(nodes=[node(state="allocated")], jobs=[])
    assert said(controller=busy) == []
    assert noted(controller=busy) == ["no idle node to try a job on"]


def test_that_limits_allow_no_test_job_is_said_and_is_not_wrong() -> None:
    limited = {**JOB, "code": 1, "output": "srun: error: QOSGrpGRES", "limited": True}
    closed = cluster(jobs=[limited], untried=["large"])
    assert said(controller=closed) == []
    assert noted(controller=closed) == [
        "partition large: no test job ran: its limits take none of root's there, or only one of "
        "more nodes than are idle (with --limit: in this run)",
        "partition ml-cpu on lab-cpu-[01-02]: no test job ran, for a limit: srun: error: "
        "QOSGrpGRES",
    ]


def test_without_the_controller_only_the_hosts_are_judged() -> None:
    reports = hosts(lab_cpu_01={"inactive": {"munge": "failed"}})
    assert verdict.problems(reports, None, PEERS) == [
        "lab-cpu-01: munge is failed; journalctl -u munge there says why"
    ]
    assert verdict.notes(reports, None, PEERS) == []


def test_a_host_out_of_the_controller_s_reach_asks_slurmctld() -> None:
    asked = {"undecoded": {}, "unanswered": ""}
    assert verdict.problems({"lab-login-0": host()}, asked, PEERS) == []
    assert verdict.notes({"lab-login-0": host()}, asked, PEERS) == []


def test_a_host_without_slurmctld_s_answer_says_so() -> None:
    down = "Slurmctld(primary) at lab-controller is DOWN"
    asked = {"undecoded": {"lab-login-0": "Expired credential"}, "unanswered": down}
    assert verdict.problems({"lab-login-0": host()}, asked, PEERS) == [
        "lab-login-0: it can't decode its own munge credential: Expired credential; its munge key "
        "or its clock differs",
        f"lab-login-0: slurmctld gives no answer ({down}); is it up, and does this host have its "
        "munge key? journalctl -u slurmctld on the controller says more",
    ]


def test_all_that_is_wrong_is_said_at_once() -> None:
    reports = hosts(
        lab_cpu_01={"inactive": {"slurmd": "failed"}, "clock": 0.0},
        lab_cpu_02={"kernel": "6.12"},
    )
    controller = cluster(
        undecoded={"lab-cpu-01": "Expired credential"},
        nodes=[node(state="down*")],
        jobs=[{**JOB, "code": 1}],
    )
    assert len(said(reports, controller, ["lab-gpu-01"])) == 7


def test_updates_that_wait_are_named_once_for_all_hosts_that_have_them() -> None:
    slurmd = {"package": "slurmd", "installed": "1", "version": "2", "archive": "a/main"}
    munge = {"package": "munge", "installed": "1", "version": "3", "archive": "a-security/main"}
    rows = [slurmd | {"security": False}, munge | {"security": True}]
    reports = hosts(lab_cpu_01={"updates": rows}, lab_cpu_02={"updates": rows})
    assert said(reports) == []
    (note,) = noted(reports)
    assert note.startswith(
        "lab-cpu-[01-02]: newer versions of what unattended upgrades leave alone: slurmd 2, "
        "munge 3 (security); install them "
    )
