"""ResumeProgram: every node has a VM that runs, or a verdict; run again, it makes nothing twice."""

import signal
import time
from datetime import datetime

import pytest
from nodes_kit import PROJECT, ZONES, Lab, until

from muster.fakecloud.errors import ApiError
from muster.fakecloud.faults import OperationError

STOCKOUT = OperationError(
    "ZONE_RESOURCE_POOL_EXHAUSTED",
    f"The zone '{PROJECT}/zones/{ZONES[0]}' does not have enough resources available",
)
UNAVAILABLE = ApiError(503, "backendError", "Backend Error")


def given_back(nodes: str, reason: str) -> list[str]:
    """What scontrol is told of nodes that don't come."""
    return [
        f"update nodename={nodes} state=down reason=muster: {reason}",
        f"update nodename={nodes} state=power_down",
    ]


def test_nodes_run_as_their_sets_say(lab: Lab):
    assert lab.run("resume", "lab-debug-[0-1],lab-big-7") == 0
    assert lab.states() == dict.fromkeys(["lab-debug-0", "lab-debug-1", "lab-big-7"], "RUNNING a")
    made = lab.vms()["lab-big-7"]
    assert made["labels"] == {"muster-cluster": "lab"}
    assert made["serviceAccounts"][0]["email"].startswith("lab-compute@")
    assert lab.calls() == []


def test_what_it_did_is_in_its_log_and_on_stderr(lab: Lab):
    assert lab.run("resume", "lab-debug-0") == 0
    written = (lab.folder / "autoscaler.log").read_text()
    assert written == lab.said
    assert "lab-debug-0: runs in europe-west4-a" in written
    assert lab.environment["GOOGLE_OAUTH_ACCESS_TOKEN"] not in written


def test_a_zone_without_room_is_followed_by_the_next(lab: Lab):
    lab.server.cloud.settings.capacity[ZONES[0], "n1-standard-2"] = 1
    assert lab.run("resume", "lab-debug-[0-2]") == 0
    assert sorted(lab.states().values()) == ["RUNNING a", "RUNNING b", "RUNNING b"]
    assert lab.calls() == []


def test_without_room_in_any_zone_the_node_is_given_back_and_the_others_run(lab: Lab):
    lab.server.cloud.settings.capacity |= {(zone, "n1-standard-2"): 1 for zone in ZONES}
    assert lab.run("resume", "lab-debug-[0-2]") == 1
    states = lab.states()
    assert sorted(states.values()) == ["RUNNING a", "RUNNING b"]
    (missing,) = {"lab-debug-0", "lab-debug-1", "lab-debug-2"} - set(states)
    assert lab.calls() == given_back(missing, f"{STOCKOUT.code} in {', '.join(ZONES)}")


def test_nodes_with_one_fate_are_given_back_by_one_call(lab: Lab):
    lab.do(lambda cloud: cloud.faults.add("*.insert", times=2, operation_error=STOCKOUT))
    assert lab.run("resume", "lab-big-[3-4]") == 1
    assert lab.calls() == given_back("lab-big-[3-4]", f"{STOCKOUT.code} in {ZONES[0]}")


def test_a_quota_that_is_used_up_is_the_reason_that_a_user_reads(lab: Lab):
    lab.server.cloud.settings.quotas["europe-west4"] = {"CPUS": 4}
    assert lab.run("resume", "lab-debug-[0-1]") == 1
    assert len(lab.vms()) == 1
    assert (
        "reason=muster: QUOTA_EXCEEDED in europe-west4-a: Quota 'CPUS' exceeded." in lab.calls()[0]
    )


@pytest.mark.parametrize("method", ["insert", "aggregatedList"])
def test_a_server_that_is_out_of_order_for_a_moment_costs_a_moment(lab: Lab, method: str):
    lab.do(lambda cloud: cloud.faults.add(f"*.instances.{method}", times=2, error=UNAVAILABLE))
    assert lab.run("resume", "lab-debug-0") == 0
    assert lab.states() == {"lab-debug-0": "RUNNING a"}


def test_a_request_beyond_the_rate_is_made_again(lab: Lab):
    busy = ApiError(403, "rateLimitExceeded", "Rate Limit Exceeded")
    lab.do(lambda cloud: cloud.faults.add("*.insert", times=2, error=busy))
    assert lab.run("resume", "lab-debug-[0-1]") == 0
    assert lab.states() == dict.fromkeys(["lab-debug-0", "lab-debug-1"], "RUNNING a")


def test_an_answer_that_is_lost_makes_no_second_vm(lab: Lab):
    lab.do(lambda cloud: cloud.faults.add("*.insert", drop=True))
    assert lab.run("resume", "lab-debug-0") == 0
    assert lab.states() == {"lab-debug-0": "RUNNING a"}


def test_a_second_run_finds_what_the_first_made(lab: Lab):
    assert lab.run("resume", "lab-debug-0") == 0
    before = lab.vms()["lab-debug-0"]["id"]
    assert lab.run("resume", "lab-debug-[0-1]") == 0
    assert lab.vms()["lab-debug-0"]["id"] == before
    assert lab.calls() == []


def test_killed_in_the_middle_and_run_again_it_goes_on(lab: Lab):
    lab.server.cloud.settings.latency_seconds["compute.instances.insert"] = 3
    killed = lab.start("resume", "lab-debug-[0-1]")
    until(lambda: len(lab.vms()) == 2, "both VMs are asked for")
    before = {name: vm["id"] for name, vm in lab.vms().items()}
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=10)
    assert lab.run("resume", "lab-debug-[0-1]") == 0
    assert lab.states() == dict.fromkeys(before, "RUNNING a")
    assert {name: vm["id"] for name, vm in lab.vms().items()} == before


