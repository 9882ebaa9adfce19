#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Report from the controller: credentials of other hosts, nodes, a test job. Changes nothing."""

import re
import time
from collections.abc import Collection
from typing import TypedDict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.commands import run

DOCUMENTATION = r"""
module: cluster_report
short_description: Decode other hosts' credentials, read the nodes' states and run a test job
description:
  - Runs on the controller, as root. C(muster.verify.verdict) evaluates the result.
  - The job runs on idle nodes only, so a busy cluster stays as it is and no cloud node is woken;
    and not on hosts that are to be avoided or whose credential can't be decoded, where it would
    hang in completing.
  - In a partition with idle nodes among C(credentials) it runs on these alone. Nodes that another run has
    configured may not know the names of new ones yet.
  - The job's srun runs on its first node. An srun on the controller would open any socket there, as
    root, for who sends it a credential of root's, and root of each node can make one.
options:
  credentials:
    description: Host name -> munge credential made there a moment ago.
    type: dict
    required: true
  accounting:
    description: Whether the job must appear in accounting.
    type: bool
    required: true
  whole:
    description:
      - Whether this host is the controller. Elsewhere it is only asked whether slurmctld answers,
        which it does to a host with its munge key alone.
    type: bool
    default: true
  avoid:
    description: Hosts to run no job on, because this run could not reach them.
    type: list
    elements: str
    default: []
  ping_seconds:
    description: How long a host that is not the controller waits for slurmctld.
    type: int
    default: 60
  settle_seconds:
    description: How long to wait for nodes that are down.
    type: int
    default: 30
  answer_seconds:
    description:
      - How long to wait for nodes that don't answer before they count as broken.
      - slurmctld asks a silent node again every third of SlurmdTimeout, so every 100 s.
    type: int
    default: 120
  job_seconds:
    description: Time limit of the test job.
    type: int
    default: 30
  max_job_nodes:
    description: On how many idle nodes of a partition jobs run at most.
    type: int
    default: 64
  jobs:
    description:
      - Partition -> what its job asks for, so that limits let it run. C(options) of sbatch; C(least) and
        C(most) nodes of a job, where null is no limit and 0 allows none; C(shared), whether it may
        wait for a limit. With more idle nodes there are several jobs.
    type: dict
    default: {}
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Report the cluster
  muster.slurm.cluster_report:
    credentials: {cpu-01: "MUNGE:..."}
    accounting: true
"""

RETURN = r"""
report:
  description: >-
    undecoded (host -> reason), and of the whole cluster nodes (list of name, partition, state, user,
    reason), jobs (list of partition, nodes, code, output, accounted, limited: a limit kept it from
    running) and untried (partitions whose idle nodes of this run are too few for a job that limits allow); else
    unanswered (what C(scontrol ping) said where slurmctld did not answer, empty if it did).
  type: dict
  returned: always
"""

NODE_FORMAT = "%N|%R|%T|%u|%E"
NODE_LINE = re.compile(r"[A-Za-z0-9_.-]{1,64}(\|[^|]*){3}\|")
"""Root of a node decides its reason, and may write lines into it whose name can't be one of a host."""
JOB_FORMAT = "%T|%r|%k"
SUBMITTED = re.compile(r"^(\d+)(?:;\S+)?\s*$", re.MULTILINE)
"""What `sbatch --parsable` prints; a plugin may print lines too."""
COMMENT_BYTES = 1000
"""slurmctld refuses a comment of more than 1,024 (_test_strlen in job_mgr.c)."""
SCRIPT = (
    "said=$(srun --label hostname 2>&1 >/dev/null) ||"
    f' {{ said=$(printf %s "$said" | head --bytes={COMMENT_BYTES});'
    ' scontrol update jobid=$SLURM_JOB_ID comment="$said"; exit 1; }'
)
"""The test job. What srun says of a failure is kept as the job's comment."""
WITHOUT_ENVIRONMENT = ("env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin")
"""SLURM gives a job the environment of sbatch, in which an ssh agent may be named."""
STARTING = ("PENDING", "CONFIGURING")
RUNNING = ("RUNNING", "COMPLETING", "SUSPENDED")

LIMITED = "violates accounting/QOS policy"
"""slurm_errno.c: what sbatch says when a limit refuses a job."""
WAITED = "it did not start within"
END_S = 15
"""For so long a job that has started late may run."""

SMALL: "Asked" = {"options": ["--mem=16M"], "least": 1, "most": None, "shared": False}
"""The job of a partition that has no entry."""

Node = dict[str, str]
"""A line of sinfo: name, partition, state, user, reason."""


