"""SLURM on machines whose storage fails and returns, and that are powered off and on."""

import re
import time

import pytest
from vmkit.calls import calls
from vmkit.ceph import Ceph
from vmkit.machine import Machine
from vmkit.site import Site
from waiting import until

pytestmark = pytest.mark.proof(
    "emulated machines with a Ceph cluster beside them take ten minutes and more"
)

OUTAGE_SECONDS = 60
WRITER = "for i in $(seq 100000); do echo $i; test -e /run/enough && exit 0; sleep 0.2; done"
COPIERS = {"to-nfs": "/home/trial", "to-ceph": "/data/trial"}
HEALTH_SECONDS = 60
"""HealthCheckInterval."""


def active(site: Site, unit: str) -> bool:
    return site.client.ssh(f"systemctl is-active {unit}").returncode == 0


WHOLE_AGAIN = "nft delete table ip cut"


def cut(machine: Machine, hook: str, rule: str) -> None:
    """Let a machine drop the packets of a rule, until WHOLE_AGAIN."""
    chain = f"add chain ip cut here {{ type filter hook {hook} priority 0; }}"
    machine.check(
        f"nft add table ip cut && nft '{chain}' && nft 'add rule ip cut here {rule} drop'"
    )


@pytest.fixture
def no_storage(pair: Site, ceph: Ceph):
    """The folders of the storage host and of Ceph are unreachable; SLURM's ports are not."""
    cut(pair.server, "input", "tcp dport 2049")
    cut(pair.client, "output", f"ip daddr {ceph.address}")
    yield
    for machine in pair.machines:
        machine.ssh(WHOLE_AGAIN)


def test_while_storage_is_away_writers_wait_and_the_node_gets_no_jobs(
    pair: Site, request: pytest.FixtureRequest
) -> None:
    pair.client.check("rm -f /run/enough; dd if=/dev/urandom of=/run/sample bs=1M count=8")
    pair.server.check("install -d -m 1777 /home/trial /data/trial")
    # As a user of both hosts; the node's root may not write there.
    batch = f"sbatch --parsable --chdir=/ --output=/home/trial/lines --wrap '{WRITER}'"
    job = pair.server.check(f"runuser -u nobody -- {batch}")
    # An earlier test's outage may just have ended: the node is back after its next check.
    until(
        lambda: pair.server.ssh("wc -l </home/trial/lines").stdout.strip() > "3",
        "it writes",
        3 * HEALTH_SECONDS,
    )
    request.getfixturevalue("no_storage")
    begin = time.monotonic()
    ada = "setpriv --reuid=20001 --regid=20001 --clear-groups"
    for copier, folder in COPIERS.items():
        copy = f"dd if=/run/sample of={folder}/sample bs=1M conv=fsync"
        pair.client.check(f"systemd-run --quiet --unit={copier} {ada} {copy}")

    def is_drained() -> bool:
        state, reason = pair.in_slurm()
        wanted = ("muster: health: storage", "/home", "/data")
        return state.startswith("drain") and all(word in reason for word in wanted)

    until(is_drained, "the node is drained", 3 * HEALTH_SECONDS)
    while time.monotonic() < begin + OUTAGE_SECONDS:
        assert all(active(pair, copier) for copier in COPIERS)
        time.sleep(5)
    for machine in pair.machines:
        machine.check(WHOLE_AGAIN)
    until(lambda: not any(active(pair, copier) for copier in COPIERS), "the copies have ended", 180)
    until(lambda: pair.in_slurm() == ("allocated", "none"), "in service", 3 * HEALTH_SECONDS)
    pair.client.check("touch /run/enough")
    until(lambda: pair.in_slurm() == ("idle", "none"), "the job has ended", 60)
    lines = pair.server.check("cat /home/trial/lines").split()
    assert lines == [str(number) for number in range(1, len(lines) + 1)]
    ended = pair.server.check(f"scontrol show job {job}")
    assert "JobState=COMPLETED" in ended
    whole = pair.client.check("sha256sum </run/sample")
    for folder in COPIERS.values():
        assert pair.server.check(f"sha256sum <{folder}/sample") == whole


