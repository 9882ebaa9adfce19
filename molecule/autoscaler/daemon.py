"""In the daemon's place: real SLURM and spool, with the unit's sandboxing, without a cloud."""

import json
import logging
import time
from pathlib import Path

from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.records import TrackedState
from muster.autoscaler.report.event_log import EventLog
from muster.autoscaler.report.status_file import StatusFile
from muster.autoscaler.slurm.slurmctld import Slurm, SlurmError
from muster.autoscaler.slurm.spool import Spool
from muster.autoscaler.systemd import ALIVE, READY, notify
from muster.catalog.hostlists import expand

spool = Spool(Path("/var/spool/muster-autoscaler"))
slurm = Slurm()
logging.basicConfig(level=logging.INFO, format="%(message)s")
events, status = EventLog(), StatusFile()
events.write(time.time(), [{"event": "start"}])
notify(READY)
while not Path("/etc/muster/stuck").exists():
    spool.wait(1)
    notify(ALIVE)
    now = ObservedState("lab", time.time())
    status.update(now, TrackedState(), {}, changed=False, returned={}, errors={})
    for request in spool.requests():
        jobs = {job.id: job.nodes for job in request.jobs}
        logging.info("%s requested for %s", request.nodes, jobs)
        try:
            states = {node.name: node.power.value for node in slurm.nodes()}
            logging.info("states %s", states)
            slurm.release_nodes(request.nodes, "no cloud here", in_service=False)
        except SlurmError as error:
            logging.info("slurm: %s", error)
        spool.close(request.id)
    # The daemon itself does not read these files.
    for path in sorted([*spool.folder.glob("*.suspend"), *spool.folder.glob("*.resume-failed")]):
        call = json.loads(path.read_text())
        logging.info("%s of %s", call["program"], tuple(expand(call["nodes"])))
        events.write(time.time(), [{"event": call["program"]}])
        path.unlink()
time.sleep(600)
