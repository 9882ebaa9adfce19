"""Each role has one shape, and its specification, defaults and README say the same."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
import yamlkit
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from role_files import OF_A_CLUSTER, tasks_in

ROOT = Path(__file__).resolve().parents[2]
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir())
RELEASES = ["Debian-12", "Debian-13", "Ubuntu-22.04", "Ubuntu-24.04"]

SECRET = re.compile(r"_(key|key_b64|password|secret|token)$")
ROW = re.compile(r"^\| `(?P<name>\w+)` \| (?P<default>.+?) \| (?P<meaning>.+?) \|$", re.MULTILINE)


def load(path: Path) -> Any:
    return yamlkit.load(path.read_text(encoding="utf-8"))


def defaults_of(role: str) -> dict[str, Any]:
    return load(ROOT / "roles" / role / "defaults/main.yml") or {}


def options_of(role: str) -> dict[str, Any]:
    return load(ROOT / "roles" / role / "meta/argument_specs.yml")["argument_specs"]["main"].get(
        "options", {}
    )


def readme_of(role: str) -> str:
    return (ROOT / "roles" / role / "README.md").read_text(encoding="utf-8")


def table_of(role: str) -> dict[str, tuple[str, str]]:
    """Return the variables in a README's table: name -> (default, meaning)."""
    return {row["name"]: (row["default"], row["meaning"]) for row in ROW.finditer(readme_of(role))}


def is_template(value: object) -> bool:
    return "{{" in json.dumps(value)


def task_files(role: str) -> list[Path]:
    return sorted((ROOT / "roles" / role / "tasks").glob("*.yml"))


def tasks_of(role: str) -> list[tuple[Path, dict[str, Any]]]:
    return [(path, task) for path in task_files(role) for task in tasks_in(load(path))]


def vars_of(role: str) -> dict[str, Any]:
    """Return the private tables of a role, those of all systems together."""
    by_name: dict[str, Any] = {}
    for path in sorted((ROOT / "roles" / role / "vars").glob("*.yml")):
        for name, value in load(path).items():
            by_name[name] = [*by_name.get(name, []), value]
    return by_name


def files_in(data: Any) -> Iterator[dict[str, Any]]:
    """Yield the entries of managed_files, in a task or in a table."""
    if isinstance(data, dict):
        if "dest" in data:
            yield data
        for value in data.values():
            yield from files_in(value)
    elif isinstance(data, list):
        for value in data:
            yield from files_in(value)


def templates_in(data: Any) -> set[str]:
    """Return the templates that tasks or tables name; one with secrets is looked up."""
    looked_up = re.findall(r"lookup\('ansible\.builtin\.template', '([^']+)'", json.dumps(data))
    return {entry["template"] for entry in files_in(data) if entry.get("template")} | {*looked_up}


def expressions_of(role: str, task: dict[str, Any]) -> str:
    """Return all Jinja that a task evaluates, in private tables and templates too."""
    if "ansible.builtin.fail" in task:
        # Prints its message and nothing else; what a private table makes of a secret (its length)
        # is none.
        return " ".join(re.findall(r"{{.*?}}", json.dumps(task["ansible.builtin.fail"])))
    parts: list[Any] = [{key: value for key, value in task.items() if key != "name"}]
    seen: set[str] = set()
    for part in parts:
        text = json.dumps(part)
        for name, value in vars_of(role).items():
            if name not in seen and re.search(rf"\b{name}\b", text):
                seen.add(name)
                parts.append(value)
    templates = [
        (ROOT / "roles" / role / "templates" / name).read_text(encoding="utf-8")
        for name in sorted(templates_in(parts))
    ]
    text = "".join([json.dumps(parts), *templates])
    return " ".join(re.findall(r"{{.*?}}|{%.*?%}", text, re.DOTALL))


def test_there_are_roles():
    assert {"base", "munge", "slurmctld", "slurmd"} <= set(ROLES)


