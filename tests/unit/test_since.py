"""`make test SINCE=REF` runs what a changed path can touch, and says what it leaves out and why."""

import re
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import changes
import prove
import pytest
import since
from file_dependencies import FileDependencies
from since import UNREACHED, Part, Suites, parts

ROOT = Path(__file__).resolve().parents[2]

# A small repository: path -> text; "-> path" is a link.
FILES = {
    "Makefile": "CEPH_ROLES := ceph\n",
    "ansible/definition.yml": "args: \"{{ lookup('muster.slurm.variables') }}\"\n",
    "ansible/plugins/callback/report.py": "",
    "ansible/plugins/lookup/variables.py": "from muster.render import nfs\n",
    "ansible/plugins/module_utils/refused_error.py": "",
    "ansible/plugins/modules/mounts.py": (
        "from ansible_collections.muster.slurm.plugins.module_utils.refused_error import Refused\n"
    ),
    "ansible/site.yml": "- import_playbook: definition.yml\n- roles:\n    - role: disk\n",
    "docs/page.md": "",
    "inventories/demo/hosts.yml": "",
    "molecule/cache/molecule.yml": "",
    "molecule/ceph/molecule.yml": "",
    "molecule/cluster/molecule.yml": (
        "- ../../tests/roles/test_munge.py\n- ../../tests/roles/test_slurmd.py\n"
    ),
    "molecule/disk/converge.yml": "",
    "molecule/disk/molecule.yml": "",
    "molecule/munge/molecule.yml": "",
    "molecule/shared/create.yml": "",
    "muster/__init__.py": "",
    "muster/autoscaler.py": "",
    "muster/cli.py": 'COMMANDS = {"render": "muster.render.nfs:render"}\n',
    "muster/render/__init__.py": "",
    "muster/render/data.json": "",
    "muster/render/nfs.py": '"""Not muster/autoscaler.py."""\n',
    "muster_sandbox/demo.py": 'SITE = ROOT / "ansible" / "site.yml"\nEXAMPLE = ROOT / "examples"\n',
    "examples/job.sbatch": "",
    "pulumi/__main__.py": "import components\n",
    "pulumi/components.py": "import muster.autoscaler\n",
    "roles/cache/files/disks.py": "-> roles/disk/files/disks.py",
    "roles/cache/tasks/main.yml": "",
    "roles/ceph/tasks/main.yml": "muster.slurm.mounts: {}\n",
    "roles/disk/files/disks.py": "",
    "roles/disk/tasks/main.yml": "muster.slurm.mounts: {}\n",
    "roles/munge/tasks/main.yml": "",
    "roles/slurmd/tasks/main.yml": "import_role:\n  name: munge\n",
    "roles/verify/tasks/main.yml": "",
    "tests/cloud/test_cloud.py": "",
    "tests/engine/kit.py": 'PROGRAM = ROOT / "pulumi"\n',
    "tests/engine/test_engine.py": "import kit\n",
    "tests/engine/test_long.py": 'pytestmark = pytest.mark.proof("long")\nimport kit\n',
    "tests/installed.py": "from muster.render import nfs\n",
    "tests/live/conftest.py": "from muster_sandbox import demo\n",
    "tests/live/test_jobs.py": "import waiting\n",
    "tests/live/test_site.py": "",
    "tests/roles/conftest.py": "",
    "tests/roles/test_disk.py": "import waiting\n",
    "tests/roles/test_munge.py": "",
    "tests/roles/test_slurmd.py": "",
    "tests/scenarios.py": "import installed\n",
    "tests/unit/conftest.py": "",
    "tests/unit/render/cases/one.yml": "",
    "tests/unit/render/test_nfs.py": "from muster.render import nfs\n",
    "tests/unit/test_cli.py": 'COMMAND = [sys.executable, "-m", "muster.cli"]\n',
    "tests/unit/test_docs.py": 'for folder in ("docs", "roles"): pass\n',
    "tests/unit/test_modules.py": 'MODULES = ROOT / "ansible/plugins/modules"\n',
    "tests/vm/test_mount.py": "",
    "tests/waiting.py": "",
}


def dependencies(files: Mapping[str, str]) -> FileDependencies:
    links = {path: text[3:] for path, text in files.items() if text.startswith("-> ")}
    return FileDependencies(
        {path: "" if path in links else text for path, text in files.items()}, links
    )


SMALL = Suites(dependencies(FILES))
EVERY_SCENARIO = "molecule cache cluster disk"

RENDERED = [
    *("unit test_nfs.py test_cli.py", "cluster test_jobs.py test_site.py"),
    *("cloud test_cloud.py", EVERY_SCENARIO),
]


