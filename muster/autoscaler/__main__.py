"""`python -m muster.autoscaler`: the daemon as muster-autoscaler.service runs it.

Exit status: 0 stopped by a signal, 1 ended by an unexpected error, 2 its settings can't be used.
"""

import logging
import os
import signal
import threading
from pathlib import Path

from muster.autoscaler.clock import Clock
from muster.autoscaler.compute import metadata
from muster.autoscaler.compute.driver import Google
from muster.autoscaler.compute.fleet import Fleet
from muster.autoscaler.daemon import Daemon
from muster.autoscaler.messages import Inbox
from muster.autoscaler.reconcile.observed import ObservedState, Timeouts
from muster.autoscaler.report.event_log import EventLog
from muster.autoscaler.report.metrics import Metrics, MetricsError, serve
from muster.autoscaler.report.observer import Observer
from muster.autoscaler.report.status_file import StatusFile
from muster.autoscaler.settings import SETTINGS, Settings, SettingsError, read
from muster.autoscaler.slurm.job_start_gate import ADDRESS, Gate, coming
from muster.autoscaler.slurm.slurmctld import Slurm
from muster.autoscaler.slurm.spool import Spool, SpoolError, hold
from muster.gcp.api import CloudError

log = logging.getLogger("muster")

LIBRARIES = ("google", "urllib3")
"""Their warnings are of single tries, some a second while the metadata server does not answer. The
daemon says itself, once, what can't be read."""


def daemon(settings: Settings, slurm: Slurm, metrics: Metrics, clock: Clock) -> Daemon:
    """Return the daemon by its settings; it counts into `metrics`.

    Raises:
        CloudError: this VM's metadata can't be read, or it has no service account.
        SpoolError: the spool can't be used, or another daemon uses it.

    """
    if settings.compute_endpoint:
        os.environ["GOOGLE_COMPUTE_CUSTOM_ENDPOINT"] = settings.compute_endpoint
    inbox = Inbox()
    project = metadata.read("project/project-id")
    google = Google(project, settings.cluster, inbox.put, called=metrics.called, clock=clock)
    metrics.budget = google.budget
    # Until this process ends.
    hold(Path(settings.spool))
    return Daemon(
        ObservedState(settings.cluster, 0, timeouts=Timeouts(resume_s=settings.resume_timeout_s)),
        inbox,
        slurm=slurm,
        cloud=Fleet(google, clock=clock),
        spool=Spool(Path(settings.spool), clock),
        observe=Observer(StatusFile(), EventLog(), metrics),
        clock=clock,
    )


def main(path: Path = SETTINGS) -> int:
    """Run until SIGTERM; return the exit status."""
    # The journal adds the time.
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    for library in LIBRARIES:
        logging.getLogger(library).setLevel(logging.ERROR)
    slurm, clock = Slurm(), Clock()
    try:
        settings, metrics = read(path), Metrics(clock)
        service = daemon(settings, slurm, metrics, clock)
    except SettingsError as error:
        log.error("%s", error)
        return 2
    except (CloudError, SpoolError) as error:
        log.error("%s", error)
        return 1
    try:
        serve(metrics)
    except MetricsError as error:
        # The autoscaler works without metrics.
        log.error("%s", error)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.stop())
    log.info("the autoscaler of %s starts", service.observed.cluster)
    stopped = threading.Event()
    try:
        gate = Gate(lambda: coming(slurm.nodes()), clock=clock)
        threading.Thread(target=gate.run, args=(stopped,), daemon=True).start()
    except OSError as error:
        # The autoscaler works without it; SLURM starts the scripts up to 30 s later.
        log.error("no job can wait for its nodes at %s:%d: %s", *ADDRESS, error)
    try:
        service.run()
    finally:
        stopped.set()
    log.info("shutting down; the next start resumes from the spool and SLURM's state")
    return 0


if __name__ == "__main__":
    try:
        status = main()
    except BaseException:
        log.exception("the autoscaler ends because of an unexpected error; systemd restarts it")
        status = 1
    logging.shutdown()
    # This ends the threads that wait for Google; the next start reads the results from the cloud.
    os._exit(status)
