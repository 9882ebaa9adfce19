# SPDX-License-Identifier: Apache-2.0
"""The program muster-models."""

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from typing import IO

from muster_models import account, add, buckets, collect, verify
from muster_models.download import Login
from muster_models.errors import ModelsError, of_system
from muster_models.hub import ENDPOINT
from muster_models.progress import amount, say, tell
from muster_models.store import Provenance, Store

SETTINGS = "/etc/muster/models.json"
"""Written by the role: where the store is, and the hub."""

_HUBS = re.compile(
    r"https://[^\s/?#]\S*|http://(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]+)?(?:/\S*)?"
)
"""As the role has them. For another http address a proxy, which the caller names, can stand in."""

DONE, FAILED, WRONG = 0, 1, 2
_CODES = (
    f"Exit code {DONE}: done. {FAILED}: it could not be done, and nothing was published. {WRONG}: "
    "the words are wrong; of verify: a file differs or is missing."
)
_PIPE = "-"
_EPILOG = {
    "add": "SOURCE is hf:ORG/NAME[@REVISION] of the Hugging Face hub, a folder, gs://BUCKET/PREFIX "
    "or an https address of one file. "
}


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    whole = argparse.ArgumentParser(
        prog="muster-models",
        description="One copy of each model for all: see docs/models.md.",
        epilog=_CODES,
        allow_abbrev=False,
    )
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in (
        ("add", "Add a model. Only members of the group that may, and root."),
        ("list", "Show all models, or all about one."),
        ("verify", "Read all files again, and name those that differ."),
        ("gc", "Remove files that no model names, and what killed programs left."),
    ):
        command = commands.add_parser(
            name,
            help=text,
            description=text,
            epilog=_EPILOG.get(name, "") + _CODES,
            allow_abbrev=False,
        )
        if name == "add":
            command.add_argument("source", metavar="SOURCE")
            command.add_argument("--name", help="NAME or TEAM/NAME; not for the hub's")
            command.add_argument("--licence", help="such as apache-2.0; the hub's models tell it")
            command.add_argument("--sha256", metavar="DIGEST", help="of the file at an address")
            # From the person's own process to that of the account.
            command.add_argument("--origin", help=argparse.SUPPRESS)
            command.add_argument("--token-comes", action="store_true", help=argparse.SUPPRESS)
        elif name in ("list", "verify"):
            command.add_argument("names", metavar="NAME", nargs="*" if name == "verify" else "?")
    return whole


def main(words: Sequence[str], settings: str = SETTINGS, belongs_to: str = account.ACCOUNT) -> int:
    """Do what the command line says; return the exit code.

    Args:
        words: Of the command line, without the program.
        settings: Path of the file that says where the store and the hub are.
        belongs_to: Login of the account that writes to it.

    """
    options = parser().parse_args(words)
    try:
        store, hub = _settings(settings)
        if options.command == "list":
            return _list(store, options.names)
        if options.command == "verify":
            return _verify(store, options.names)
        # All read what is written, whatever the person's is.
        os.umask(0o022)
        owner = account.owner(store, belongs_to)
        if options.command == "gc":
            return _gc(store) if owner is None else account.run_as(owner, ["gc"])
        _check(options)
        if options.source.startswith("hf:"):
            _check_hub(hub, settings)
        return _add(store, hub, options) if owner is None else _add_as(owner, options)
    except ModelsError as error:
        say(f"error: {error}")
    except OSError as error:
        say(f"error: {of_system(error, '')}")
    except KeyboardInterrupt:
        say("interrupted; what has come stays for the next time")
    return FAILED


