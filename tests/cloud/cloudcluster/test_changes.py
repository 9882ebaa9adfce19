"""`pulumi up` on a running cluster: nothing to do, a change, another controller."""

import base64
import io
import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen

import httpx
import pytest
from cloudkit import ON_DEBIAN_13, console, controller, inside, state, up
from open_ports import LISTENING, attempts, listening, passes
from secret_search import found
from waiting import until

from muster_sandbox.cloud_demo import tour
from muster_sandbox.cloud_demo.site import Stack
from muster_sandbox.containers.podman import MachineError
from muster_sandbox.fakecloud.services.compute.lifecycle import GUEST_ATTRIBUTES
from muster_sandbox.fakecloud.services.storage.blobs import OBJECTS, blobs_of


def test_up_shows_how_far_it_is(first_up: str, stack: Stack) -> None:
    assert "Install" in first_up  # the image's build
    assert "Write the files of slurmctld and run it" in first_up  # the controller's first boot
    assert stack.read("stack", "output", "cluster", "--stack", stack.name).strip() == stack.name


def test_second_up_changes_nothing(first_up: str, stack: Stack) -> None:
    up(stack, "--expect-no-changes")


def host_key(stack: Stack, instance: str) -> str:
    """A machine's public host key, empty while it has none: jobs don't wait for sshd."""
    try:
        return inside(stack, instance, "cat", "/etc/ssh/ssh_host_ed25519_key.pub")
    except MachineError:
        return ""


def test_nodes_from_one_image_are_not_twins(first_up: str, stack: Stack) -> None:
    tour.run(stack, "srun --nodes=2 true")
    names = tour.nodes(stack)
    until(lambda: all(host_key(stack, name) for name in names), "they have host keys", 60)
    assert len({host_key(stack, name) for name in names}) == 2
    ids = {inside(stack, name, "cat", "/etc/machine-id").strip() for name in names}
    assert len(ids) == 2
    assert "" not in ids


PLANT = """
ssh-keygen -q -t ed25519 -N '' -f /root/planted
ssh-keygen -q -y -f /root/planted | setpriv --reuid=chief --regid=chief --init-groups sh -c '
  umask 077; mkdir -p ~chief/.ssh; cat >~chief/.ssh/authorized_keys; echo exit 7 >~chief/.profile'
"""
"""What root of a node does to an administrator's home, which all hosts share."""
SSH = "ssh -i /root/planted -o BatchMode=yes -o StrictHostKeyChecking=no -o ConnectTimeout=10"


def test_root_of_a_node_is_no_administrator_elsewhere(first_up: str, stack: Stack) -> None:
    tour.run(stack, "srun true")
    node = tour.nodes(stack)[0]
    inside(stack, node, "sh", "-ec", PLANT)
    head = controller(stack)
    for host in (head, tour.login(stack)):
        assert "exit 7" in inside(stack, host, "cat", "/home/chief/.profile")
        with pytest.raises(MachineError, match="Permission denied"):
            inside(stack, node, "sh", "-ec", f"{SSH} chief@{host} true")
    # Nor on the node, whose sshd knows of no keys but those in homes.
    with pytest.raises(MachineError, match="Permission denied"):
        inside(stack, node, "sh", "-ec", f"{SSH} chief@127.0.0.1 true")
    # Not by unit: the journal may not know any more whose process that has ended this was.
    log = ("journalctl", "-t", "sshd", "-t", "sshd-session", "-o", "cat")
    refused = "User chief from 127.0.0.1 not allowed because not listed in AllowUsers"
    until(lambda: refused in inside(stack, node, *log), refused, 10)
    home = inside(stack, head, "getent", "passwd", "chief").split(":")[5]
    assert home == "/var/lib/muster/home/chief"
    assert "exit 7" not in inside(stack, head, "cat", f"{home}/.profile")


def answering(stack: Stack, source: str, target: str) -> set[int]:
    """The ports of a machine that answer another one; fakecloud has no firewall."""
    ports = listening(inside(stack, target, *LISTENING.split()))
    return {
        int(port) for port in inside(stack, source, "sh", "-c", attempts(target, ports)).split()
    }


def reached(stack: Stack, source: str, target: str) -> set[int]:
    """The ports that answer and that Google's firewall lets through."""
    rules = stack.server.do(
        lambda cloud: [rule for _, _, rule in cloud.store.all("compute.firewalls")]
    )
    account = {name: vm["serviceAccounts"][0]["email"] for name, vm in stack.instances().items()}
    vm = {"address": stack.address(source), "account": account[source]}
    ports = answering(stack, source, target)
    return {port for port in ports if passes(rules, port, vm, account[target])}


