"""`muster software`: what users load as modules, from build to removal, where the definition is.

The role `software` builds and publishes: `ansible/site.yml` with its tags. Its program
muster-software on the controller knows the releases that are there.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.table import Table

from muster.catalog import printable
from muster.cli.controller_option import UserOption
from muster.cli.definition_argument import definition_of, inventory_of
from muster.cli.exit_codes import DONE, EXIT_CODES, FAILED, UNREACHED, WRONG, epilog
from muster.cli.on_controller import controller_in
from muster.cli.own_machines import refuse_user
from muster.cli.terminal import show as show_table
from muster.definition import Definition, requirements
from muster.render.releases import releases
from muster.verify.ansible_query import ENDED, ROOT, AskError, LateError, ask, json_of, sound
from muster.verify.reports import has, is_text, many, named, optional

PROGRAM = "/usr/local/sbin/muster-software"
"""Of the role software."""

COLUMNS = ("module", "users load", "the definition asks for", "what publish does")

RELEASES = named(has({"published": optional(is_text), "releases": many(is_text)}))
"""Whether this is what the program says of all modules."""

LIST_S, ROLLBACK_S, GC_S = 120, 600, 3600
"""How long the program may take. It waits a minute for a file server that is silent, and names it;
a rollback loads the modulefile first."""

NO_PROGRAM_CODE = 2
"""Exit code where Ansible finds no program; the program's own says something."""

ClusterArgument = Annotated[
    str, typer.Argument(help="Folder below inventories/, or a path.", show_default=False)
]
CheckOption = Annotated[
    bool, typer.Option("--check", help="Change nothing; show what would change.")
]

app = typer.Typer(
    help="Software for users: releases of modules, from build to removal.",
    no_args_is_help=True,
    add_completion=False,
)


@app.command("build", epilog=epilog(EXIT_CODES["software build"]))
def build(cluster: ClusterArgument, check: CheckOption = False) -> None:
    """Build on the controller what is missing; users go on with what they have."""
    _play(cluster, "build", ["software_install", "software_build"], check=check)


@app.command("publish", epilog=epilog(EXIT_CODES["software publish"]))
def publish(cluster: ClusterArgument, check: CheckOption = False) -> None:
    """Have users load what the definition asks for; what is missing is built before."""
    _play(cluster, "publish", ["software"], check=check)


@app.command("list", epilog=epilog(EXIT_CODES["software list"]))
def show(cluster: ClusterArgument, user: UserOption = None) -> None:
    """Show all releases that are on the controller, the oldest of each module first."""
    _run(cluster, user, ["list"], LIST_S)


@app.command("diff", epilog=epilog(EXIT_CODES["software diff"]))
def diff(cluster: ClusterArgument, user: UserOption = None) -> None:
    """Show which release of each module users load, and what publish changes of that."""
    inventory = inventory_of(cluster)
    definition = definition_of(inventory)
    wanted = wanted_of(definition, inventory)
    output, errors, code = _asked(inventory, definition, user, ["list", "--json"], LIST_S)
    if code != DONE:
        raise _stop(errors, code)
    report = json_of(output)
    if not RELEASES(report):
        raise _stop(
            "the controller's list of releases can't be right; find out who changed programs "
            "there, or install the host again",
            UNREACHED,
        )
    show_table(table(report, wanted))


@app.command("rollback", epilog=epilog(EXIT_CODES["software rollback"]))
def rollback(
    cluster: ClusterArgument,
    module: Annotated[str, typer.Argument(metavar="MODULE/VERSION", show_default=False)],
    release: Annotated[
        str | None,
        typer.Argument(help="Its digest; without it, the one before.", show_default=False),
    ] = None,
    user: UserOption = None,
) -> None:
    """Have users load an earlier release of a module, or a later one, until the next publish."""
    given = [] if release is None else [release]
    _run(cluster, user, ["rollback", "--", module, *given], ROLLBACK_S)


@app.command("gc", epilog=epilog(EXIT_CODES["software gc"]))
def collect(
    cluster: ClusterArgument,
    days: Annotated[
        int, typer.Option(min=7, help="How long releases stay after they were replaced.")
    ] = 7,
    user: UserOption = None,
) -> None:
    """Remove releases that no modulefile names and no job may use; say why others stay."""
    _run(cluster, user, ["gc", f"--days={days}"], GC_S)


