"""`muster models` and `muster data`: the programs of the role `models`, where Muster is installed.

On a host of a cluster they are `muster-models` and `muster-data`, which need no Muster.
"""

from typing import Annotated, NoReturn

import typer

from muster.cli.exit_codes import EXIT_CODES, epilog
from muster.cli.host_programs import become

Digest = Annotated[
    str | None,
    typer.Option("--sha256", metavar="DIGEST", help="Of the file at an address, which needs one."),
]

models = typer.Typer(
    help="One copy of each model for all, on a host with the model store.",
    no_args_is_help=True,
    add_completion=False,
)
data = typer.Typer(
    help="Data sets, on a host of a cluster.", no_args_is_help=True, add_completion=False
)


@data.callback()
def _data() -> None:
    """Without it a group of one command would be that command."""


@models.command("add", epilog=epilog(EXIT_CODES["models add"]))
def add(
    source: Annotated[
        str,
        typer.Argument(
            help="hf:ORG/NAME or hf:ORG/NAME@REVISION of the Hugging Face hub, a folder, "
            "gs://BUCKET/PREFIX, or an https address of one file."
        ),
    ],
    name: Annotated[
        str | None, typer.Option(help="NAME or TEAM/NAME; a model of the hub has one.")
    ] = None,
    licence: Annotated[
        str | None, typer.Option(help="Such as apache-2.0; the hub's models tell theirs.")
    ] = None,
    sha256: Digest = None,
) -> None:
    """Add a model to the store."""
    options = {"name": name, "licence": licence, "sha256": sha256}
    _become("muster-models", "add", *_given(options), "--", source)


@models.command("list", epilog=epilog(EXIT_CODES["models list"]))
def show(
    name: Annotated[str | None, typer.Argument(help="Show all about this one.")] = None,
) -> None:
    """Show the models: where each is from, its revision and licence, who added it."""
    _become("muster-models", "list", *([] if name is None else ["--", name]))


@models.command("verify", epilog=epilog(EXIT_CODES["models verify"]))
def verify(
    names: Annotated[list[str] | None, typer.Argument(help="Models; none: all.")] = None,
) -> None:
    """Read all files again, and name those that differ."""
    _become("muster-models", "verify", "--", *(names or []))


@models.command("gc", epilog=epilog(EXIT_CODES["models gc"]))
def collect() -> None:
    """Remove files that no model names, and what killed programs left."""
    _become("muster-models", "gc")


@data.command("stage", epilog=epilog(EXIT_CODES["data stage"]))
def stage(
    source: Annotated[str, typer.Argument(help="gs://BUCKET/PREFIX, or an address of one file.")],
    folder: Annotated[
        str, typer.Argument(metavar="DEST", help="The folder; it is made if it is not there.")
    ],
    sha256: Digest = None,
) -> None:
    """Bring files to a folder; those that are there already do not come again."""
    _become("muster-data", "stage", *_given({"sha256": sha256}), "--", source, folder)


def _given(options: dict[str, str | None]) -> list[str]:
    return [f"--{name}={value}" for name, value in options.items() if value is not None]


def _become(name: str, *words: str) -> NoReturn:
    become(
        name,
        words,
        f"log in to a login node of a cluster with `storage.models` and type {name} {words[0]} "
        "there",
    )
