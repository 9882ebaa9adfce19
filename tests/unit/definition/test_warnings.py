"""What is allowed in a definition, and said of it."""

from copy import deepcopy
from typing import Any

import pytest

from muster.definition import validate, warnings

GROUPS = {
    "controller": ["access"],
    "database": ["access"],
    "login": ["access"],
    "compute": ["gpu-01"],
    "gpu": ["gpu-01"],
    "all": ["access", "gpu-01"],
}
FOLDERS = {key: {"kind": "existing", "path": f"/{key}"} for key in ("home", "apps", "data")}
CLUSTER: dict[str, Any] = {
    "name": "lab",
    "os": "debian-13",
    "users": {"people": {"ada": {"uid": 20001}}},
    "accounts": {"lab": {"users": ["ada"]}},
    "nodes": {"gpu": {"sockets": 1, "cores_per_socket": 2, "memory_mib": 2048}},
    "partitions": {"main": {"nodes": ["gpu"], "default": True}},
    "storage": FOLDERS,
}
PYTHON = {"apps/python": {"3.11": {"build": "python3.11 -m venv {root}"}}}


def said(groups: dict[str, list[str]] = GROUPS, **words: Any) -> list[str]:
    return list(warnings.warnings(validate(deepcopy(CLUSTER) | words, groups)))


def test_nothing_is_said_of_what_is_spelt_out() -> None:
    assert said() == []


def test_folders_of_which_nothing_is_said_are_each_host_s_own() -> None:
    (home,) = said(storage={key: FOLDERS[key] for key in ("apps", "data")})
    assert home.startswith("storage.home: without a `kind` Muster mounts nothing there")
    (two,) = said(storage={"apps": {"path": "/sw"}, "data": FOLDERS["data"]})
    assert two.startswith("storage.home, storage.apps: without")


def test_one_machine_has_nobody_to_share_folders_with() -> None:
    alone = {name: ["access"] for name in GROUPS}
    assert said(alone, storage={}) == []


def test_an_empty_nvidia_installs_nothing() -> None:
    (empty,) = said(nvidia=None)
    assert empty.startswith("nvidia: without a value no driver is installed")


@pytest.mark.parametrize(("system", "warned"), [("debian-12", False), ("debian-13", True)])
def test_a_module_is_built_by_the_python_that_is_there(system: str, warned: bool) -> None:
    lines = said(os=system, software={"modules": PYTHON})
    assert [line.partition("; ")[0] for line in lines] == [
        "software.modules.apps/python.3.11.build: debian-13 has Python 3.13 and no python3.11"
    ] * warned


@pytest.mark.parametrize(
    ("parameter", "plugin", "package"),
    [
        ("AuthAltTypes", "auth/jwt", "slurm-wlm-jwt-plugin"),
        ("JobCompType", "jobcomp/elasticsearch", "slurm-wlm-elasticsearch-plugin"),
        ("acctgatherprofiletype", "acct_gather_profile/HDF5", "slurm-wlm-hdf5-plugin"),
        ("AcctGatherEnergyType", "acct_gather_energy/ipmi", "slurm-wlm-ipmi-plugins"),
    ],
)
def test_the_package_of_a_plugin_that_no_role_installs_is_named(
    parameter: str, plugin: str, package: str
) -> None:
    slurm = {parameter: plugin}
    if plugin == "auth/jwt":
        slurm["AuthAltParameters"] = "jwt_key=/etc/slurm/jwt_hs256.key"
    for system in ("debian-12", "debian-13", "ubuntu-24.04"):
        (line,) = said(os=system, slurm=slurm)
        assert line.startswith(f"slurm.{parameter}: SLURM does not start where {plugin.lower()} is")
        assert f"; list {package} in `packages` of a module" in line
    # There the package of all daemons has it.
    assert said(os="ubuntu-22.04", slurm=slurm) == []
    modules = {"site/slurm-plugins": {"1": {"packages": [package]}}}
    assert said(slurm=slurm, software={"modules": modules}) == []


