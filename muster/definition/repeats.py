"""Keeps a mistake that is repeated a thousand times from hiding the others."""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import replace

from muster.definition.problems import Problem

MOST = 20
"""Problems of one check that are shown of one file; the last one says how many more there are."""


def shortened(problems: Iterable[tuple[Hashable, Problem]]) -> list[Problem]:
    """The problems without repeats: each first one says how many more there are like it.

    Each problem comes with what it is about, such as a range of hosts: of those with the same
    subject and check one is left. Of one check and file at most MOST are left.
    """
    counts: Counter[Hashable] = Counter()
    kept: dict[Hashable, Problem] = {}
    for about, problem in problems:
        key: Hashable = (problem.check, about)
        counts[key] += 1
        kept.setdefault(key, problem)
    shown: dict[tuple[str, str], list[Problem]] = {}
    for same, problem in kept.items():
        once = replace(problem, more=counts[same] - 1)
        of_check = shown.setdefault((problem.check, problem.file), [])
        if len(of_check) < MOST:
            of_check.append(once)
        else:
            last = of_check[-1]
            of_check[-1] = replace(last, more=last.more + 1 + once.more)
    return [problem for of_check in shown.values() for problem in of_check]
