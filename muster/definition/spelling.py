"""Find the known word that a misspelt word means."""

import difflib
from collections.abc import Iterable
from functools import lru_cache


def nearest(word: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """The known word that is most likely meant, if its similarity (1: equal) is `likeness`."""
    return _nearest(word, tuple(known), likeness)


@lru_cache(maxsize=10_000)  # several checks ask about one word
def _nearest(word: str, known: tuple[str, ...], likeness: float) -> str | None:
    by_folded = {name.casefold(): name for name in known}
    matches = difflib.get_close_matches(word.casefold(), by_folded, n=1, cutoff=likeness)
    return by_folded[matches[0]] if matches else None
