"""People on compute nodes: in by ssh while they have a job there, and nothing of theirs stays."""

import subprocess
import time
from collections.abc import Iterator

import pytest
from conftest import Lab
from waiting import until

# Not lab-cpu-01: some minutes after its requeue the job of the fixture `requeued` runs there again,
# which takes one of two CPUs, and is one more job of ada's.
NODE = "lab-cpu-02"
ACCESS = "lab-access"
SBATCH = f"sbatch --parsable -p ml-cpu -A LAB-test -w {NODE} --mem=50M --time=5 -o /dev/null"


def ssh(lab: Lab, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command on the node as ada, by ssh."""
    return subprocess.run(
        ["ssh", "-F", str(lab.fleet.ssh_config), f"ada@{NODE}", command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def refused(lab: Lab) -> bool:
    return ssh(lab, "true").returncode == 255


@pytest.fixture
def job(lab: Lab) -> Iterator[str]:
    number = lab.ada.run(f"{SBATCH} --wrap 'sleep 300'").strip()
    until(lambda: lab.ada.run(f"squeue -h -j {number} -o %T") == "RUNNING\n", "the job runs")
    # slurmctld shows it as running before its node has started the step that takes logins.
    listed = f"scontrol listpids {number}"
    until(lambda: "extern" in lab.on(NODE, listed, check=False), "its node takes logins")
    yield number
    lab.ada.run(f"scancel {number}")
    until(lambda: lab.ada.run(f"squeue -h -j {number}", check=False) == "", "the job is over")


def test_nobody_comes_in_without_a_job_but_who_can_mend_the_node(lab: Lab) -> None:
    said = ssh(lab, "true")
    assert said.returncode == 255
    assert "you have no active jobs on this node" in said.stderr
    lab.on(NODE, "systemctl stop slurmd")
    try:
        assert refused(lab)
        assert lab.on(NODE, "id -un") == "root\n"
    finally:
        lab.on(NODE, "systemctl start slurmd")


def test_a_login_is_a_part_of_the_job_and_ends_with_it(lab: Lab, job: str) -> None:
    inside = ssh(lab, "cat /proc/self/cgroup; echo $SLURM_JOB_ID; echo at=$XDG_RUNTIME_DIR.")
    assert inside.returncode == 0, inside.stderr
    assert f"/job_{job}/step_extern" in inside.stdout
    # No session of systemd, which would take it out of the job.
    assert inside.stdout.endswith(f"{job}\nat=.\n")
    assert ssh(lab, "setsid sleep 4242 >/dev/null 2>&1 </dev/null & sleep 0.2").returncode == 0
    assert lab.on(NODE, "pgrep -fx 'sleep 4242'") != ""
    lab.ada.run(f"scancel {job}")
    until(
        lambda: lab.on(NODE, "pgrep -fx 'sleep 4242'", check=False) == "",
        "what the login left has ended with the job",
    )
    assert refused(lab)


@pytest.fixture
def schedulers(lab: Lab) -> None:
    """The node starts programs outside of jobs, as a server does that somebody has installed."""
    # `at` brings its own at.deny. Without recommended packages: a mail server is one.
    install = "apt-get -qq install --no-install-recommends cron at libpam-systemd </dev/null"
    quiet = "export DEBIAN_FRONTEND=noninteractive; rm /etc/at.deny"
    lab.on(NODE, f"{quiet}; apt-get -qq update && {install}", timeout=300)


OUTSIDE = """
set -eu
# What may fail is what a run of site.yml refuses ada: the test looks at what has started.
install -d -m 1777 /run/outside
for login in root ada; do
    echo "@reboot touch /run/outside/cron-$login" |
        install -m 0600 -o $login -g crontab /dev/stdin /var/spool/cron/crontabs/$login
    echo "touch /run/outside/at-$login" | runuser -u $login -- sh -c 'cd /; at now' || true
done
rm -f /run/crond.reboot
systemctl restart cron atd
loginctl enable-linger ada || true
systemctl start user@20001 || true
"""


def outside_of_jobs(lab: Lab) -> set[str]:
    """What runs of ada's on the node by cron and by at, as of root's, and her user manager."""
    started = "ls /run/outside"
    try:
        lab.on(NODE, OUTSIDE)
        until(
            lambda: {"at-root", "cron-root"} <= set(lab.on(NODE, started).split()),
            "cron and at have started what is root's",
        )
        # What they start of hers comes in the same second.
        time.sleep(2)
        manager = lab.on(NODE, "systemctl is-active user@20001", check=False)
        return {*lab.on(NODE, started).split(), f"manager-{manager.strip()}"}
    finally:
        lab.on(
            NODE,
            "loginctl disable-linger ada; systemctl stop user@20001; "
            "systemctl reset-failed user@20001; cd /var/spool/cron/crontabs && "
            "rm -rf root ada /run/outside",
        )


@pytest.mark.proof("a run on hosts as an older Muster left them")
def test_a_run_ties_people_to_their_jobs_without_a_job_lost(
    lab: Lab, schedulers: None, job: str
) -> None:
    # As a node was before it knew of jobs, and held back what is in none.
    lab.on(
        NODE,
        "sed --in-place 's/^@include muster-sshd-/@include common-/' /etc/pam.d/sshd; "
        "sed --in-place '/^UsePAM/s/.*/DenyUsers ada/' /etc/ssh/sshd_config.d/50-muster.conf; "
        "sed --in-place '/^# BEGIN Muster/,/^# END Muster/d' "
        "/etc/pam.d/cron /etc/pam.d/atd /etc/cron.deny /etc/at.deny; "
        "rm /etc/pam.d/muster-sshd-* /etc/pam.d/systemd-user /etc/security/muster-no-login; "
        # Not a reload, which goes on when systemctl has ended: nobody comes in meanwhile.
        "systemctl restart ssh",
    )
    assert refused(lab)
    of_root = {"at-root", "cron-root"}
    assert outside_of_jobs(lab) == of_root | {"at-ada", "cron-ada", "manager-active"}
    before = lab.on(NODE, "cat /proc/sys/kernel/random/boot_id; pgrep -x slurmd")
    run = lab.play("--limit", NODE, "--tags", "users")
    assert run.code == 0, run.output[-3000:]
    until(
        lambda: ssh(lab, "echo $SLURM_JOB_ID").stdout == f"{job}\n",
        "sshd has read its files again",
    )
    assert outside_of_jobs(lab) == of_root | {"manager-failed"}
    assert lab.ada.run(f"squeue -h -j {job} -o %T") == "RUNNING\n"
    assert lab.on(NODE, "cat /proc/sys/kernel/random/boot_id; pgrep -x slurmd") == before


@pytest.mark.proof("a run on hosts as an older Muster left them")
def test_a_run_shields_the_controller_without_a_job_lost(lab: Lab, job: str) -> None:
    # As it was before administrators had homes that nodes can't write to, and people had limits.
    lab.on(
        ACCESS,
        "sed --in-place 's|/var/lib/muster/home/chief|/home/chief|' /etc/passwd; "
        "rm --recursive /var/lib/muster/home /etc/ssh/sshd_config.d/50-muster.conf "
        "/etc/systemd/system/user*.slice.d; systemctl daemon-reload; "
        # Not a reload, which goes on when systemctl has ended.
        "systemctl restart ssh",
    )
    daemons = "cat /proc/sys/kernel/random/boot_id; pgrep -x 'slurmctld|slurmdbd|mariadbd'"
    before = lab.on(ACCESS, daemons)
    assert len(before.splitlines()) == 4
    run = lab.play("--limit", ACCESS, "--tags", "users,login_limits")
    assert run.code == 0, run.output[-3000:]
    home = "chief\n/var/lib/muster/home/chief\n"
    until(
        lambda: lab.on(ACCESS, "stat --format=%U ~chief; echo ~chief", check=False) == home,
        "sshd has read its files again, and the administrator has a home of the controller's",
    )
    assert lab.on(ACCESS, "systemctl show --value --property=TasksMax user-20001.slice") == "2000\n"
    assert lab.on(ACCESS, daemons) == before
    assert lab.ada.run(f"squeue -h -j {job} -o %T") == "RUNNING\n"


def test_nothing_of_ada_s_stays_after_her_last_job(lab: Lab, job: str) -> None:
    stray = "systemctl is-active stray"
    leave = "touch /tmp/left-over /dev/shm/left-over; ipcmk --shmem 4096; ipcmk --queue"
    lab.on(NODE, f"systemd-run --quiet --collect --unit=stray --uid=ada sleep 4242; {stray}")
    first = lab.ada.run(f"{SBATCH} --wrap '{leave}'").strip()
    left = "ls /tmp/left-over /dev/shm/left-over 2>/dev/null; ipcs -mq | grep -w ada; true"
    until(
        lambda: lab.ada.run(f"squeue -h -j {first}", check=False) == "",
        "her first job is over",
    )
    # Another job of hers runs.
    assert len(lab.on(NODE, left).splitlines()) == 4
    until(
        lambda: lab.on(NODE, stray, check=False) == "inactive\n",
        "what was in no job was killed",
    )
    lab.ada.run(f"scancel {job}")
    until(
        lambda: lab.on(NODE, left) == "",
        "nothing is left",
        seen=lambda: lab.on(
            NODE,
            f"{left}; ps -u ada -o pid,stat,cgroup,args; "
            "journalctl --no-pager --since=-5min -t muster-leftovers; tail -n 40 /var/log/slurm/*",
            check=False,
        ),
    )
    assert lab.on(ACCESS, f"sinfo -h -n {NODE} -o %T").strip() == "idle"
