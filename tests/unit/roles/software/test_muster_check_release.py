"""What is missing of built software: shared libraries by the real ldd, imports by real Python."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[4] / "roles/software/files/muster_check_release.py"

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="makes libraries with cc")

Check = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "release"
    folder.mkdir()
    return folder


def function_of(library: str) -> str:
    return f"of_{library.partition('.')[0]}"


def code(function: str, needs: Sequence[Path]) -> str:
    """C for a function that calls those of other libraries."""
    names = [function_of(need.name) for need in needs]
    calls = "".join(f"int {name}(void);" for name in names)
    uses = "".join(f" + {name}()" for name in names)
    return f"{calls} int {function}(void) {{ return 0{uses}; }}\n"


def library(path: Path, name: str, *needs: Path) -> Path:
    """Make a shared library that needs others, which it finds by no path of its own."""
    path.mkdir(parents=True, exist_ok=True)
    file = path / name
    source = path / "source.c"
    source.write_text(code(function_of(name), needs))
    command = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", file, source, *needs]
    subprocess.run(command, check=True)
    source.unlink()
    return file


def program(path: Path, *needs: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    source = path.with_suffix(".c")
    source.write_text(code("main", needs))
    subprocess.run(["cc", "-o", path, source, *needs], check=True)
    source.unlink()
    return path


def check(root: Path, *options: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-I", str(PROGRAM), *options, str(root)],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_what_has_all_it_needs_is_well(root: Path) -> None:
    program(root / "bin/tool")
    library(root / "lib", "liba.so")
    (root / "README").write_text("\x7fELF is only in the middle")
    (root / "link").symlink_to("/nowhere")
    done = check(root, "--import", "json", "--import", "xml.dom")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_library_that_is_nowhere_is_named_with_what_needs_it(root: Path, tmp_path: Path) -> None:
    gone = library(tmp_path / "gone", "libgone.so")
    program(root / "bin/tool", gone)
    library(root / "lib", "liba.so", gone)
    gone.unlink()
    done = check(root)
    assert done.returncode == 1
    assert done.stdout.splitlines() == ["no library libgone.so, which bin/tool, lib/liba.so need"]


@pytest.fixture
def nested(root: Path) -> Iterator[Path]:
    """The 1200th folder of those that are each in the one before; in it are some without a path.

    Their paths would be longer than the 4096 bytes that a program can name.
    """
    names = "['n'] * 1200 + ['n' * 200] * 20"
    make = f"import os\nfor name in {names}:\n    os.mkdir(name); os.chdir(name)"
    subprocess.run([sys.executable, "-c", make], cwd=root, check=True)
    yield root.joinpath(*["n"] * 1200)
    # pytest's own removal fails on them.
    subprocess.run(["rm", "-r", root / "n"], check=True)


def test_deeply_nested_folders_are_looked_into(root: Path, nested: Path, tmp_path: Path) -> None:
    gone = library(tmp_path / "gone", "libgone.so")
    shutil.copy(program(tmp_path / "tool", gone), nested)
    gone.unlink()
    done = check(root)
    place = nested.relative_to(root) / "tool"
    assert (done.stdout, done.stderr) == (f"no library libgone.so, which {place} needs\n", "")


def test_an_extension_may_count_on_a_library_of_the_release_and_a_program_not(
    root: Path, tmp_path: Path
) -> None:
    base = library(root / "lib", "libbase.so")
    library(root / "site-packages", "module.so", base)
    assert check(root).returncode == 0
    program(root / "bin/tool", base)
    assert check(root).stdout == "no library libbase.so, which bin/tool needs\n"
    # As the module sets it.
    assert check(root, LD_LIBRARY_PATH=str(root / "lib")).returncode == 0


def test_an_extension_may_count_on_what_it_is_built_on(root: Path, tmp_path: Path) -> None:
    base = library(tmp_path / "other", "libbase.so")
    library(root, "module.so", base)
    assert check(root).returncode == 1
    assert check(root, "--beside", str(tmp_path / "other")).returncode == 0


def test_what_it_is_built_on_may_be_on_other_hosts_alone(root: Path, tmp_path: Path) -> None:
    base = library(tmp_path / "other", "libbase.so")
    library(root, "module.so", base)
    beside = ("--beside", str(tmp_path / "missing"), "--beside", str(tmp_path / "other"))
    done = check(root, *beside)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes nobody")
def test_what_it_is_built_on_may_be_closed() -> None:
    place = Path(tempfile.mkdtemp())
    try:
        base = library(place / "other", "libbase.so")
        library(place / "release", "module.so", base)
        (place / "other/closed").mkdir(mode=0o700)
        place.chmod(0o755)
        program = shutil.copy(PROGRAM, place)
        done = subprocess.run(
            ["/usr/bin/python3", "-I", program, "--beside", place / "other", place / "release"],
            capture_output=True,
            text=True,
            check=False,
            user="nobody",
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    finally:
        shutil.rmtree(place)


def test_a_release_that_is_not_there_does_not_work(root: Path) -> None:
    assert check(root / "missing").returncode != 0


def test_libraries_of_the_driver_are_on_nodes_with_gpus(root: Path, tmp_path: Path) -> None:
    driver = library(tmp_path / "driver", "libcuda.so.1")
    other = library(tmp_path / "driver", "libcudart.so.12")
    program(root / "bin/tool", driver, other)
    driver.unlink()
    other.unlink()
    # The runtime is the software's own.
    assert check(root).stdout == "no library libcudart.so.12, which bin/tool needs\n"


def test_a_package_that_can_not_be_imported_is_named(root: Path, tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "half.py").write_text("import missing_of_half\n")
    (packages / "ends.py").write_text("import os; os._exit(3)\n")
    options = [f"--import={name}" for name in ("half", "ends", "json")]
    done = check(root, *options, PYTHONPATH=str(packages))
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "`import half` failed: ModuleNotFoundError: No module named 'missing_of_half'",
        "`import ends` failed: Python ended with 3",
    ]


def test_a_library_that_is_too_old_is_named(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "new"
    folder.mkdir()
    (folder / "new").write_text("NEW_2.0 { global: of_libv; };\n")
    (folder / "old").write_text("OLD_1.0 { global: of_libv; };\n")
    (folder / "v.c").write_text("int of_libv(void) { return 0; }\n")
    make = [
        "cc",
        "-shared",
        "-fPIC",
        "-Wl,-soname,libv.so",
        "-o",
        folder / "libv.so",
        folder / "v.c",
    ]
    subprocess.run([*make, f"-Wl,--version-script={folder}/new"], check=True)
    program(root / "bin/tool", folder / "libv.so")
    subprocess.run([*make, f"-Wl,--version-script={folder}/old"], check=True)
    done = check(root, LD_LIBRARY_PATH=str(folder))
    assert done.stdout == "no library libv.so of version NEW_2.0, which bin/tool needs\n"
