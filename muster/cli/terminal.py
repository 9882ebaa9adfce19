"""How tables are printed."""

import sys

from rich.console import Console
from rich.table import Table

WIDTH_IN_A_PIPE = 250
"""A table that is cut may lack what somebody searches for."""


def show(table: Table) -> None:
    """Print a table, as wide as the terminal."""
    width = None if sys.stdout.isatty() else WIDTH_IN_A_PIPE
    Console(width=width, highlight=False, markup=False).print(table)
