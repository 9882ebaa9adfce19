"""The gate: a job's script starts as soon as the job's nodes are up.

slurmctld starts the script of a job that waited for nodes in a pass every 30 s (PERIODIC_TIMEOUT
in its slurmctld.h), or when the job's PrologSlurmctld ends and the nodes are up by then. That
program is `muster-wait-for-nodes`: it connects to this gate, says which nodes it waits for, and
ends when the connection does. So a gate that is closed, full or gone costs nothing but the wait
for slurmctld's own pass, and a job that is cancelled hangs up.
"""

import logging
import re
import selectors
import socket
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from threading import Event

from muster.autoscaler.reconcile.model import Node, Power
from muster.catalog.hostlists import expand

log = logging.getLogger(__name__)

ADDRESS = ("127.0.0.1", 6816)
"""Beside SLURM's own ports, 6817 to 6820."""

LIMIT = 2000
"""How many jobs may wait at once; each is a process of 0.26 MiB on the controller."""

LONGEST_HOSTLIST = 1 << 16
"""Bytes; thousands of nodes of a set fold into some tens of them."""
MOST_NODES = 100_000
"""Of a hostlist, which anybody on this machine may send."""
TO_SPEAK_S = 10
"""Who has not said by then what it waits for is let go."""
_RANGE = re.compile(rb"(\d+)-(\d+)")

LOOK_EVERY_S = 0.25
"""Pause between two looks at the nodes while jobs wait."""

LOOKING_SHARE = 0.1
"""Part of the time that looking may take, when there are so many nodes that it takes long."""


def coming(nodes: Iterable[Node]) -> set[str]:
    """Return the nodes that are on their way.

    Those are what SLURM powers up, and what it has given to a job and not yet begun to power up.
    Nodes that are down are not: SLURM queues their jobs again, and not before this program ended.
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
    """What it waits for; None: it has not said so yet."""


class Gate:
    """Keeps jobs waiting until none of their nodes is on its way any more.

    `coming` returns the nodes that are on their way, see the function of that name. It may fail;
    nobody is let through then.

    Raises:
        OSError: the address is taken.

    """

    def __init__(
        self,
        coming: Callable[[], Collection[str]],
        address: tuple[str, int] = ADDRESS,
        limit: int = LIMIT,
    ) -> None:
        self._coming = coming
        self._limit = limit
        self._waiting: dict[socket.socket, _Waiting] = {}
        self._selector = selectors.DefaultSelector()
        # Room for a burst: more jobs may come between two looks than a usual backlog holds.
        self._listener = socket.create_server(address, backlog=limit)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._listener)

    @property
    def address(self) -> tuple[str, int]:
        """Return where it listens."""
        host, port = self._listener.getsockname()
        return host, port

    def run(self, stop: Event) -> None:
        """Keep the gate until `stop` is set, then let everybody through."""
        look_at = 0.0
        while not stop.is_set():
            self._hear()
            if self._waiting and (begun := time.monotonic()) >= look_at:
                self._look(begun)
                took = time.monotonic() - begun
                look_at = begun + max(LOOK_EVERY_S, took / LOOKING_SHARE)
        for connection in list(self._waiting):
            self._let_through(connection)
        self._selector.close()
        self._listener.close()

    def _hear(self) -> None:
        """Take in who comes, what they say and who hangs up."""
        for key, _ in self._selector.select(LOOK_EVERY_S):
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
                    log.warning("no more jobs can wait for nodes now: %s", error)
                    time.sleep(LOOK_EVERY_S)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        if len(self._waiting) >= self._limit:
            log.warning("more than %d jobs wait for nodes; SLURM starts the others", self._limit)
            connection.close()
            return
        connection.setblocking(False)
        self._waiting[connection] = _Waiting(time.monotonic())
        self._selector.register(connection, selectors.EVENT_READ, connection)

    def _read(self, connection: socket.socket) -> None:
        job = self._waiting[connection]
        received = connection.recv(65536)
        job.text += received
        if not received or len(job.text) > LONGEST_HOSTLIST:
            self._let_through(connection)
        elif job.nodes is None and job.text.endswith(b"\n"):
            try:
                ranges = _RANGE.findall(job.text)
                if sum(int(last) - int(first) for first, last in ranges) > MOST_NODES:
                    raise ValueError(f"more than {MOST_NODES}")
                job.nodes = frozenset(expand(job.text.decode().strip()))
            except ValueError as error:
                log.warning("a job waits for nodes whose names can't be read: %s", error)
                self._let_through(connection)

    def _look(self, begun: float) -> None:
        """Let through whose nodes are there; who came after `begun` is looked at next time."""
        for connection, job in list(self._waiting.items()):
            if job.nodes is None and job.since < begun - TO_SPEAK_S:
                self._let_through(connection)
        try:
            coming = self._coming()
        except Exception:  # whatever it is, the gate must not be left shut by a dead thread
            log.exception("the nodes could not be read; jobs go on waiting for them")
            return
        for connection, job in list(self._waiting.items()):
            if job.nodes is not None and job.since < begun and job.nodes.isdisjoint(coming):
                self._let_through(connection)

    def _let_through(self, connection: socket.socket) -> None:
        del self._waiting[connection]
        self._selector.unregister(connection)
        connection.close()