class Asked(TypedDict):
    """What a partition's job asks for."""

    options: list[str]
    least: int
    most: "int | None"
    shared: bool


class Params(TypedDict):
    """What the module is asked for."""

    credentials: dict[str, str]
    accounting: bool
    whole: bool
    avoid: list[str]
    ping_seconds: int
    settle_seconds: int
    answer_seconds: int
    job_seconds: int
    max_job_nodes: int
    jobs: dict[str, Asked]


class Cluster:
    """What the controller says of the cluster."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.parameters: Params = module.params

    def undecoded(self) -> dict[str, str]:
        """Return the hosts whose credential this host can't decode, with munge's reason."""
        reasons: dict[str, str] = {}
        for host, credential in self.parameters["credentials"].items():
            code, out, err = run(
                ["unmunge", "--keys=STATUS", "--output=/dev/null"], data=credential
            )
            if code != 0:
                # What is invalid is an error; what is expired or replayed is decoded and has a status.
                status = re.match(r"STATUS:\s+(.+)", out)
                reasons[host] = (
                    status[1] if status else err.strip().removeprefix("unmunge: Error: ")
                )
        return reasons

    def unanswered(self) -> str:
        """Return what scontrol said if slurmctld gave no answer within its bound, else nothing."""
        deadline = time.monotonic() + self.parameters["ping_seconds"]
        while True:
            _, out, err = run(["scontrol", "ping"])
            # The exit code says nothing before 23.02.
            if re.search(r" is UP$", out.strip()):
                return ""
            if time.monotonic() >= deadline:
                said = (out.strip() or err.strip()).splitlines()
                return said[-1] if said else "scontrol ping said nothing"
            time.sleep(0.5)

    def sinfo(self, *words: str) -> list[str]:
        """Return the lines that sinfo prints."""
        code, out, err = run(["sinfo", "--noheader", *words])
        if code != 0:
            self.module.fail_json(
                msg=f"sinfo: {err.strip()}; is slurmctld up? journalctl -u slurmctld says why"
            )
        return out.splitlines()

    def nodes(self, avoided: Collection[str]) -> list[Node]:
        """Return node states, once all but those `avoided` have registered or the bound is over."""
        start = time.monotonic()
        while True:
            said = self.sinfo("--Node", f"--format={NODE_FORMAT}")
            keys = ("name", "partition", "state", "user", "reason")
            # A reason may have several lines: the first one is enough.
            lines = (line for line in said if NODE_LINE.match(line))
            nodes = [dict(zip(keys, line.split("|", 4), strict=True)) for line in lines]
            if time.monotonic() - start >= max(
                (self.patience(node) for node in nodes if node["name"] not in avoided), default=0
            ):
                return nodes
            time.sleep(0.5)

    def patience(self, node: Node) -> int:
        """Return for how many seconds to wait until `node` comes up by itself."""
        if node["state"].startswith("drain"):
            return 0  # a person or slurmctld set this state
        if node["state"].startswith("down"):
            return self.parameters["settle_seconds"]
        if node["state"].startswith("unk") or node["state"].endswith("*"):
            return self.parameters["answer_seconds"]
        return 0

    def jobs_on(self, partition: str, names: list[str]) -> list[dict[str, object]]:
        """Run jobs on the idle nodes `names` of `partition`; return what came of each."""
        names = names[: self.parameters["max_job_nodes"]]
        asked = self.parameters["jobs"].get(partition, SMALL)
        most = len(names) if asked["most"] is None else asked["most"]
        jobs: list[dict[str, object]] = []
        for at in range(0, len(names), most) if most else ():
            # Where the last ones are too few, others run one more.
            part = (
                names[at : at + most]
                if len(names) - at >= asked["least"]
                else names[-asked["least"] :]
            )
            if len(part) < asked["least"]:
                break
            jobs.append(self.job(partition, part, asked))
            if jobs[-1].get("limited"):
                break
        return jobs

    def job(self, partition: str, names: list[str], asked: Asked) -> dict[str, object]:
        """Run a job on the idle nodes `names` of `partition`; return what came of it."""
        seconds = self.parameters["job_seconds"]
        command = [
            *("sbatch", "--parsable", f"--partition={partition}", f"--nodelist={','.join(names)}"),
            *(f"--nodes={len(names)}", f"--ntasks={len(names)}", "--time=1", *asked["options"]),
            # It does not stay in the queue if this module is ended.
            *("--no-requeue", f"--deadline=now+{seconds + 90}", "--job-name=muster-verify"),
            *("--chdir=/", "--output=/dev/null", f"--wrap={SCRIPT}"),
        ]
        code, out, err = run([*WITHOUT_ENVIRONMENT, "timeout", str(seconds + END_S), *command])
        result: dict[str, object] = {"partition": partition, "nodes": names}
        if code != 0:
            result |= {"code": code, "output": err.strip()}
            return {**result, "limited": True} if LIMITED in err else result
        number = SUBMITTED.search(out)
        if number is None:
            said = " ".join((out.strip() or "nothing").split())
            why = f"sbatch ended well, and did not print the job's number but: {said}"
            return {**result, "code": 1, "output": why}
        said = self.ended(number[1], seconds)
        result |= {"code": int(bool(said)), "output": said}
        if said:
            waited = asked["shared"] and said.startswith(WAITED)
            return {**result, "limited": True} if waited else result
        if self.parameters["accounting"]:
            result["accounted"] = self.accounted(number[1], seconds)
        return result

    def ended(self, job: str, seconds: int) -> str:
        """Wait until `job` has ended; return what was wrong. One that is late is cancelled."""
        begin = time.monotonic()
        while True:
            code, out, err = run(
                ["squeue", "--noheader", "--states=all", f"--jobs={job}", f"--format={JOB_FORMAT}"]
            )
            # The comment comes last: it may have several lines.
            state, reason, said = ([*out.strip().split("|", 2), "", ""])[:3]
            past = time.monotonic() - begin
            if state == "COMPLETED":
                return ""
            if state in STARTING:
                late = f"{WAITED} {seconds} s: {reason}" if past >= seconds else ""
            elif state in RUNNING:
                late = "it did not end within its time limit" if past >= seconds + END_S else ""
            elif code == 0 and state:
                said = "" if said == "(null)" else " ".join(said.split())
                return said or f"job {job} is {state}, {reason}"
            else:
                late = f"squeue: {err.strip()}" if past >= seconds + END_S else ""
            if late:
                run(["scancel", job])
                return late
            time.sleep(0.2)

    def accounted(self, job: str, seconds: int) -> bool:
        """Whether accounting has `job` as completed before the bound."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            _, out, _ = run(
                ["sacct", "--noheader", "--allocations", f"--jobs={job}", "--format=State%20"]
            )
            if out.strip() == "COMPLETED":
                return True
            time.sleep(0.5)
        return False

    def jobs(
        self, nodes: list[Node], avoided: Collection[str]
    ) -> dict[str, list[dict[str, object]]]:
        """Run jobs in each partition that is up and has idle nodes that are not `avoided`.

        Where hosts of this run are among them, on these alone.
        """
        idle: dict[str, list[str]] = {}
        for node in nodes:
            if node["state"] == "idle" and node["name"] not in avoided:
                idle.setdefault(node["partition"], []).append(node["name"])
        up = {
            partition
            for partition, state in (
                line.split("|") for line in self.sinfo("--summarize", "--format=%R|%a")
            )
            if state == "up"
        }
        of_this_run = self.parameters["credentials"]
        return {
            partition: self.jobs_on(
                partition, [name for name in names if name in of_this_run] or names
            )
            for partition, names in idle.items()
            if partition in up
        }


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "credentials": {"type": "dict", "required": True, "no_log": True},
            "accounting": {"type": "bool", "required": True},
            "whole": {"type": "bool", "default": True},
            "avoid": {"type": "list", "elements": "str", "default": []},
            "ping_seconds": {"type": "int", "default": 60},
            "settle_seconds": {"type": "int", "default": 30},
            "answer_seconds": {"type": "int", "default": 120},
            "job_seconds": {"type": "int", "default": 30},
            "max_job_nodes": {"type": "int", "default": 64},
            "jobs": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    cluster = Cluster(module)
    # Credentials first: they age while the module waits for nodes.
    undecoded = cluster.undecoded()
    if not cluster.parameters["whole"]:
        report = {"undecoded": undecoded, "unanswered": cluster.unanswered()}
        module.exit_json(changed=False, report=report)
    avoided = {*undecoded, *cluster.parameters["avoid"]}
    nodes = cluster.nodes(avoided)
    jobs = cluster.jobs(nodes, avoided)
    whole: dict[str, object] = {
        "undecoded": undecoded,
        "nodes": nodes,
        "jobs": [job for of_one in jobs.values() for job in of_one],
        "untried": [partition for partition, of_one in jobs.items() if not of_one],
    }
    module.exit_json(changed=False, report=whole)


if __name__ == "__main__":
    main()
