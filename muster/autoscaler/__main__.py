"""`python -m muster.autoscaler`: the daemon as muster-autoscaler.service runs it.

Exit status: 0 it was told to stop, 1 something unforeseen ended it, 2 its settings can't be used.
"""

import logging
import os
import signal
import threading
from pathlib import Path

from muster.autoscaler.compute import metadata
from muster.autoscaler.compute.driver import Google
from muster.autoscaler.compute.fleet import Fleet
from muster.autoscaler.daemon import Daemon, Inbox
from muster.autoscaler.reconcile.observed import Limits, ObservedState
from muster.autoscaler.report.event_log import EventLog
from muster.autoscaler.report.metrics import Metrics, MetricsError, serve
from muster.autoscaler.report.observer import Observer
from muster.autoscaler.report.status_file import StatusFile
from muster.autoscaler.settings import SETTINGS, Settings, SettingsError, read
from muster.autoscaler.slurm.job_start_gate import ADDRESS, Gate, coming
from muster.autoscaler.slurm.slurmctld import Slurm
from muster.autoscaler.slurm.spool import Spool, SpoolError
from muster.gcp.api import CloudError

log = logging.getLogger("muster")


def daemon(settings: Settings, slurm: Slurm, metrics: Metrics) -> Daemon:
    """Return the daemon that the settings ask for; it counts what it does.

    Raises:
        CloudError: this VM's metadata can't be read, or it has no service account.
        SpoolError: the spool can't be used.

    """
    if settings.compute_endpoint:
        os.environ["GOOGLE_COMPUTE_CUSTOM_ENDPOINT"] = settings.compute_endpoint
    inbox = Inbox()
    project = metadata.read("project/project-id")
    google = Google(project, settings.cluster, inbox.put, called=metrics.called)
    metrics.budget = google.budget
    return Daemon(
        ObservedState(settings.cluster, 0, limits=Limits(resume_s=settings.resume_timeout_s)),
        inbox,
        slurm=slurm,
        cloud=Fleet(google),
        spool=Spool(Path(settings.spool)),
        observe=Observer(StatusFile(), EventLog(), metrics),
    )


def main(path: Path = SETTINGS) -> int:
    """Run until SIGTERM; return the exit status."""
    # The journal has the time.
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    slurm = Slurm()
    try:
        settings, metrics = read(path), Metrics()
        made = daemon(settings, slurm, metrics)
    except SettingsError as error:
        log.error("%s", error)
        return 2
    except (CloudError, SpoolError) as error:
        log.error("%s", error)
        return 1
    try:
        serve(metrics)
    except MetricsError as error:
        # Nodes come and go all the same.
        log.error("%s", error)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: made.stop())
    log.info("the autoscaler of %s begins", made.observed.cluster)
    ended = threading.Event()
    try:
        gate = Gate(lambda: coming(slurm.nodes()))
        threading.Thread(target=gate.run, args=(ended,), daemon=True).start()
    except OSError as error:
        # Nodes come and go all the same; SLURM starts the scripts up to 30 s later.
        log.error("no job can wait for its nodes at %s:%d: %s", *ADDRESS, error)
    try:
        made.run()
    finally:
        ended.set()
    log.info("the autoscaler ends; its successor goes on")
    return 0


if __name__ == "__main__":
    try:
        status = main()
    except BaseException:
        log.exception("the autoscaler ends for a reason that was not foreseen; systemd starts it")
        status = 1
    logging.shutdown()
    # Threads that wait for Google's answers end with it: a successor finds what comes of them.
    os._exit(status)