def _settings(settings: str) -> tuple[Store, str]:
    """Return the store, and the address of the hub as it is there. Raises ModelsError."""
    try:
        with open(settings, encoding="utf-8") as stream:
            said = json.load(stream)
        return Store(said["path"]), str(said.get("hub", ENDPOINT))
    except FileNotFoundError:
        raise ModelsError(
            f"this host has no {settings}; work on a login node of a cluster with `storage.models`"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelsError(f"{settings} can't be read ({error}); run site.yml again") from error


def _check(options: argparse.Namespace) -> None:
    """Raise ModelsError where the words of `add` don't fit together."""
    source = options.source
    is_of_hub, is_address = source.startswith("hf:"), _is_address(source)
    if is_of_hub and options.name:
        raise ModelsError("a model of the hub keeps its name; leave out --name")
    if not is_of_hub and not options.name:
        raise ModelsError(f"{source} needs a name; say --name TEAM/NAME")
    if not is_of_hub and not options.licence:
        raise ModelsError(
            f"{source} needs a licence, which all who use it must know; say --licence, such as "
            "apache-2.0"
        )
    if options.sha256 and not is_address:
        raise ModelsError("--sha256 is for an https address; leave it out")


def _check_hub(hub: str, settings: str) -> None:
    """Raise ModelsError where who adds means another hub than the administrator, or could name one.

    The hub says which commit a revision is, and the digests of its files.
    """
    if not _HUBS.fullmatch(hub):
        raise ModelsError(
            f"{settings} names {hub!r} as the hub, and its address must begin with https://; ask "
            "an administrator to correct models_hub_endpoint"
        )
    meant, hub = os.environ.get("HF_ENDPOINT", "").rstrip("/"), hub.rstrip("/")
    if meant not in ("", hub):
        raise ModelsError(
            f"HF_ENDPOINT names {meant}, and models of the hub come from {hub}; unset "
            "HF_ENDPOINT, or ask an administrator to set models_hub_endpoint"
        )


def _is_address(source: str) -> bool:
    return source.startswith(("https://", "http://"))


def _add(store: Store, hub: str, options: argparse.Namespace) -> int:
    """Add a model as the account that the store belongs to."""
    source = options.source
    wanted = add.Wanted(options.name or "", options.licence, account.person())
    came = sys.stdin.readline().strip() if options.token_comes else None
    if source.startswith("hf:"):
        token = came or os.environ.get("HF_TOKEN")
        model = add.from_hub(store, hub.rstrip("/"), source, wanted, token)
    elif buckets.is_address(source):
        login = Login(came) if came else buckets.login()
        model = add.from_bucket(store, source, wanted, login)
    elif _is_address(source):
        model = add.from_address(store, source, options.sha256, wanted)
    elif source == _PIPE:
        model = add.from_archive(store, sys.stdin.buffer, options.origin, wanted)
    elif account.is_by_sudo():
        # The account reads what its other processes have open, such as the tokens of others.
        raise ModelsError(
            f"{source} is read by your own process and not by the account; leave out sudo -u"
        )
    else:
        model = add.from_folder(store, source, wanted)
    tell(f"{model.name} {model.revision} ({amount(model.size)})")
    tell(store.snapshot(model.name, model.revision))
    return DONE


def _add_as(owner: str, options: argparse.Namespace) -> int:
    """Have the account add a model, with what only the person may read."""
    source = options.source
    words = ["add"]
    for key in ("name", "licence", "sha256"):
        if value := getattr(options, key):
            words.append(f"--{key}={value}")
    token = None
    if source.startswith("hf:"):
        token = _hub_token()
    elif buckets.is_address(source):
        token = buckets.token()
    elif not _is_address(source):
        folder = add.real_folder(source)
        words.append(f"--origin={folder}")
        return account.run_as(owner, [*words, "--", _PIPE], lambda to: add.pack(folder, to))
    if token is None:
        return account.run_as(owner, [*words, "--", source])
    line = f"{token}\n".encode()
    return account.run_as(
        owner, [*words, "--token-comes", "--", source], lambda to: _write(to, line)
    )


def _write(stream: IO[bytes], line: bytes) -> None:
    stream.write(line)


def _hub_token() -> str | None:
    """Return the person's token for the hub, from where `hf auth login` puts it."""
    if token := os.environ.get("HF_TOKEN"):
        return token
    home = os.environ.get("HF_HOME") or os.path.expanduser("~/.cache/huggingface")
    try:
        path = os.environ.get("HF_TOKEN_PATH") or os.path.join(home, "token")
        with open(path, encoding="utf-8") as stream:
            return stream.read().strip() or None
    except OSError:
        return None


def _list(store: Store, name: str | None) -> int:
    models = [one for one in store.provenances() if name in (None, one.name)]
    if not models:
        which = f"no model {name} is" if name else "no models are"
        raise ModelsError(
            f"{which} in {store.root}; `muster-models add` adds one, and `findmnt {store.root}` "
            "shows whether it is mounted"
        )
    if name is not None:
        for model in models:
            _show(store, model)
        return DONE
    head = ("MODEL", "REVISION", "SIZE", "LICENCE", "ADDED BY", "FROM")
    rows = [head, *(_row(store, model) for model in models)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        tell("  ".join(cells).rstrip())
    return DONE


def _row(store: Store, model: Provenance) -> tuple[str, ...]:
    is_main = store.ref(model.name, add.MAIN) == model.revision
    return (
        model.name,
        model.revision[:12] + (" main" if is_main else ""),
        amount(model.size),
        model.licence or "not told",
        model.added_by,
        model.origin,
    )


def _show(store: Store, model: Provenance) -> None:
    tell(model.name)
    for key, value in (
        ("revision", model.revision),
        ("from", model.origin),
        ("licence", model.licence or "not told"),
        ("added", f"{model.added_at} by {model.added_by}"),
        ("folder", store.snapshot(model.name, model.revision)),
    ):
        tell(f"  {key + ':':10}{value}")
    for file in model.files:
        tell(f"  {file.sha256}  {amount(file.size):>10}  {file.path}")


def _verify(store: Store, names: Sequence[str]) -> int:
    found = list(verify.problems(store, list(names)))
    for problem in found:
        say(f"error: {problem}")
    if found:
        return WRONG
    tell("all files are what they were when they were added")
    return DONE


def _gc(store: Store) -> int:
    sizes = []
    for path, size in collect.collect(store):
        tell(f"removed {path} ({amount(size)})")
        sizes.append(size)
    tell(f"{amount(sum(sizes))} are free again" if sizes else "nothing was left over")
    return DONE
