"""Texts of other machines and of Google, made fit for a terminal."""

from typing import Any

_HAVE_LINES = ("stdout", "stderr", "msg")


def one_line(text: str) -> str:
    """Return a text on one line, without control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def lines(text: str) -> str:
    """Return a text without control characters but the ends of its lines."""
    return "\n".join(map(one_line, text.splitlines()))


def all_of(value: Any) -> Any:
    """Return a value of JSON, each text of it on one line."""
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, list):
        return [all_of(one) for one in value]
    if isinstance(value, dict):
        return {one_line(key): all_of(one) for key, one in value.items()}
    return value


def result(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a task of Ansible; what programs printed keeps its lines."""
    return {
        one_line(key): lines(value)
        if key in _HAVE_LINES and isinstance(value, str)
        else all_of(value)
        for key, value in answer.items()
    }
