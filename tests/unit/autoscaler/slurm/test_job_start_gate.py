"""The job start gate and its client in bash: a job's script starts when its nodes are up."""

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import jinja2
import pytest
from quick import FastClock

from muster.autoscaler.clock import Clock
from muster.autoscaler.reconcile.model import Node, Power
from muster.autoscaler.slurm.job_start_gate import ADDRESS, Gate, coming

TEMPLATE = (
    Path(__file__).parents[4] / "roles/autoscaler/templates/usr/local/sbin/muster-wait-for-nodes.j2"
)
PATIENCE_S = 20


class Nodes:
    """The nodes that will be powered up, as slurmctld would list them."""

    def __init__(self, *coming: str) -> None:
        self.coming = set(coming)
        self.readings = 0
        self.broken = False

    def __call__(self) -> set[str]:
        self.readings += 1
        if self.broken:
            raise OSError("slurmctld does not answer")
        return set(self.coming)


@contextmanager
def gate(nodes: Callable[[], set[str]], limit: int = 2000, clock: Clock = Clock()) -> Iterator[int]:
    stop, server = Event(), Gate(nodes, ("127.0.0.1", 0), limit, clock=clock)
    thread = Thread(target=server.run, args=(stop,))
    thread.start()
    try:
        yield server.address[1]
    finally:
        stop.set()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., subprocess.Popen[bytes]]:
    """Start the client as slurmctld does, with only the job's variables in its environment."""

    def start(port: int, nodes: str, seconds: int = 300) -> subprocess.Popen[bytes]:
        environment = jinja2.Environment(autoescape=False, trim_blocks=True)  # noqa: S701
        environment.filters["comment"] = lambda text: f"# {text}"
        script = tmp_path / "muster-wait-for-nodes"
        text = environment.from_string(TEMPLATE.read_text()).render(
            ansible_managed="managed", autoscaler_resume_timeout_seconds=seconds
        )
        assert f"/{ADDRESS[0]}/{ADDRESS[1]} " in text
        script.write_text(text.replace(str(ADDRESS[1]), str(port)))
        return subprocess.Popen(
            ["/bin/bash", script], env={"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": nodes}
        )

    return start


def waits(process: subprocess.Popen[bytes]) -> bool:
    """Whether it still waits after a few readings of the nodes."""
    try:
        process.wait(1.5)
    except subprocess.TimeoutExpired:
        return True
    return False


def test_a_job_waits_until_its_last_node_is_up(program):
    nodes = Nodes("n1", "n2", "n3")
    with gate(nodes) as port:
        job = program(port, "n[1-2]")
        assert waits(job)
        nodes.coming = {"n2", "n3"}
        assert waits(job)
        nodes.coming = {"n3"}
        assert job.wait(PATIENCE_S) == 0


def test_a_job_whose_nodes_are_up_does_not_wait_for_others(program):
    nodes = Nodes("n1")
    with gate(nodes) as port:
        waiting, other = program(port, "n1"), program(port, "n2")
        assert other.wait(PATIENCE_S) == 0
        assert waits(waiting)
        nodes.coming = set()
        assert waiting.wait(PATIENCE_S) == 0


def test_what_was_read_before_a_job_came_does_not_let_it_through(program):
    begun, answer = Event(), Event()
    later = Nodes("n1")

    def nodes() -> set[str]:
        if not begun.is_set():
            begun.set()
            answer.wait(PATIENCE_S)
            return set()  # n1 was not powering up when this reading began
        return later()

    with gate(nodes) as port:
        first = program(port, "n9")
        assert begun.wait(PATIENCE_S)
        job = program(port, "n1")
        time.sleep(0.3)  # it has connected and sent its nodes
        answer.set()
        assert first.wait(PATIENCE_S) == 0
        assert waits(job)
        later.coming = set()
        assert job.wait(PATIENCE_S) == 0


def test_nodes_are_not_read_while_no_job_waits(program):
    nodes = Nodes()
    with gate(nodes) as port:
        assert program(port, "n1").wait(PATIENCE_S) == 0
        time.sleep(0.5)
        readings = nodes.readings
        time.sleep(1)
        assert nodes.readings == readings


def test_a_job_that_is_cancelled_is_forgotten(program):
    nodes = Nodes("n1")
    with gate(nodes) as port:
        job = program(port, "n1")
        assert waits(job)
        job.kill()
        job.wait(PATIENCE_S)
        time.sleep(0.5)
        readings = nodes.readings
        time.sleep(1)
        assert nodes.readings == readings


