"""Words of others, of Google's and of VMs, where people read them; pure."""


def one_line(text: str) -> str:
    """Return a text on one line, without what moves the cursor."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
