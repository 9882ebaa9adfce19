"""The collection `muster.slurm`: what is in its archive, and that its parts are called in full."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.playbook.block import Block
from ansible.playbook.handler import Handler
from packaging.specifiers import SpecifierSet
from role_files import tasks_in

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = ROOT / "ansible/plugins"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DESCRIPTION = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))
FULL_NAME = f"{DESCRIPTION['namespace']}.{DESCRIPTION['name']}"

NOT_IN_IT = {"autoscaler", "cloud_node", "cloud_vm"}
"""Roles of VMs in the cloud: they need Muster's image and the Python package beside them."""

NEEDS_PACKAGE = {"verify"}
"""Roles of the collection that use filters of the Python package."""

KEYWORDS = {*Handler.fattributes, *Block.fattributes}
TASK_FILES = sorted(
    [*ROOT.glob("roles/*/tasks/*.yml"), *ROOT.glob("ansible/*.yml"), *ROOT.glob("molecule/*/*.yml")]
)
TEXTS = sorted(
    path
    for folder in ("ansible", "inventories", "molecule", "roles")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".yml", ".j2") and path.is_file()
)


def wrong_actions(entries: Any) -> list[str]:
    """Return actions without their collection's name, and ones that this collection has not."""
    actions = {key for task in tasks_in(entries) for key in task.keys() - KEYWORDS}
    own = {f"{FULL_NAME}.{path.stem}" for path in (PLUGINS / "modules").glob("*.py")}
    return sorted(
        action
        for action in actions
        if action.count(".") < 2 or (action.startswith(f"{FULL_NAME}.") and action not in own)
    )


def own_filters() -> set[str]:
    text = (PLUGINS / "filter/muster.py").read_text(encoding="utf-8")
    return set(re.findall(r'^ +"(muster_\w+)": ', text, re.MULTILINE))


def short_plugins(text: str) -> list[str]:
    """Return the own filters and lookups that a text uses without the collection's name."""
    lookups = "|".join(path.stem for path in (PLUGINS / "lookup").glob("*.py"))
    used = re.findall(r"\|\s*(\w+)\b(?!\.)", text)
    looked_up = re.findall(rf"""(?:lookup|query|q)\(\s*['"]({lookups})['"]""", text)
    return sorted({*used} & own_filters()) + looked_up


