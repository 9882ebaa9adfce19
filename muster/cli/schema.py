"""`muster schema`."""

from pathlib import Path
from typing import Annotated

import typer

from muster.definition import reference


def schema(
    write: Annotated[
        bool,
        typer.Option(
            "--write", help="Write the schema and the reference page into docs/reference."
        ),
    ] = False,
) -> None:
    """Print the JSON schema of cluster.yml, for editors."""
    if not write:
        typer.echo(reference.schema_text(), nl=False)
        return
    folder = Path(__file__).resolve().parents[2] / "docs" / "reference"
    folder.mkdir(parents=True, exist_ok=True)
    for file in reference.write(folder):
        typer.echo(f"wrote {file}")