def _play(cluster: str, verb: str, tags: Sequence[str], *, check: bool) -> NoReturn:
    """Go on as the part of site.yml that the role software is."""
    inventory = inventory_of(cluster)
    if definition_of(inventory).cluster.cloud is not None:
        raise _stop(
            f"error: in the cloud the controller builds and publishes by itself, so there is no "
            f"{verb} from here; `pulumi up` brings it the definition",
            WRONG,
        )
    program = Path(sys.executable).with_name("ansible-playbook")
    if not os.access(program, os.X_OK):
        raise _stop(
            f"error: there is no {program}; install Muster with its requirements.txt, which has "
            "Ansible",
            FAILED,
        )
    words = ["--inventory", str(inventory), "--limit", "controller", "--tags", ",".join(tags)]
    words += ["--check", "--diff"] if check else []
    environment = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    command = [str(program), *words, str(ROOT / "ansible/site.yml")]
    os.execve(command[0], command, {**os.environ, **environment})  # noqa: S606 (no shell)


def _run(cluster: str, user: str | None, words: list[str], seconds: int) -> NoReturn:
    """Run the controller's program; end with what it says and with its exit code."""
    inventory = inventory_of(cluster)
    output, errors, code = _asked(inventory, definition_of(inventory), user, words, seconds)
    for text, is_error in ((output, False), (errors, True)):
        if text:
            typer.echo(text, err=is_error)
    raise typer.Exit(code)


def _asked(
    inventory: Path, definition: Definition, user: str | None, words: list[str], seconds: int
) -> tuple[str, str, int]:
    """Run the controller's program; return its output, its errors and its exit code.

    Ends this program if that one was not run.
    """
    if definition.cluster.cloud is not None:
        output, errors = controller_in(inventory, user).fetch(PROGRAM, *words, seconds=seconds)
        return printable.lines(output.decode(errors="replace")), errors, DONE
    refuse_user(inventory, user)
    host = definition.hosts.groups["controller"][0]
    typer.echo(f"asking {host}", err=True)
    variables = {"software_words": words, "software_seconds": seconds}
    late = "; the rollback may still run: `muster software list` shows what users load"
    late = late if words[0] == "rollback" else ""
    try:
        asked = ask(inventory, "software.yml", [host], "stdout", variables, answer_seconds=seconds)
    except LateError as error:
        raise _stop(f"error: {error}{late}", UNREACHED) from None
    except AskError as error:
        raise _stop(f"error: {error}", UNREACHED) from None
    found = sound(asked, ENDED)
    if found.unreached:
        raise _stop(found.unreached[0] + (late if found.is_late else ""), UNREACHED)
    answer = found.answers[host]
    if answer["rc"] == NO_PROGRAM_CODE and not answer["stderr"]:
        raise _stop(
            f"{host}: has no {Path(PROGRAM).name}; run site.yml, which installs it", UNREACHED
        )
    return answer["stdout"], answer["stderr"], answer["rc"]


Wanted = Mapping[str, tuple[str | None, bool]]
"""Each module of the definition -> folder of its release, and whether the play builds it; None: it
has no release."""


def wanted_of(definition: Definition, inventory: Path) -> Wanted:
    """Return what the definition asks for.

    Ends the program if a file of requirements can't be read.
    """
    cluster = definition.cluster
    try:
        texts = requirements.read(definition, inventory)
    except requirements.RequirementsError as error:
        raise _stop(str(error), WRONG) from None
    made = releases(cluster.software, cluster.storage.apps.path, cluster.os, texts)
    modules = cluster.software.modules
    wanted: dict[str, tuple[str | None, bool]] = {}
    for module, release in made.items():
        name, _, version = module.rpartition("/")
        root = None if release.command is None else release.root
        wanted[module] = (root, modules[name][version].built)
    return wanted


def table(report: Mapping[str, Mapping[str, Any]], wanted: Wanted) -> Table:
    """Return a line for each module.

    Args:
        report: Of the program: module -> what users load, and its releases.
        wanted: Of the definition.

    """
    grid = Table(*COLUMNS, box=None, pad_edge=False, header_style="bold")
    for module in sorted({*report, *wanted}):
        there = report.get(module, {"published": None, "releases": []})
        asked = wanted.get(module)
        root = asked[0] if asked else None
        if root is None and there["published"] is None:
            continue  # no releases, or only those that gc has not removed yet
        grid.add_row(
            module,
            _name(there["published"]),
            _name(root),
            _deed(there["published"], there["releases"], asked),
        )
    return grid


def _deed(published: str | None, there: list[str], asked: tuple[str | None, bool] | None) -> str:
    """Return what publish, or the next run of site.yml, does about a module."""
    if asked is None:
        return "removes the modulefile"
    root, by_play = asked
    if root is None:
        return "replaces the modulefile"
    if root == published:
        # What else is in its modulefile may have changed: `publish --check` shows that.
        return "no other release"
    if root in there:
        return "publishes it"
    if by_play:
        return "builds and publishes it"
    by_hand = "build it by hand"
    return f"publishes it, not built: {by_hand} before" if published else f"nothing: {by_hand}"


def _name(root: str | None) -> str:
    return Path(root).name if root else "-"


def _stop(message: str, code: int) -> typer.Exit:
    typer.echo(message, err=True)
    return typer.Exit(code)
