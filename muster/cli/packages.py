"""`muster packages CLUSTER`: what site.yml fetches for each host, for sites without internet.

ansible/packages.yml reads it from the roles; this is its text.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from muster.catalog.hostlists import fold
from muster.cli.definition_argument import definition_of, inventory_of
from muster.cli.exit_codes import FAILED, WRONG
from muster.verify.ansible_query import AskError, ask


def show(
    cluster: Annotated[str, typer.Argument(help="Folder below inventories/, or a path.")],
) -> None:
    """Show the packages and other things that site.yml fetches for each host; asks no host."""
    inventory = inventory_of(cluster)
    definition = definition_of(inventory)
    if definition.cluster.cloud:
        raise _stop("VMs in the cloud fetch packages through its NAT; there is no list", WRONG)
    try:
        found = ask(inventory, "packages.yml", definition.hosts.groups["all"], "needed")
    except AskError as error:
        raise _stop(str(error), FAILED) from None
    if found.unreached:
        reason = found.unreached[0].partition("; try: ")[0]
        raise _stop(f"{reason}; run: ansible-playbook -i {inventory} ansible/packages.yml", FAILED)
    needed = {host: result["needed"] for host, result in found.answers.items()}
    for text in lines(needed):
        typer.echo(text)


def lines(needed: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines for hosts -> what each needs; hosts that need the same come together."""
    groups: list[tuple[list[str], Mapping[str, Any]]] = []
    for host, things in needed.items():
        for hosts, same in groups:
            if same == things:
                hosts.append(host)
                break
        else:
            groups.append(([host], things))
    for hosts, things in groups:
        yield f"{fold(hosts)}:"
        yield f"  packages: {' '.join(things['packages'])}"
        yield from (f"  repository: {url}" for url in things["repositories"])
        yield from (f"  image: {image}" for image in things["images"])
        yield from (f"  build of {root}: {build}" for root, build in things["builds"].items())


def _stop(message: str, code: int) -> typer.Exit:
    typer.echo(f"error: {message}", err=True)
    return typer.Exit(code)