def test_while_slurmctld_does_not_answer_all_jobs_wait_and_the_gate_works_on(program):
    nodes = Nodes()
    nodes.broken = True
    with gate(nodes) as port:
        job = program(port, "n1")
        assert waits(job)
        nodes.broken = False
        assert job.wait(PATIENCE_S) == 0


def test_a_slurmctld_that_was_slow_once_is_asked_again_soon():
    clock = FastClock()
    ended_at: list[float] = []

    def nodes() -> set[str]:
        if not ended_at:
            clock.sleep(20)
            ended_at.append(clock.monotonic())
        return set()

    with gate(nodes, clock=clock) as port, closing(connected(port)) as first:
        first.sendall(b"n1\n")
        assert first.recv(1) == b""
        with closing(connected(port)) as second:
            second.sendall(b"n1\n")
            assert second.recv(1) == b""
        assert clock.monotonic() - ended_at[0] < 30


def test_a_job_above_the_limit_is_left_to_slurm(program):
    with gate(Nodes("n1"), limit=1) as port:
        first = program(port, "n1")
        assert waits(first)
        assert program(port, "n1").wait(PATIENCE_S) == 0
        assert first.poll() is None
    assert first.wait(PATIENCE_S) == 0


def test_thousands_of_jobs_above_the_limit_are_said_once(caplog):
    nodes = Nodes("n1")
    said = "more than 1 jobs wait for nodes"
    with gate(nodes, limit=1) as port:
        for times in (1, 2):
            nodes.coming = {"n1"}
            with closing(connected(port)) as first:
                first.sendall(b"n1\n")
                for _ in range(5):
                    with closing(connected(port)) as other:
                        assert other.recv(1) == b""
                assert caplog.text.count(said) == times
                nodes.coming = set()
                assert first.recv(1) == b""


def test_no_job_waits_when_the_daemon_does_not_run(program):
    with closing(socket.create_server(("127.0.0.1", 0))) as closed:
        port = closed.getsockname()[1]
    assert program(port, "n1").wait(PATIENCE_S) == 0


def test_a_daemon_that_closes_the_connection_does_not_fail_the_job(program):
    with closing(socket.create_server(("127.0.0.1", 0))) as daemon:
        job = program(daemon.getsockname()[1], "n1")
        daemon.accept()[0].close()
        assert job.wait(PATIENCE_S) == 0


def test_a_daemon_that_hangs_delays_a_job_less_than_resume_timeout(program):
    with closing(socket.create_server(("127.0.0.1", 0))) as daemon:
        begun = time.monotonic()
        assert program(daemon.getsockname()[1], "n1", seconds=2).wait(PATIENCE_S) == 0
        assert 0.9 < time.monotonic() - begun < PATIENCE_S


def test_a_connection_that_sends_nothing_delays_no_job(program):
    with gate(Nodes()) as port, socket.create_connection(("127.0.0.1", port)):
        assert program(port, "n1").wait(PATIENCE_S) == 0


@pytest.mark.parametrize("sent", [b"n[1-\n", b"\xff\xfe\n", b"n" * (2 << 20)])
def test_an_invalid_hostlist_is_disconnected_and_the_gate_works_on(program, sent):
    nodes = Nodes("n1")
    with gate(nodes) as port:
        with socket.create_connection(("127.0.0.1", port)) as other:
            other.settimeout(PATIENCE_S)
            with suppress(ConnectionError):  # the gate may close before all is sent
                other.sendall(sent)
                assert other.recv(1) == b""
        job = program(port, "n1")
        assert waits(job)
        nodes.coming = set()
        assert job.wait(PATIENCE_S) == 0


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)


def test_a_connection_that_sends_nothing_is_closed():
    with gate(Nodes("n1"), clock=FastClock()) as port, closing(connected(port)) as idle:
        assert idle.recv(1) == b""


@pytest.mark.parametrize("sent", [b"n[0-99999999]\n", b"a[1-1000]b[1-1000]c[1-1000]\n"])
def test_a_hostlist_that_would_fill_the_memory_is_refused(sent):
    with gate(Nodes("n1")) as port, closing(connected(port)) as other:
        other.sendall(sent)
        assert other.recv(1) == b""


@pytest.mark.parametrize(
    ("node", "comes"),
    [
        (Node("n", Power.POWERING_UP), True),
        (Node("n", Power.OFF, busy=True), True),
        (Node("n", Power.POWERING_DOWN, busy=True), True),
        (Node("n", Power.OFF), False),
        (Node("n", Power.UP, busy=True), False),
        (Node("n", Power.POWERING_UP, down=True), False),
    ],
)
def test_which_nodes_will_be_powered_up(node: Node, comes: bool):
    assert coming([node]) == ({"n"} if comes else set())
