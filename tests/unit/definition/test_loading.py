"""Reading an inventory: what is said, in which order, and how long it takes."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.definition import Definition, DefinitionError, Problem, load, loading, validate
from muster.definition.checks import CHECKS

ROOT = Path(__file__).parents[3]
BASE = Path(__file__).parent / "base"


def inventory(folder: Path, cluster: str | None = None, hosts: str | None = None) -> Path:
    """An inventory like base, with other files where they are given."""
    (folder / "group_vars" / "all").mkdir(parents=True)
    name = "group_vars/all/cluster.yml"
    (folder / name).write_text((BASE / name).read_text() if cluster is None else cluster)
    (folder / "hosts.yml").write_text((BASE / "hosts.yml").read_text() if hosts is None else hosts)
    return folder


def base(*changes: tuple[str, str]) -> str:
    text = (BASE / "group_vars/all/cluster.yml").read_text()
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def problems(folder: Path) -> list[Problem]:
    with pytest.raises(DefinitionError) as caught:
        load(folder)
    return caught.value.problems


def data_of_base() -> tuple[dict[str, Any], dict[str, list[str]]]:
    definition = load(BASE)
    cluster = yaml.safe_load((BASE / "group_vars/all/cluster.yml").read_text())["cluster"]
    return cluster, {**definition.hosts.groups}


def test_an_error_names_file_line_path_what_is_wrong_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = base(("nodes: [cpu, gpu]", "nodes: [cpu, gpus, gpu]"))
    inventory(tmp_path / "inventories" / "lab", text)
    monkeypatch.chdir(tmp_path)
    line = text.splitlines().index("      nodes: [cpu, gpus, gpu]") + 1
    assert [str(problem) for problem in problems(Path("inventories/lab"))] == [
        f"inventories/lab/group_vars/all/cluster.yml:{line}: partitions.long.nodes: "
        'no node set "gpus"; did you mean "gpu"?'
    ]


def test_all_errors_are_reported_at_once_in_the_order_of_the_files(tmp_path: Path) -> None:
    text = base(
        ("uid: 20002", "uid: 64030"),
        ("memory_mib: 65536\n", "memory_mib: 64G\n"),
        ("scheduling", "schedulling"),
        ('max_time: "5-00:00:00"', "max_time: 5 days"),
        ("relay: smtp.example.org, ", ""),
        ("MessageTimeout", "MesageTimeout"),
    )
    hosts = (BASE / "hosts.yml").read_text().replace("192.0.2.32", "192.0.2.31")
    reported = problems(inventory(tmp_path / "x", text, hosts))
    assert [problem.check for problem in reported] == [
        "uid-of-the-system",
        "not-a-number",
        "time-unreadable",
        "unknown-key",
        "missing-key",
        "parameter-unknown",
        "address-twice",
    ]
    assert [problem.line for problem in reported[:-1]] == sorted(p.line or 0 for p in reported[:-1])


def test_on_one_line_the_order_is_not_that_of_the_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "CHECKS", dict(reversed(CHECKS.items())))
    many = '{nodes: [cpus], groups: [mll], max_time: "1:00:00", default_time: "2:00:00"}'
    text = base(("    long:\n", f"    more: {many}\n    long:\n"))
    found = [str(problem) for problem in problems(inventory(tmp_path / "x", text))]
    monkeypatch.undo()
    assert len(found) == 3
    assert [str(problem) for problem in problems(tmp_path / "x")] == found


def test_one_mistake_is_one_error_though_others_follow_from_it(tmp_path: Path) -> None:
    # The node set is unusable; that the partitions name it, and its hosts, is not said again.
    text = base(("    cpu: {sockets: 2,", "    cpu: {sockets: none,"))
    assert [p.check for p in problems(inventory(tmp_path / "x", text))] == ["not-a-number"]


def test_without_hosts_yml_the_rest_is_checked(tmp_path: Path) -> None:
    folder = inventory(tmp_path / "x", base(("uid: 20002", "uid: 999")))
    (folder / "hosts.yml").unlink()
    assert [p.check for p in problems(folder)] == ["uid-of-the-system", "file-missing"]


def test_hosts_of_base_are_expanded_in_order_with_those_of_children() -> None:
    hosts = load(BASE).hosts
    cpu, gpu = ["base-cpu-01", "base-cpu-02"], ["base-gpu-1", "base-gpu-2"]
    assert hosts.groups["cpu"] == cpu
    assert hosts.groups["compute"] == cpu + gpu
    assert hosts.groups["controller"] == ["base-ctl"]
    assert hosts.vars["base-gpu-1"] == {"ansible_host": "192.0.2.31"}
    assert hosts.vars["base-cpu-01"] == {}


def test_defaults_follow_from_what_is_given() -> None:
    cluster, groups = data_of_base()
    cluster = {**cluster, "os": "debian-13"}
    del cluster["slurm_version"]
    cluster["nodes"] = {
        **cluster["nodes"],
        "gpu": {**cluster["nodes"]["gpu"], "gpus": {"count": 1}},
    }
    made = validate(cluster, groups).cluster
    assert made.slurm_version == "24.11"
    gpus = made.nodes["gpu"].gpus
    assert gpus is not None
    assert gpus.devices == "/dev/nvidia0"
    assert made.mail is not None
    assert made.mail.sender == "slurm@example.org"


def test_plain_data_gives_the_definition_that_the_files_give() -> None:
    cluster, groups = data_of_base()
    read = load(BASE)
    given = validate(cluster, groups, read.hosts.vars)
    assert given == read
    assert isinstance(given, Definition)


def test_plain_data_is_checked_and_its_errors_have_no_line() -> None:
    cluster, groups = data_of_base()
    with pytest.raises(DefinitionError) as caught:
        validate({**cluster, "name": "BASE", "nmae": 1}, {**groups, "login": []})
    assert [str(problem) for problem in caught.value.problems] == [
        'cluster: name: "BASE" can\'t be the name of a cluster; use up to 19 small letters, '
        "digits and hyphens, a letter first, no hyphen last",
        'cluster: nmae: unknown key "nmae"; did you mean "name"?',
        "hosts: login: no host is in the group `login`, and cluster.yml has people; add the host "
        "that they log in to; it may be the controller",
    ]


def override(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def test_who_is_not_known_is_not_missed(tmp_path: Path) -> None:
    folder = inventory(tmp_path / "x", hosts="all: {children: [compute]}\n")
    override(folder, "group_vars/gpu.yml", "a: 1\n")
    override(folder, "host_vars/base-ctl.yml", "a: 1\n")
    assert [problem.check for problem in problems(folder)] == ["hosts-shape"]


def test_variables_of_the_roles_of_this_checkout_are_known(tmp_path: Path) -> None:
    folder = inventory(tmp_path / "x")
    override(folder, "group_vars/compute.yml", "base_ntp_servers: [192.0.2.1]\n")
    override(folder, "host_vars/base-ctl.yml", "slurmctld_port: 6817\nslurm_packages: []\n")
    load(folder)
    override(folder, "group_vars/compute.yml", "base_ntp_server: [192.0.2.1]\n")
    (problem,) = problems(folder)
    assert problem.check == "role-variable-unknown"


def test_what_is_no_yaml_is_said_of_overrides_too(tmp_path: Path) -> None:
    folder = inventory(tmp_path / "x")
    override(folder, "host_vars/base-ctl.yml", "a: b: c\n")
    assert [problem.check for problem in problems(folder)] == ["yaml-syntax"]


def test_variables_of_a_host_may_lie_in_a_folder(tmp_path: Path) -> None:
    hosts = (
        (BASE / "hosts.yml")
        .read_text()
        .replace("base-ctl: {ansible_host: 192.0.2.10}", "base-ctl:")
    )
    folder = inventory(tmp_path / "x", hosts=hosts)
    override(folder, "host_vars/base-ctl/own.yaml", "ansible_host: 192.0.2.99\n")
    assert load(folder).hosts.vars["base-ctl"]["ansible_host"] == "192.0.2.99"


class Tagged(str):
    """Like the texts of Ansible 2.19, which know where they come from."""

    __slots__ = ("origin",)


def test_texts_of_ansible_are_texts() -> None:
    def tag(value: Any) -> Any:
        if isinstance(value, dict):
            return {tag(key): tag(below) for key, below in value.items()}
        if isinstance(value, list):
            return [tag(below) for below in value]
        return Tagged(value) if isinstance(value, str) else value

    cluster, groups = data_of_base()
    definition = validate(tag(cluster), tag(groups))
    assert definition.cluster == load(BASE).cluster
    assert type(definition.cluster.name) is str


def seconds_of(work: Callable[[], object]) -> float:
    """CPU seconds of the fastest of three runs: others on the machine make a run slower."""
    runs = []
    for _ in range(3):
        before = time.process_time()
        work()
        runs.append(time.process_time() - before)
    return min(runs)


def test_ten_thousand_nodes_are_checked_within_a_second(tmp_path: Path) -> None:
    hosts = (BASE / "hosts.yml").read_text()
    listed = "".join(
        f"            n{number:05}: {{ansible_host: 10.1.{number // 250}.{number % 250 + 1}}}\n"
        for number in range(5000)
    )
    hosts = hosts.replace("base-cpu-[01:02]:", "base-cpu-[00001:05000]:")
    hosts = hosts.replace("            base-gpu-1:", f"{listed}            base-gpu-1:")
    folder = inventory(tmp_path / "x", hosts=hosts)
    assert len(load(folder).hosts.groups["compute"]) == 10_002
    assert seconds_of(lambda: load(folder)) < 1


def test_ten_thousand_wrong_hosts_are_found_within_two_seconds(tmp_path: Path) -> None:
    # Quadratic work in a check would take minutes here.
    hosts = (BASE / "hosts.yml").read_text()
    hosts = hosts.replace(
        "        gpu:\n",
        "        tpu:\n          hosts:\n            tpu[00001:10000]:\n        gpu:\n",
    )
    folder = inventory(tmp_path / "x", hosts=hosts)
    reported = problems(folder)
    assert seconds_of(lambda: problems(folder)) < 2
    assert [problem.check for problem in reported] == ["compute-host-in-no-set"]
    assert reported[0].more == 9_999


def test_the_definition_needs_neither_ansible_nor_pulumi() -> None:
    code = (
        "import sys; from pathlib import Path; import muster.definition as c; "
        "c.load(Path('inventories/lab')); "
        "print(sorted(n for n in sys.modules if n.split('.')[0] in "
        "('ansible', 'pulumi', 'typer', 'rich', 'ruamel')))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"


def test_the_lab_is_the_lab() -> None:
    definition = load(ROOT / "inventories" / "lab")
    cluster = definition.cluster
    assert definition.hosts.groups["controller"] == ["lab-access"]
    assert definition.hosts.groups["database"] == ["lab-access"]
    assert definition.hosts.groups["login"] == ["lab-access"]
    assert definition.hosts_of("cpu") == ["lab-cpu-01", "lab-cpu-02"]
    assert definition.hosts_of("gpu") == ["lab-gpu-01", "lab-gpu-02"]
    for node_set in cluster.nodes.values():
        assert (node_set.sockets, node_set.cores_per_socket, node_set.threads_per_core) == (
            2,
            12,
            2,
        )
        assert node_set.memory_mib == 122880
    gpu = cluster.nodes["gpu"]
    assert gpu.features == ["rtx4080"]
    assert gpu.gpus is not None
    assert (gpu.gpus.count, gpu.gpus.devices) == (4, "/dev/nvidia[0-3]")
    assert [name for name, partition in cluster.partitions.items() if partition.default] == [
        "ml-cpu"
    ]
    for partition in cluster.partitions.values():
        assert partition.max_time == "5-00:00:00"
        assert partition.default_time == "04:00:00"
        assert partition.groups == ["ml-users"]
    assert set(cluster.accounts) == {"LAB-test"}
    assert {"apps/python", "apps/cuda", "libs/python/torch", "libs/python/neptune-client"} <= set(
        cluster.software.modules
    )