def test_the_plugin_that_slurmdbd_brings_to_the_controller_is_there() -> None:
    slurm = {"JobCompType": "jobcomp/mysql"}
    assert said(slurm=slurm) == []
    (line,) = said(GROUPS | {"database": ["gpu-01"]}, slurm=slurm)
    assert "list slurm-wlm-mysql-plugin in" in line


def test_nothing_is_said_of_plugins_that_all_hosts_have() -> None:
    assert said(slurm={"JobCompType": "jobcomp/filetxt", "JobCompLoc": "/var/log/jobs"}) == []


def test_nothing_is_said_of_a_module_that_nobody_builds() -> None:
    modules = {"apps/python": {"3.11": PYTHON["apps/python"]["3.11"] | {"built": False}}}
    assert said(software={"modules": modules}) == []


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("$HOME/.cache", "$HOME"),
        ("{root}:${SCRATCH}/x", "${SCRATCH}"),
        ("~/.cache", "~"),
        ("~", "~"),
        ("{root}/~x", None),
        ("5$", None),
        ("a~b", None),
    ],
)
def test_a_value_that_only_a_shell_would_replace_is_warned_of(value: str, word: str | None) -> None:
    modules = {"apps/tool": {"1": {"env": {"CACHE": value}}}}
    assert said(software={"modules": modules}) == [
        f"software.modules.apps/tool.1.env.CACHE: Lmod sets the text as it is, and nothing "
        f"replaces {word}; write a whole path, or leave it to people, who can set it in their "
        "scripts"
    ] * (word is not None)


def test_a_cluster_without_people_is_raised_and_warned_of() -> None:
    (nobody,) = said(users={}, accounts={})
    assert nobody.startswith("users.people: nobody but root can run jobs")


def test_people_whose_jobs_slurm_refuses_are_named() -> None:
    people = {f"p{n}": {"uid": 20001 + n} for n in range(6)}
    people["gone"] = {"uid": 20100, "state": "absent"}
    (without,) = said(users={"people": people}, accounts={"lab": {"users": ["p0"]}})
    assert without.startswith("accounts: no account lists p1, p2, p3 and 2 more, whose jobs")
    # Without accounting, jobs need no account.
    assert said(GROUPS | {"database": []}, users={"people": people}, accounts={}) == []


def test_the_account_that_the_order_of_the_file_chooses_is_said() -> None:
    people = {f"p{n}": {"uid": 20001 + n} for n in range(6)}
    people["gone"] = {"uid": 20100, "state": "absent"}
    accounts = {"lab": {"users": ["p0"]}, "trials": {"users": list(people)[:6]}}
    (one,) = said(users={"people": people}, accounts=accounts)
    assert one == (
        "users.people: jobs of p0 that name no account are charged to lab, the first of several "
        "accounts that list them; say which with `default_account`"
    )
    more = accounts | {"spare": {"users": list(people)[:6]}}
    lab, trials = said(users={"people": people}, accounts=more)
    assert lab == one
    assert trials.startswith("users.people: jobs of p1, p2, p3 and 2 more that name no account")
    assert "are charged to trials, the first" in trials
    chosen = {name: person | {"default_account": "trials"} for name, person in people.items()}
    del chosen["gone"]
    assert said(users={"people": chosen}, accounts=more) == []


@pytest.mark.parametrize(
    ("memory", "unit"), [(64, "GiB"), (2048, None), (2**21, None), (2**27, "KiB")]
)
def test_memory_in_another_unit_is_warned_of(memory: int, unit: str | None) -> None:
    lines = said(nodes={"gpu": {"sockets": 1, "cores_per_socket": 2, "memory_mib": memory}})
    assert len(lines) == (unit is not None)
    assert unit is None or f"if you meant {unit}, write MiB" in lines[0]