def run_by(path: str) -> list[str]:
    """What a changed path of the small repository makes run: a line for each layer that runs."""
    named = SMALL.touched(path).names
    return [
        f"{layer} {' '.join(name.rpartition('/')[2] for name in sorted(names))}"
        for layer, names in named.items()
        if names
    ]


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        ("docs/page.md", ["unit test_docs.py"]),
        # A role: its scenario, or that of the station that names its tests.
        ("roles/disk/tasks/main.yml", ["unit test_docs.py", "molecule disk"]),
        ("roles/munge/tasks/main.yml", ["unit test_docs.py", "molecule cluster"]),
        ("tests/roles/test_munge.py", ["molecule cluster"]),
        ("molecule/munge/molecule.yml", ["molecule cluster munge"]),
        ("molecule/disk/converge.yml", ["molecule disk"]),
        # Those that link to its file, those that include it.
        ("roles/disk/files/disks.py", ["unit test_docs.py", "molecule cache disk"]),
        ("roles/slurmd/tasks/main.yml", ["unit test_docs.py", "molecule cluster"]),
        # A role that has no scenario, one whose scenario is not in `make molecule`.
        ("roles/verify/tasks/main.yml", ["unit test_docs.py", "cluster test_jobs.py test_site.py"]),
        ("roles/ceph/tasks/main.yml", ["unit test_docs.py"]),
        # What all scenarios share.
        ("molecule/shared/create.yml", [EVERY_SCENARIO]),
        ("tests/roles/conftest.py", [EVERY_SCENARIO]),
        ("tests/installed.py", [EVERY_SCENARIO]),
        # A module: the roles that call it. What modules import: the same.
        ("ansible/plugins/modules/mounts.py", ["unit test_modules.py", "molecule disk"]),
        (
            "ansible/plugins/module_utils/refused_error.py",
            ["unit test_modules.py", "molecule disk"],
        ),
        # A plugin that a playbook calls: all that plays it.
        (
            "ansible/plugins/lookup/variables.py",
            ["cluster test_jobs.py test_site.py", "cloud test_cloud.py"],
        ),
        ("ansible/plugins/callback/report.py", []),
        ("ansible/site.yml", ["cluster test_jobs.py test_site.py", "cloud test_cloud.py"]),
        # Python: what imports it, or names it.
        ("muster/render/nfs.py", RENDERED),
        ("muster/render/data.json", RENDERED),
        ("muster/autoscaler.py", ["cloud test_cloud.py", "engine test_engine.py"]),
        ("muster_sandbox/demo.py", ["cluster test_jobs.py test_site.py"]),
        ("pulumi/components.py", ["engine test_engine.py"]),
        ("examples/job.sbatch", ["cluster test_jobs.py test_site.py"]),
        ("tests/waiting.py", ["cluster test_jobs.py", "molecule disk"]),
        # Tests, what they share, and their data.
        ("tests/live/test_site.py", ["cluster test_site.py"]),
        ("tests/engine/kit.py", ["engine test_engine.py"]),
        ("tests/engine/test_long.py", []),
        ("tests/unit/render/cases/one.yml", ["unit test_nfs.py"]),
        (
            "tests/unit/conftest.py",
            ["unit test_nfs.py test_cli.py test_docs.py test_modules.py"],
        ),
    ],
)
def test_what_a_changed_path_makes_run(path: str, lines: list[str]) -> None:
    assert run_by(path) == lines


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("Makefile", "each layer depends on it"),
        ("pyproject.toml", "each layer depends on it"),
        (".config/molecule/config.yml", "each layer depends on it"),
        ("new/file", "no rule knows this path"),
        ("new", "no rule knows this path"),
    ],
)
def test_what_is_not_understood_runs_everything(path: str, why: str) -> None:
    touched = SMALL.touched(path)
    assert str(touched) == f"everything, {why}"
    assert parts(SMALL, [touched]) == {layer: Part(whole=True) for layer in since.LAYERS}


def test_a_part_of_a_layer_has_the_tests_of_all_paths() -> None:
    touched = [SMALL.touched(f"roles/{role}/tasks/main.yml") for role in ("disk", "munge")]
    touched.append(SMALL.touched("tests/live/test_site.py"))
    run = parts(SMALL, touched)
    assert run["molecule"] == Part(("cluster", "disk"))
    assert run["cluster"] == Part(("tests/live/test_site.py",))
    assert run["unit"] == Part(("tests/unit/test_docs.py",))


def test_a_layer_of_which_all_is_touched_runs_whole() -> None:
    assert parts(SMALL, [SMALL.touched("tests/roles/conftest.py")])["molecule"] == Part(whole=True)


def test_a_cloud_s_own_tests_run_before_those_that_share_one() -> None:
    files = FILES | dict.fromkeys(
        (f"tests/cloud/{name}" for name in ("clouds/test_a.py", "clouds/test_b.py", "test_z.py")),
        "",
    )
    suites = Suites(dependencies(files))
    touched = [suites.touched(f"tests/cloud/{name}") for name in ("clouds/test_a.py", "test_z.py")]
    names = ("tests/cloud/test_z.py", "tests/cloud/clouds/test_a.py")
    assert parts(suites, touched)["cloud"] == Part(names)