def test_a_node_reaches_slurmctld_alone_of_the_controller(first_up: str, stack: Stack) -> None:
    head = controller(stack)
    tour.run(stack, "srun --nodes=2 true")
    node, other = tour.nodes(stack)[:2]
    assert listening(inside(stack, head, *LISTENING.split())) >= {22, 3306, 6817, 6819}
    # Google's firewall alone keeps nodes from sshd and slurmdbd; the controller would answer.
    assert answering(stack, node, head) == {22, 6817, 6819}
    open_to_nodes = {head: {6817}, tour.login(stack): {22}, other: {22, 6818}}
    assert {host: reached(stack, node, host) for host in open_to_nodes} == open_to_nodes


def test_token_of_a_machine_is_not_for_its_users(first_up: str, stack: Stack) -> None:
    tour.token(stack)


def test_lost_guard_is_noticed_and_comes_back(first_up: str, stack: Stack) -> None:
    tour.run(stack, "srun true")
    node = tour.nodes(stack)[0]
    checked = {controller(stack): "muster-guard check", node: "muster-health"}
    for machine, check in checked.items():
        keeper = "systemctl kill muster-guard-keeper --signal"
        # Nothing loads them again, though each unit is active.
        inside(stack, machine, "sh", "-ec", f"{keeper}=STOP; nft flush ruleset")
        try:
            with pytest.raises(MachineError):
                inside(stack, machine, *check.split())
            if machine == node:
                shown = tour.run(stack, f"scontrol show node {node}")
                assert "Reason=muster: health: metadata server: it gives users" in shown
        finally:
            inside(stack, machine, "sh", "-ec", f"{keeper}=CONT")
        again = "until muster-guard check; do sleep 0.1; done"
        inside(stack, machine, "timeout", "10", "sh", "-c", again)
    # All rules of the controller were flushed.
    again = "until nft list table inet muster_slurmdbd; do sleep 0.1; done"
    inside(stack, controller(stack), "timeout", "10", "sh", "-c", again)
    inside(stack, node, "muster-health")
    assert "DRAIN" not in tour.run(stack, f"scontrol show node {node}")


ASK_METADATA = """
import json, urllib.request as web
account = "http://169.254.169.254/computeMetadata/v1/instance/service-accounts/default"
ask = web.Request(f"{account}/token", headers={"Metadata-Flavor": "Google"})
print(json.load(web.urlopen(ask, timeout=10))["access_token"])
"""


def test_token_of_user_slurm_deletes_neither_controller_nor_login_node(
    first_up: str, stack: Stack
) -> None:
    machines = controller(stack), tour.login(stack)
    as_slurm = ("setpriv", "--reuid=slurm", "--regid=slurm", "--clear-groups")
    token = inside(stack, machines[0], *as_slurm, "python3", "-c", ASK_METADATA).strip()
    place = f"{stack.server.url}/compute/v1/projects/{stack.project}/zones/europe-west4-a"
    with httpx.Client(headers={"Authorization": f"Bearer {token}"}, trust_env=False) as thief:
        # What it may do: the autoscaler reads a list.
        assert thief.get(f"{place}/instances").status_code == 200
        for machine in machines:
            refused = thief.delete(f"{place}/instances/{machine}")
            assert refused.status_code == 403, machine
            assert "Required 'compute.instances.delete' permission" in refused.text


@contextmanager
def terminal(stack: Stack) -> Iterator[Path]:
    """Log ada in; return all that her terminal shows."""
    said = stack.site.folder / "terminal"
    ssh, *words = stack.ssh(tour.PERSON, tour.login(stack))
    with (
        said.open("wb") as shown,
        Popen([ssh, "-tt", *words], stdin=PIPE, stdout=shown, stderr=shown) as session,
    ):
        try:
            until(lambda: "$" in said.read_text(), "a prompt", 30)
            yield said
        finally:
            session.terminate()


def test_change_is_applied_while_jobs_run(first_up: str, stack: Stack) -> None:
    boot = inside(stack, controller(stack), "cat", "/proc/1/stat").split()[21]
    job = tour.run(stack, "sbatch --parsable --wrap 'sleep 60; echo whole'").strip()
    until(lambda: state(stack, job) == "RUNNING", "the job runs", 120)
    tour.add_newcomer(stack.site)
    with terminal(stack) as said:
        up(stack)
        done = f"Muster: {tour.login(stack)} is set up"
        until(lambda: done in said.read_text(), "who is logged in reads that it is done", 30)
    tour.newcomer(stack)
    assert state(stack, job) in {"RUNNING", "COMPLETED"}
    until(lambda: state(stack, job) == "COMPLETED", "the job has ended", 120)
    assert "whole" in tour.run(stack, f"cat slurm-{job}.out")
    assert inside(stack, controller(stack), "cat", "/proc/1/stat").split()[21] == boot
    up(stack, "--expect-no-changes")


