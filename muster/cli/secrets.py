"""`muster secrets`."""

from pathlib import Path
from typing import Annotated

import typer

from muster import secrets
from muster.cli.definition_argument import inventory_of
from muster.definition import DefinitionError, load
from muster.definition.sources import CLUSTER_FILE, HOSTS_FILE

REFUSED = 2
FAILED = 1


def make(
    cluster: Annotated[str, typer.Argument(help="Folder below inventories/, or a path.")],
    rotate: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Put a new value in the place of this secret."),
    ] = None,
    vault_password_file: Annotated[
        Path | None,
        typer.Option(help="With --rotate: file with the password of an encrypted file."),
    ] = None,
    ask_vault_pass: Annotated[
        bool,
        typer.Option("--ask-vault-pass", help="With --rotate: ask for that password."),
    ] = False,
) -> None:
    """Make the munge key and the passwords of a cluster, once."""
    inventory = inventory_of(cluster)
    path = secrets.path_of(inventory)
    if _in_cloud(inventory):
        typer.echo("a cluster in the cloud makes its secrets itself; there is nothing to do")
        return
    missing = [name for name in (HOSTS_FILE, CLUSTER_FILE) if not (inventory / name).is_file()]
    if missing:
        raise _stop(
            f"{inventory} is no cluster: {' and '.join(missing)} missing; copy a folder of "
            "inventories/ and edit it",
            REFUSED,
        )
    if secrets.is_open_to_git(path):
        tracked = path.exists()
        raise _stop(
            f"{path} {'is' if tracked else 'would be'} open to git, and whoever reads the "
            f"repository would be root on the cluster; add {path.name} to .gitignore"
            + (
                f", git rm --cached {path}, and make new secrets if it was pushed"
                if tracked
                else ""
            ),
            REFUSED,
        )
    try:
        if rotate is not None:
            password = secrets.VaultPassword(vault_password_file, ask_vault_pass)
            secrets.rotate(inventory, rotate, password)
            typer.echo(f"made a new {rotate} in {path}; run site.yml, for all hosts")
            return
        made = secrets.make(inventory)
        encrypted = secrets.is_encrypted(path)
    except secrets.SecretsError as error:
        raise _stop(str(error), REFUSED) from error
    except OSError as error:
        raise _stop(
            f"{path}: {(error.strerror or str(error)).lower()}; fix that and run again", FAILED
        ) from error
    if encrypted:
        typer.echo(
            f"{path} is encrypted, so which secrets it has is not known; nothing was changed. "
            "--rotate NAME makes a new one in it"
        )
        return
    if not made:
        typer.echo(f"{path} has all secrets already; nothing was changed")
        return
    typer.echo(f"made {', '.join(made)} in {path} (mode 0600)")
    typer.echo(f"Keep a copy of it. To encrypt it: ansible-vault encrypt {path}")
    typer.echo("All commands then need a file with its password in ANSIBLE_VAULT_PASSWORD_FILE.")


def _in_cloud(inventory: Path) -> bool:
    """Whether the cluster is in the cloud; `muster check` reports a definition that is wrong."""
    try:
        return load(inventory).cluster.cloud is not None
    except DefinitionError:
        return False


def _stop(message: str, code: int) -> typer.Exit:
    typer.echo(f"error: {message}", err=True)
    return typer.Exit(code)
