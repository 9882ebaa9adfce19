"""definition.yml: a wrong definition ends the run, a right one gives every host its variables."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from muster.render import role_variables

ROOT = Path(__file__).resolve().parents[3]
CLUSTER = "group_vars/all/cluster.yml"
DEFINITION = {"import_playbook": str(ROOT / "ansible/definition.yml")}
HOSTS_OF = "{{ groups.role_%s | default('!all') }}"


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """A copy of the lab's inventory."""
    ignored = shutil.ignore_patterns("secrets.yml*", ".machines")
    return Path(shutil.copytree(ROOT / "inventories/lab", tmp_path / "lab", ignore=ignored))


def play(
    inventory: Path, *plays: dict[str, Any], options: tuple[str, ...] = ()
) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    """Run definition.yml and these plays; return the process and the plays' results."""
    site = inventory.parent / "site.yml"
    site.write_text(yaml.safe_dump([DEFINITION, *plays]))
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("ansible-playbook")),
            *("--inventory", str(inventory), *options, str(site)),
        ],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    document, _ = json.JSONDecoder().raw_decode(done.stdout[done.stdout.index("{") :])
    return done, list(document["plays"])


def shown(hosts: str, *names: str) -> dict[str, Any]:
    """A play that shows variables of hosts."""
    values = ", ".join(f"'{name}': {name}" for name in names)
    task = {"ansible.builtin.debug": {"msg": f"{{{{ {{{values}}} }}}}"}}
    return {"hosts": hosts, "gather_facts": False, "tasks": [task]}


def results(plays: list[dict[str, Any]], number: int) -> dict[str, Any]:
    """What a play of `shown` showed, by host."""
    tasks = plays[number]["tasks"]
    return {host: result["msg"] for host, result in tasks[0]["hosts"].items()} if tasks else {}


def test_a_wrong_definition_ends_the_run_with_its_lines(inventory: Path) -> None:
    file = inventory / CLUSTER
    lines = file.read_text().splitlines()
    number = next(n for n, line in enumerate(lines, 1) if line.startswith("  partitions:"))
    file.write_text("\n".join([*lines[: number - 1], "  partitons: {}", *lines[number - 1 :]]))
    done, plays = play(inventory, shown("all", "munge_threads"))
    assert done.returncode != 0
    failed = [task for task in plays[-1]["tasks"] if task["hosts"]]
    assert [task["task"]["name"] for task in failed] == ["Check the definition of lab"]
    [result] = failed[0]["hosts"].values()
    told = f'cluster.yml:{number}: partitons: unknown key "partitons"; did you mean "partitions"?'
    assert [line.rpartition("/")[2] for line in result["msg"]] == [told]


