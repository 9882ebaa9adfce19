"""Requests that Google's own Pulumi provider made, as it was recorded.

provider_requests.jsonl is a part of a recording of 1,965 requests: of each shape one, and what
must come before. pulumi_gcp 10.2.0 made them on 2026-11-23 against fakecloud, for the programs of
tests/engine and for Muster's own. Long values of metadata are cut, and what was in files and
secrets is left out. A shape is a verb, a path and a query without names, and the fields of a body
with those of their values that are no names or numbers.
"""

import json
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PLACE = "/compute/beta/projects/demo-project/"


@dataclass(frozen=True)
class Recorded:
    """One request and the status of its answer.

    `path` begins with the service, as fakecloud's paths do. Two things were known only from earlier
    answers: `${NAME}` in a path is the number of the template NAME, and "${current}" in a body the
    fingerprint or etag that the resource has at that time.
    """

    verb: str
    path: str
    query: str
    body: Any
    status: int


@cache
def sequences() -> dict[str, list[Recorded]]:
    """Title -> requests in their order; each sequence began with an empty project."""
    found: dict[str, list[Recorded]] = defaultdict(list)
    lines = Path(__file__).with_suffix(".jsonl").read_text(encoding="utf-8").splitlines()
    for line in lines:
        request = json.loads(line)
        found[request.pop("sequence")].append(Recorded(**request))
    return dict(found)


def sent(verb: str, path: str, *, name: str = "", sequence: str = "") -> Any:
    """Return the body of the first such request to Compute Engine.

    Args:
        verb: POST or PATCH.
        path: after projects/P/, such as `global/networks`.
        name: what the body must have as its name, or begin it with.
        sequence: of this sequence only.

    """
    for title, requests in sequences().items():
        for request in requests:
            if (request.verb, request.path) != (verb, PLACE + path) or sequence not in ("", title):
                continue
            if request.body is None or str(request.body.get("name", "")).startswith(name):
                return request.body
    raise LookupError(f"no {verb} {path} of {name or 'any name'} was recorded")
