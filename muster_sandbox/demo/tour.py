"""What ada does on the demo's cluster: each step runs a real job and shows its output.

A step checks what it shows; a wrong result ends the tour with a sentence.
"""

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pexpect
from rich.text import Text

from muster_sandbox.containers.machines import Fleet
from muster_sandbox.demo.showing import TourError, expect

ACCESS = "lab-access"
USER = "ada"
JOB_SECONDS = 120
"""Timeout of each job here; they take seconds."""

EXAMPLES = Path(__file__).parents[2] / "examples"
RUN_THERE = (
    *("report", "train", "search", "serve", "trial"),
    # With the modules that docs/software.md adds.
    *("ddp", "jax", "multiworker", "stages", "study", "pipeline", "mpi"),
)
"""The examples that are sized for the demo, a folder each."""


@dataclass(frozen=True)
class Session:
    """ada's ssh session on the access node."""

    fleet: Fleet

    def ssh(self, *options: str) -> list[str]:
        """Return the ssh command to the access node."""
        return ["ssh", "-F", str(self.fleet.ssh_config), *options, f"{USER}@{ACCESS}"]

    def run(self, command: str, *, check: bool = True, stdin: str | None = None) -> str:
        """Run `command` in a login shell and return what it printed, errors included.

        Raises:
            TourError: it failed, or took longer than `JOB_SECONDS`.

        """
        try:
            done = subprocess.run(
                [*self.ssh(), f"bash -lc {_quoted(command)}"],
                input=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=JOB_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise TourError(f"`{command}` did not end within {JOB_SECONDS} s") from error
        if check and done.returncode != 0:
            raise TourError(f"`{command}` ended with {done.returncode}: {done.stdout.strip()}")
        return done.stdout

    def as_root(self, command: str) -> str:
        """Run `command` on the access node as root: preparations, not ada's work."""
        done = subprocess.run(
            ["ssh", "-F", str(self.fleet.ssh_config), ACCESS, command],
            capture_output=True,
            text=True,
            timeout=JOB_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise TourError(f"`{command}` ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def wait_for(self, job: str) -> str:
        """Return the final state of `job` as accounting has it."""
        deadline = time.monotonic() + JOB_SECONDS
        state = ""
        while time.monotonic() < deadline:
            state = self.run(f"sacct -nXP -j {job} -o State").strip()
            if state and not state.startswith(("PENDING", "RUNNING", "COMPLETING")):
                return state
            time.sleep(0.3)
        raise TourError(f"job {job} is still {state or 'unknown to accounting'}")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def cluster_is_up(session: Session) -> str:
    """`sinfo`: two partitions, four nodes, all idle."""
    return expect(session.run("sinfo"), "ml-cpu*", "ml-gpu", "idle", "lab-gpu-[01-02]")


def interactive_job(session: Session) -> str:
    """An interactive shell on a GPU node, driven through a terminal, with a Python module."""
    command = (
        "srun -p ml-gpu -N 1 --ntasks-per-node=1 --mem-per-cpu=512M --gres=gpu:1 "
        "--constraint=rtx4080 --time=2:00:00 -A LAB-test --pty bash -l"
    )
    prompt = r"ada@[^$]*\$ "
    words = session.ssh("-t")
    terminal = pexpect.spawn(
        words[0],
        words[1:],
        encoding="utf-8",
        timeout=JOB_SECONDS,
        dimensions=(40, 200),
        env=os.environ | {"TERM": "vt100"},
    )
    shown = []
    try:
        terminal.expect(prompt)
        for line in (command, "module load apps/python", "module list", "python3 report/report.py"):
            terminal.sendline(line)
            terminal.expect(prompt)
            shown.append(f"{terminal.before}\n")
        terminal.sendline("exit")
        terminal.expect(prompt)
        terminal.sendline("exit")
        terminal.expect(pexpect.EOF)
    except (pexpect.TIMEOUT, pexpect.EOF) as error:
        raise TourError(f"the interactive session stopped: {terminal.before}") from error
    finally:
        terminal.close(force=True)
    text = Text.from_ansi("".join(shown).replace("\r", "")).plain
    return expect(text, "apps/python", "lab-gpu-0", "1 core(s), 512 MiB, CUDA_VISIBLE_DEVICES=0")


def batch_job(session: Session) -> str:
    """The batch script: two nodes, all GPUs, mail on BEGIN and END."""
    job = session.run("cd report && sbatch --parsable report.sbatch").strip()
    state = session.wait_for(job)
    output = session.run(f"cat report/report-{job}.out")
    expect(state, "COMPLETED")
    expect(output, "lab-gpu-01:", "lab-gpu-02:", "CUDA_VISIBLE_DEVICES=0,1,2,3")
    return f"job {job}: {state}\n{output}{_mails(session, job)}"


def _mails(session: Session, job: str) -> str:
    """Return the mails about `job` that reached the sink; they leave the queue a moment later."""
    deadline = time.monotonic() + JOB_SECONDS
    command = f"grep -rlE '^Slurm Job_id={job} ' /var/lib/mail-sink/box | sort"
    while time.monotonic() < deadline:
        files = session.as_root(f"{command} || true").split()
        if len(files) >= 2:
            mails = session.as_root(f"cat {' '.join(files)}")
            if not re.search(r"Elapsed +[\d:]+ of \d", mails):
                raise TourError(f"the mail does not name the time limit:\n{mails}")
            return expect(mails, "Began", "Ended")
        time.sleep(0.3)
    raise TourError(f"the mails on BEGIN and END of job {job} did not arrive at the relay")


def gpu_isolation(session: Session) -> str:
    """Two jobs share a node; neither can open the other's GPU."""
    script = (
        "#!/bin/bash\n"
        "echo job $SLURM_JOB_ID: CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES\n"
        "for n in 0 1 2 3; do\n"
        "  python3 -c \"import os; os.open('/dev/nvidia$n', os.O_RDWR)\" 2>&1 | tail -n 1\n"
        "done\n"
        "touch shared/$SLURM_JOB_ID\n"
        "for _ in $(seq 300); do [ $(ls shared | wc -l) = 2 ] && exit 0; sleep 0.1; done\n"
        "exit 1\n"
    )
    session.run("rm -rf shared; mkdir shared; cat >gpus.sh", stdin=script)
    submit = (
        "sbatch --parsable -p ml-gpu -w lab-gpu-01 -n 1 --gres=gpu:1 --mem=200M -A LAB-test "
        "-o gpus-%j.out gpus.sh"
    )
    jobs = [session.run(submit).strip() for _ in range(2)]
    for job in jobs:
        # Each waits for the other, so both were there at the same time.
        expect(session.wait_for(job), "COMPLETED")
    shown = [session.run(f"cat gpus-{job}.out") for job in jobs]
    for text in shown:
        # A device that is allowed answers "no such device": there is no GPU behind it.
        if text.count("Operation not permitted") != 3 or text.count("No such device") != 1:
            raise TourError(f"a job could open a GPU that was not its own:\n{text}")
    return "".join(shown)


def memory_limit(session: Session) -> str:
    """A job that takes more memory than it asked for is killed."""
    program = 'python3 -c "x = bytearray(600 * 2**20)"'
    job = session.run(
        f"sbatch --parsable -p ml-cpu -n 1 --mem=100M -A LAB-test -o /dev/null --wrap '{program}'"
    ).strip()
    state = session.wait_for(job)
    expect(state, "OUT_OF_MEMORY")
    return f"job {job}: asked for 100 MiB, took 600: {state}\n"


def lab_modules(session: Session) -> str:
    """The lab's four modules load, and say that they were not built, and what that needs."""
    names = (
        "apps/python/3.10",
        "apps/cuda/11.7",
        "libs/python/torch/1.13.1-cuda-11.7-python-3.10",
        "libs/python/neptune-client/1.9.1-python-3.10",
    )
    loaded = session.run(f"module load {' '.join(names)}; module -t list")
    told = session.run(f"for name in {' '.join(names)}; do module help $name 2>&1; done")
    if told.count("Its build needs ") != len(names):
        raise TourError(f"a module does not say what its build needs:\n{told}")
    return expect(loaded, *names, "not built")


def accounting(session: Session) -> str:
    """`sacct`: all of ada's jobs, charged to LAB-test."""
    columns = "JobID,JobName%12,Partition,Account,AllocTRES%45,State%15"
    deadline = time.monotonic() + JOB_SECONDS
    shown = ""
    # slurmctld reports a short job's eligible time some seconds later, and without a job number
    # sacct leaves out jobs that have none.
    while "OUT_OF_ME" not in shown and time.monotonic() < deadline:
        shown = session.run(f"sacct -X -o {columns}")
    return expect(shown, "lab-test", "COMPLETED", "OUT_OF_ME")


STEPS: tuple[tuple[str, Callable[[Session], str]], ...] = (
    ("sinfo", cluster_is_up),
    ("interactive job with a Python module", interactive_job),
    ("batch job on two GPU nodes, with mail", batch_job),
    ("two jobs on one GPU node, each with its own GPU", gpu_isolation),
    ("a job that takes too much memory", memory_limit),
    ("the lab's modules", lab_modules),
    ("sacct", accounting),
)


@dataclass(frozen=True)
class Step:
    """A completed step: its title, output and duration in seconds."""

    title: str
    shown: str
    seconds: float


def prepare(session: Session) -> None:
    """Start the mail relay and give ada her files."""
    session.as_root("systemctl start mail-sink")
    for name in RUN_THERE:
        session.run(f"mkdir -p {name}")
        for path in sorted((EXAMPLES / name).iterdir()):
            if path.is_file():
                session.run(f"cat >{name}/{path.name}", stdin=path.read_text(encoding="utf-8"))


def run(session: Session) -> Iterator[Step]:
    """Do the steps one after the other and yield each when it is done.

    Raises:
        TourError: a step did not show what it should.

    """
    prepare(session)
    for title, step in STEPS:
        start = time.monotonic()
        shown = step(session)
        yield Step(title, shown, time.monotonic() - start)