def test_each_layer_that_is_left_out_has_a_reason() -> None:
    run = parts(SMALL, [SMALL.touched("roles/disk/tasks/main.yml")])
    assert run["engine"] == Part(left_out=UNREACHED)
    # site.yml has the role, and a cluster is raised by it.
    assert run["cluster"].left_out.startswith("a role's scenario proves it")
    ceph = parts(SMALL, [SMALL.touched("roles/ceph/tasks/main.yml")])
    assert ceph["molecule"] == Part(left_out="`make proof` has ceph")
    assert parts(SMALL, []) == {layer: Part(left_out=UNREACHED) for layer in since.LAYERS}


# The repository itself.


@cache
def here() -> Suites:
    return Suites(changes.read(ROOT))


def test_a_rule_knows_each_file() -> None:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    unknown = [
        path
        for path in listed.stdout.splitlines()
        if not any(re.fullmatch(area.pattern, path) for area in since.AREAS)
    ]
    assert unknown == []


def test_the_scenarios_of_make_proof_are_known() -> None:
    assert "ceph_cluster" in here().scenarios_of_proof <= set(here().scenarios)


def test_each_test_is_run_by_a_change_of_its_file() -> None:
    assert all(here().all.values())
    for layer, folder in since.FOLDERS.items():
        for path in sorted(here().all[layer]):
            assert path.startswith(f"{folder}/")
            assert path in here().touched(path).names[layer]


def test_each_layer_of_make_test_is_lint_or_may_be_left_out() -> None:
    assert {layer.name for layer in prove.TEST} == {*since.LAYERS, "lint"}


@pytest.mark.parametrize(
    ("path", "layer", "named"),
    [
        ("roles/munge/tasks/configure.yml", "unit", "tests/unit/test_roles.py"),
        ("roles/munge/tasks/configure.yml", "unit", "tests/unit/plugins/test_munge_key.py"),
        ("roles/munge/meta/argument_specs.yml", "unit", "tests/unit/definition/test_loading.py"),
        ("roles/health/files/usr/local/sbin/muster-health", "molecule", "health"),
        ("roles/health/files/usr/local/sbin/muster-health", "unit", "tests/unit/test_typed.py"),
        ("roles/verify/tasks/main.yml", "cluster", "tests/live/test_site.py"),
        ("roles/file_systems/files/disks.py", "molecule", "fscache"),
        ("ansible/plugins/modules/people.py", "molecule", "users"),
        ("ansible/plugins/modules/people.py", "unit", "tests/unit/plugins/test_people.py"),
        ("ansible/plugins/module_utils/refused_error.py", "molecule", "nfs_client"),
        ("ansible/plugins/filter/muster.py", "cluster", "tests/live/test_site.py"),
        ("ansible/plugins/inventory/pulumi_stack.py", "cloud", "tests/cloud/test_image.py"),
        ("muster/render/slurm/slurm_conf.py", "cluster", "tests/live/test_rendered_conf.py"),
        ("muster/cli/check.py", "unit", "tests/unit/cli/test_check.py"),
        ("muster/autoscaler/text.py", "cloud", "tests/cloud/cloudcluster/test_autoscaler.py"),
        ("muster/gcp/bundle.py", "engine", "tests/engine/test_everything.py"),
        ("muster_sandbox/containers/podman.py", "vm", "tests/vm/test_mount.py"),
        ("inventories/demo/hosts.yml", "cluster", "tests/live/test_jobs.py"),
        ("examples/report/report.py", "cluster", "tests/live/test_jobs.py"),
        ("docs/design.md", "unit", "tests/unit/test_imports.py"),
        ("docs/scheduling.md", "unit", "tests/unit/test_docs.py"),
        ("tests/prove.py", "unit", "tests/unit/test_workflow.py"),
        ("tests/scenario_machines.py", "molecule", "munge"),
        ("tests/roles/check_mode/test_check_mode.py", "molecule", "munge"),
    ],
)
def test_what_the_repository_s_tests_use_is_seen(path: str, layer: str, named: str) -> None:
    assert path in here().dependencies.files
    wanted = here().scenarios[named] if layer == "molecule" else named
    assert wanted in here().touched(path).names[layer]


@pytest.mark.parametrize(
    ("path", "layers"),
    [
        ("docs/design.md", {"unit"}),
        ("roles/munge/tasks/configure.yml", {"unit", "molecule"}),
        ("ansible/plugins/modules/people.py", {"unit", "molecule"}),
        ("tests/unit/test_roles.py", {"unit"}),
    ],
)
def test_a_usual_change_runs_a_part(path: str, layers: set[str]) -> None:
    names = here().touched(path).names
    assert {layer for layer, tests in names.items() if tests} == layers
    assert all(names[layer] < here().all[layer] for layer in layers)
