"""`muster check CLUSTER --hosts`: whether the definition says what the machines have."""

from pathlib import Path

import typer

from muster.cli.exit_codes import DONE, UNREACHED, WRONG
from muster.definition import Definition, sources
from muster.render import directory
from muster.verify import hardware
from muster.verify.ansible_query import AskError, Found, ask, sound


def run(inventory: Path, definition: Definition) -> int:
    """Ask the machines of `inventory`, print the differences, and return the exit code.

    0: no difference. 2: something differs. 4: a host could not be asked.
    """
    document = sources.read(inventory).cluster

    def place(*path: str) -> str:
        return f"{document.file}:{document.line(('cluster', *path))}"

    paths = hardware.paths(definition)
    people, groups = directory.people(definition), directory.groups(definition)
    variables = {"hardware_paths": paths, "hardware_people": people, "hardware_groups": groups}
    try:
        replies = ask(
            inventory, "hardware.yml", definition.hosts.groups["all"], "report", variables
        )
    except AskError as error:
        typer.echo(f"error: {error}", err=True)
        return UNREACHED
    reports = {host: result["report"] for host, result in replies.answers.items()}
    found = sound(Found(reports, replies.unreached), hardware.fields(paths, people, groups))
    comparison = hardware.compare(definition, found.answers, place)
    for note in comparison.notes:
        typer.echo(f"note: {note}")
    for sentence in [*found.unreached, *comparison.problems]:
        typer.echo(sentence, err=True)
    if comparison.suggestions:
        typer.echo("\nAs the machines are, cluster.yml would say:")
        for text in comparison.suggestions:
            typer.echo(text)
    if found.unreached:
        return UNREACHED
    if comparison.problems:
        return WRONG
    typer.echo(f"{inventory}: {len(found.answers)} hosts are as the definition says")
    return DONE
