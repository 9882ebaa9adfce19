"""SLURM on machines whose storage goes away and comes back, and that are switched off and on."""

import time

import pytest
from vmkit.calls import calls
from vmkit.site import Site
from waiting import until

OUTAGE_SECONDS = 60
WRITER = "for i in $(seq 100000); do echo $i; test -e /run/enough && exit 0; sleep 0.2; done"
HEALTH_SECONDS = 60
"""HealthCheckInterval."""


def node(site: Site) -> tuple[str, str]:
    """What SLURM says of the node: state and reason."""
    shown = site.server.ssh("sinfo --noheader --Node --format='%T|%E'").stdout.strip()
    state, _, reason = shown.partition("|")
    return state, reason


def active(site: Site, unit: str) -> bool:
    return site.client.ssh(f"systemctl is-active {unit}").returncode == 0


@pytest.fixture
def no_storage(pair: Site):
    """The storage host takes no word for its folders, and speaks SLURM as before."""
    rule = "add rule ip cut in tcp dport 2049 drop"
    chain = "add chain ip cut in { type filter hook input priority 0; }"
    pair.server.check(f"nft add table ip cut && nft '{chain}' && nft '{rule}'")
    yield
    pair.server.ssh("nft delete table ip cut")


def test_while_storage_is_away_writers_wait_and_the_node_gets_no_jobs(
    pair: Site, request: pytest.FixtureRequest
) -> None:
    pair.client.check("rm -f /run/enough; dd if=/dev/urandom of=/run/sample bs=1M count=8")
    pair.server.check("install -d -m 1777 /home/trial")
    # As somebody whom both hosts know; root of the node may not write there.
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
    copy = "systemd-run --quiet --unit=copier setpriv --reuid=20001 --regid=20001 --clear-groups"
    pair.client.check(f"{copy} cp /run/sample /home/trial/sample")
    until(
        lambda: node(pair)[0].startswith("drain") and "muster: health: storage" in node(pair)[1],
        "the node is drained",
        3 * HEALTH_SECONDS,
    )
    while time.monotonic() < begin + OUTAGE_SECONDS:
        assert active(pair, "copier")
        time.sleep(5)
    pair.server.check("nft delete table ip cut")
    until(lambda: not active(pair, "copier"), "the copy has ended", 180)
    until(lambda: node(pair) == ("allocated", "none"), "in service", 3 * HEALTH_SECONDS)
    pair.client.check("touch /run/enough")
    until(lambda: node(pair) == ("idle", "none"), "the job has ended", 60)
    lines = pair.server.check("cat /home/trial/lines").split()
    assert lines == [str(number) for number in range(1, len(lines) + 1)]
    ended = pair.server.check(f"scontrol show job {job}")
    assert "JobState=COMPLETED" in ended
    assert pair.server.check("sha256sum </home/trial/sample") == pair.client.check(
        "sha256sum </run/sample"
    )


def test_a_folder_that_its_server_made_anew_is_mounted_again(pair: Site) -> None:
    pid = "systemctl show slurmd --property=MainPID"
    before = pair.client.check(pid)
    pair.server.check("rm -r /apps && mkdir /apps && exportfs -f && touch /apps/new")
    assert "Stale file handle" in pair.client.ssh("stat --file-system /apps/.").stderr
    said = pair.client.check("muster-health")
    assert "muster-health: mounted anew, for it was stale: /apps\n" in said
    assert pair.client.check("ls /apps") == "new"
    assert (pair.client.check(pid), node(pair)) == (before, ("idle", "none"))


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
    until(lambda: node(pair) == ("idle", "none"), "the node is in service", 240)
    assert active(pair, "cachefilesd")
    before = calls(pair.client, "/apps")["READ"]
    assert pair.client.check("sha256sum </apps/kept") == whole
    assert calls(pair.client, "/apps")["READ"] == before
    assert pair.server.check("srun --time=1 hostname") == pair.client.name