def test_default_memory_with_which_no_program_starts_is_warned_of() -> None:
    partitions = {"main": {"nodes": ["gpu"], "default": True, "memory_per_cpu_mib": 2}}
    (line,) = said(partitions=partitions)
    assert line.startswith("partitions.main.memory_per_cpu_mib: jobs that ask for no memory")


@pytest.mark.parametrize(("most", "warned"), [(2, True), (2048, False), (0, False), (None, False)])
def test_a_cpu_for_each_few_mib_is_warned_of(most: int | None, warned: bool) -> None:
    main = CLUSTER["partitions"]["main"] | {"max_memory_per_cpu_mib": most}
    lines = said(partitions={"main": main})
    assert [line.partition("; ")[0] for line in lines] == [
        "partitions.main.max_memory_per_cpu_mib: a job would get, and be charged for, a CPU for "
        "each 2 MiB that it asks for"
    ] * warned


def test_an_account_of_somebody_who_left_is_warned_of() -> None:
    people = {"ada": {"uid": 20001}, "bob": {"uid": 20002, "state": "absent"}}
    (line,) = said(users={"people": people}, accounts={"lab": {"users": ["ada", "bob"]}})
    assert line.startswith("accounts.lab.users: bob can charge nothing to it")


def test_a_reservation_of_people_who_left_is_warned_of() -> None:
    people = {
        "ada": {"uid": 20001},
        "bob": {"uid": 20002, "state": "absent"},
        "eve": {"uid": 20003, "state": "absent"},
    }
    accounts = {"lab": {"users": ["ada"]}, "past": {"users": ["bob", "eve"]}}
    time = {"start": "2027-01-11T14:00", "duration": "02:00:00"}

    def lines(users: list[str]) -> list[str]:
        reservations = {"course": {**time, "users": users}}
        further = said(users={"people": people}, accounts=accounts, reservations=reservations)
        return [line for line in further if line.startswith("reservations.")]

    assert lines(["bob", "eve"]) == [
        "reservations.course.users: the `state` of bob, eve is absent, so no run makes or changes "
        "it; take it out, and if it is there remove it with `scontrol delete "
        "ReservationName=course` on the controller"
    ]
    assert lines(["ada", "bob"]) == []


def test_people_who_can_fill_the_queue_are_warned_of() -> None:
    (line,) = said(scheduling={"max_submit_jobs": None})
    assert line.startswith("scheduling.max_submit_jobs: nothing bounds the jobs of ada, who can")
    # Of the account, or in each QoS.
    bounded = {"lab": {"users": ["ada"], "max_submit_jobs": 9}}
    assert said(scheduling={"max_submit_jobs": None}, accounts=bounded) == []
    for key in ("max_submit_jobs_per_user", "max_submit_jobs_per_account", "grp_submit_jobs"):
        qos: dict[str, Any] = {"normal": {key: 9}}
        assert said(scheduling={"max_submit_jobs": None}, qos=qos) == []
    (line,) = said(
        scheduling={"max_submit_jobs": None},
        qos=qos | {"low": {}},
        accounts={"lab": {"users": ["ada"], "qos": ["normal", "low"]}},
    )
    assert line.startswith("scheduling.max_submit_jobs: nothing bounds the jobs of ada, who can")


@pytest.mark.parametrize(
    ("value", "warned"), [("NO", True), (False, True), ("ANY", False), ("ALL", False)]
)
def test_jobs_that_wait_for_ever_in_their_partition_are_warned_of(
    value: str | bool, warned: bool
) -> None:
    lines = said(slurm={"EnforcePartLimits": value})
    assert [line.partition(":")[0] for line in lines] == ["slurm.EnforcePartLimits"] * warned


