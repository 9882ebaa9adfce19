"""The rendered files hold what the definition says."""

from dataclasses import replace
from pathlib import Path
from runpy import run_path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.catalog.hostlists import expand
from muster.catalog.slurm_parameters import RELEASES
from muster.cli.render import by_name
from muster.definition import Definition, load
from muster.render.slurm import render, slurm_conf
from muster.render.slurm.conf_syntax import parse

ROOT = Path(__file__).parents[4]
CASES = Path(__file__).parent / "cases"


def keys(text: str) -> dict[str, str]:
    return {key: value for line in parse(text) for key, value in line.items()}


def described(text: str, kind: str) -> list[dict[str, str]]:
    return [line for line in parse(text) if kind in line]


def conf(definition: Definition) -> dict[str, str]:
    return keys(render(definition).slurm_conf)


def test_the_lab_is_rendered_as_recorded():
    # After a change that is meant: muster render lab --output tests/unit/render/slurm/cases/lab
    recorded = {path.name: path.read_text() for path in (CASES / "lab").iterdir()}
    assert by_name(render(load(ROOT / "inventories" / "lab"))) == recorded


@pytest.mark.parametrize("version", RELEASES)
def test_the_same_definition_gives_the_same_bytes(lab, version):
    assert render(lab(version=version)) == render(lab(version=version))


def test_node_sets_and_partitions_keep_the_order_of_the_definition(lab):
    files = render(
        lab(
            {
                "nodes": {"aaa": {"sockets": 1, "cores_per_socket": 1, "memory_mib": 1024}},
                "partitions": {"aaa": {"nodes": ["aaa", "cpu"]}},
            },
            {"aaa": ["zz-9"]},
        )
    )
    nodes = [line["NodeName"] for line in described(files.slurm_conf, "NodeName")]
    assert nodes == ["lab-cpu-[01-02]", "lab-gpu-[01-02]", "zz-9"]
    partitions = described(files.slurm_conf, "PartitionName")
    assert [line["PartitionName"] for line in partitions] == ["ml-cpu", "ml-gpu", "aaa"]
    assert partitions[2]["Nodes"] == "lab-cpu-[01-02],zz-9"


def test_what_a_cluster_can_not_do_without(lab):
    got = conf(lab())
    assert {
        "ClusterName": "lab",
        "SlurmctldHost": "lab-access",
        "AuthType": "auth/munge",
        "AuthInfo": "socket=/run/munge/munge.socket.2",
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": "lab-access",
        "AccountingStorageTRES": "gres/gpu",
        "SchedulerType": "sched/backfill",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CPU_Memory",
        "GresTypes": "gpu",
        "ProctrackType": "proctrack/cgroup",
        "TaskPlugin": "task/cgroup,task/affinity",
        "JobAcctGatherType": "jobacct_gather/cgroup",
        "MailProg": "/usr/local/sbin/muster-mail",
        "MailDomain": "example.org",
    }.items() <= got.items()
    assert "enable_configless" in got["SlurmctldParameters"].split(",")
    assert "associations" in got["AccountingStorageEnforce"].split(",")


@pytest.mark.parametrize("version", ["21.08", "22.05", "23.11", "24.05"])
def test_a_job_of_ten_seconds_is_sampled_where_the_kernel_s_peak_is_not_read(lab, version):
    assert conf(lab(version=version))["JobAcctGatherFrequency"] == "task=5"


@pytest.mark.parametrize("version", ["24.11", "25.05", "25.11"])
def test_releases_that_read_the_kernel_s_peak_keep_their_interval(lab, version):
    assert "JobAcctGatherFrequency" not in conf(lab(version=version))


def test_cores_are_shared_out_where_the_definition_says_so(lab):
    got = conf(lab({"scheduling": {"consumable": "core"}}))
    assert got["SelectTypeParameters"] == "CR_Core_Memory"


def test_srun_listens_below_the_ports_of_outgoing_connections(lab):
    low, high = map(int, conf(lab())["SrunPortRange"].split("-"))
    assert 1024 < low < high < 32768
    # slurm.conf(5): 4 ports for an srun, 12 for one of 200 nodes; 200 of those at once.
    assert high - low >= 200 * 12