def test_each_host_has_its_variables_and_is_in_the_groups_of_its_roles(inventory: Path) -> None:
    """Also where a run has two playbooks, with their first play each."""
    with (inventory / CLUSTER).open("a") as file:
        file.write("  nvidia: {modules: proprietary}\n")
    done, plays = play(
        inventory,
        shown("all", "base_hostname", "base_hosts"),
        shown(HOSTS_OF % "nvidia_driver", "nvidia_driver_gpus"),
        shown(HOSTS_OF % "nfs_server", "nfs_server_exports"),
        DEFINITION,
        shown(HOSTS_OF % "nvidia_driver", "nvidia_driver_gpus"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Could not match" not in done.stderr
    common = results(plays, 1)
    assert len(common) == 5
    assert all(shown["base_hostname"] == host for host, shown in common.items())
    addresses = {line["name"]: line["address"] for line in common["lab-cpu-01"]["base_hosts"]}
    hosts = yaml.safe_load((inventory / "hosts.yml").read_text())
    assert addresses["lab-access"] in json.dumps(hosts)
    assert set(results(plays, 2)) == {"lab-gpu-01", "lab-gpu-02"}
    assert results(plays, 3) == {}
    assert set(results(plays, 5)) == {"lab-gpu-01", "lab-gpu-02"}


def test_a_variable_that_the_inventory_sets_stays(inventory: Path) -> None:
    """One that a single host sets is made for the others."""
    # Templates too: of what is known when they are used.
    value = "\"{{ 3 + (inventory_hostname == 'lab-cpu-01') | int }}\"\n"
    names = {
        "group_vars/all/site.yml": "munge_threads",
        "group_vars/compute.yml": "base_hostname",
        "host_vars/lab-cpu-01.yml": "base_os",
    }
    for file, name in names.items():
        path = inventory / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}: {value}")
    with (inventory / "host_vars/lab-cpu-01.yml").open("a") as file:
        file.write("base_hosts: []\n")
    done, plays = play(
        inventory, shown("lab-cpu-01", *names.values()), shown("compute", "base_hosts")
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert results(plays, 1)["lab-cpu-01"] == dict.fromkeys(names.values(), 4)
    counts = {host: len(shown["base_hosts"]) for host, shown in results(plays, 2).items()}
    assert counts == {"lab-cpu-01": 0, "lab-cpu-02": 5, "lab-gpu-01": 5, "lab-gpu-02": 5}


def test_the_command_line_s_variable_stays(inventory: Path) -> None:
    done, plays = play(
        inventory,
        shown("all", "munge_threads"),
        options=("-e", "munge_threads=7", "--limit=compute"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    values = {host: shown["munge_threads"] for host, shown in results(plays, 1).items()}
    assert len(values) == 4
    assert {*values.values()} == {"7"}


@pytest.mark.parametrize(
    "options",
    [("--start-at-task", "Make those of each host"), ("--step",), ("--skip-tags", "always,mail")],
    ids=lambda options: options[0],
)
def test_a_run_without_its_first_play_is_refused(inventory: Path, options: tuple[str, ...]) -> None:
    """Roles would take their defaults, which remove people and modulefiles."""
    command = ["ansible-playbook", "-i", str(inventory), *options, "ansible/packages.yml"]
    done = subprocess.run(
        [str(Path(sys.executable).with_name(command[0])), *command[1:]],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0
    assert f"{' '.join(options[:1])}" in done.stderr
    assert "choose with --tags and --limit instead" in " ".join(done.stderr.split())
    assert "TASK [" not in done.stdout


def test_a_value_that_cannot_be_computed_yet_is_named(inventory: Path) -> None:
    (inventory / "group_vars/compute.yml").write_text('nfs_client_mounts: "{{ no_such }}"\n')
    done, plays = play(inventory, shown("all", "munge_threads"))
    assert done.returncode != 0
    told = json.dumps(plays) + done.stderr
    assert "nfs_client_mounts is needed before the first host is touched" in told
    # No host is configured when one has no variables.
    assert len(plays) == 1


def with_variables(inventory: Path, text: str) -> Path:
    (inventory / "group_vars/all/more.yml").write_text(text)
    return inventory


def test_variables_that_roles_would_refuse_end_the_run_before_any_host_is_touched(
    inventory: Path,
) -> None:
    # Templates, of which `muster check` can't say what they are.
    text = (
        "site: {port: many, float: 7.5, paths: {a: b}}\n"
        "slurmd_port: '{{ site.port }}'\n"
        "slurmctld_port: '{{ site.float }}'\n"
        "lmod_module_paths: '{{ site.paths }}'\n"
    )
    done, plays = play(with_variables(inventory, text), shown("all", "munge_threads"))
    assert done.returncode != 0
    assert len(plays) == 1
    said = " ".join(done.stdout.split())
    assert "role variables of lab-gpu-01 are wrong:" in said
    assert "role slurmd: argument 'slurmd_port' is of type str" in said
    assert "role slurmctld: argument 'slurmctld_port' is of type float" in said
    assert "role lmod: argument 'lmod_module_paths' is of type dict" in said


def test_variables_that_fit_or_may_fit_are_left_alone(inventory: Path) -> None:
    """All of them in one run, whose message would name the one that is refused."""
    with_variables(
        inventory,
        # Of a role that no host has.
        "site_size: none\n"
        "fscache_size_gib: '{{ site_size }}'\n"
        # What a later task finds out.
        "slurmd_port: '{{ found_port.stdout }}'\n"
        "slurmd_spool_dir: '/var/{{ ansible_facts.kernel }}'\n"
        # A variable from the definition.
        "slurmd_restart_digest: '{{ base_hostname }} {{ base_os }}'\n",
    )
    # A default of a role.
    (inventory / "host_vars").mkdir()
    (inventory / "host_vars/lab-cpu-01.yml").write_text(
        "slurmd_spool_dir: '{{ slurmctld_state_dir }}/slurmd'\n"
    )
    done, _ = play(inventory, shown("all", "base_os"))
    assert done.returncode == 0, done.stdout[-3000:]


def test_a_default_of_a_role_fits_its_specification() -> None:
    """The first play checks only what is no default."""
    for file in (ROOT / "roles").glob("*/defaults/main.yml"):
        specification = yaml.safe_load((file.parents[1] / "meta/argument_specs.yml").read_text())
        options = specification["argument_specs"]["main"].get("options", {})
        # Those that are templates become what they are on a host.
        values = {
            name: value
            for name, value in (yaml.safe_load(file.read_text()) or {}).items()
            if "{{" not in json.dumps(value)
        }
        chosen = {name: options[name] for name in values}
        result = ArgumentSpecValidator(chosen).validate(values, validate_role_argument_spec=True)
        assert result.error_messages == [], file


def test_the_roles_of_site_yml_are_checked_in_the_first_play() -> None:
    plays = yaml.safe_load((ROOT / "ansible/site.yml").read_text())
    imports = [
        (play["hosts"], task["ansible.builtin.import_role"])
        for play in plays
        for task in play.get("tasks", [])
        if "ansible.builtin.import_role" in task
    ]
    assert len(imports) > 20
    table = role_variables._ROLES
    for hosts, entry in imports:
        role = entry["name"]
        specification = ROOT / "roles" / role / "meta/argument_specs.yml"
        options = yaml.safe_load(specification.read_text())["argument_specs"]["main"].get("options")
        # The first play reads no secret. munge's tasks check its key.
        needs_password = any(
            option.get("no_log") and option.get("required") for option in (options or {}).values()
        )
        assert entry.get("rolespec_validate", True) is (needs_password and role != "munge"), role
        if not options:
            continue
        # A play on a group `role_X` has those of the table that need X.
        named = {name for name in hosts.split(":") if not name.startswith("!")}
        if not hosts.startswith("{{"):
            assert table[role].hosts == ("all",) or named <= {*table[role].hosts}, role