def test_a_qos_whose_jobs_must_ask_for_a_time_is_warned_of() -> None:
    main = CLUSTER["partitions"]["main"] | {"max_time": "1-00:00:00", "default_time": "04:00:00"}
    short = {"normal": {"max_wall": "01:00:00"}}
    (line,) = said(partitions={"main": main}, qos=short)
    assert line.startswith(
        "qos.normal.max_wall: jobs that ask for no time have 04:00:00 or more, by `default_time` "
        "of their partition, and are refused; "
    )
    lax = {"normal": {"max_wall": "01:00:00", "deny_on_limit": False}}
    assert "and wait for ever; " in said(partitions={"main": main}, qos=lax)[0]
    # Within it, or by a partition that gives no time.
    assert said(partitions={"main": main}, qos={"normal": {"max_wall": "04:00:00"}}) == []
    assert said(partitions={"main": main}, qos={"normal": {}}) == []
    two = {"main": main, "other": {"nodes": ["gpu"]}}
    assert said(partitions=two, qos=short) == []


HOURS = {"main": {"nodes": ["gpu"], "default": True, "default_time": "04:00:00"}}


@pytest.mark.parametrize(
    ("qos", "what"),
    [
        ({}, "wait for ever"),
        ({"normal": {}}, "are refused"),
        ({"normal": {"deny_on_limit": False}, "low": {}}, "are refused or wait for ever"),
    ],
)
def test_an_account_whose_jobs_must_ask_for_a_time_is_warned_of(
    qos: dict[str, Any], what: str
) -> None:
    lab = {"users": ["ada"], "qos": ["normal", "low"] if "low" in qos else ["normal"]}
    (line,) = said(partitions=HOURS, qos=qos, accounts={"lab": lab | {"max_wall": "01:00:00"}})
    assert line == (
        "accounts.lab.max_wall: jobs that ask for no time have 04:00:00 or more, by `default_time` "
        f"of their partition, and {what}; lower that or raise `max_wall`, or tell people to use "
        "--time"
    )
    own = lab | {"associations": {"ada": {"max_wall": "01:00:00"}}}
    (line,) = said(partitions=HOURS, qos=qos, accounts={"lab": own})
    assert line.startswith("accounts.lab.associations.ada.max_wall: jobs that ask for no time")
    # Enough, or no bound.
    for wall in ("04:00:00", "UNLIMITED"):
        assert said(partitions=HOURS, qos=qos, accounts={"lab": lab | {"max_wall": wall}}) == []


def test_nothing_is_said_where_some_partition_or_qos_gives_a_time() -> None:
    hour = {"users": ["ada"], "max_wall": "01:00:00"}
    two = HOURS | {"other": {"nodes": ["gpu"]}}
    assert said(partitions=two, accounts={"lab": hour}) == []
    # Of the QoS of a partition, where it goes first.
    partitions = {"main": HOURS["main"] | {"qos": "long"}, "other": {"nodes": ["gpu"]}}
    long = {"long": {"max_wall": "04:00:00"}}
    assert said(partitions=partitions, qos=long, accounts={"lab": hour}) == []


def test_a_default_partition_that_refuses_who_names_no_qos_is_warned_of() -> None:
    def of(default_qos: str | None, **keys: Any) -> list[str]:
        partitions = {"main": CLUSTER["partitions"]["main"] | keys, "other": {"nodes": ["gpu"]}}
        lab = {"users": ["ada"], "qos": ["normal", "brief"], "default_qos": default_qos}
        return said(partitions=partitions, qos={"brief": {}}, accounts={"lab": lab})

    (line,) = of(None, allow_qos=["brief"])
    assert line == (
        "partitions.main: jobs that name no partition and no QoS are refused, since the default "
        "partition does not take normal, by `allow_qos`; take it there, give accounts another "
        "`default_qos`, or make another partition the default one"
    )
    assert "does not take brief, by `deny_qos`" in of("brief", deny_qos=["brief"])[0]
    assert of("brief", allow_qos=["brief"]) == []
    assert of(None, deny_qos=["brief"]) == []


