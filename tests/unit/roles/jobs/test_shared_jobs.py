"""The role mail brings along those modules of muster-job that it needs, and no copies."""

import subprocess
import sys
from pathlib import Path

import yaml

ROLES = Path(__file__).parents[4] / "roles"
MODULES = "usr/local/lib/muster/muster_jobs"


def written(role: str) -> list[str]:
    """Return what a role writes of the package, in its order."""
    tables = yaml.safe_load((ROLES / role / "vars/main.yml").read_text(encoding="utf-8"))
    entries = tables[f"__{role}_files"]
    return [Path(e["dest"]).name for e in entries if e["dest"].startswith(f"/{MODULES}/")]


def test_the_role_writes_all_modules_of_both_programs() -> None:
    tables = yaml.safe_load((ROLES / "jobs/vars/main.yml").read_text(encoding="utf-8"))
    files = ROLES / "jobs/files"
    there = {
        f"/{path.relative_to(files)}"
        for path in files.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    files_and_examples = [*tables["__jobs_files"], *tables["__jobs_examples"]]
    assert {entry["dest"] for entry in files_and_examples} == there
    # Killed in between, a host has no program without its modules.
    assert [e["dest"].startswith("/usr/local/bin") for e in tables["__jobs_files"][-2:]] == [
        True
    ] * 2


def test_mail_has_links_to_what_it_writes() -> None:
    folder = ROLES / "mail/files" / MODULES
    links = {path.name: path for path in folder.glob("*.py")}
    assert sorted(links) == sorted(written("mail"))
    for name, path in links.items():
        assert path.is_symlink()
        assert path.resolve() == ROLES / "jobs/files" / MODULES / name


def test_the_mail_program_finds_all_that_it_imports() -> None:
    """With the links alone: the role jobs may not be on the host."""
    done = subprocess.run(
        [sys.executable, "-c", "import muster_mail; print(muster_mail.used.__name__)"],
        env={"PYTHONPATH": f"{ROLES}/mail/files:{ROLES}/mail/files/usr/local/lib/muster"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "used\n"), done.stderr
