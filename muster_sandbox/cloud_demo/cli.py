"""`muster cloud demo`."""

import shutil
import signal
import time
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from muster_sandbox.cloud_demo import tour
from muster_sandbox.cloud_demo.site import Engine, PulumiError, Site, Stack
from muster_sandbox.containers import base_image
from muster_sandbox.containers.podman import MachineError, check_machine
from muster_sandbox.demo.showing import TourError, expect
from muster_sandbox.demo.stopwatch import Stopwatch, console
from muster_sandbox.engine import cli, home
from muster_sandbox.fakecloud.server import PortError

FOLDER = Path("build/muster-cloud-demo")
PICTURE = Path("build/cloud-demo-timeline.svg")


def demo(
    release: Annotated[
        str,
        typer.Option(envvar="RELEASE", help="Debian release of the VMs: bookworm or trixie."),
    ] = "bookworm",
) -> None:
    """Raise the cloud cluster on this machine, run jobs, change it, and destroy it.

    Google Cloud is fakecloud, VMs are containers that boot, `pulumi up` is the real one. All of
    it is removed at the end and after an interruption.
    """
    if release not in base_image.RELEASES:
        raise _stop(f"no release {release!r}; there are {', '.join(base_image.RELEASES)}", code=2)
    signal.signal(signal.SIGTERM, _interrupt)
    watch = Stopwatch()
    site = Site(FOLDER, release)
    try:
        with watch("this machine"):
            check_machine()
            engine = engine_here(FOLDER)
            console.print(f"pulumi: {engine.pulumi}")
            console.print(f"VMs start from {base_image.ensure(release)}")
            site.create()
        with site.cloud() as server:
            _life(site.stack(engine, server), watch)
    except (MachineError, PortError, PulumiError, TourError) as error:
        raise _stop(str(error)) from error
    except KeyboardInterrupt:
        raise _stop("interrupted; VMs, networks and images are gone", code=130) from None
    watch.report()
    console.print(f"The nodes and jobs of this run are drawn in {PICTURE}", soft_wrap=True)


def _life(stack: Stack, watch: Stopwatch) -> None:
    """Create the cluster, use it and destroy it."""
    before = tour.held(stack)
    with watch("pulumi up: network, accounts, secrets, image, controller, login"):
        stack.show("up")
    start = time.monotonic()
    for title, step in tour.STEPS:
        _step(stack, watch, title, step)
    tour.add_newcomer(stack.site)
    with watch("the definition gets a person and a partition; pulumi up"):
        stack.show("up")
    _step(stack, watch, "bob, who was added, runs a job in the new partition", tour.newcomer)
    with watch("muster timeline: what happened to the nodes"):
        drawn = tour.timeline(stack, time.monotonic() - start)
        PICTURE.write_text(expect(drawn, "4 nodes: asked", ", waited "), encoding="utf-8")
        console.print(f"wrote {PICTURE}; open it in a browser")
    with watch("pulumi destroy, while nodes exist"):
        console.print(f"VMs now: {', '.join(sorted(stack.instances()))}")
        stack.release_state()
        stack.show("destroy")
    with watch("what is left"):
        left = tour.held(stack) - before
        if left:
            raise TourError(f"left in the project: {sorted(left)}")
        console.print("nothing: no VM, disk, image, address, network, secret, bucket, account")


def _step(stack: Stack, watch: Stopwatch, title: str, step: Any) -> None:
    with watch(title):
        console.print(step(stack).rstrip(), markup=False, soft_wrap=True)


def engine_here(folder: Path) -> Engine:
    """Return this machine's Pulumi with its own home below `folder`.

    Raises:
        PulumiError: Pulumi is not installed and can't be built.

    """
    try:
        pulumi = cli.ensure().path
        provider = home.choose_provider()
    except (cli.NoPulumiError, home.ProviderError) as error:
        raise PulumiError(str(error)) from error
    engine = folder.parent / f"{folder.name}-engine"
    if engine.exists():
        shutil.rmtree(engine)
    home.make_home(engine / "home", provider)
    if not provider.real:
        console.print("Google's Pulumi provider is not installed: a stand-in is used")
    return Engine(pulumi, home.engine_environment(pulumi, engine.absolute()))


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _stop(message: str, code: int = 1) -> typer.Exit:
    console.print(f"[red]error:[/red] {message}", soft_wrap=True)
    return typer.Exit(code)
