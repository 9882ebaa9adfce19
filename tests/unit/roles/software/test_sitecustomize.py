"""A user's own virtual environment sees the environment of a module, and comes before it."""

import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[4] / "roles/software/files"
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"

Ask = Callable[..., str]


def packages(prefix: Path) -> Path:
    return prefix / "lib" / VERSION / "site-packages"


def install(prefix: Path, name: str, version: str) -> None:
    packages(prefix).mkdir(parents=True, exist_ok=True)
    (packages(prefix) / f"{name}.py").write_text(f"version = {version!r}\n")


@pytest.fixture(scope="module")
def prefixes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two environments of modules, and a virtual environment of a user."""
    folder = tmp_path_factory.mktemp("environments")
    for name in ("torch", "jax", "own"):
        venv.create(folder / name, symlinks=True, system_site_packages=name == "own")
    install(folder / "torch", "tensors", "torch's")
    install(folder / "torch", "numbers_of", "torch's")
    install(folder / "jax", "arrays", "jax's")
    install(folder / "jax", "numbers_of", "jax's")
    install(folder / "own", "numbers_of", "the user's")
    return {name: folder / name for name in ("torch", "jax", "own")}


@pytest.fixture
def ask(prefixes: dict[str, Path], tmp_path: Path) -> Ask:
    """Return `ask(python, statement, loaded...)`, which runs it with modules loaded."""
    # As the role installs it: with nothing beside it.
    path = tmp_path / "python"
    path.mkdir()
    (path / "sitecustomize.py").symlink_to(FOLDER / "sitecustomize.py")

    def ask(python: Path | str, statement: str, *loaded: str, **more: str) -> str:
        roots = ":".join(str(prefixes[name]) for name in loaded)
        environment = {"MUSTER_ENVIRONMENTS": roots, "PYTHONPATH": str(path), **more}
        done = subprocess.run(
            [str(python), "-c", statement],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.strip() or done.stderr.strip().splitlines()[-1]

    return ask


def test_a_user_s_environment_sees_what_the_module_has(ask: Ask, prefixes: dict[str, Path]) -> None:
    own = prefixes["own"] / "bin/python"
    statement = "import tensors; print(tensors.version)"
    assert ask(own, statement, "torch") == "torch's"
    assert "No module named 'tensors'" in ask(own, statement)


def test_what_the_user_has_is_not_hidden(ask: Ask, prefixes: dict[str, Path]) -> None:
    own = prefixes["own"] / "bin/python"
    assert ask(own, "import numbers_of; print(numbers_of.version)", "torch") == "the user's"


def test_of_two_modules_the_one_that_was_loaded_last_comes_first(
    ask: Ask, prefixes: dict[str, Path]
) -> None:
    own = prefixes["own"] / "bin/python"
    (packages(prefixes["own"]) / "numbers_of.py").rename(prefixes["own"] / "kept.py")
    try:
        # Lmod puts the last one in front.
        shown = ask(own, "import numbers_of, arrays; print(numbers_of.version)", "jax", "torch")
    finally:
        (prefixes["own"] / "kept.py").rename(packages(prefixes["own"]) / "numbers_of.py")
    assert shown == "jax's"


def test_the_module_s_packages_come_before_the_distribution_s(
    ask: Ask, prefixes: dict[str, Path]
) -> None:
    own, module = packages(prefixes["own"]), packages(prefixes["torch"])
    shown = ask(prefixes["own"] / "bin/python", "import sys; print(sys.path)", "torch")
    paths = [path.strip("' ") for path in shown.strip("[]").split(",")]
    place = paths.index(str(module))
    assert paths[place - 1] == str(own)
    assert all("-packages" not in path for path in paths[: place - 1])


def test_the_module_s_own_interpreter_has_its_packages_once(
    ask: Ask, prefixes: dict[str, Path]
) -> None:
    torch = prefixes["torch"]
    shown = ask(torch / "bin/python", "import sys; print(sys.path)", "torch")
    assert shown.count(str(packages(torch))) == 1
    assert "No module named 'arrays'" in ask(torch / "bin/python", "import arrays", "jax", "torch")


def test_programs_of_the_distribution_see_no_module(ask: Ask) -> None:
    assert "No module named 'tensors'" in ask("/usr/bin/python3", "import tensors", "torch")


def test_packages_for_another_python_are_left_out(
    ask: Ask, prefixes: dict[str, Path], tmp_path: Path
) -> None:
    other = tmp_path / "lib/python2.7/site-packages"
    other.mkdir(parents=True)
    own = prefixes["own"] / "bin/python"
    shown = ask(own, "import sys; print(sys.path)", MUSTER_ENVIRONMENTS=str(tmp_path))
    assert str(tmp_path / "lib") not in shown


def test_the_sitecustomize_that_it_hides_still_runs(
    ask: Ask, prefixes: dict[str, Path], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("import sys; sys.hidden = 'it ran'\n")
    path = f"{tmp_path / 'python'}:{other}"
    own = prefixes["own"] / "bin/python"
    statement = "import sys, tensors; print(sys.hidden)"
    assert ask(own, statement, "torch", PYTHONPATH=path) == "it ran"
