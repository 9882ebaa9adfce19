"""What a demo prints: a headline for each step, and how long each took."""

import time

from rich.console import Console

console = Console(highlight=False)


class Stopwatch:
    """Prints what is being done and remembers how long it took."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, float]] = []

    def __call__(self, title: str) -> "Stopwatch":
        """Announce a step, the body of a `with`."""
        self.title = title
        return self

    def __enter__(self) -> None:
        console.rule(f"[bold]{self.title}", align="left")
        self.start = time.monotonic()

    def __exit__(self, *failure: object) -> None:
        self.rows.append((self.title, time.monotonic() - self.start))

    def report(self) -> None:
        """Print how long each step took."""
        console.rule("[bold]how long it took", align="left")
        for title, seconds in self.rows:
            console.print(f"{seconds:7.1f} s  {title}")