def test_a_folder_that_its_server_exports_as_another_is_mounted_again(pair: Site) -> None:
    """As when the server was replaced: the handles that clients have are stale."""
    pid = "systemctl show slurmd --property=MainPID"
    before = pair.client.check(pid)
    exports = pair.server.check("grep --files-with-matches '^/apps ' /etc/exports /etc/exports.d/*")
    pair.server.check(f"cp {exports} /root/exports; echo it >/apps/told")
    another = "s/fsid=[^,]*/fsid=2b6f2a3e-1111-4222-8333-444455556666/"
    for change in (f"sed -i '/^.apps /{another}' {exports}", f"cp /root/exports {exports}"):
        pair.server.check(f"{change}; exportfs -r; exportfs -f")
        assert "Stale file handle" in pair.client.ssh("stat --file-system /apps/.").stderr
        said = pair.client.check("muster-health")
        assert "muster-health: mounted again because it was stale: /apps\n" in said
        assert pair.client.check("cat /apps/told") == "it"
        assert (pair.client.check(pid), pair.in_slurm()) == (before, ("idle", "none"))


def test_a_node_whose_clock_is_wrong_is_named_and_comes_back(pair: Site) -> None:
    # More than munge takes: 300 s, munge(7).
    pair.client.check("date --set '+400 seconds'")
    try:
        output = pair.failed(roles="verify")
        # At least: the task that asks takes seconds itself.
        clock = r"node1: its clock is (3[5-9]|40)\d s ahead of this machine's"
        assert re.search(clock, output), output
        assert "its munge key or its clock differs" in output, output
    finally:
        pair.client.check("date --set '-400 seconds'")
    until(lambda: pair.in_slurm() == ("idle", "none"), "in service", 3 * HEALTH_SECONDS)
    assert pair.server.check("srun --time=1 hostname") == pair.client.name


def test_after_a_reboot_the_node_waits_for_its_folders_and_still_has_its_cache(pair: Site) -> None:
    pair.server.check("dd if=/dev/urandom of=/apps/kept bs=1M count=8")
    whole = pair.server.check("sha256sum </apps/kept")
    assert pair.client.check("sha256sum </apps/kept") == whole
    pair.client.power_off()
    pair.server.power_off()
    pair.client.start()
    pair.client.wait()
    until(
        lambda: pair.client.ssh("systemctl is-active home.mount").stdout.strip() == "activating",
        "the node waits",
        90,
    )
    assert not active(pair, "slurmd")
    pair.server.start()
    pair.server.wait()
    until(lambda: pair.in_slurm() == ("idle", "none"), "the node is in service", 240)
    assert active(pair, "cachefilesd")
    before = calls(pair.client, "/apps")["READ"]
    assert pair.client.check("sha256sum </apps/kept") == whole
    assert calls(pair.client, "/apps")["READ"] == before
    assert pair.server.check("srun --time=1 hostname") == pair.client.name


def in_service_after_reboot(pair: Site) -> None:
    """Cut the node's power and boot it, then resume it in SLURM as an administrator would."""
    pair.client.reboot()
    rebooted = "Node unexpectedly rebooted"
    until(lambda: pair.in_slurm() == ("down", rebooted), "slurmd has registered", 120)
    pair.server.check("scontrol update nodename=node1 state=resume")
    until(lambda: pair.in_slurm() == ("idle", "none"), "the node is in service", 120)


def test_a_node_whose_cache_has_lost_its_disk_is_in_service_and_reads(pair: Site) -> None:
    pair.server.check("echo module >/apps/file")
    disks, pair.client.disks = pair.client.disks, []
    try:
        in_service_after_reboot(pair)
        assert pair.client.check("cat /apps/file") == "module"
        done = pair.client.ssh("muster-cache")
        assert "disk: none is mounted" in done.stdout
        assert (done.returncode, "muster-cache-disk" in done.stderr) == (1, True), done.stderr
        output = pair.failed("--limit=node1", roles="fscache")
        assert "/dev/vda: no such device; name another in storage.cache.device" in output, output
    finally:
        pair.client.disks = disks
        in_service_after_reboot(pair)
    assert pair.play("--limit=node1", roles="fscache") == set()
