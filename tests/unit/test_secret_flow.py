"""Where secrets may go on their way to a host: into their own files, and nowhere else."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from role_files import tasks_in

ROOT = Path(__file__).resolve().parents[2]
SECRETS = sorted(yaml.safe_load((ROOT / "ansible/group_vars/all/secret_variables.yml").read_text()))
ROLES = sorted(
    role for role in (ROOT / "roles").iterdir() if (role / "meta/argument_specs.yml").is_file()
)
LOOKUP = re.compile(r"lookup\('ansible\.builtin\.template', '([^']+)'\)")


def names_a_secret(value: Any) -> bool:
    return any(re.search(rf"\b{name}\b", json.dumps(value)) for name in SECRETS)


def mappings_in(data: Any) -> Iterator[dict[str, Any]]:
    if isinstance(data, dict):
        yield data
        for value in data.values():
            yield from mappings_in(value)
    elif isinstance(data, list):
        for value in data:
            yield from mappings_in(value)


def sources(role: Path) -> Iterator[tuple[Path, Any]]:
    """Tasks and private tables of a role."""
    for path in [*sorted(role.glob("tasks/*.yml")), *sorted(role.glob("vars/*.yml"))]:
        yield path, yaml.safe_load(path.read_text())


def files_of(role: Path) -> Iterator[dict[str, Any]]:
    """Files that a role writes."""
    for _, data in sources(role):
        yield from (mapping for mapping in mappings_in(data) if "dest" in mapping)


def test_the_secrets_are_known() -> None:
    assert {"munge_key_b64", "mariadb_password", "slurmdbd_storage_password"} <= set(SECRETS)


def test_each_secret_reaches_a_role() -> None:
    # Otherwise the tests below would look for names that are not used.
    for name in SECRETS:
        owners = [role for role in ROLES if name.startswith(f"{role.name}_")]
        role = max(owners, key=lambda role: len(role.name))
        texts = [path.read_text() for path in role.rglob("*") if path.suffix in (".yml", ".j2")]
        assert any(name in text for text in texts), name


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
class TestFlow:
    def test_a_file_with_a_secret_is_written_as_a_secret(self, role: Path) -> None:
        secret_templates = {
            str(path.relative_to(role / "templates"))
            for path in role.rglob("templates/**/*.j2")
            if names_a_secret(path.read_text())
        }
        tables = {
            name: text
            for _, data in sources(role)
            if isinstance(data, dict)
            for name, text in data.items()
        }
        as_secret = set()
        for entry in files_of(role):
            secret = entry.get("secret_content_b64", "")
            as_secret |= set(LOOKUP.findall(secret))
            shown = {key: value for key, value in entry.items() if key != "secret_content_b64"}
            assert not names_a_secret(shown), entry["dest"]
            assert entry.get("template") not in secret_templates, entry["dest"]
            if secret:
                # Nobody but its owner and, where that is no person, its group.
                mode = entry.get("mode", "0600")
                if variable := re.fullmatch(r"{{ (\w+) }}", mode):
                    mode = tables[variable[1]]
                modes = re.findall(r"\b0\d{3}\b", mode)
                assert modes, entry["dest"]
                assert all(re.fullmatch(r"0[46][04]0", one) for one in modes), entry["dest"]
        assert secret_templates <= as_secret

    def test_no_command_line_holds_a_secret(self, role: Path) -> None:
        commands = ("command", "shell", "raw", "script")
        for path, data in sources(role):
            if path.parent.name != "tasks":
                continue
            for task in tasks_in(data):
                for name in commands:
                    used = [task.get(name), task.get(f"ansible.builtin.{name}")]
                    assert not names_a_secret(used), f"{path.name}: {task.get('name')}"

    def test_an_own_module_that_takes_a_secret_knows_it_for_one(self, role: Path) -> None:
        for path, data in sources(role):
            if path.parent.name != "tasks":
                continue
            for task in tasks_in(data):
                for module in (ROOT / "ansible/plugins/modules").glob("*.py"):
                    given = task.get(f"muster.slurm.{module.stem}")
                    if not isinstance(given, dict):
                        continue
                    for option in (key for key, value in given.items() if names_a_secret(value)):
                        # The files of managed_files have their own option (above).
                        if (module.stem, option) == ("managed_files", "files"):
                            option = "secret_content_b64"  # noqa: PLW2901
                        spec = rf'"{option}": {{[^}}]*"no_log": True'
                        assert re.search(spec, module.read_text()), f"{module.name}: {option}"
