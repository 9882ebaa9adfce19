"""Waits until a VM has configured itself from its bundle."""

from muster.cloud import reports
from muster.cloud.api import CloudError, Compute
from muster.cloud.reports import Progress, Watch

TIMEOUT_S = 1800
"""Seconds for site.yml on one VM; a first boot takes some minutes."""
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
    """Wait for a VM's report that it has applied the bundle of a digest.

    Args:
        compute: the project.
        zone: of the VM.
        name: of the VM.
        bundle: sha256 of the machine bundle.
        progress: is told of each step.
        timeout_s: seconds until it is given up.

    Raises:
        CloudError: it failed, the VM is off, or it takes too long; says where to look.

    """
    watch = Watch(compute, f"zones/{zone}/instances/{name}", bundle, progress)
    ended = watch.until(
        lambda now: now.state in (reports.DONE, reports.FAILED) or now.status in OFF, timeout_s
    )
    if watch.state == reports.DONE:
        return
    look = f"look with `journalctl -u muster-configure` on {name}, then `pulumi up` again"
    if watch.state == reports.FAILED and watch.report:
        raise CloudError(
            f"{name} could not configure itself {watch.last_step}: {watch.report.message}; {look}"
        )
    if ended:
        status = watch.status.lower() or "gone"
        raise CloudError(f"{name} is {status}: start it, then `pulumi up` again")
    said = reports.console(compute, watch.instance)
    raise CloudError(
        f"{name} has not configured itself within {timeout_s / 60:.0f} minutes; it stopped "
        f"{watch.last_step}; {look}. The end of its console:\n{said}"
    )