def test_one_qos_alone_is_the_default() -> None:
    main = CLUSTER["partitions"]["main"] | {"deny_qos": ["brief", "low"]}
    (line,) = said(
        users={"people": {"ada": {"uid": 20001}, "bob": {"uid": 20002}}},
        partitions={"main": main, "other": {"nodes": ["gpu"]}},
        qos={"brief": {}, "low": {}},
        accounts={
            "lab": {"users": ["ada"], "qos": ["brief"]},
            "trials": {"users": ["bob"], "qos": ["normal", "low"], "default_qos": "low"},
        },
    )
    assert "since the default partition does not take brief, low, by `deny_qos`" in line


FOUR_GPUS = {
    "gpu": {"sockets": 1, "cores_per_socket": 48, "memory_mib": 49152, "gpus": {"count": 4}}
}
"""A GPU brings 12 CPUs and 12,288 MiB."""


def of_normal(**limits: Any) -> list[str]:
    return said(nodes=FOUR_GPUS, qos={"normal": limits})


@pytest.mark.parametrize(
    ("limit", "amounts", "words"),
    [
        ("max_tres_per_user", {"gpu": 4, "cpu": 24}, "4 GPUs bring 48 CPUs unasked, and 24"),
        ("grp_tres", {"gpu": 3, "memory_mib": 24576}, "3 GPUs bring 36864 MiB of memory unasked"),
        ("max_tres_per_node", {"gpu": 2, "cpu": 12}, "2 GPUs bring 24 CPUs unasked"),
    ],
)
def test_a_limit_whose_gpus_bring_more_than_it_allows_is_warned_of(
    limit: str, amounts: dict[str, int], words: str
) -> None:
    (line,) = of_normal(**{limit: amounts})
    assert line.startswith(f"qos.normal.{limit}: {words}")


def test_the_remedy_is_what_all_gpus_of_the_limit_bring() -> None:
    (line,) = of_normal(max_tres_per_user={"gpu": 4, "cpu": 30})
    assert line.endswith(
        "and 30 are allowed, enough for 2; raise `cpu` to 48, give the partition a smaller "
        "`cpus_per_gpu`, or tell people to ask for less (--cpus-per-gpu)"
    )


def test_nothing_is_said_of_gpus_that_fit_into_their_limit() -> None:
    assert of_normal(max_tres_per_user={"gpu": 4, "cpu": 48, "memory_mib": 49152}) == []
    # Who limits CPUs alone bounds GPUs by them.
    assert of_normal(max_tres_per_user={"cpu": 24}) == []
    assert of_normal(max_tres_per_user={"gpu": 4}) == []
    # 0 keeps all jobs out, on purpose.
    assert of_normal(max_tres_per_user={"gpu": 4, "cpu": 0}) == []


def test_of_an_account_only_where_no_qos_limits_the_same() -> None:
    two = {"gpu": 2, "cpu": 12}
    lab = {"lab": {"users": ["ada"], "grp_tres": two}}
    (line,) = said(nodes=FOUR_GPUS, accounts=lab)
    assert line.startswith("accounts.lab.grp_tres: 2 GPUs bring 24 CPUs unasked, and 12")
    # Jobs in `brief` are bound by the account.
    two_qos = {"lab": lab["lab"] | {"qos": ["normal", "brief"]}}
    for held in ({"gpu": 1}, {"cpu": 48}):
        qos = {"normal": {"grp_tres": held}, "brief": {}}
        assert said(nodes=FOUR_GPUS, accounts=two_qos, qos=qos) == []


def test_a_partition_whose_gpus_bring_more_than_a_node_has_is_warned_of() -> None:
    def of_main(**keys: int) -> list[str]:
        return said(nodes=FOUR_GPUS, partitions={"main": CLUSTER["partitions"]["main"] | keys})

    (line,) = of_main(cpus_per_gpu=16)
    assert line == (
        "partitions.main.cpus_per_gpu: 4 GPUs of a node bring 64 CPUs unasked, and it has 48, "
        "enough for 3; lower it to 12, or tell people to ask for less (--cpus-per-gpu)"
    )
    (line,) = of_main(memory_per_gpu_mib=24576)
    assert line.startswith("partitions.main.memory_per_gpu_mib: 4 GPUs of a node bring 98304 MiB")
    assert of_main(cpus_per_gpu=12) == []
    assert of_main(cpus_per_gpu=0) == []


