"""A run whose daemon is a separate process, killed or stopped for a while at a marked point."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from fault_injection import STEP_S, FaultRun
from schedules import Schedule

from muster.autoscaler.reconcile.model import Job, Node, Power
from muster.catalog.hostlists import expand
from muster_sandbox.fakecloud.cloud import Cloud as FakeCloud
from muster_sandbox.fakecloud.http import Deferred, Handle, Reply, Request

HERE = Path(__file__).parent
ENDS_S = 2700
"""How long a run may take: on a quiet machine a third of it, as twenty daemons start at once."""
SCONTROL = """#!/bin/sh
# In place of scontrol: prints the nodes, or lets a command to release nodes be done.
cd "$(dirname "$0")" || exit 1
echo "$*" >> called
signal=signal-$(wc -l < called)
[ -e "$signal" ] && kill -s "$(cat "$signal")" $PPID
case $2 in
show) cp registered known.new && mv known.new known && cat nodes ;;
*)
    echo "$*" > commands/$$.new && mv commands/$$.new commands/$$
    waits=300
    while [ -e commands/$$ ] && [ $((waits -= 1)) -gt 0 ]; do sleep 0.01; done
    ;;
esac
"""
STATES = {
    Power.UP: "",
    Power.POWERING_UP: "+POWERING_UP",
    Power.POWERING_DOWN: "+POWERING_DOWN",
    Power.OFF: "+POWERED_DOWN",
}


@dataclass(frozen=True)
class Mark:
    """Where the daemon is killed: at the n-th `change`, `read`, `scontrol` or `spool`.

    For a call to the cloud: before it is done, or after it and before its answer.
    """

    what: str
    number: int
    after: bool = False
    stops_s: float = 0
    """For so long it is stopped (SIGSTOP, SIGCONT); 0: it is killed."""

    def __str__(self) -> str:
        stops = f", stopped for {self.stops_s:g} s" if self.stops_s else ""
        return f"{'after' if self.after else 'at'} {self.what} {self.number}{stops}"

    @property
    def signal(self) -> signal.Signals:
        """What the daemon's process gets."""
        return signal.SIGSTOP if self.stops_s else signal.SIGKILL


