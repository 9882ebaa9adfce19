"""Texts as people read them: words of Google and of VMs, the order of names; pure."""


def one_line(text: str) -> str:
    """Return a text on one line, without what moves the cursor."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def in_order(name: str) -> tuple[str, int, str]:
    """Sort names by their number: lab-debug-9 comes before lab-debug-10."""
    front, _, number = name.rpartition("-")
    return (front, int(number), "") if number.isdecimal() else (name, -1, number)
