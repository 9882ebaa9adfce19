"""The program that builds the image: the builder VM's startup-script."""

from pathlib import Path


def startup_script() -> str:
    """Return the text of the program: one Python file that needs nothing but Debian's Python."""
    return Path(__file__).with_name("build_image.py").read_text(encoding="utf-8")