DAY = CLUSTER["partitions"]["main"] | {"max_time": "1-00:00:00"}
HOUR = {"nodes": ["gpu"], "max_time": "01:00:00"}
ASKED = "partitions.hour.default_time: without it jobs that ask for no time have as much as"


def test_a_partition_whose_jobs_must_ask_for_a_time_is_warned_of() -> None:
    """SLURM gives them `max_wall` also where it is longer than `max_time`."""
    two = {"main": DAY, "hour": HOUR}
    day = {"normal": {"max_wall": "1-00:00:00"}}
    (line,) = said(partitions=two, qos=day)
    assert line == (
        f"{ASKED} 1-00:00:00 by qos.normal.max_wall, and what is above max_time 01:00:00 is "
        "refused; give one, or tell people to use --time"
    )
    given = {"main": DAY, "hour": HOUR | {"default_time": "00:10:00"}}
    assert said(partitions=given, qos=day) == []
    assert said(partitions={"main": DAY, "hour": {"nodes": ["gpu"]}}, qos=day) == []
    assert said(partitions=two, qos={"normal": {"max_wall": "01:00:00"}}) == []
    assert said(partitions=two, qos={"normal": {"max_wall": "UNLIMITED"}}) == []
    # By the longest of several.
    more = day | {"brief": {"max_wall": "02:00:00"}}
    lab = {"users": ["ada"], "qos": ["brief", "normal"]}
    assert said(partitions=two, qos=more, accounts={"lab": lab}) == [line]


def test_the_time_of_a_job_is_that_of_the_first_that_has_one() -> None:
    """QoS of the partition, of the job, and then the association."""
    two = {"main": DAY, "hour": HOUR}
    day = {"normal": {"max_wall": "1-00:00:00"}}
    brief = day | {"brief": {"max_wall": "01:00:00"}}
    assert said(partitions={"main": DAY, "hour": HOUR | {"qos": "brief"}}, qos=brief) == []
    lab = {"users": ["ada"], "qos": ["normal", "brief"]}
    without = {"main": DAY, "hour": HOUR | {"deny_qos": ["normal"]}}
    assert said(partitions=without, qos=brief, accounts={"lab": lab}) == []
    # Of accounts and users, where a QoS has none.
    long = {"users": ["ada"], "max_wall": "02:00:00"}
    (line,) = said(partitions=two, accounts={"lab": long})
    assert line.startswith(f"{ASKED} 02:00:00 by accounts.lab.max_wall, ")
    hour = {"normal": {"max_wall": "01:00:00"}, "low": {}}
    both = long | {"qos": ["normal", "low"]}
    only = {"main": DAY, "hour": HOUR | {"deny_qos": ["low"]}}
    assert said(partitions=only, qos=hour, accounts={"lab": both}) == []
    ada = {"users": ["ada"], "associations": {"ada": {"max_wall": "02:00:00"}}}
    (line,) = said(partitions=two, accounts={"lab": ada})
    assert line.startswith(f"{ASKED} 02:00:00 by accounts.lab.associations.ada.max_wall, ")


@pytest.mark.parametrize(
    ("time", "words"),
    [
        ("24:00", '24 minutes to SLURM; 24 hours are "24:00:00", and 24 minutes "24"'),
        ("04:00", '4 minutes to SLURM; 4 hours are "04:00:00", and 4 minutes "4"'),
        ("1:00", '1 minute to SLURM; 1 hour is "1:00:00", and 1 minute "1"'),
        ("72:00", '72 minutes to SLURM; 72 hours are "72:00:00", and 72 minutes "72"'),
        (
            "1:30",
            '1 minute and 30 seconds to SLURM; 1 hour and 30 minutes are "1:30:00", '
            'and 1 minute and 30 seconds "0:1:30"',
        ),
    ],
)
def test_hours_that_are_minutes_to_slurm_are_warned_of(time: str, words: str) -> None:
    main = CLUSTER["partitions"]["main"] | {"max_time": time}
    assert said(partitions={"main": main}) == [f'partitions.main.max_time: "{time}" is {words}']
    (of_qos,) = said(qos={"normal": {"max_wall": time}})
    assert of_qos.startswith(f'qos.normal.max_wall: "{time}" is ')


