"""Stand-ins for PyTorch and JAX, with which programs of examples/ run in processes of their own.

Those processes import this file by itself: it needs nothing but Python.
"""

import runpy
import sys
import time
from pathlib import Path
from typing import Any

_HERE = str(Path(__file__).parent)
_BEGIN = f"""
import os, sys
sys.path.insert(0, {_HERE!r})
from example_frameworks import Anything, Number, OutOfMemoryError, begin, put, torch_of
sys.path.remove({_HERE!r})
"""


def command(text: str) -> list[str]:
    """Return what runs a text, which has the names of this file."""
    return [sys.executable, "-c", _BEGIN + text]


def begin(example: str, *words: str, name: str = "__main__") -> dict[str, Any]:
    """Run a program of an example with its words; return its globals.

    Args:
        example: The folder.
        words: The program and what is behind it.
        name: Its `__name__`; with another one than `__main__` it is only imported.

    """
    sys.path.insert(0, example)
    sys.argv = list(words)
    return runpy.run_path(f"{example}/{words[0]}", run_name=name)


class Anything:
    """What has each attribute and can be called; both give the like again."""

    def __init__(self, **own: Any) -> None:
        self.__dict__.update(own)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.__dict__[name] = made = Anything()
        return made

    def __call__(self, *_: Any, **__: Any) -> "Anything":
        return self

    def __getitem__(self, _: Any) -> "Anything":
        return self

    def __setitem__(self, *_: Any) -> None:
        pass

    def __len__(self) -> int:
        return 1

    def __enter__(self) -> "Anything":
        return self

    def __exit__(self, *_: Any) -> None:
        pass


class Number:
    """A tensor of one number."""

    def __init__(self, value: float = 0.5) -> None:
        self.value = value

    def fill_(self, value: float) -> None:
        self.value = value

    def item(self) -> float:
        return self.value

    def mean(self) -> "Number":
        return self

    def to(self, _: Any) -> "Number":
        return self

    def __float__(self) -> float:
        return self.value

    def __setitem__(self, *_: Any) -> None:
        pass

    def backward(self) -> None:
        time.sleep(0.001)


class OutOfMemoryError(RuntimeError):
    """PyTorch's, of a GPU."""


def torch_of(version: str) -> Anything:
    """Return a PyTorch without GPUs, which programs import."""
    torch = Anything(__version__=version)
    torch.cuda.is_available = lambda: False
    torch.cuda.OutOfMemoryError = OutOfMemoryError
    put(**{"torch": torch, "torch.distributed": torch.distributed})
    return torch


def put(**modules: Any) -> None:
    """Have programs import these."""
    sys.modules.update(modules)