def stored(stack: Stack, kind: str) -> bytes:
    """All resources of a kind that the cloud has."""
    return stack.server.do(
        lambda cloud: json.dumps([resource for _, _, resource in cloud.store.all(kind)])
    ).encode()


def unpacked(content: bytes) -> bytes:
    """The files of an archive, one after the other."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        files = [archive.extractfile(member) for member in archive if member.isfile()]
        return b"".join(file.read() for file in files if file)


def places_of_secrets(stack: Stack) -> dict[str, bytes]:
    """All places where a secret could be in plain text, but must not be."""
    name = stack.name
    settings = (file.read_bytes() for file in stack.site.program.glob("Pulumi*.yaml"))
    bundles = stack.server.do(
        lambda cloud: [
            blobs_of(cloud).read(resource["blob"]) for _, _, resource in cloud.store.all(OBJECTS)
        ]
    )
    places = {
        "state": stack.read("stack", "export", "--show-secrets", "--stack", name).encode(),
        "outputs": stack.read(
            *("stack", "output", "--json", "--show-secrets", "--stack", name)
        ).encode(),
        "instances": json.dumps(stack.instances()).encode(),
        "settings": b"".join(settings),
        "bundles": b"".join(map(unpacked, bundles)),
    }
    for kind in ("compute.instanceTemplates", OBJECTS, GUEST_ATTRIBUTES):
        places[kind] = stored(stack, kind)
    for machine in stack.instances():
        places[f"console of {machine}"] = console(stack, machine).encode()
        for what, command in {
            "arguments on": "ps -eo args",
            "journal of": "journalctl --no-pager --all --output=cat",
        }.items():
            said = inside(stack, machine, "sh", "-c", f"{command} | base64 --wrap=0")
            places[f"{what} {machine}"] = base64.b64decode(said)
    return places


def test_secrets_are_nowhere_in_plain_text(first_up: str, stack: Stack) -> None:
    head = controller(stack)
    key = inside(stack, head, "base64", "-w0", "/etc/munge/munge.key").encode()
    password = inside(stack, head, "sed", "-n", "s/^StoragePass=//p", "/etc/slurm/slurmdbd.conf")
    assert len(key) > 40
    assert len(password) > 10
    secrets = [key, base64.b64decode(key), password.encode()]
    places = places_of_secrets(stack)
    assert len(places["bundles"]) > 100_000
    leaks = {where: found(text, secrets) for where, text in places.items()}
    assert [where for where, forms in leaks.items() if forms] == []
    # The search finds what is planted, in each form.
    inside(stack, head, "systemd-cat", "echo", password)
    for command in ("cat", "od -An -v -tx1", "base64"):
        inside(stack, head, "systemd-cat", *command.split(), "/etc/munge/munge.key")
    inside(stack, head, "journalctl", "--sync")
    planted = places_of_secrets(stack)[f"journal of {head}"]
    assert found(planted, [password.encode()]) == ["as it is"]
    assert set(found(planted, [secrets[1]])) == {"as it is", "hex", "base64 after 0 bytes"}


@pytest.mark.proof("another controller sets itself up, two minutes and more")
@ON_DEBIAN_13
def test_replaced_controller_has_lost_nothing(first_up: str, stack: Stack) -> None:
    ran = tour.run(stack, "sbatch --parsable --wait --wrap hostname").strip()
    running = tour.run(stack, "sbatch --parsable --wrap 'sleep 100; echo whole'").strip()
    until(lambda: state(stack, running) == "RUNNING", "the job runs", 120)
    pending = tour.run(stack, "sbatch --parsable --begin=now+1hour --wrap true").strip()
    tour.run(stack, "echo kept >file")
    before = stack.instances()[controller(stack)]["id"]
    exported = json.loads(stack.read("stack", "export", "--stack", stack.name))
    urn = next(
        item["urn"]
        for item in exported["deployment"]["resources"]
        if item["type"] == "gcp:compute/instance:Instance" and item["id"].endswith("-controller")
    )
    up(stack, "--replace", urn)
    assert stack.instances()[controller(stack)]["id"] != before
    until(lambda: state(stack, running) == "COMPLETED", "the running job has ended", 200)
    assert "whole" in tour.run(stack, f"cat slurm-{running}.out")
    assert state(stack, pending) == "PENDING"
    assert "COMPLETED" in tour.run(stack, f"sacct -nX -j {ran} -o State")
    assert tour.run(stack, "cat file").strip() == "kept"
    tour.run(stack, f"scancel {pending}")
