"""The job start gate: a job's script starts as soon as the job's nodes are up.

slurmctld starts the script of a job that waited for nodes in a pass every 30 s (PERIODIC_TIMEOUT
in its slurmctld.h), or when the job's PrologSlurmctld ends and the nodes are up by then. That
program is `muster-wait-for-nodes`: it connects to this gate, sends the nodes it waits for, and
ends when the connection does. So if the gate is closed, full or gone, the job only waits for
slurmctld's own pass. A job that is cancelled closes its connection.
"""

import logging
import selectors
import socket
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from threading import Event

from muster.autoscaler.clock import Clock
from muster.autoscaler.reconcile.model import Node, Power
from muster.catalog.hostlists import expand

log = logging.getLogger(__name__)

ADDRESS = ("127.0.0.1", 6816)
"""Next to SLURM's own ports, 6817 to 6820."""

LIMIT = 2000
"""How many jobs may wait at once; each is a process of 0.26 MiB on the controller."""

LONGEST_HOSTLIST = 1 << 16
"""Bytes; the hostlist of thousands of nodes of a set has some tens of bytes."""
TO_SPEAK_S = 10
"""A connection that has not sent its nodes by then is closed."""

READ_EVERY_S = 0.25
"""Pause between two readings of the nodes while jobs wait."""

READING_SHARE = 0.1
"""Part of the time that reading may take, where many nodes make it slow."""

LONGEST_PAUSE_S = 5
"""Pause after a reading that took long because slurmctld did not answer: waiting for it costs
nothing."""


def coming(nodes: Iterable[Node]) -> set[str]:
    """Return the nodes that will be powered up.

    These are the nodes that SLURM powers up, or has allocated to a job and will power up. Nodes
    that are down don't count: SLURM queues their jobs again, once muster-wait-for-nodes has ended.
    """
    return {
        node.name
        for node in nodes
        if not node.down
        and (
            node.power is Power.POWERING_UP
            or (node.busy and node.power in {Power.OFF, Power.POWERING_DOWN})
        )
    }


@dataclass
class _Waiting:
    """A job at the gate."""

    since: float
    text: bytes = b""
    nodes: frozenset[str] | None = None
    """What it waits for; None: not received yet."""


class Gate:
    """Keeps jobs waiting until none of their nodes has to be powered up any more.

    `coming` returns those nodes, see the function of that name. While it fails, all jobs wait.

    Raises:
        OSError: the address is in use.

    """

    def __init__(
        self,
        coming: Callable[[], Collection[str]],
        address: tuple[str, int] = ADDRESS,
        limit: int = LIMIT,
        *,
        clock: Clock = Clock(),
    ) -> None:
        self._coming = coming
        self._limit = limit
        self._clock = clock
        self._waiting: dict[socket.socket, _Waiting] = {}
        self._problem = ""
        """Why the nodes could not be read last."""
        self._full = False
        """A job could not wait, and others have waited since."""
        self._selector = selectors.DefaultSelector()
        # Room for a burst: between two rounds more jobs may come than a usual backlog holds.
        self._listener = socket.create_server(address, backlog=limit)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._listener)

    @property
    def address(self) -> tuple[str, int]:
        """Return where it listens."""
        host, port = self._listener.getsockname()
        return host, port

    def run(self, stop: Event) -> None:
        """Work until `stop` is set, then let all jobs through."""
        read_at = 0.0
        while not stop.is_set():
            self._serve_sockets(stop)
            if self._waiting and (begun := self._clock.monotonic()) >= read_at:
                self._check(begun)
                took = self._clock.monotonic() - begun
                pause = min(took / READING_SHARE, took + LONGEST_PAUSE_S)
                read_at = begun + max(READ_EVERY_S, pause)
        for connection in list(self._waiting):
            self._let_through(connection)
        self._selector.close()
        self._listener.close()

    def _serve_sockets(self, stop: Event) -> None:
        """Accept connections, read from them, and drop those that were closed."""
        for key, _ in self._clock.wait(self._selector.select, READ_EVERY_S):
            connection: socket.socket = key.data
            try:
                if connection is self._listener:
                    self._accept()
                else:
                    self._read(connection)
            except OSError as error:
                if connection in self._waiting:
                    self._let_through(connection)
                elif connection is self._listener:
                    self._is_full(f"no more jobs can wait for nodes now: {error}")
                    self._clock.wait(stop.wait, READ_EVERY_S)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        if len(self._waiting) >= self._limit:
            self._is_full(f"more than {self._limit} jobs wait for nodes; SLURM starts the others")
            connection.close()
            return
        connection.setblocking(False)
        self._waiting[connection] = _Waiting(self._clock.monotonic())
        self._selector.register(connection, selectors.EVENT_READ, connection)

    def _is_full(self, why: str) -> None:
        """Say it for the first of thousands of jobs, until no job waits any more."""
        if not self._full:
            log.warning("%s", why)
        self._full = True

    def _read(self, connection: socket.socket) -> None:
        job = self._waiting[connection]
        received = connection.recv(65536)
        job.text += received
        if not received or len(job.text) > LONGEST_HOSTLIST:
            self._let_through(connection)
        elif job.nodes is None and job.text.endswith(b"\n"):
            try:
                job.nodes = frozenset(expand(job.text.decode().strip()))
            except ValueError as error:
                log.warning("a job waits for nodes, but its hostlist can't be read: %s", error)
                self._let_through(connection)

    def _check(self, begun: float) -> None:
        """Let jobs through whose nodes are up; those that came after `begun` are checked later."""
        for connection, job in list(self._waiting.items()):
            if job.nodes is None and job.since < begun - TO_SPEAK_S:
                self._let_through(connection)
        try:
            coming = self._coming()
        except Exception as error:  # if this thread died, the jobs would wait for ever
            if repr(error) != self._problem:
                log.exception("nodes can't be read; jobs keep waiting for them")
            self._problem = repr(error)
            return
        self._problem = ""
        for connection, job in list(self._waiting.items()):
            if job.nodes is not None and job.since < begun and job.nodes.isdisjoint(coming):
                self._let_through(connection)

    def _let_through(self, connection: socket.socket) -> None:
        del self._waiting[connection]
        self._full = self._full and bool(self._waiting)
        self._selector.unregister(connection)
        connection.close()
