"""Google's published API descriptions: which method a request calls.

They are in the google-api-python-client wheel (googleapiclient/discovery_cache/documents); their
format: https://developers.google.com/discovery/v1/reference/apis. `checking.py` checks a request
against the method's description.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import unquote

DOCUMENTS = files("googleapiclient") / "discovery_cache/documents"
# compute.v1 recommends it in the texts of its lists, but does not list it; compute.beta does, for
# exactly the methods that have maxResults, and so did compute.v1 until 2025.
PARTIAL = {"returnPartialSuccess": {"type": "boolean", "location": "query"}}
PLACEHOLDER = re.compile(r"\{(\+?)(\w+)\}")


@dataclass(frozen=True, slots=True)
class Method:
    """One method of a description.

    `path` is its template without a leading slash; `parameters` includes those that every method
    has.
    """

    id: str
    verb: str
    path: str
    parameters: dict[str, Any]
    request: dict[str, Any] | None
    response: dict[str, Any] | None
    scopes: frozenset[str]
    description: "Description" = field(repr=False)


@dataclass(frozen=True, slots=True)
class Match:
    """A request's method; `media` is "upload" or "download" where the path says so, else ""."""

    method: Method
    parameters: dict[str, str]
    media: str


@dataclass(frozen=True, slots=True)
class _Route:
    method: Method
    segments: Sequence[str | re.Pattern[str]]
    names: Sequence[str]
    # {+name} spans segments: its value is cut out of the whole path.
    reserved: re.Pattern[str] | None
    media: str

    def match(self, segments: Sequence[str]) -> dict[str, str] | None:
        values: list[str] = []
        for wanted, given in zip(self.segments, segments, strict=True):
            if isinstance(wanted, str):
                if wanted != given:
                    return None
            else:
                matched = wanted.fullmatch(given)
                if not matched:
                    return None
                values += [unquote(text) for text in matched.groups()]
        parameters = dict(zip(self.names, values, strict=True))
        if self.reserved:
            whole = self.reserved.fullmatch("/".join(segments))
            if whole:
                parameters |= {name: unquote(text) for name, text in whole.groupdict().items()}
        return parameters

    def span(self, path: str) -> dict[str, str] | None:
        """The path parameters if the pattern of {+name} matches the whole path, else None."""
        whole = self.reserved.fullmatch(path) if self.reserved else None
        if not whole:
            return None
        return {name: unquote(text) for name, text in whole.groupdict().items()}


class Description:
    """One service in one version, e.g. compute v1.

    `schemas` are the JSON schemas of bodies by name, `methods` the methods by id.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self.name: str = document["name"]
        self.version: str = document["version"]
        self.schemas: dict[str, Any] = document["schemas"]
        self.methods: dict[str, Method] = {}
        self._routes: dict[tuple[str, int], list[_Route]] = {}
        # {+resource} of any length, which has no flat path: iap.getIamPolicy.
        self._spanning: list[_Route] = []
        raw = list(_methods(document))
        # With verbs (`secrets/S:addVersion`) a plain name in the last place has no colon.
        verbs = any(":" in _path(method) for method in raw)
        shared = document.get("parameters", {})
        for entry in raw:
            method = Method(
                id=entry["id"],
                verb=entry["httpMethod"],
                path=document["servicePath"] + _path(entry),
                parameters={**shared, **self._unlisted(entry), **entry.get("parameters", {})},
                request=entry.get("request"),
                response=entry.get("response"),
                scopes=frozenset(entry.get("scopes", ())),
                description=self,
            )
            self.methods[method.id] = method
            base = document["servicePath"]
            self._add(method, base + _path(entry), base + entry["path"], "", verbs)
            if entry.get("supportsMediaDownload"):
                self._add(method, f"download/{base}{_path(entry)}", "", "download", verbs)
            for protocol in entry.get("mediaUpload", {}).get("protocols", {}).values():
                path = protocol["path"].lstrip("/")
                self._add(method, path, "", "upload", verbs)
                # The parts of a resumable upload, and the request for its progress:
                # https://cloud.google.com/storage/docs/performing-resumable-uploads
                self._add(method, path, "", "upload", verbs, verb="PUT")
                method.parameters["upload_id"] = {"type": "string", "location": "query"}
        for routes in self._routes.values():
            routes.sort(key=lambda route: [_vagueness(segment) for segment in route.segments])

    def _unlisted(self, method: dict[str, Any]) -> dict[str, Any]:
        """Parameters that a method has, though its entry lacks them."""
        pages = self.name == "compute" and "maxResults" in method.get("parameters", {})
        return PARTIAL if pages else {}

    def _add(
        self, method: Method, flat: str, path: str, media: str, verbs: bool, *, verb: str = ""
    ) -> None:
        segments: list[str | re.Pattern[str]] = []
        names: list[str] = []
        parts = flat.split("/")
        for position, part in enumerate(parts):
            placeholders = PLACEHOLDER.findall(part)
            if not placeholders:
                segments.append(part)
                continue
            names += [name for _, name in placeholders]
            colonless = verbs and position == len(parts) - 1
            literal = [re.escape(text) for text in PLACEHOLDER.split(part)[::3]]
            segments.append(re.compile(("([^:]+)" if colonless else "(.+)").join(literal)))
        reserved = None
        if "{+" in path:
            pieces = PLACEHOLDER.split(path)
            groups = [f"(?P<{name}>.+)" for name in pieces[2::3]]
            texts = [re.escape(text) for text in pieces[::3]]
            reserved = re.compile("".join(a + b for a, b in zip(texts, [*groups, ""], strict=True)))
        route = _Route(method, segments, names, reserved, media)
        self._routes.setdefault((verb or method.verb, len(segments)), []).append(route)
        if reserved and "{v1Id}:" in flat:
            self._spanning.append(route)

    def match(self, verb: str, path: str) -> Match | None:
        """The method of an undecoded path without its leading slash, or None."""
        segments = path.split("/")
        for route in self._routes.get((verb, len(segments)), ()):
            parameters = route.match(segments)
            if parameters is not None:
                return Match(route.method, parameters, route.media)
        for route in self._spanning:
            parameters = route.span(path) if route.method.verb == verb else None
            if parameters is not None:
                return Match(route.method, parameters, route.media)
        return None


def _methods(resource: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from resource.get("methods", {}).values()
    for inner in resource.get("resources", {}).values():
        yield from _methods(inner)


def _path(method: dict[str, Any]) -> str:
    path: str = method.get("flatPath", method["path"])
    return path


def _vagueness(segment: str | re.Pattern[str]) -> tuple[int, int]:
    """Sort key: literal segments first, then those with the longest literal part."""
    if isinstance(segment, str):
        return 0, 0
    return 1, -len(segment.pattern)


@cache
def load(name: str) -> Description:
    """The description of "compute.v1", read once (about 0.15 s)."""
    text = (DOCUMENTS / f"{name}.json").read_text(encoding="utf-8")
    return Description(json.loads(text))