@pytest.mark.parametrize("role", ROLES)
class TestInterface:
    """Three places tell a user of a role's variables."""

    def test_required_variables_have_no_default_and_the_others_have_one(self, role):
        options = options_of(role)
        required = {name for name, option in options.items() if option.get("required")}
        assert set(defaults_of(role)) == set(options) - required

    def test_the_specification_tells_the_default_that_is_in_force(self, role):
        options, defaults = options_of(role), defaults_of(role)
        # A default that is a template depends on the host: the specification tells it in words.
        expected = {name: value for name, value in defaults.items() if not is_template(value)}
        assert {name: options[name].get("default") for name in expected} == expected

    def test_the_readme_lists_the_variables_of_the_specification(self, role):
        assert set(table_of(role)) == set(options_of(role))

    def test_the_readme_tells_the_default_that_is_in_force(self, role):
        defaults = defaults_of(role)
        told = {name: default for name, (default, _) in table_of(role).items()}
        expected = {name: "required" for name in options_of(role) if name not in defaults}
        for name, value in defaults.items():
            # In words if it is a template; otherwise as YAML.
            expected[name] = told.get(name) if is_template(value) else value
        read = {
            name: yaml.safe_load(default[1:-1]) if default.startswith("`") else default
            for name, default in told.items()
        }
        for name, value in defaults.items():
            if is_template(value):
                read[name] = told.get(name)
        assert read == expected

    def test_each_variable_has_a_type_and_a_meaning(self, role):
        for name, option in options_of(role).items():
            assert option.get("type"), name
            assert option.get("description", "").endswith("."), f"{name}: a sentence"

    def test_public_names_carry_the_role_s_name(self, role):
        names = set(options_of(role)) | set(defaults_of(role))
        assert {name for name in names if not name.startswith(f"{role}_")} == set()

    def test_a_secret_is_marked_as_one(self, role):
        options = options_of(role)
        marked = {name for name, option in options.items() if option.get("no_log")}
        assert marked == {name for name in options if SECRET.search(name)}

    def test_no_secret_has_a_default(self, role):
        options = options_of(role)
        optional = {name for name in options if not options[name].get("required")}
        assert {name for name in optional if SECRET.search(name)} == set()


@pytest.mark.parametrize("role", ROLES)
class TestShape:
    """Who knows one role finds his way in all."""

    def test_the_files_are_there(self, role):
        folder = ROOT / "roles" / role
        for name in ("README.md", "defaults/main.yml", "meta/argument_specs.yml", "meta/main.yml"):
            assert (folder / name).is_file(), name
        assert (folder / "tasks/main.yml").is_file()

    def test_main_is_a_table_of_contents_with_tags(self, role):
        halves = [path.stem for path in task_files(role) if path.stem in ("install", "configure")]
        if role in OF_A_CLUSTER:
            assert halves == []
            return
        assert halves
        imports = {
            task["ansible.builtin.import_tasks"].removesuffix(".yml"): task.get("tags")
            for task in load(ROOT / "roles" / role / "tasks/main.yml")
            if "ansible.builtin.import_tasks" in task
        }
        for half in halves:
            assert imports.get(half) == [role, f"{role}_{half}"]

    def test_the_readme_has_its_sections_in_order(self, role):
        text = readme_of(role)
        assert text.startswith(f"# {role}\n")
        wanted = ["## Variables", "## How to verify", "## Systems", "## Limits"]
        sections = [line for line in text.splitlines() if line in wanted]
        assert sections == wanted
        assert re.search(r"Proven on Debian 12\b.* 13\b", text)

    def test_the_licence_and_the_systems_are_stated(self, role):
        galaxy = load(ROOT / "roles" / role / "meta/main.yml")
        assert galaxy["galaxy_info"]["license"] == "Apache-2.0"
        systems = {entry["name"]: entry["versions"] for entry in galaxy["galaxy_info"]["platforms"]}
        assert systems == {"Debian": ["bookworm", "trixie"], "Ubuntu": ["jammy", "noble"]}
        assert galaxy["dependencies"] == []

    def test_tables_by_system_cover_all_systems_alike(self, role):
        tables = sorted((ROOT / "roles" / role / "vars").glob("*-*.yml"))
        if tables:
            assert [path.stem for path in tables] == RELEASES
            keys = {path.stem: sorted(load(path)) for path in tables}
            assert len({tuple(names) for names in keys.values()}) == 1, keys

    def test_private_names_are_marked(self, role):
        for path in sorted((ROOT / "roles" / role / "vars").glob("*.yml")):
            for name in load(path):
                assert name.startswith(f"__{role}_"), f"{path.name}: {name}"
        for path, task in tasks_of(role):
            names = [task["register"]] if "register" in task else []
            names += list(task.get("ansible.builtin.set_fact", {}))
            for name in names:
                assert name == "cacheable" or name.startswith(f"__{role}_"), f"{path.name}: {name}"


