"""IAM conditions: the part of the language that name prefixes and resource types need.

    resource.name.startsWith("projects/p/zones/") && resource.type != "compute.googleapis.com/Disk"

Attributes: resource.name, resource.type, resource.service, as strings; comparison with == and !=,
startsWith, endsWith, also on the result of extract; !, &&, || and parentheses. The language is
much larger; what isn't here is refused when a policy is set, so no condition is ever ignored.
So is what has too many !, && and ||.
https://cloud.google.com/iam/docs/conditions-attribute-reference,
https://cloud.google.com/iam/quotas#limits
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import itemgetter

from muster.catalog.iam_limits import LOGICAL_OPERATORS

ATTRIBUTES = frozenset({"resource.name", "resource.type", "resource.service"})

Condition = Callable[[Mapping[str, str]], bool]
"""Attributes of a resource -> whether the binding holds for it."""

Text = Callable[[Mapping[str, str]], str]
"""Attributes of a resource -> the text that is compared."""

TEMPLATE = re.compile(r"([^{}]*)\{[\w-]+\}([^{}]*)")
"""extract returns what is between two texts, each of which may be empty."""

TOKEN = re.compile(
    r"""\s*(?:
        (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<operator>&&|\|\||==|!=|!|\(|\))
      | (?P<path>\.?[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)
    )""",
    re.VERBOSE,
)


class ConditionError(ValueError):
    """An expression that is wrong, or that fakecloud doesn't understand."""


@lru_cache(maxsize=1024)
def parse(expression: str) -> Condition:
    """Return the expression as a function.

    Raises:
        ConditionError: Google would refuse it, or fakecloud doesn't understand it.

    """
    tokens = _tokens(expression)
    operators = sum(token in ("!", "&&", "||") for token in tokens)
    if operators > LOGICAL_OPERATORS:
        raise ConditionError(f"{operators} logical operators, the most is {LOGICAL_OPERATORS}")
    parser = _Parser(tokens)
    condition = parser.either()
    if parser.next:
        raise ConditionError(f"unexpected {parser.next!r} in {expression!r}")
    return condition


def _tokens(expression: str) -> list[str]:
    tokens = []
    position = 0
    while expression[position:].strip():
        match = TOKEN.match(expression, position)
        if not match:
            raise ConditionError(f"not understood: {expression[position:].strip()!r}")
        tokens.append(match[0].strip())
        position = match.end()
    return tokens


class _Parser:
    """Recursive descent: either := both (|| both)*, both := single (&& single)*."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def next(self) -> str:
        """The token to read next, "" at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, wanted: str = "") -> str:
        text = self.next
        if not text or (wanted and text != wanted):
            raise ConditionError(f"expected {wanted or 'a value'}, found {text or 'the end'!r}")
        self._at += 1
        return text

    def either(self) -> Condition:
        """A or B or ..."""
        parts = [self._both()]
        while self.next == "||":
            self._take()
            parts.append(self._both())
        return (
            parts[0]
            if len(parts) == 1
            else lambda attributes: any(part(attributes) for part in parts)
        )

    def _both(self) -> Condition:
        parts = [self._single()]
        while self.next == "&&":
            self._take()
            parts.append(self._single())
        return (
            parts[0]
            if len(parts) == 1
            else lambda attributes: all(part(attributes) for part in parts)
        )

    def _single(self) -> Condition:
        if self.next == "!":
            self._take()
            negated = self._single()
            return lambda attributes: not negated(attributes)
        if self.next == "(":
            self._take()
            inner = self.either()
            self._take(")")
            return inner
        return self._test()

    def _test(self) -> Condition:
        path = self._take()
        attribute, _, method = (path, "", "") if path in ATTRIBUTES else path.rpartition(".")
        if attribute not in ATTRIBUTES:
            raise ConditionError(f"not understood: {path} {self.next}".rstrip())
        text: Text = itemgetter(attribute)
        if path == "resource.name.extract":
            text = _extracted(text, self._argument())
            method = self._take()[1:] if self.next.startswith(".") else ""
        if method in ("startsWith", "endsWith"):
            affix = self._argument()
            if method == "startsWith":
                return lambda attributes: text(attributes).startswith(affix)
            return lambda attributes: text(attributes).endswith(affix)
        if not method and self.next in ("==", "!="):
            equal = self._take() == "=="
            value = self._string()
            return lambda attributes: (text(attributes) == value) is equal
        raise ConditionError(f"not understood: {path} {self.next}".rstrip())

    def _argument(self) -> str:
        self._take("(")
        text = self._string()
        self._take(")")
        return text

    def _string(self) -> str:
        text = self._take()
        if text[0] not in "\"'":
            raise ConditionError(f"expected a string, found {text!r}")
        if text[0] == "'":
            text = '"' + text[1:-1].replace('"', '\\"').replace("\\'", "'") + '"'
        try:
            return str(json.loads(text))
        except json.JSONDecodeError as error:
            raise ConditionError(f"not a string: {text}") from error


def _extracted(text: Text, template: str) -> Text:
    """What is at the template's braces; empty if the rest of the template doesn't match."""
    match = TEMPLATE.fullmatch(template)
    if match is None:
        raise ConditionError(f"not a template with one part in braces: {template!r}")
    before, after = match.groups()

    def part(attributes: Mapping[str, str]) -> str:
        name = text(attributes)
        begin = name.find(before)
        end = name.find(after, begin + len(before)) if after else len(name)
        return "" if -1 in (begin, end) else name[begin + len(before) : end]

    return part