@contextmanager
def metadata_server(values: dict[str, str]) -> Iterator[str]:
    """Run the controller's metadata server; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            value = values.get(self.path.removeprefix("/computeMetadata/v1/"), "").encode()
            self.send_response(200 if value else 404)
            self.send_header("Content-Length", str(len(value)))
            self.end_headers()
            self.wfile.write(value)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


class KilledDaemonRun(FaultRun):
    """Four jobs run, one of them in its second zone; there is also a VM that nothing needs."""

    def __init__(self, mark: Mark, folder: Path) -> None:
        super().__init__(Schedule(0), folder)
        self.mark = mark
        # On a busy machine a process may start slowly, which is no fault of the daemon.
        self.oracle.healthy_s = self.oracle.resume_s
        self.reached = False
        """Whether the daemon was at the mark."""
        self.counts = {"change": 0, "read": 0, "spool": 0}
        (folder / "commands").mkdir()
        scontrol = folder / "scontrol"
        scontrol.write_text(SCONTROL)
        scontrol.chmod(0o755)
        if mark.what == "scontrol":
            name = mark.signal.name.removeprefix("SIG")
            (folder / f"signal-{mark.number}").write_text(name)
        settings = {
            "cluster": "lab",
            "resume_timeout_s": 300,
            "spool": str(folder / "spool"),
            "compute_endpoint": f"{self.cloud.server.url}/compute/v1/",
        }
        (folder / "start.json").write_text(json.dumps(self.clock.start))
        (folder / "autoscaler.json").write_text(json.dumps(settings))

    def __str__(self) -> str:
        return str(self.mark)

    def run(self) -> list[str]:
        self.cloud.stray("lab-debug-7")
        self.cloud.limit_room()
        self.cloud.server.do(self._mark)
        self.faults.ended = True
        self._write_nodes()
        with metadata_server(
            {
                "project/project-id": "demo-project",
                "instance/attributes/muster-templates": self.cloud.sets(),
            }
        ) as self.metadata:
            self._start()
            self._run_jobs()
            self._stop()
        wrong = self._verdict()
        if sorted(self.slurm.done) != [1, 2, 3, 4]:
            wrong.append(f"only jobs {self.slurm.done} have ended")
        if not self.reached:
            wrong.append(f"the daemon did not reach its mark: {self.counts}")
        return wrong + self.deaths + self.cloud.close()

    def _run_jobs(self) -> None:
        begin = last = self.clock.monotonic()
        jobs = [(3, "debug", 2), (6, "debug", 1), (9, "calm", 1), (38, "debug", 1)]
        while (now := self.clock.monotonic()) < begin + ENDS_S:
            while jobs and now > begin + jobs[0][0]:
                _, node_set, size = jobs.pop(0)
                self.slurm.submit(node_set, size, 8)
            if self.process.poll() is not None:
                self._restart()
            self._continue(now, now - last)
            self._run_commands()
            self._step(now, now - last)
            self._write_nodes()
            last = now
            if not jobs and self._quiet():
                return
            self.clock.sleep(STEP_S)

    def _restart(self) -> None:
        if self.process.returncode != -self.mark.signal or self.reached:
            log = (self.folder / "daemon.log").read_text()
            self.deaths.append(f"the daemon ended by itself: {log[-2000:]}")
        self.reached = True
        with self.lock:
            self.oracle.excuse(22)
        self._start()

    def _continue(self, now: float, passed: float) -> None:
        """Let a daemon that is stopped continue when its time is over."""
        if Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(") ")[2][0] != "T":
            return
        if not self.reached:
            self.reached, self.stopped_until = True, now + self.mark.stops_s
        with self.lock:
            self.oracle.excuse(passed)
        if now >= self.stopped_until:
            self.process.send_signal(signal.SIGCONT)

    # --- the daemon

    def _start(self) -> None:
        environment = {
            "GOOGLE_OAUTH_ACCESS_TOKEN": self.tokens.value,
            "GCE_METADATA_HOST": self.metadata,
            **{key: os.environ[key] for key in ("PATH", "PYTHONPATH") if key in os.environ},
        }
        with (self.folder / "daemon.log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, HERE / "killable.py", self.folder],
                env=environment,
                stdout=log,
                stderr=log,
            )

    def _stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def _strike(self, what: str, number: int, *, after: bool = False) -> None:
        mark = self.mark
        if not self.reached and (mark.what, mark.number, mark.after) == (what, number, after):
            self.process.send_signal(mark.signal)

    def _mark(self, cloud: FakeCloud) -> None:
        before = cloud.middleware

        def marked(handle: Handle, request: Request) -> Reply | Deferred:
            what = "read" if request.verb == "GET" else "change"
            self.counts[what] += 1
            # A batch counts too, and so do the calls in it.
            number = self.counts[what]
            self._strike(what, number)
            reply = before(handle, request)
            self._strike(what, number, after=True)
            return reply

        cloud.middleware = marked

    # --- slurmctld, as scontrol shows it

    def _resume(self, names: tuple[str, ...], jobs: tuple[Job, ...]) -> None:
        self._write_nodes()
        super()._resume(names, jobs)
        self.counts["spool"] += 1
        self._strike("spool", self.counts["spool"])

    def _write_nodes(self) -> None:
        lines = "".join(f"{_line(node)}\n" for node in self.slurm.nodes.values())
        fresh = self.folder / "nodes.new"
        fresh.write_text(lines)
        fresh.rename(self.folder / "nodes")
        # After the nodes, as scontrol reads it before them: it shows what this has, or more.
        fresh.write_text(json.dumps(self.slurm.registered))
        fresh.rename(self.folder / "registered")

    def _run_commands(self) -> None:
        commands = self.folder.joinpath("commands").glob("[0-9]*")
        done = [file for file in commands if not file.suffix]
        if done:
            self.known = json.loads((self.folder / "known").read_text())
        for file in sorted(done, key=lambda file: file.stat().st_mtime_ns):
            words = dict(word.split("=", 1) for word in file.read_text().split() if "=" in word)
            self.update(expand(words["nodename"]), words["state"])
            file.unlink()


def _line(node: Node) -> str:
    base = "DOWN" if node.down else "ALLOCATED" if node.busy else "IDLE"
    leaving = "+POWER_DOWN" if node.leaving else ""
    state = f"{base}+CLOUD{leaving}{STATES[node.power]}"
    return f"NodeName={node.name} Arch=x86_64 State={state} ThreadsPerCore=1"