@pytest.mark.parametrize("role", ROLES)
class TestTasks:
    def test_names_are_unique_sentences(self, role):
        for path in task_files(role):
            names = [task.get("name", "") for task in tasks_in(load(path))]
            twice = [name for name, count in Counter(names).items() if count > 1]
            assert twice == [], path.name
            for name in names:
                assert re.match(r"^[A-Z].*[^.]$", name), f"{path.name}: {name!r}"

    def test_packages_come_in_install_and_one_way_only(self, role):
        for path, task in tasks_of(role):
            # managed_packages alone knows what keeps a host quiet (nothing recommended, no start).
            assert not {"ansible.builtin.apt", "ansible.builtin.package"} & task.keys()
            if "muster.slurm.managed_packages" in task:
                assert path.stem == "install", f"{path.name}: {task['name']}"

    def test_installing_needs_no_fact_of_the_cluster(self, role):
        path = ROOT / "roles" / role / "tasks/install.yml"
        if path.exists():
            text = path.read_text(encoding="utf-8")
            # The release of SLURM to install is known when an image is made.
            required = {
                name
                for name, option in options_of(role).items()
                if option.get("required") and not name.endswith("_version")
            }
            assert {name for name in required if re.search(rf"\b{name}\b", text)} == set()

    def test_tasks_that_touch_a_secret_are_silent(self, role):
        secrets = [name for name in options_of(role) if SECRET.search(name)]
        for path, task in tasks_of(role):
            used = expressions_of(role, task)
            if any(re.search(rf"\b{name}\b", used) for name in secrets):
                silent = f"{{{{ {role}_secure_logging }}}}"
                assert task.get("no_log") == silent, f"{path.name}: {task['name']}"

    def test_a_template_s_path_is_its_destination(self, role):
        folder = ROOT / "roles" / role / "templates"
        data = [[task for _, task in tasks_of(role)], vars_of(role)]
        there = {str(path.relative_to(folder)) for path in folder.rglob("*.j2")}
        assert templates_in(data) == there
        for entry in files_in(data):
            if entry.get("template") and "{{" not in entry["dest"]:
                assert f"/{entry['template'].removesuffix('.j2')}" == entry["dest"]


def test_no_list_is_made_of_a_set() -> None:
    """Ansible's set filters order their result by hashes, which differ from run to run."""
    files = [*(ROOT / "ansible").rglob("*.yml"), *(ROOT / "roles").rglob("*.yml")]
    files += [*(ROOT / "roles").rglob("*.j2")]
    filters = re.compile(r"\|\s*(difference|intersect|union|symmetric_difference|unique)\b")
    using_sets = [file for file in files if filters.search(file.read_text(encoding="utf-8"))]
    assert using_sets == []


def strings_in(value: Any) -> Iterator[str]:
    """Yield all text of a YAML value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from strings_in(part)


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(path, id=str(path.relative_to(ROOT)))
        for path in sorted((ROOT / "roles").rglob("*"))
        if path.is_file() and path.read_bytes().startswith(b"#!/usr/bin/python3")
    ],
)
def test_a_program_imports_nothing_from_where_it_is_typed(program: Path) -> None:
    """An empty word in PYTHONPATH, as `export PYTHONPATH=$PYTHONPATH:/opt` makes it, is there."""
    first_line = program.read_text(encoding="utf-8").partition("\n")[0]
    assert first_line in ("#!/usr/bin/python3 -I", "#!/usr/bin/python3 -IS")


def test_a_line_ends_with_more_than_a_backslash_and_an_n() -> None:
    """YAML makes a line end of them in double quotes alone, and Jinja in Ansible nowhere."""
    files = [*(ROOT / "ansible").rglob("*.yml"), *(ROOT / "roles").rglob("*.yml")]
    files += (ROOT / "molecule").rglob("*.yml")
    expression = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
    literal = [
        (file, found)
        for file in files
        for document in yaml.safe_load_all(file.read_text(encoding="utf-8"))
        for text in strings_in(document)
        for found in expression.findall(text)
        if re.search(r"\\[nt]", found)
    ]
    assert literal == []


@pytest.mark.parametrize(
    ("file", "register", "good"),
    [
        # Where nothing matches, the exit code is 1.
        (
            "nvidia_driver/tasks/install.yml",
            "__nvidia_driver_installed",
            [{"rc": 0, "stdout": "installed nvidia-kernel-dkms"}, {"rc": 1, "stdout": ""}],
        ),
        ("cephadm/tasks/access.yml", "__cephadm_key", [{"rc": 0, "stdout": "ssh-ed25519 A"}]),
        ("nfs_server/tasks/configure.yml", "__nfs_server_cores", [{"rc": 0, "stdout": "8"}]),
    ],
)
def test_an_answer_that_ansible_has_lost_is_not_believed(
    file: str, register: str, good: list[dict[str, Any]]
) -> None:
    """Its module `command` may give exit code 0 without the output: ansible issue 51393."""
    loader = DataLoader()
    tasks = loader.load_from_file(str(ROOT / "roles" / file), trusted_as_template=True)
    (task,) = (task for task in tasks_in(tasks) if task.get("register") == register)

    def fails(answer: dict[str, Any]) -> bool:
        variables = {register: answer, "ansible_check_mode": False}
        return Templar(loader=loader, variables=variables).evaluate_conditional(task["failed_when"])

    assert fails({"rc": 0, "stdout": ""})
    assert fails({"rc": 2, "stdout": ""})
    assert not any(fails(answer) for answer in good)


def test_munged_of_a_node_in_the_cloud_has_the_threads_of_the_role_munge() -> None:
    """Its image has no file with the role's options."""
    folder = ROOT / "roles/cloud_node/files/etc/systemd/system/munge.service.d"
    options = re.findall("OPTIONS=(.*)", (folder / "20-muster-node.conf").read_text("utf-8"))
    assert options == [f"--num-threads={defaults_of('munge')['munge_threads']}"]
