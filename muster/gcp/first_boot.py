"""Waits until a VM has configured itself from its bundle."""

import time

from muster.gcp import reports
from muster.gcp.api import CloudError, Compute
from muster.gcp.reports import Progress, Watch

TIMEOUT_S = 1800
"""Seconds for site.yml on one VM; a first boot takes some minutes."""
GRACE_S = 60
"""Seconds that a failure from before the wait may last: the VM may be trying again, or somebody may
have fixed the cause."""
OFF = ("", "STOPPING", "STOPPED", "TERMINATED", "SUSPENDED")


def wait(
    compute: Compute,
    zone: str,
    name: str,
    bundle: str,
    progress: Progress,
    *,
    timeout_s: float = TIMEOUT_S,
) -> None:
    """Wait until a VM reports that it has applied the bundle with a digest.

    Args:
        compute: the project.
        zone: of the VM.
        name: of the VM.
        bundle: sha256 of the machine bundle.
        progress: gets each step.
        timeout_s: seconds until the wait ends.

    Raises:
        CloudError: it failed, the VM is off, or it takes too long; says where to look.

    """
    instance = f"zones/{zone}/instances/{name}"
    watch = Watch(compute, instance, bundle, progress)
    old = reports.read(compute, instance)
    grace = time.monotonic() + GRACE_S

    def over(now: Watch) -> bool:
        if now.state == reports.FAILED:
            return now.report != old or time.monotonic() > grace
        return now.state == reports.DONE or now.status in OFF

    ended = watch.until(over, timeout_s)
    if watch.state == reports.DONE:
        return
    look = (
        f"see `journalctl -u muster-configure` on {name}; when it is fixed, `systemctl restart "
        "muster-configure` there and `pulumi up` again"
    )
    if watch.state == reports.FAILED and watch.report:
        raise CloudError(
            f"{name} could not configure itself {watch.last_step}: {watch.report.message}; {look}. "
            f"The end of its console:\n{reports.console(compute, watch.instance)}"
        )
    if ended:
        status = watch.status.lower() or "gone"
        raise CloudError(f"{name} is {status}: start it, then `pulumi up` again")
    said = reports.console(compute, watch.instance)
    raise CloudError(
        f"{name} has not configured itself within {timeout_s / 60:.0f} minutes; it stopped "
        f"{watch.last_step}; {look}. The end of its console:\n{said}"
    )