# -- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", TASK_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_tasks_call_modules_in_full(path: Path) -> None:
    assert wrong_actions(yaml.safe_load(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("name", ["managed_files", "muster.slurm.no_such", "copy"])
def test_another_name_is_noticed(name: str) -> None:
    path = ROOT / "roles/munge/tasks/configure.yml"
    text = path.read_text(encoding="utf-8")
    assert f"{FULL_NAME}.managed_files:" in text
    tasks = yaml.safe_load(text.replace(f"{FULL_NAME}.managed_files:", f"{name}:"))
    assert wrong_actions(tasks) == [name]
    assert wrong_actions([{"hosts": "all", "tasks": [{"block": tasks}]}]) == [name]


def test_filters_and_lookups_are_called_in_full() -> None:
    assert {path: short for path in TEXTS if (short := short_plugins(path.read_text()))} == {}
    play = (ROOT / "ansible/definition.yml").read_text(encoding="utf-8")
    assert f"{FULL_NAME}.muster_" in play
    assert short_plugins(play.replace(f"{FULL_NAME}.", "")) != []
    assert short_plugins("{{ lookup('cloud_secret', 'x') }}") == ["cloud_secret"]


@pytest.mark.parametrize("path", sorted((PLUGINS / "modules").glob("*.py")), ids=lambda p: p.stem)
def test_examples_of_modules_are_right(path: Path) -> None:
    examples = path.read_text(encoding="utf-8").partition('EXAMPLES = r"""')[2].partition('"""')[0]
    tasks = yaml.safe_load(examples)
    assert tasks
    assert wrong_actions(tasks) == []


def test_programs_are_run_in_the_one_way_that_loses_no_output() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}: use run() of module_utils/commands.py"
        for path in sorted(PLUGINS.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "run_command"
    ]
    assert wrong == []


# -- the archive ----------------------------------------------------------------------------------

PLANTED = "planted: 5e1f"
BESIDES = [
    ".coverage",
    ".git",
    ".mypy_cache",
    ".venv",
    "build",
    "muster.egg-info",
    "ansible/group_vars",
    "inventories/lab/group_vars/all",
    "roles/munge/__pycache__",
]
"""What a checkout may have and the archive must not."""


def galaxy(*words: str, folder: Path) -> str:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ansible-galaxy")), "collection", *words],
        cwd=folder,
        env={**os.environ, "ANSIBLE_HOME": str(folder.parent / "ansible"), "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collection, made in a checkout with a secret in each folder that it should not take."""
    work = tmp_path_factory.mktemp("collection")
    checkout = work / "checkout"
    checkout.mkdir()
    for path in ROOT.iterdir():
        if path.name == ".git":
            continue  # a file in a worktree
        if path.is_symlink():
            (checkout / path.name).symlink_to(path.readlink())
        elif path.name in ("ansible", "examples", "meta", "roles"):
            shutil.copytree(path, checkout / path.name, symlinks=True)
        elif path.is_dir():
            (checkout / path.name).mkdir()
            (checkout / path.name / "secrets.yml").write_text(PLANTED)
        else:
            shutil.copy(path, checkout)
    for name in BESIDES:
        (checkout / name).mkdir(parents=True, exist_ok=True)
        (checkout / name / "secrets.yml").write_text(PLANTED)
    galaxy("build", "--output-path", str(work), folder=checkout)
    return work / f"{FULL_NAME.replace('.', '-')}-{PROJECT['version']}.tar.gz"


def test_the_archive_has_roles_plugins_and_what_tells_about_them(archive: Path) -> None:
    with tarfile.open(archive) as opened:
        names = {member.name for member in opened}
        contents = [opened.extractfile(member) for member in opened if member.isfile()]
        texts = [content.read() for content in contents if content]
    of_ansible = {"MANIFEST.json", "FILES.json"}
    tells = {"README.md", "CHANGELOG.md", "LICENSE", "meta"}
    assert {name.split("/")[0] for name in names} == {
        *of_ansible,
        *tells,
        "ansible",
        "examples",
        "plugins",
        "roles",
    }
    assert [name for name in names if name.startswith("examples/software")] == []
    roles = {path.name for path in (ROOT / "roles").iterdir() if path.is_dir()}
    assert {name.split("/")[1] for name in names if name.startswith("roles/")} == roles - NOT_IN_IT
    code = {
        path.relative_to(ROOT).as_posix()
        for folder in (PLUGINS, *(ROOT / "roles" / role for role in roles - NOT_IN_IT))
        for path in folder.rglob("*")
        if "__pycache__" not in path.parts
    }
    inside = {name for name in names if re.match(r"(ansible/plugins|roles)/", name)}
    assert code - inside == set()
    others = {"/".join(name.split("/")[:2]) for name in names if name.startswith("ansible/")}
    assert others == {"ansible/plugins"}
    assert [name for name in names if name.split("/")[-1] == "secrets.yml"] == []
    assert [text for text in texts if PLANTED.encode() in text] == []
    assert [name for name in names if "test" in name.split("/")[-1]] == []


def test_an_installed_collection_has_plugins_where_ansible_and_links_of_roles_look(
    archive: Path,
) -> None:
    folder = archive.parent / "installed"
    folder.mkdir()
    galaxy("install", "--offline", "-p", str(folder), str(archive), folder=folder)
    installed = folder / "ansible_collections" / FULL_NAME.replace(".", "/")
    for path in PLUGINS.rglob("*.py"):
        assert (installed / "plugins" / path.relative_to(PLUGINS)).read_bytes() == path.read_bytes()
    links = [
        link
        for role in (ROOT / "roles").iterdir()
        for link in role.rglob("*")
        if link.is_symlink() and role.name not in NOT_IN_IT
    ]
    assert {"README.md", "train.py"} <= {link.name for link in links}
    for link in links:
        assert (installed / link.relative_to(ROOT)).read_bytes() == link.read_bytes()
    manifest = json.loads((installed / "MANIFEST.json").read_text())["collection_info"]
    assert manifest["version"] == PROJECT["version"]
    assert manifest["license"] == [PROJECT["license"]]


def test_it_supports_the_ansible_that_is_tested() -> None:
    runtime = yaml.safe_load((ROOT / "meta/runtime.yml").read_text(encoding="utf-8"))
    (core,) = [need for need in PROJECT["dependencies"] if need.startswith("ansible-core")]
    supported = SpecifierSet(core.removeprefix("ansible-core"))
    assert SpecifierSet(runtime["requires_ansible"]) == supported


# -- roles that are used alone --------------------------------------------------------------------


def texts_of(role: str) -> dict[str, str]:
    """Return what Ansible reads of a role: path -> text."""
    folder = ROOT / "roles" / role
    paths = [
        path for kind in ("defaults", "tasks", "vars") for path in (folder / kind).rglob("*.yml")
    ]
    paths += (folder / "templates").rglob("*.j2")
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


@pytest.mark.parametrize(
    "role", sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir())
)
class TestRole:
    def test_it_reads_nothing_outside_of_its_folder_or_is_not_in_the_archive(self, role: str):
        outside = re.compile(r"role_path\b.*\.\./|playbook_dir|/opt/muster(?![\w-])")
        reads = [path for path, text in texts_of(role).items() if outside.search(text)]
        assert role in NOT_IN_IT or reads == []

    def test_it_needs_the_python_package_only_where_its_readme_says_so(self, role: str):
        used = [path for path, text in texts_of(role).items() if f"{FULL_NAME}.muster_" in text]
        assert bool(used) is (role in NEEDS_PACKAGE)
        readme = (ROOT / "roles" / role / "README.md").read_text(encoding="utf-8")
        assert ("the Python package `muster`" in readme) is (role in NEEDS_PACKAGE)

    def test_its_readme_names_roles_as_a_playbook_elsewhere_does(self, role: str):
        readme = (ROOT / "roles" / role / "README.md").read_text(encoding="utf-8")
        named = re.findall(r"^ +(?:- role: (\S+)|roles: \[(.*)\])$", readme, re.MULTILINE)
        roles = [name for one, many in named for name in (one or many).split(", ")]
        prefix = "" if role in NOT_IN_IT else f"{FULL_NAME}."
        assert role in NEEDS_PACKAGE or f"{prefix}{role}" in roles
        assert [
            name for name in roles if not (ROOT / "roles" / name.removeprefix(prefix)).is_dir()
        ] == []