def test_somebody_elses_vm_of_that_name_is_left_alone(lab: Lab):
    lab.make("lab-debug-0", labels={"muster-cluster": "other"})
    before = lab.vms()["lab-debug-0"]["id"]
    assert lab.run("resume", "lab-debug-[0-1]") == 1
    assert lab.vms()["lab-debug-0"]["id"] == before
    assert lab.states()["lab-debug-1"] == "RUNNING a"
    words = "alreadyExists in europe-west4-a: a VM of this name in europe-west4-a is not one of"
    assert lab.calls() == given_back("lab-debug-0", f"{words} cluster lab")


def test_a_vm_that_is_off_is_made_anew(lab: Lab):
    lab.make("lab-debug-0")
    lab.ok(f"/compute/v1/{PROJECT}/zones/{ZONES[0]}/instances/lab-debug-0/stop", {})
    before = lab.vms()["lab-debug-0"]["id"]
    assert lab.run("resume", "lab-debug-0") == 0
    assert lab.states() == {"lab-debug-0": "RUNNING a"}
    assert lab.vms()["lab-debug-0"]["id"] != before


def test_a_vm_from_before_the_request_is_made_anew(lab: Lab):
    """SLURM takes no registration of a machine that booted before it asked for it."""
    lab.make("lab-debug-0")
    before = lab.vms()["lab-debug-0"]["id"]
    lab.configure(resume_s=4)
    until(lambda: lab.do(lambda cloud: cloud.clock.now()) - made_at(lab) > 4, "the VM is old")
    assert lab.run("resume", "lab-debug-0") == 0
    assert lab.vms()["lab-debug-0"]["id"] != before


def made_at(lab: Lab) -> float:
    return datetime.fromisoformat(lab.vms()["lab-debug-0"]["creationTimestamp"]).timestamp()


def test_a_vm_that_is_being_deleted_is_waited_for(lab: Lab):
    lab.make("lab-debug-0")
    lab.server.cloud.settings.latency_seconds["compute.instances.delete"] = 2
    lab.http.delete(f"/compute/v1/{PROJECT}/zones/{ZONES[0]}/instances/lab-debug-0")
    assert lab.states() == {"lab-debug-0": "STOPPING a"}
    assert lab.run("resume", "lab-debug-0") == 0
    assert lab.states() == {"lab-debug-0": "RUNNING a"}


def test_a_vm_that_takes_too_long_has_its_verdict_before_slurms(lab: Lab):
    lab.configure(resume_s=5)
    lab.server.cloud.settings.latency_seconds["compute.instances.insert"] = 100
    begin = time.monotonic()
    assert lab.run("resume", "lab-debug-0") == 1
    assert time.monotonic() - begin < 8
    assert lab.calls() == given_back("lab-debug-0", "its VM did not run in time")


def test_a_node_set_that_the_metadata_does_not_know(lab: Lab):
    assert lab.run("resume", "lab-debug-0,lab-gone-[1-2]") == 1
    assert lab.states() == {"lab-debug-0": "RUNNING a"}
    reason = "the metadata's muster-templates has no node set gone"
    assert lab.calls() == given_back("lab-gone-[1-2]", reason)


def test_a_new_template_counts_at_once(lab: Lab):
    new_template(lab, lab.accounts["lab-compute"])
    assert lab.run("resume", "lab-debug-0") == 0
    assert lab.vms()["lab-debug-0"]["machineType"].endswith("/n1-standard-4")


def test_a_right_that_is_missing_is_the_reason(lab: Lab):
    new_template(lab, "default")
    assert lab.run("resume", "lab-debug-0") == 1
    assert "forbidden in europe-west4-a: The user does not have access to serv" in lab.calls()[0]


def new_template(lab: Lab, account: str) -> None:
    """Another template of set debug, whose VMs are bigger and act as `account`."""
    properties = lab.properties(account) | {"machineType": "n1-standard-4"}
    body = {"name": "lab-debug-2", "properties": properties}
    lab.ok(f"/compute/v1/{PROJECT}/global/instanceTemplates", body)
    lab.templates(debug={"template": lab.template("debug-2"), "zones": ZONES})


def test_a_long_sentence_is_cut_to_what_slurm_keeps(lab: Lab):
    problem = OperationError("RESOURCE_OPERATION_FAILED", "word " * 100, 400, "BAD REQUEST")
    lab.do(lambda cloud: cloud.faults.add("*.insert", operation_error=problem))
    assert lab.run("resume", "lab-debug-0") == 1
    reason = lab.calls()[0].partition("reason=")[2]
    assert reason.startswith("muster: RESOURCE_OPERATION_FAILED in europe-west4-a: word")
    assert len(reason) < 255


@pytest.mark.parametrize("text", ["{", "[]", '{"debug": {}}'])
def test_metadata_that_can_not_be_read_is_the_reason(lab: Lab, text: str):
    lab.templates(text)
    assert lab.run("resume", "lab-debug-[0-1]") == 1
    assert "nodename=lab-debug-[0-1] state=down reason=muster: the metadata's" in lab.calls()[0]


def test_a_scontrol_that_fails_is_in_the_log(lab: Lab):
    lab.scontrol(status=1)
    assert lab.run("resume", "lab-gone-0") == 1
    assert len(lab.calls()) == 1
    assert "exit status 1" in lab.said


def test_it_says_when_it_has_no_settings(lab: Lab):
    lab.settings.unlink()
    assert lab.run("resume", "lab-debug-0") == 2
    assert "run site.yml" in lab.said
    assert lab.run("resume") == 2
    assert lab.vms() == {}
