"""A Python environment of thousands of small files, as pip would install it.

On a machine: python3 - FOLDER < environment.py. It needs no network, and is the same each time.
"""

import compileall
import random
import sys
from pathlib import Path

PACKAGES, MODULES = 100, 35


def fill(folder: Path) -> None:
    """Write packages of modules, compiled as pip does it, and `everything`, which imports all."""
    numbers, names = random.Random(1), []  # noqa: S311 (no secret)
    for package in (f"p{number}" for number in range(PACKAGES)):
        (folder / package).mkdir(parents=True)
        for module in ["__init__", *(f"m{number}" for number in range(MODULES - 1))]:
            lines = [f"v{n} = {numbers.random()}" for n in range(numbers.randrange(20, 300))]
            (folder / package / f"{module}.py").write_text("\n".join(lines))
            names.append(package if module == "__init__" else f"{package}.{module}")
    (folder / "everything.py").write_text("".join(f"import {name}\n" for name in names))
    assert compileall.compile_dir(folder, quiet=1)


if __name__ == "__main__":
    fill(Path(sys.argv[1]))
