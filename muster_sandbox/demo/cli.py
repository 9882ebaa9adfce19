"""`muster demo up | tour | shell | down`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from muster_sandbox.containers import base_image, machines
from muster_sandbox.containers.podman import MachineError, check_machine
from muster_sandbox.demo import tour
from muster_sandbox.demo.instance import Instance
from muster_sandbox.demo.showing import TourError
from muster_sandbox.demo.stopwatch import Stopwatch, console
from muster_sandbox.exit_codes import EXIT_CODES

app = typer.Typer(help="The lab on this machine, in containers.", no_args_is_help=True)

INSTANCE = Instance(Path("build/demo"))
TEMPLATE = Path("inventories/demo")
NETWORK = "muster-demo"
"""The name in the template's hosts.yml."""

Release = Annotated[
    str, typer.Option(envvar="RELEASE", help="Debian release of the hosts: bookworm or trixie.")
]


@app.command(epilog=EXIT_CODES)
def up(release: Release = "bookworm") -> None:
    """Start the containers and configure them with site.yml."""
    if release not in base_image.RELEASES:
        raise _stop(f"no release {release!r}; there are {', '.join(base_image.RELEASES)}", code=2)
    watch = Stopwatch()
    _up(release, watch)
    watch.report()


@app.command(name="tour", epilog=EXIT_CODES)
def run_tour() -> None:
    """Run ada's jobs on the cluster that is up, and show them."""
    watch = Stopwatch()
    _tour(watch)
    watch.report()


@app.command(epilog=EXIT_CODES)
def all(release: Release = "bookworm") -> None:  # noqa: A001 (the name of the command)
    """`up`, then `tour`."""
    if release not in base_image.RELEASES:
        raise _stop(f"no release {release!r}; there are {', '.join(base_image.RELEASES)}", code=2)
    watch = Stopwatch()
    _up(release, watch)
    _tour(watch)
    watch.report()
    console.print(
        "The cluster is up: `make demo-shell` logs in as ada, `make demo-down` removes it."
    )


@app.command(epilog=EXIT_CODES)
def shell() -> None:
    """Log in to the access node as ada."""
    _must_exist()
    try:
        words = tour.Session(INSTANCE.fleet()).ssh()
    except MachineError as error:
        raise _stop(str(error)) from error
    os.execvp(words[0], words)  # noqa: S606 (the terminal is handed over)


@app.command(epilog=EXIT_CODES)
def down() -> None:
    """Remove the containers, their network and their files."""
    try:
        removed = INSTANCE.remove(NETWORK)
    except MachineError as error:
        raise _stop(str(error)) from error
    console.print(f"removed {len(removed)} containers" if removed else "nothing was up")


def _up(release: str, watch: Stopwatch) -> None:
    try:
        with watch("this machine"):
            check_machine()
            console.print("podman, memory, disk and cores suffice")
        with watch(f"image of {release} (built once, then kept)"):
            console.print(base_image.ensure(release))
        with watch("containers"):
            INSTANCE.create(TEMPLATE, release)
            new = machines.up(INSTANCE.fleet())
            console.print(f"new: {', '.join(new)}" if new else "all are up already")
    except MachineError as error:
        raise _stop(str(error)) from error
    with watch(f"ansible-playbook -i {INSTANCE.folder} ansible/site.yml"):
        code = INSTANCE.configure()
    if code != 0:
        raise _stop("site.yml failed, its last lines say why; fix it and run again", code=code)


def _tour(watch: Stopwatch) -> None:
    _must_exist()
    try:
        session = tour.Session(INSTANCE.fleet())
        for step in tour.run(session):
            console.rule(f"[bold]{step.title}", align="left")
            console.print(step.shown.rstrip(), markup=False, soft_wrap=True)
            watch.rows.append((step.title, step.seconds))
    except (MachineError, TourError) as error:
        raise _stop(str(error)) from error


def _must_exist() -> None:
    if not INSTANCE.exists:
        raise _stop("there is no demo; start it with `make demo`")


def _stop(message: str, code: int = 1) -> typer.Exit:
    console.print(f"[red]error:[/red] {message}", soft_wrap=True)
    return typer.Exit(code)
