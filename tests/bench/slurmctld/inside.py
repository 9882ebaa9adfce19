"""What bench_slurmctld.py does inside its container: slurmctld, emulated nodes, a clock.

Standard library only: it runs with the Python of the distribution. Prints one line of JSON.
"""

import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

STATE = Path("/var/bench")
BOOT_S = 1.0
PARALLEL = 4
"""Parallel submissions of the many jobs that only block the queue."""


def run(*command: str, **more: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **more)
    if done.returncode:
        sys.exit(f"{command[0]} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def processor_s(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start() -> int:
    """Start slurmctld without an earlier state; return its process id."""
    for name in ("state", "spool", "started", "booted"):
        (STATE / name).mkdir(parents=True)
    with (STATE / "slurmctld.err").open("w") as said:
        process = subprocess.Popen(["slurmctld", "-D"], stdout=said, stderr=said)
    for _ in range(100):
        ping = subprocess.run(["scontrol", "ping"], capture_output=True, text=True, check=False)
        if " UP" in ping.stdout:
            time.sleep(4)  # the first passes after slurmctld's start
            return process.pid
        time.sleep(0.1)
    sys.exit(f"slurmctld does not start: {(STATE / 'slurmctld.err').read_text()[-2000:]}")


def calls() -> list[tuple[float, int]]:
    """Each call of ResumeProgram so far: its time and number of nodes."""
    log = STATE / "resumes"
    lines = log.read_text().splitlines() if log.exists() else []
    return [(float(line.split()[0]), int(line.split()[1])) for line in lines]


def burst(tasks: int, blocked: int) -> dict[str, Any]:
    """One array of exclusive tasks; `blocked` jobs of another partition wait meanwhile."""
    pid = start()
    if blocked:
        run("sbatch", "-p", "full", "-N", "100", "--exclusive", "-o", "/dev/null", "--wrap", "true")
        time.sleep(3)
        script = "sbatch -p full -N $(($1 % 7 + 1)) -t $(($1 % 50 + 1)) -o /dev/null --wrap true"
        numbers = "\n".join(map(str, range(blocked)))
        run("xargs", "-P", str(PARALLEL), "-n1", "sh", "-c", script, "job", input=numbers)
        time.sleep(5)
        (STATE / "resumes").unlink()
    before = processor_s(pid)
    answers: list[float] = []
    done = threading.Event()

    def ask() -> None:
        while not done.wait(0.25):
            begun = time.monotonic()
            run("squeue", "-h", "-u", "nobody")  # needs the lock of jobs, has no answer
            answers.append(time.monotonic() - begun)

    asking = threading.Thread(target=ask)
    asking.start()
    begun = time.time()
    run("sbatch", "-p", "all", "--exclusive", f"-a1-{tasks}", "-o", "/dev/null", "--wrap", "true")
    while sum(count for _, count in calls()) < tasks and time.time() - begun < 240:
        time.sleep(0.1)
    used = processor_s(pid) - before
    done.set()
    asking.join()
    return {
        "asked": sum(count for _, count in calls()),
        "calls": len(calls()),
        "first_s": round(calls()[0][0] - begun, 1),
        "last_s": round(calls()[-1][0] - begun, 1),
        "cpu_s": round(used, 1),
        "longest_answer_s": round(max(answers), 1),
    }


def cold(jobs: int) -> dict[str, Any]:
    """Jobs at random moments, each on a node that is off and boots in BOOT_S."""
    start()
    chance = random.Random(1)  # noqa: S311
    submitted = {}
    for _ in range(jobs):
        time.sleep(chance.uniform(0, 3))
        begun = time.time()
        script = f"date +%s.%N >{STATE}/started/$SLURM_JOB_ID; sleep 600"
        job = run("sbatch", "--parsable", "--exclusive", "-o", "/dev/null", "--wrap", script)
        submitted[job.strip()] = begun
    end = time.time() + 60
    while len(list((STATE / "started").iterdir())) < jobs and time.time() < end:
        time.sleep(0.2)
    time.sleep(0.5)
    took = sorted(
        float((STATE / "started" / job).read_text()) - begun - BOOT_S
        for job, begun in submitted.items()
        if (STATE / "started" / job).exists()
    )
    return {
        "started": len(took),
        "median_s": round(took[len(took) // 2], 1),
        "p95_s": round(took[int(len(took) * 0.95)], 1),
        "max_s": round(took[-1], 1),
    }


READINGS = {
    "scontrol --oneliner show node": ["scontrol", "--oneliner", "show", "node"],
    "sinfo -N -O NodeList,StateComplete,Reason": [
        "sinfo", "-h", "-N", "-O", "NodeList:.64,StateComplete:.96,Reason:.256",
    ],
    "sinfo -O StateComplete,Reason,NodeList": [
        "sinfo", "-h", "-O", "StateComplete:.96,Reason:.256,NodeList:.65536",
    ],
    "sinfo -o %T|%E|%N": ["sinfo", "-h", "-o", "%T|%E|%N"],
    "scontrol --json show node": ["scontrol", "--json", "show", "node"],
}  # fmt: skip
"""Ways to read the states of all nodes."""


def reading() -> dict[str, Any]:
    """CPU seconds of client and controller for each way, mean of 5; bytes of the answer."""
    pid = start()
    nodes = run("sinfo", "-h", "-N", "-p", "all", "-o", "%N").split()
    for number in range(100):
        reason = f"muster: ZONE_RESOURCE_POOL_EXHAUSTED in zone {number}; asked again in 60 s"
        run("scontrol", "update", f"nodename={nodes[-number]}", "state=drain", f"reason={reason}")
    run("scontrol", "update", "nodename=" + ",".join(nodes[:1000:2]), "state=power_up")
    time.sleep(3)
    result: dict[str, Any] = {"nodes": len(nodes)}
    for name, command in READINGS.items():
        if name.endswith("json show node") and run("scontrol", "-V").split()[1] < "23":
            continue  # 22.05 has it in squeue and sinfo only
        controller, client = processor_s(pid), os.times()
        for _ in range(5):
            said = run(*command)
        spent = os.times()
        result[name] = {
            "client_s": round(
                (spent.children_user + spent.children_system) / 5
                - (client.children_user + client.children_system) / 5,
                3,
            ),
            "slurmctld_s": round((processor_s(pid) - controller) / 5, 3),
            "bytes": len(said),
        }
    return result


if __name__ == "__main__":
    work, *numbers = sys.argv[1:]
    print(json.dumps({"burst": burst, "cold": cold, "reading": reading}[work](*map(int, numbers))))
