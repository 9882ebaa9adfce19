"""Text for people: words of Google and of VMs on one line, names in their order; pure."""


def one_line(text: str) -> str:
    """Return a text on one line, without control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def in_order(name: str) -> tuple[str, int, str]:
    """Sort names by their number: lab-debug-9 comes before lab-debug-10."""
    front, _, number = name.rpartition("-")
    return (front, int(number), "") if number.isdecimal() else (name, -1, number)