def test_without_gpus_nothing_speaks_of_them(lab):
    files = render(lab({"nodes": {"gpu": {"gpus": None}}}))
    got = keys(files.slurm_conf)
    assert files.gres_conf == ""
    assert not {"GresTypes", "AccountingStorageTRES", "Gres", "DefMemPerGPU"} & got.keys()


def test_without_a_database_there_is_no_accounting_and_the_file_says_so(lab):
    core = lab()
    groups = {**core.hosts.groups, "database": []}
    files = render(replace(core, hosts=replace(core.hosts, groups=groups)))
    got = keys(files.slurm_conf)
    assert not [key for key in got if key.startswith(("Accounting", "JobAcct", "Priority"))]
    assert files.slurmdbd_conf == ""
    assert "not enforced" in files.slurm_conf
    assert "not enforced" not in render(lab()).slurm_conf


def test_without_mail_the_mail_program_is_one_that_exists(lab):
    got = conf(lab({"mail": None}))
    assert got["MailProg"] == "/bin/true"
    assert "MailDomain" not in got


def test_slurmdbd_writes_to_a_server_that_the_definition_names(lab):
    ours = keys(render(lab()).slurmdbd_conf)
    server = {"host": "db.example.org", "port": 3307, "name": "acct_lab", "login": "lab"}
    theirs = keys(render(lab({"database": server})).slurmdbd_conf)
    assert dict(set(theirs.items()) - set(ours.items())) == {
        "StorageHost": "db.example.org",
        "StoragePort": "3307",
        "StorageLoc": "acct_lab",
        "StorageUser": "lab",
    }


def test_slurmdbd_conf_leaves_the_password_to_the_role(lab):
    got = keys(render(lab(groups={"database": ["lab-db"]})).slurmdbd_conf)
    assert got["DbdHost"] == "lab-db"
    assert got["StorageType"] == "accounting_storage/mysql"
    assert got["SlurmUser"] == "slurm"
    assert "StoragePass" not in got
    assert conf(lab(groups={"database": ["lab-db"]}))["AccountingStorageHost"] == "lab-db"


def test_defaults_of_slurm_are_not_written_for_a_partition(lab):
    files = render(lab({"partitions": {"all": {"nodes": ["cpu", "gpu"]}}}))
    assert described(files.slurm_conf, "PartitionName")[2].keys() == {
        "PartitionName",
        "Nodes",
        "DefMemPerCPU",
        "MaxMemPerCPU",
        "TRESBillingWeights",
    }


def test_a_partition_is_written_with_all_it_has(lab):
    files = render(lab({"partitions": {"ml-gpu": {"state": "drain"}}}))
    assert described(files.slurm_conf, "PartitionName")[1] == {
        "PartitionName": "ml-gpu",
        "Nodes": "lab-gpu-[01-02]",
        "MaxTime": "5-00:00:00",
        "DefaultTime": "04:00:00",
        "AllowGroups": "ml-users",
        "State": "DRAIN",
        "DefMemPerCPU": "2560",
        "DefMemPerGPU": "30720",
        "MaxMemPerCPU": "5120",
        "DefCpuPerGPU": "12",
        "TRESBillingWeights": "CPU=1,Mem=0.4G,GRES/gpu=12",
    }


@pytest.mark.parametrize(
    ("max_times", "options"),
    [
        (["12:00:00"], ""),
        (["1-00:00:00", "60"], ""),
        (["5-00:00:00", "1-00:00:00"], "bf_window=7200,bf_resolution=300"),
        (["UNLIMITED", "2-00:00:00"], "bf_window=43200,bf_resolution=1800"),
        (["UNLIMITED"], "bf_window=43200,bf_resolution=1800"),
        (["90-00:00:00"], "bf_window=43200,bf_resolution=1800"),
    ],
)
def test_backfill_looks_as_far_ahead_as_the_longest_job(lab, max_times, options):
    partitions = {
        "ml-cpu": {"max_time": max_times[0]},
        "ml-gpu": {"max_time": max_times[-1]},
    }
    times = {name: {"default_time": "10"} for name in partitions}
    got = conf(lab({"partitions": {k: partitions[k] | times[k] for k in partitions}}))
    entries = got["SchedulerParameters"].split(",")
    of_window = ("bf_window", "bf_resolution")
    assert ",".join(entry for entry in entries if entry.startswith(of_window)) == options


