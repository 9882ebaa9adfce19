"""`muster check CLUSTER --hosts`: whether the definition says what the machines have."""

from pathlib import Path

import typer

from muster.cli.exit_codes import DONE, UNREACHED, WRONG
from muster.definition import Definition, sources
from muster.render import directory
from muster.verify import hardware
from muster.verify.ansible_query import AskError, ask


def run(inventory: Path, definition: Definition) -> int:
    """Ask the machines of `inventory`, print the differences, and return the exit code.

    0: no difference. 2: something differs. 4: a host could not be asked.
    """
    document = sources.read(inventory).cluster

    def place(*path: str) -> str:
        return f"{document.file}:{document.line(('cluster', *path))}"

    variables = {
        "hardware_paths": hardware.paths(definition),
        "hardware_people": directory.people(definition),
        "hardware_groups": directory.groups(definition),
    }
    try:
        replies = ask(
            inventory, "hardware.yml", definition.hosts.groups["all"], "report", variables
        )
    except AskError as error:
        typer.echo(f"error: {error}", err=True)
        return UNREACHED
    reports = {host: result["report"] for host, result in replies.answers.items()}
    comparison = hardware.compare(definition, reports, place)
    for note in comparison.notes:
        typer.echo(f"note: {note}")
    for sentence in [*replies.unreached, *comparison.problems]:
        typer.echo(sentence, err=True)
    if comparison.suggestions:
        typer.echo("\nAs the machines are, cluster.yml would say:")
        for text in comparison.suggestions:
            typer.echo(text)
    if replies.unreached:
        return UNREACHED
    if comparison.problems:
        return WRONG
    typer.echo(f"{inventory}: {len(reports)} hosts are as the definition says")
    return DONE