@pytest.mark.parametrize("time", ["24", "0:24:00", "0:1:30", "30:00", "72:30", "1-0:00", "4:60"])
def test_nothing_is_said_of_times_that_are_no_hours_of_a_day(time: str) -> None:
    main = CLUSTER["partitions"]["main"] | {"max_time": time}
    assert said(partitions={"main": main}) == []


def of_hosts(**addresses: str | None) -> list[str]:
    """What is said of hosts with these addresses, the first of which does all but compute."""
    names = [name.replace("_", "-") for name in addresses]
    groups = GROUPS | dict.fromkeys(("controller", "database", "login"), names[:1])
    groups |= {"login": names, "compute": ["gpu-01"], "all": [*names, "gpu-01"]}
    given = zip(names, addresses.values(), strict=True)
    host_vars = {name: {"ansible_host": address} for name, address in given if address}
    if "here" in host_vars:
        host_vars["here"] = {"ansible_connection": "local"}
    host_vars["gpu-01"] = {"ansible_host": "192.0.2.9"}
    return list(warnings.warnings(validate(deepcopy(CLUSTER), groups, host_vars)))


def test_a_host_without_an_address_that_all_others_have_is_warned_of() -> None:
    (like_another,) = of_hosts(lab_access="192.0.2.1", lab_acces=None)
    assert like_another == (
        "hosts.yml: lab-acces has no ansible_host, which all other hosts have; did you mean "
        '"lab-access"? If not, give it one'
    )
    (like_none,) = of_hosts(lab_access="192.0.2.1", filer=None)
    assert like_none == (
        "hosts.yml: filer has no ansible_host, which all other hosts have; give it one"
    )
    # Numbers tell hosts of one kind apart.
    (numbered,) = of_hosts(login_1="192.0.2.1", login_2=None)
    assert numbered.endswith("; give it one")


def test_nothing_is_said_of_addresses_that_several_hosts_have_not() -> None:
    assert of_hosts(lab_access="192.0.2.1", lab_acces="192.0.2.2") == []
    assert of_hosts(access=None, acces=None, other="192.0.2.1") == []
    assert of_hosts(here="local", other="192.0.2.1") == []
    # One of two: both ways are as common.
    assert of_hosts(access=None) == []


@pytest.mark.parametrize(
    ("system", "more", "beginning"),
    [
        ("ubuntu-22.04", {}, "where slurmdbd lacks the fix of CVE-2025-43904"),
        ("ubuntu-24.04", {}, "where slurmdbd lacks the fix of CVE-2025-43904"),
        ("ubuntu-22.04", {"slurm_version": "22.05"}, "SchedMD has no fix of CVE-2025-43904 for"),
        ("debian-12", {"slurm_version": "23.02"}, "SchedMD has no fix of CVE-2025-43904 for"),
        ("debian-12", {"slurm_version": "23.11"}, None),
        ("ubuntu-24.04", {"slurm_version": "25.05"}, None),
        ("debian-12", {}, None),
        ("debian-13", {}, None),
    ],
)
def test_a_slurmdbd_that_may_let_coordinators_become_administrators_is_named(
    system: str, more: dict[str, Any], beginning: str | None
) -> None:
    lab = {"users": ["ada"], "coordinators": ["ada"]}
    said_of_it = [line for line in said(os=system, accounts={"lab": lab}, **more) if "CVE" in line]
    assert len(said_of_it) == int(beginning is not None)
    for line in said_of_it:
        assert line.startswith(f"accounts.lab.coordinators: {beginning}")
    assert not any("CVE" in line for line in said(os=system, **more))