@pytest.mark.parametrize("version", RELEASES)
def test_nodes_are_looked_at_drained_ones_too(lab, version):
    got = conf(lab(version=version))
    keys_of_health = {key: got[key] for key in got if key.startswith(("HealthCheck", "Prolog"))}
    assert keys_of_health == {
        "HealthCheckProgram": "/usr/local/sbin/muster-health",
        "HealthCheckInterval": "60",
        "HealthCheckNodeState": "ANY,CYCLE",
        "Prolog": "/etc/slurm/prolog.d/*",
        "PrologFlags": "Contain",
    }
    assert "nohold_on_prolog_fail" in got["SchedulerParameters"].split(",")


def test_the_programs_are_those_of_the_role():
    files = ROOT / "roles/health/files"
    assert (files / slurm_conf.HEALTH_PROGRAM.lstrip("/")).is_file()
    assert list(files.glob(slurm_conf.PROLOGS.lstrip("/"))) != []


def test_scratch_names_its_programs_and_its_folder(lab):
    role = ROOT / "roles/scratch/files"
    got = conf(lab({"storage": {"scratch": "/mnt/nvme"}}))
    assert got["TmpFS"] == "/mnt/nvme"
    assert list(role.glob(got["Epilog"].lstrip("/"))) != []
    assert list(role.glob(got["Prolog"].lstrip("/"))) != []
    assert (role / got["TaskProlog"].lstrip("/")).is_file()


def test_without_scratch_only_what_jobs_leave_is_removed(lab):
    got = conf(lab({"storage": {"scratch": None}}))
    assert {"TmpFS", "TaskProlog"}.isdisjoint(got)
    assert got["Epilog"] == conf(lab({}))["Epilog"]


@pytest.mark.parametrize(
    ("version", "plugin"),
    [
        ("22.05", ("JobContainerType", "job_container/tmpfs")),
        ("24.11", ("JobContainerType", "job_container/tmpfs")),
        ("25.11", ("NamespaceType", "namespace/tmpfs")),
    ],
)
def test_jobs_have_a_private_tmp_where_the_definition_says_so(lab, version, plugin):
    shared = render(lab({"storage": {"scratch": "/scratch"}}, version=version))
    private = render(
        lab({"storage": {"scratch": "/scratch", "private_tmp": True}}, version=version)
    )
    names = {"JobContainerType", "NamespaceType"}
    assert names & {*keys(shared.slurm_conf)} == set()
    assert {item for item in keys(private.slurm_conf).items() if item[0] in names} == {plugin}
    assert shared.job_container_conf == ""
    assert private.job_container_conf == "AutoBasePath=yes\nBasePath=/scratch/.private-tmp\n"


@pytest.mark.parametrize("scratch", [None, "/mnt/nvme"])
def test_the_program_and_job_container_conf_name_one_folder(lab, scratch):
    program = run_path(str(ROOT / "roles/scratch/files/usr/local/lib/muster/scratch.py"))
    files = render(lab({"storage": {"scratch": scratch, "private_tmp": True}}))
    base = keys(files.job_container_conf)["BasePath"]
    assert program["private_tmp"](scratch, "node1") == f"{base}/node1"


def test_overrides_come_last_and_replace_what_muster_sets(lab):
    files = render(
        lab(
            {
                "slurm": {"TreeWidth": 20, "MessageTimeout": 30, "DisableRootJobs": True},
                "cgroup": {"CgroupPlugin": "cgroup/v1"},
            }
        )
    )
    lines = parse(files.slurm_conf)
    assert {"MessageTimeout": "30"} in lines
    assert {"MessageTimeout": "60"} not in lines
    first_node = next(i for i, line in enumerate(lines) if "NodeName" in line)
    assert lines[first_node - 2 : first_node] == [{"DisableRootJobs": "yes"}, {"TreeWidth": "20"}]
    assert keys(files.cgroup_conf)["CgroupPlugin"] == "cgroup/v1"


CTLD_50 = "enable_configless,disable_triggers,conmgr_max_connections=4096"
CTLD = "enable_configless,node_reg_mem_percent=95,disable_triggers,conmgr_max_connections=4096"


