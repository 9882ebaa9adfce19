"""Text for people: names in their order; pure."""


def in_order(name: str) -> tuple[str, int, str]:
    """Sort names by their number: lab-debug-9 comes before lab-debug-10."""
    front, _, number = name.rpartition("-")
    return (front, int(number), "") if number.isdecimal() else (name, -1, number)
