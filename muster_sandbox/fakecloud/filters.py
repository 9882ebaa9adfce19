"""The `filter` parameter of Compute Engine's lists.

Both syntaxes of https://cloud.google.com/compute/docs/reference/rest/v1/instances/list:
`name eq 'web-.*'` (regular expressions that match whole values) and `labels.a=b AND (x:y OR NOT z)`
after https://google.aip.dev/160.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from muster_sandbox.fakecloud.api_errors import ApiError
from muster_sandbox.fakecloud.http import Resource

Test = Callable[[Resource], bool]

TOKENS = re.compile(
    r"""\s*(?:(?P<bracket>[()])|(?P<operator>!=|>=|<=|=|>|<|:)|"(?P<double>(?:\\.|[^"\\])*)"
    |'(?P<single>(?:\\.|[^'\\])*)'|(?P<word>[^\s()=!<>:"']+))""",
    re.VERBOSE,
)
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def _wrong(text: str) -> ApiError:
    return ApiError(
        400,
        "invalid",
        f"Invalid value for field 'filter': '{text}'. Invalid list filter expression.",
    )


@lru_cache(maxsize=256)
def compile_filter(text: str) -> Test:
    """A function that says whether a resource passes."""
    return _Parser(text).whole()


class _Parser:
    """Recursive descent: OR of ANDs of terms; terms side by side are ANDed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str]] = []
        at = 0
        text = text.rstrip()
        while at < len(text):
            match = TOKENS.match(text, at)
            if not match or match.end() == at:
                raise _wrong(self.text)
            kind = str(match.lastgroup)
            value = match.group(kind)
            if kind in {"double", "single"}:
                kind = "quoted"
            self.tokens.append((kind, value))
            at = match.end()
        self.at = 0

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "")

    def next(self) -> tuple[str, str]:
        token = self.peek()
        if token[0] == "end":
            raise _wrong(self.text)
        self.at += 1
        return token

    def accept(self, *token: str) -> bool:
        if self.peek() == token:
            self.at += 1
            return True
        return False

    def whole(self) -> Test:
        test = self.either()
        if self.at != len(self.tokens):
            raise _wrong(self.text)
        return test

    def either(self) -> Test:
        tests = [self.all()]
        while self.accept("word", "OR"):
            tests.append(self.all())
        return tests[0] if len(tests) == 1 else lambda item: any(test(item) for test in tests)

    def all(self) -> Test:
        tests = [self.term()]
        while self.peek() not in {("end", ""), ("bracket", ")"), ("word", "OR")}:
            self.accept("word", "AND")
            tests.append(self.term())
        return tests[0] if len(tests) == 1 else lambda item: all(test(item) for test in tests)

    def term(self) -> Test:
        if self.accept("word", "NOT"):
            inner = self.term()
            return lambda item: not inner(item)
        if self.accept("bracket", "("):
            test = self.either()
            if not self.accept("bracket", ")"):
                raise _wrong(self.text)
            return test
        kind, field = self.next()
        if kind not in {"word", "quoted"}:
            raise _wrong(self.text)
        if kind == "quoted":
            field = _unescaped(field)
        negative = kind == "word" and field.startswith("-") and len(field) > 1
        test = self.comparison(field.removeprefix("-") if negative else field)
        return (lambda item: not test(item)) if negative else test

    def comparison(self, field: str) -> Test:
        path = tuple(field.split("."))
        kind, operator = self.next()
        value_kind, value = self.next()
        if value_kind not in {"word", "quoted"}:
            raise _wrong(self.text)
        if kind == "word" and operator in {"eq", "ne"}:
            # Backslashes belong to the expression: gcloud sends name eq ".*\bweb\b.*".
            return _regular(path, value, self.text, equal=operator == "eq")
        if kind != "operator":
            raise _wrong(self.text)
        if value_kind == "quoted":
            value = _unescaped(value)
        if operator in COMPARE:
            compare = COMPARE[operator]
            return lambda item: any(
                _ordered(compare, actual, value) for actual in _values(item, path)
            )
        if operator == ":":
            return _has(path, value)
        wanted = _glob(value) if "*" in value else None

        def equal(item: Resource) -> bool:
            for actual in _values(item, path):
                text = actual if isinstance(actual, str) else _text(actual)
                if wanted.fullmatch(text) if wanted else text == value:
                    return True
            return False

        return equal if operator == "=" else lambda item: not equal(item)


def _unescaped(text: str) -> str:
    """The text of a quoted string, whose backslashes quote the next character."""
    return re.sub(r"\\(.)", r"\1", text)


def _regular(path: tuple[str, ...], value: str, text: str, *, equal: bool) -> Test:
    try:
        pattern = re.compile(value)
    except re.error as error:
        raise _wrong(text) from error
    return lambda item: (
        any(pattern.fullmatch(_text(actual)) is not None for actual in _values(item, path)) is equal
    )


def _has(path: tuple[str, ...], value: str) -> Test:
    """`labels.owner:*`: the field is there; `name:web`: it contains the word."""
    if value == "*":
        return lambda item: bool(_values(item, path))
    wanted = value.rstrip("*").lower()
    return lambda item: any(wanted in _text(actual).lower() for actual in _values(item, path))


def _values(item: Any, path: tuple[str, ...]) -> Sequence[Any]:
    """The values of a resource at a path; lists on the way are searched."""
    for position, name in enumerate(path):
        if isinstance(item, dict):
            if name not in item:
                return ()
            item = item[name]
        elif isinstance(item, list):
            return [value for inner in item for value in _values(inner, path[position:])]
        else:
            return ()
    return item if isinstance(item, list) else (item,)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _ordered(compare: Callable[[Any, Any], bool], actual: Any, value: str) -> bool:
    try:
        return compare(float(actual), float(value))
    except (TypeError, ValueError):
        return compare(_text(actual), value)


def _glob(value: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in value.split("*")))