@pytest.mark.parametrize("version", RELEASES)
def test_a_task_that_fails_ends_its_step_unless_the_definition_says_otherwise(lab, version):
    assert conf(lab(version=version))["KillOnBadExit"] == "1"
    got = lab({"slurm": {"KillOnBadExit": 0}}, version=version)
    assert parse(render(got).slurm_conf).count({"KillOnBadExit": "0"}) == 1
    assert conf(got)["KillOnBadExit"] == "0"


def test_the_limits_that_a_definition_propagates_are_not_ignored_by_slurm(lab):
    got = conf(lab({"slurm": {"PropagateResourceLimits": "NONE"}}))
    assert got["PropagateResourceLimits"] == "NONE"
    assert "PropagateResourceLimitsExcept" not in got


@pytest.mark.parametrize(
    ("key", "value", "written"),
    [
        ("SlurmctldParameters", "rl_enable", f"{CTLD},rl_enable"),
        ("SlurmctldParameters", "NODE_REG_MEM_PERCENT=50", f"{CTLD_50},NODE_REG_MEM_PERCENT=50"),
        ("PrologFlags", "Alloc", "Contain,Alloc"),
        ("PrologFlags", "alloc,contain", "alloc,contain"),
        ("LaunchParameters", "test_exec", "use_interactive_step,test_exec"),
        ("AccountingStorageEnforce", "safe", "associations,safe"),
        ("AccountingStorageTRES", "license/matlab", "gres/gpu,license/matlab"),
        ("PriorityFlags", "NO_FAIR_TREE", "MAX_TRES,NO_FAIR_TREE"),
        ("PriorityFlags", "no_fair_tree,max_tres", "no_fair_tree,max_tres"),
    ],
)
def test_an_override_leaves_what_nodes_accounts_and_gpus_need(lab, key, value, written):
    assert conf(lab({"os": "debian-13", "slurm": {key: value}}))[key] == written


@pytest.mark.parametrize("version", RELEASES)
def test_no_key_is_written_twice(lab, version):
    # SLURM takes the last one and logs an error for each.
    files = render(lab({"slurm": {"messagetimeout": 5}}, version=version))
    for text in (files.slurm_conf, files.cgroup_conf, files.slurmdbd_conf):
        single = [next(iter(line)).lower() for line in parse(text) if len(line) == 1]
        assert len(single) == len(set(single))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    sets=st.dictionaries(
        st.from_regex(r"[a-z]{3,8}", fullmatch=True).filter(
            lambda name: (
                name
                not in ("all", "cpu", "gpu", "login", "compute", "storage", "database", "ungrouped")
            )
        ),
        st.tuples(
            st.integers(1, 30),
            st.integers(1, 4),
            st.integers(1, 64),
            st.integers(1, 2),
            st.integers(1024, 2**21),
            st.integers(0, 8),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_the_files_parse_into_the_nodes_that_went_in(lab, sets):
    nodes = {
        name: {
            "sockets": sockets,
            "cores_per_socket": cores,
            "threads_per_core": threads,
            "memory_mib": memory,
            **({"gpus": {"count": gpus}} if gpus else {}),
        }
        for name, (_, sockets, cores, threads, memory, gpus) in sets.items()
    }
    hosts = {name: [f"{name}-{i}" for i in range(sizes[0])] for name, sizes in sets.items()}
    partitions = {name: {"nodes": [name]} for name in sets}
    files = render(lab({"nodes": nodes, "partitions": partitions}, hosts))
    written = {line["NodeName"]: line for line in described(files.slurm_conf, "NodeName")}
    in_partitions = {
        line["PartitionName"]: expand(line["Nodes"])
        for line in described(files.slurm_conf, "PartitionName")
    }
    with_gpus = {
        name: line["File"] for line in parse(files.gres_conf) for name in expand(line["NodeName"])
    }
    for name, (_, sockets, cores, threads, memory, gpus) in sets.items():
        line = next(line for folded, line in written.items() if hosts[name][0] in expand(folded))
        assert sorted(expand(line["NodeName"])) == sorted(hosts[name])
        assert line["CPUs"] == str(sockets * cores * threads)
        assert line["RealMemory"] == str(memory)
        assert line.get("Gres") == (f"gpu:{gpus}" if gpus else None)
        assert sorted(in_partitions[name]) == sorted(hosts[name])
        assert all((host in with_gpus) == bool(gpus) for host in hosts[name])
