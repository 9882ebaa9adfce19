"""The state: JSON resources by kind, scope and name; in memory, and in sqlite after each call.

Everything is read from memory, so get and list cost a dictionary look-up; sqlite is written by
`flush`, which the cloud calls after each call or task, and read once, at the start. The file
survives a killed process (write-ahead log), but not a crash of the machine (synchronous=OFF):
it holds no user's data.

Use it only on the event loop's thread. A stored resource is never changed in place: put a changed
copy, `store.put(kind, scope, name, {**old, "labels": new})`.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

Resource = dict[str, Any]
Key = tuple[str, str, str]
EMPTY: Mapping[str, Resource] = MappingProxyType({})

SCHEMA = """
CREATE TABLE IF NOT EXISTS resources (
    kind TEXT, scope TEXT, name TEXT, body TEXT NOT NULL, PRIMARY KEY (kind, scope, name)
) WITHOUT ROWID
"""

REPLACE = "INSERT OR REPLACE INTO resources VALUES (?, ?, ?, ?)"
DELETE = "DELETE FROM resources WHERE kind = ? AND scope = ? AND name = ?"


def _json(resource: Resource) -> str:
    return json.dumps(resource, separators=(",", ":"))


class Store:
    """Resources by kind ("compute.instances"), scope ("demo/zones/europe-west4-a") and name.

    `folder` has the state's file; None keeps the state in memory, for tests.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        if folder is not None:
            # Payloads of secrets are in it.
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = ":memory:" if folder is None else str(folder / "state.sqlite")
        # The server starts in one thread and runs in another; it is used by one at a time.
        self._sql = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._sql.execute("PRAGMA journal_mode=WAL")
        self._sql.execute("PRAGMA synchronous=OFF")
        self._sql.execute(SCHEMA)
        # Keys in the order of change; a dict, since a set has none.
        self._changed: dict[Key, None] = {}
        self._texts: dict[Key, str] = {}
        self._kinds: dict[str, dict[str, dict[str, Resource]]] = {}
        for kind, scope, name, body in self._sql.execute("SELECT * FROM resources"):
            self._scope(kind, scope)[name] = json.loads(body)

    def _scope(self, kind: str, scope: str) -> dict[str, Resource]:
        return self._kinds.setdefault(kind, {}).setdefault(scope, {})

    def get(self, kind: str, scope: str, name: str) -> Resource | None:
        """The resource, or None."""
        return self._kinds.get(kind, {}).get(scope, {}).get(name)

    def put(self, kind: str, scope: str, name: str, resource: Resource) -> None:
        """Add or replace."""
        self._scope(kind, scope)[name] = resource
        self._changed[kind, scope, name] = None
        self._texts.pop((kind, scope, name), None)

    def delete(self, kind: str, scope: str, name: str) -> None:
        """Remove a resource; KeyError if there is none."""
        del self._kinds[kind][scope][name]
        self._changed[kind, scope, name] = None
        self._texts.pop((kind, scope, name), None)

    def text(self, kind: str, scope: str, name: str) -> str:
        """A resource as JSON; cached until it changes, since lists are read often."""
        key = kind, scope, name
        text = self._texts.get(key)
        if text is None:
            text = self._texts[key] = _json(self._kinds[kind][scope][name])
        return text

    def flush(self) -> None:
        """Write all changes since the last flush: a call may change a resource several times."""
        if not self._changed:
            return
        self._sql.execute("BEGIN")
        for key in self._changed:
            resource = self.get(*key)
            if resource is None:
                self._sql.execute(DELETE, key)
            else:
                self._sql.execute(REPLACE, (*key, _json(resource)))
        self._sql.execute("COMMIT")
        self._changed.clear()

    def kinds(self) -> list[str]:
        """The kinds of which there are resources, or were."""
        return sorted(self._kinds)

    def within(self, kind: str, scope: str) -> Mapping[str, Resource]:
        """Name -> resource of one scope."""
        return self._kinds.get(kind, {}).get(scope, EMPTY)

    def scopes(self, kind: str, prefix: str = "") -> dict[str, Mapping[str, Resource]]:
        """Scope -> its resources, of the scopes that begin with `prefix` and are not empty."""
        scopes = self._kinds.get(kind, {})
        return {
            name: scopes[name]
            for name in sorted(scopes)
            if name.startswith(prefix) and scopes[name]
        }

    def all(self, kind: str) -> Iterator[tuple[str, str, Resource]]:
        """(scope, name, resource) of a kind."""
        for scope, resources in self.scopes(kind).items():
            for name, resource in list(resources.items()):
                yield scope, name, resource

    def close(self) -> None:
        """Flush and close the file."""
        self.flush()
        self._sql.close()
