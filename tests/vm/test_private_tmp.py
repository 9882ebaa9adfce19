"""Each job has a /tmp and a /dev/shm of its own, on two nodes."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from vmkit import site
from vmkit.machine import Machine
from vmkit.site import Site
from waiting import until

from muster_sandbox.containers import base_image

pytestmark = pytest.mark.proof("three emulated machines, and runs under jobs")

ROLES = "munge,health,scratch,slurmctld,slurmd"
BASE = "/scratch/.private-tmp"
MARK = "echo mine >/tmp/of-ada; echo mine >/dev/shm/of-ada; "
SEEN = "cat /tmp/of-ada /dev/shm/of-ada"
STEPS = """#!/bin/sh
echo mine >/tmp/of-ada
echo mine >/dev/shm/of-ada
n=0
until test -e /run/enough; do
    n=$((n + 1))
    srun --overlap cat /tmp/of-ada /dev/shm/of-ada >/dev/null && echo "$n" || echo "failed $n"
done
"""
JOBS = (
    "until test -e /run/enough; do "
    "runuser -u bob -- sbatch --parsable --chdir=/ --nodelist=node2 --mem=40 --time=5 "
    "--output=/home/bob/ran-%j --wrap 'srun hostname' >>/run/submitted; sleep 5; done"
)
PLAY_SECONDS = 300
"""srun and sbatch wait longer and longer for a slurmctld that restarts."""


def cluster(*, private: bool) -> dict[str, Any]:
    return {
        "name": "vm",
        "os": base_image.RELEASES[site.RELEASE],
        "nodes": {"cpu": {"sockets": 1, "cores_per_socket": 2, "memory_mib": 512}},
        "partitions": {"main": {"nodes": ["cpu"], "default": True}},
        "storage": {"scratch": "/scratch", "private_tmp": private},
    }


@pytest.fixture(scope="module")
def three() -> Iterator[Site]:
    """A controller and two nodes, whose jobs share /tmp as long as no test has changed that."""
    with site.booted(clients=2, cores=2) as machines:
        for machine in machines.machines:
            for number, name in enumerate(("ada", "bob"), start=20001):
                machine.check(f"useradd --create-home --uid {number} {name}")
        machines.define(cluster(private=False))
        machines.play(roles=ROLES)
        until(lambda: idle(machines), "both nodes are in service", 120)
        yield machines


def idle(machines: Site) -> bool:
    return machines.server.ssh("sinfo --noheader --format=%T%D").stdout.strip() == "idle2"


def submit(machines: Site, who: str, options: str, script: str) -> str:
    """Submit a job that a test ends; return its number."""
    words = f"sbatch --parsable --chdir=/ --mem=60 --time=30 --output=/home/{who}/%j {options}"
    return machines.server.check(f"runuser -u {who} -- {words} --wrap '{script}'")


def run(machines: Site, who: str, options: str, script: str) -> str:
    """Run a job; return what it printed."""
    words = f"srun --chdir=/ --mem=60 --time=5 --label {options} sh -c '{script}'"
    return machines.server.check(f"runuser -u {who} -- {words}")


def runs(machines: Site, job: str) -> bool:
    return machines.server.check(f"squeue --noheader --jobs={job} --format=%T") == "RUNNING"


def end(machines: Site, job: str) -> None:
    machines.server.check(f"scancel {job}")
    until(lambda: idle(machines), "the job is over", 120)


@pytest.fixture(autouse=True)
def no_job_stays(three: Site) -> Iterator[None]:
    """What a failed test left takes no CPU from the next one."""
    yield
    three.server.check("if systemctl --quiet is-active jobs; then systemctl stop jobs; fi")
    three.server.check("scancel --user=ada; scancel --user=bob")
    until(lambda: idle(three), "no job runs", 120)


def lines(node: Machine, path: str) -> list[str]:
    return node.ssh(f"cat {path}").stdout.split("\n")[:-1]


def test_it_is_turned_on_under_jobs_and_none_is_lost(three: Site) -> None:
    node, other = three.clients
    node.check(f"cat >/home/ada/steps <<'END'\n{STEPS}END\nchmod 755 /home/ada/steps")
    three.server.check(f"cat >/home/ada/steps <<'END'\n{STEPS}END\nchmod 755 /home/ada/steps")
    words = "sbatch --parsable --chdir=/ --nodelist=node1 --mem=60 --output=/home/ada/lines"
    job = three.server.check(f"runuser -u ada -- {words} /home/ada/steps")
    until(lambda: len(lines(node, "/home/ada/lines")) > 2, "it has steps", 120)
    # Without it.
    assert run(three, "bob", "--nodelist=node1", SEEN) == "0: mine\n0: mine"
    three.server.check(f'systemd-run --quiet --unit=jobs sh -c "{JOBS}"')

    three.define(cluster(private=True))
    three.play(roles=ROLES)

    count = len(lines(node, "/home/ada/lines"))
    until(
        lambda: len(lines(node, "/home/ada/lines")) > count + 2, "it has later steps", PLAY_SECONDS
    )
    before = len(lines(three.server, "/run/submitted"))
    until(
        lambda: len(lines(three.server, "/run/submitted")) > before + 1,
        "bob submits later jobs",
        PLAY_SECONDS,
    )
    for machine in three.machines:
        machine.check("touch /run/enough")
    until(lambda: idle(three), "all jobs are over", PLAY_SECONDS)
    steps = lines(node, "/home/ada/lines")
    assert [line for line in steps if line.startswith("failed")] == []
    assert "JobState=COMPLETED" in three.server.check(f"scontrol show job {job}")
    submitted = lines(three.server, "/run/submitted")
    assert len(submitted) > 5
    # srun says beside it when it waited for slurmctld, slurmstepd for the kernel.
    ran = {number: lines(other, f"/home/bob/ran-{number}") for number in submitted}
    assert [said for said in ran.values() if said.count("node2") != 1] == []
    # Jobs that come now have it, and the link that led the job to the node's is gone.
    assert run(three, "bob", "--nodelist=node1", "ls -A /tmp /dev/shm") == (
        "0: /dev/shm:\n0: \n0: /tmp:"
    )
    assert node.check(f"ls {BASE}/node1") == ""
    assert three.play(roles=ROLES) == set()


def test_a_job_sees_nothing_of_another_and_leaves_nothing(three: Site) -> None:
    node = three.client
    node.check("rm -f /tmp/of-ada /dev/shm/of-ada")
    job = submit(three, "ada", "--nodelist=node1", f"{MARK} touch /home/ada/begun; sleep 900")
    until(lambda: node.ssh("test -e /home/ada/begun").returncode == 0, "it has begun", 60)
    for who in ("bob", "ada"):
        seen = run(three, who, "--nodelist=node1", "ls -A /tmp /dev/shm; ls /scratch/.private-tmp")
        assert seen == "0: /dev/shm:\n0: \n0: /tmp:\n0: node1"
        assert node.ssh(f"runuser -u {who} -- ls {BASE}/node1/{job}").returncode != 0
    # A later step of the job does, and its TMPDIR is what it was.
    step = f"srun --overlap --jobid={job} sh -c '{SEEN}; echo $TMPDIR; ls -ld $TMPDIR'"
    said = three.server.check(f"runuser -u ada -- {step}")
    assert said.startswith(f"mine\nmine\n/scratch/{job}\ndrwx------"), said
    end(three, job)
    assert node.check(f"ls -A {BASE}/node1; ls -A /scratch") == ".muster\n.private-tmp"
    assert node.ssh("ls /tmp/of-ada /dev/shm/of-ada").returncode != 0
    assert "private-tmp" not in node.check("findmnt --noheadings --output=TARGET")


def test_a_login_into_a_job_is_in_its_cgroup_and_sees_what_it_sees(three: Site) -> None:
    node = three.client
    key = node.check("ssh-keygen -q -t ed25519 -N '' -f /run/key && cat /run/key.pub")
    person = {"uid": 20001, "ssh_keys": [key]}
    three.define(cluster(private=True) | {"users": {"people": {"ada": person}}})
    three.play("--limit=node1", roles="users")
    # The account was there, with a password that locks it.
    node.check("usermod --password '*' ada")
    job = submit(three, "ada", "--nodelist=node1", f"{MARK} touch /home/ada/marked; sleep 900")
    until(lambda: node.ssh("test -e /home/ada/marked").returncode == 0, "it has begun", 60)
    try:
        words = "ssh -i /run/key -o StrictHostKeyChecking=no ada@127.0.0.1"
        login = f"{words} true"
        until(lambda: node.ssh(login).returncode == 0, "sshd has read its files again", 60)
        assert node.check(f"{words} '{SEEN}'") == "mine\nmine"
        assert node.ssh(SEEN).returncode != 0
        # On this machine a login gets a session of systemd, which would have taken it out.
        assert "/session-" in node.check("cat /proc/self/cgroup")
        cgroup = node.check(f"{words} cat /proc/self/cgroup")
        assert re.fullmatch(rf"0::/.*/job_{job}/step_extern/.*", cgroup), cgroup
    finally:
        end(three, job)


def test_the_steps_of_a_job_share_it_on_each_of_its_nodes(three: Site) -> None:
    script = (
        'srun sh -c "hostname >/tmp/name; hostname >/dev/shm/name"; '
        "srun cat /tmp/name /dev/shm/name | sort; ls /tmp"
    )
    job = submit(three, "ada", "--nodes=2 --ntasks=2", script)
    show = f"scontrol show job {job}"
    until(lambda: "JobState=COMPLETED" in three.server.check(show), "it is over", 120)
    assert lines(three.client, f"/home/ada/{job}") == ["node1"] * 2 + ["node2"] * 2 + ["name"]


def test_its_memory_is_the_job_s(three: Site) -> None:
    fill = "dd if=/dev/zero of=/dev/shm/much bs=1M count=100; echo still=here"
    words = f"srun --chdir=/ --mem=60 --time=5 --nodelist=node1 sh -c '{fill}'"
    done = three.server.ssh(f"runuser -u ada -- {words}")
    assert done.returncode != 0
    assert "oom" in done.stderr.lower(), done.stderr
    until(lambda: idle(three), "it is over", 60)


def test_what_a_crash_left_keeps_no_job_from_starting(three: Site) -> None:
    node = three.client
    # A start counts if nothing of an earlier one is there.
    script = f"test -e /tmp/of-ada || echo start >>/home/ada/starts; {MARK} sleep 900"
    job = submit(three, "ada", "--nodelist=node1 --requeue", script)
    until(lambda: lines(node, "/home/ada/starts") == ["start"], "it has begun", 60)
    node.check(f"pkill --signal KILL --full 'slurmstepd: .{job}.extern'")
    three.server.check(f"scontrol requeue {job}")
    until(lambda: node.check(f"ls {BASE}/node1") == "", "nothing of it is left", 60)
    # By itself it would wait two minutes.
    now = f"scontrol update jobid={job} starttime=now"
    until(lambda: three.server.ssh(now).returncode == 0, "it is in the queue again", 60)
    until(lambda: lines(node, "/home/ada/starts") == ["start"] * 2, "it has begun again", 180)
    assert node.check(f"ls {BASE}/node1") == job
    end(three, job)
    # As after a power cut. Without .ns 22.05 leaves it to the first prolog after the boot.
    left = f"{BASE}/node1/999999"
    node.check(f"mkdir -p {left}/.999999 && touch {left}/.ns {left}/.999999/file")
    node.check("systemctl restart slurmd")
    until(lambda: node.check(f"ls {BASE}/node1") == "", "it is removed", 30)
    until(lambda: idle(three), "in service", 60)


def test_it_is_turned_off_under_a_job(three: Site) -> None:
    job = submit(three, "ada", "--nodelist=node1", f"{MARK} sleep 900")
    until(lambda: runs(three, job), "it runs", 60)
    three.define(cluster(private=False))
    three.play(roles=ROLES)
    assert runs(three, job)
    assert run(three, "bob", "--nodelist=node1", "stat --format=%U /tmp") == "0: root"
    end(three, job)
    assert three.client.check(f"ls -A {BASE}/node1") == ""
