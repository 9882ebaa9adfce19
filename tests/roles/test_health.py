"""The health check on a host; commands of SLURM and NVIDIA are simulated."""

import time

import pytest

PROGRAM = "/usr/local/sbin/muster-health"
PROLOG = "/etc/slurm/prolog.d/50-muster-health"
STUBS = "/usr/local/sbin"
"""First in the program's PATH."""
GPU = "00000000:3B:00.0, Disabled, 0, No"
LOST = "Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost."
REASON = "muster: health: gpus: 0000:3B:00.0 has fallen off the bus; reboot the node"
# As slurmd calls it: nothing else is in its environment.
AS_SLURMD = "env -i SLURMD_NODENAME=n1"


@pytest.fixture
def stub(host):
    """Return a stand-in for a command; its arguments are in /root/told."""
    names = []

    def play(name, script):
        names.append(name)
        host.check_output(f"rm -f {STUBS}/{name}")
        text = f'#!/bin/sh\necho "{name} $*" >>/root/told\n{script}\n'
        host.check_output("printf %%s %s >%s", text, f"{STUBS}/{name}")
        host.check_output(f"chmod 0755 {STUBS}/{name}")

    yield play
    played = " ".join(f"{STUBS}/{name}" for name in names)
    host.check_output(f"rm -rf /root/told /run/muster-health {played}")


@pytest.fixture
def node(stub):
    """Return what makes slurmctld show the node in a state."""

    def show(gres="(null)", state="IDLE", reason=""):
        shown = f" Reason={reason} [root@2026-11-22T01:04:02]" if reason else ""
        record = f"NodeName=n1 Arch=x86_64 Gres={gres} OS=Linux State={state} CPUs=1{shown}"
        stub("scontrol", f"[ $1 = update ] || echo '{record}'")

    return show


def told(host):
    """What slurmctld was told since the last look."""
    lines = host.check_output("cat /root/told; rm /root/told").splitlines()
    return [line for line in lines if line.startswith("scontrol update")]


def test_it_says_how_it_is_called(host):
    assert host.check_output(f"{PROGRAM} --help").startswith("usage: muster-health")


@pytest.fixture
def without_scratch(host):
    """Give the host a slurm.conf without TmpFS."""
    host.check_output("mkdir -p /run/slurm/conf && echo ClusterName=x >/run/slurm/conf/slurm.conf")
    yield
    host.check_output("rm /run/slurm/conf/slurm.conf")


@pytest.mark.usefixtures("without_scratch")
def test_a_node_without_shared_folders_and_gpus_is_healthy(host, node):
    node()
    done = host.run(f"{AS_SLURMD} {PROGRAM}")
    said = "nothing to look at: no shared folder, no scratch, no GPU\n"
    assert (done.rc, done.stdout, done.stderr) == (0, said, "")
    assert told(host) == []


def test_a_node_whose_tools_are_missing_is_not_checked_and_keeps_its_jobs(host, node):
    node("gpu:1")
    done = host.run(f"{AS_SLURMD} {PROGRAM}")
    assert done.rc == 0
    assert "unchecked  nvidia-smi is not installed" in done.stdout
    assert host.run(f"{AS_SLURMD} {PROLOG}").rc == 0
    assert told(host) == []


def test_a_broken_node_is_drained_its_jobs_refused_and_it_comes_back(host, node, stub):
    node("gpu:1")
    stub("nvidia-smi", f"echo '{LOST}'; exit 15")
    assert host.run(f"{AS_SLURMD} {PROGRAM}").rc == 1
    assert told(host) == [f"scontrol update nodename=n1 state=drain reason={REASON}"]
    refused = host.run(f"{AS_SLURMD} {PROLOG}")
    assert refused.rc == 1, refused.stdout + refused.stderr
    node("gpu:1", "IDLE+DRAIN", REASON)
    host.run("rm /root/told")
    assert host.run(f"{AS_SLURMD} {PROGRAM}").rc == 1
    assert told(host) == []
    stub("nvidia-smi", f"case $* in *--query-gpu*) echo '{GPU}';; esac")
    assert host.run(f"{AS_SLURMD} {PROGRAM}").rc == 0
    assert told(host) == ["scontrol update nodename=n1 state=resume reason=muster: well again"]


@pytest.mark.proof("waits 20 s for commands that hang")
def test_it_ends_in_time_whatever_hangs(host, node, stub):
    node("gpu:1")
    host.run(f"{AS_SLURMD} {PROGRAM}")
    hangs = "trap '' TERM; while :; do sleep 60; done"
    for name in ("scontrol", "nvidia-smi", "journalctl", "systemctl"):
        stub(name, hangs)
    begin = time.monotonic()
    done = host.run(f"{AS_SLURMD} timeout 60 {PROGRAM}")
    assert time.monotonic() - begin < 21
    assert done.rc == 1
    assert "nvidia-smi does not answer" in done.stdout
    assert "slurmctld says nothing of n1: no answer" in done.stderr
    assert host.run("pgrep --exact nvidia-smi").rc == 1
