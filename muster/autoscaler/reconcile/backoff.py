"""How long to wait before what has failed is tried again; pure."""

FIRST_INSERT_S, LONGEST_INSERT_S = 1.0, 30.0
"""Before an insert that failed temporarily; it doubles with each try."""
FIRST_DELETE_S, LONGEST_DELETE_S = 10.0, 1800.0
"""Before a deletion."""


def before_insert_s(attempts: int) -> float:
    """Return the seconds after so many inserts for a start."""
    return float(min(FIRST_INSERT_S * 2 ** max(attempts - 1, 0), LONGEST_INSERT_S))


def before_delete_s(failed_s: float) -> float:
    """Return the seconds after a deletion that has failed for so long: as long again."""
    return min(max(FIRST_DELETE_S, failed_s), LONGEST_DELETE_S)
