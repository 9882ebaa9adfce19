"""QoS and limits: what slurm_accounts reads of them, changes, says and refuses; no slurmdbd."""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from ansible_collections.muster.slurm.plugins.module_utils.accounting_limits import (
    ASSOCIATION_FIELDS,
    QOS_FIELDS,
)
from ansible_collections.muster.slurm.plugins.module_utils.accounting_state import READS, parse
from ansible_collections.muster.slurm.plugins.module_utils.accounting_target import target
from ansible_collections.muster.slurm.plugins.module_utils.accounting_wish import (
    unknown_tres,
    wanted,
    without_tres,
)
from ansible_collections.muster.slurm.plugins.module_utils.accounting_words import (
    by_hand,
    by_others,
    limits_changed,
    shown,
)
from ansible_collections.muster.slurm.plugins.module_utils.refused_error import RefusedError
from documentation import ROOT, Page, merged
from lab_with_limits import (
    ACCOUNTS,
    ALAN,
    ASSOCIATIONS,
    HAS,
    LAB_TEST,
    NORMAL,
    OLD,
    QOS,
    SCAVENGER,
    SETTLED,
    USERS,
    WHERE,
    changed,
    commands,
    with_limits,
)
from sacctmgr_output import OUTPUT, account, association, user

from muster.definition import load
from muster.definition.schema.limits import Association, Qos
from muster.render import limits, people


def test_the_rows_have_the_fields_that_are_asked_for():
    for name, rows in (("qos", QOS), ("associations", ASSOCIATIONS)):
        fields = READS[name][-1].partition("=")[2].split(",")
        assert {row.count("|") + 1 for row in rows.splitlines()} == {len(fields)}


@pytest.mark.parametrize(("kind", "fields"), [(Association, ASSOCIATION_FIELDS), (Qos, QOS_FIELDS)])
def test_each_limit_of_the_definition_is_one_of_sacctmgr(kind, fields):
    keys = [key for key in kind.model_fields if key.startswith(("max_", "min_", "grp_"))]
    assert len(keys) > 8
    assert {limits.sacctmgr_name(key) for key in keys} <= fields.keys()


@pytest.fixture(scope="module")
def lab_for_ten(tmp_path_factory):
    """The definition of docs/limits.md, as options of the module."""
    lab = tmp_path_factory.mktemp("inventories") / "lab"
    shutil.copytree(ROOT / "inventories/lab", lab, ignore=shutil.ignore_patterns("secrets.yml"))
    file = lab / "group_vars/all/cluster.yml"
    # The other is its reservations.
    change, _ = Page(ROOT / "docs/limits.md").blocks("yaml")
    whole = merged(yaml.safe_load(file.read_text()), yaml.safe_load(change.text))
    # The recordings below are older than this account.
    del whole["cluster"]["accounts"]["spare"]
    file.write_text(yaml.safe_dump(whole))
    definition = load(lab)
    users = [user(**entry) for entry in people.account_users(definition)]
    return people.accounts(definition), users, limits.qos(definition)


# What sacctmgr of 22.05.8 and 24.11.5 printed after the module had run with this definition; the
# last fields of accounts and associations, which repeat others, are added by hand.
RECORDED = sorted((Path(__file__).parent / "sacctmgr").glob("*.json"))


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: path.stem)
@pytest.mark.parametrize("prune", [True, False])
def test_a_second_run_changes_nothing(lab_for_ten, recorded, prune):
    has = {name: "\n".join(lines) for name, lines in json.loads(recorded.read_text()).items()}
    assert commands(lab_for_ten, prune, has=has) == []
    assert by_hand(parse("lab", has), wanted(*lab_for_ten)) == []
    assert unknown_tres(wanted(*lab_for_ten), parse("lab", has).tres) == {}


def test_there_are_recordings_of_both_releases():
    assert [path.stem for path in RECORDED] == ["22.05", "24.11"]


def test_a_settled_cluster_needs_no_command():
    assert commands(SETTLED) == []
    assert commands(SETTLED, prune=True) == []


CASES = {
    "one TRES of several": (
        changed(
            [with_limits(NORMAL, MaxTRESPerUser={"gres/gpu": 4, "mem": 102400}), SCAVENGER, OLD]
        ),
        ["modify qos where name=normal set MaxTRESPerUser=gres/gpu=4"],
        ["QoS normal: GPUs at once of a user 8 -> 4"],
    ),
    "a limit of an account": (
        changed(limits=LAB_TEST["limits"] | {"GrpTRES": {"gres/gpu": 4}}),
        [f"modify account {WHERE} GrpTRES=gres/gpu=4"],
        ["account lab-test: GPUs at once 8 -> 4"],
    ),
    "a limit of a user, and shares": (
        changed(associations=[association("alan", fairshare=2, limits={"MaxJobs": 1})]),
        [
            "modify user where name=alan cluster=lab account=lab-test set FairShare=2 MaxJobs=1",
        ],
        ["alan in lab-test: shares 7 -> 2", "alan in lab-test: running jobs of a user 4 -> 1"],
    ),
    "equal limits of several users in one command": (
        changed(
            associations=[
                ALAN | {"limits": {"MaxJobs": 4, "MaxWallDurationPerJob": 90}},
                association("ada", limits={"MaxWallDurationPerJob": 90}),
            ]
        ),
        [
            "modify user where name=ada,alan cluster=lab account=lab-test "
            "set MaxWallDurationPerJob=90",
        ],
        [
            "ada in lab-test: longest time of a job none -> 01:30:00",
            "alan in lab-test: longest time of a job none -> 01:30:00",
        ],
    ),
    "a new QoS before what names it, and before the QoS that preempts it": (
        changed(
            [
                with_limits(NORMAL, Preempt=["low", "scavenger"]),
                SCAVENGER,
                OLD,
                {"name": "high", "limits": {"Preempt": ["low"]}},
                {"name": "low", "limits": {"MaxJobsPerUser": 2}},
            ],
            qos=["normal", "scavenger", "old", "low", "high"],
        ),
        [
            "add qos name=low MaxJobsPerUser=2",
            "add qos name=high Preempt=low",
            "modify qos where name=normal set Preempt=low,scavenger",
            f"modify account {WHERE} QOSLevel=high,low,normal,old,scavenger",
        ],
        [
            "QoS high: preempts none -> low",
            "QoS low: running jobs of a user none -> 2",
            "QoS normal: preempts scavenger -> low,scavenger",
            "account lab-test: allowed QoS normal,old,scavenger -> high,low,normal,old,scavenger",
        ],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_change_is_the_fewest_commands_and_is_said_in_words(case):
    options, expected, words = CASES[case]
    assert commands(options) == expected
    current = parse("lab", HAS)
    assert limits_changed(current, target(current, wanted(*options))) == words


def test_a_check_prints_the_lines_of_the_page(lab_for_ten, run_module, stand_ins, tmp_path):
    """The lab of docs/limits.md where slurmdbd has accounts without limits, and GPUs are known."""
    for name, read in READS.items():
        (tmp_path / f"has-{read[1]}").write_text(OUTPUT["24.11"][name])
    accounts, users, qos = lab_for_ten
    outcome = run_module(
        "slurm_accounts",
        {"cluster": "lab", "host": "db1", "accounts": accounts, "users": users, "qos": qos},
        check=True,
        env={"PATH": stand_ins({"sacctmgr": f"cat {tmp_path}/has-$3"})},
    )
    assert outcome["changed"], outcome.printed
    printed = [part["prepared"] for part in outcome["diff"] if "prepared" in part]
    page = next(iter(Page(ROOT / "docs/limits.md").blocks("text")))
    expected = page.text.splitlines()
    assert len(expected) > 1
    assert [line for line in "".join(printed).splitlines() if line in expected] == expected
    assert outcome["changes"] == "".join(printed).splitlines()


def test_a_check_prints_a_limit_that_is_there_and_changes(run_module, stand_ins, tmp_path):
    """The line of the role's README."""
    for name, read in READS.items():
        (tmp_path / f"has-{read[1]}").write_text(HAS[name])
    few = with_limits(NORMAL, MaxTRESPerUser={"gres/gpu": 4, "mem": 102400})
    accounts, users, qos = changed([few, SCAVENGER, OLD])
    outcome = run_module(
        "slurm_accounts",
        {"cluster": "lab", "host": "db1", "accounts": accounts, "users": users, "qos": qos},
        check=True,
        env={"PATH": stand_ins({"sacctmgr": f"cat {tmp_path}/has-$3"})},
    )
    line = "QoS normal: GPUs at once of a user 8 -> 4\n"
    assert outcome["diff"][1]["prepared"] == line, outcome.printed
    assert f"    {line}" in (ROOT / "roles/accounts/README.md").read_text()


def test_qos_that_preempt_each_other_get_their_lists_when_all_are_there():
    circle = [
        {"name": "a", "limits": {"Preempt": ["b"], "Priority": 3}},
        {"name": "b", "limits": {"Preempt": ["a"]}},
    ]
    assert commands((ACCOUNTS, USERS, [NORMAL, SCAVENGER, OLD, *circle])) == [
        "add qos name=a Priority=3",
        "add qos name=b Preempt=a",
        "modify qos where name=a set Preempt=b",
    ]


SILENT = (
    *changed(limits={}, associations=[])[:2],
    [{"name": "normal", "limits": {"Priority": 10}}, SCAVENGER, OLD],
)


def test_what_somebody_set_by_hand_is_kept_and_named():
    assert commands(SILENT) == []
    assert by_hand(parse("lab", HAS), wanted(*SILENT)) == [
        "QoS normal: preempts scavenger",
        "QoS normal: flag DenyOnLimit yes",
        "QoS normal: GPUs at once of a user 8",
        "QoS normal: MiB of memory at once of a user 102400",
        "QoS normal: longest time of a job 1-00:00:00",
        "account lab-test: GPUs at once 8",
        "account lab-test: minutes that running jobs may still use of GPUs 5760",
        "account lab-test: jobs of a user, waiting ones too 2000",
        "alan in lab-test: shares 7",
        "alan in lab-test: running jobs of a user 4",
    ]


def test_one_key_removes_what_was_set_by_hand():
    assert commands(SILENT, prune=True) == [
        "modify qos where name=normal set Preempt= Flags=-1 "
        "MaxTRESPerUser=gres/gpu=-1,mem=-1 MaxWallDurationPerJob=-1",
        f"modify account {WHERE} GrpTRES=gres/gpu=-1 GrpTRESRunMins=gres/gpu=-1 MaxSubmitJobs=-1",
        "modify user where name=alan cluster=lab account=lab-test set FairShare=1 MaxJobs=-1",
    ]


def test_a_bound_that_is_none_is_removed_and_not_named():
    options = changed(limits=LAB_TEST["limits"] | {"MaxSubmitJobs": None})
    assert commands(options) == [f"modify account {WHERE} MaxSubmitJobs=-1"]
    assert by_hand(parse("lab", HAS), wanted(*options)) == []
    has = HAS | {"associations": ASSOCIATIONS.replace("|2000|", "||")}
    assert commands(options, has=has) == []
    added = commands(([account("new", limits={"MaxSubmitJobs": None})], [], []))
    assert [line for line in added if "MaxSubmitJobs" in line] == []


def test_a_flag_beside_others_is_taken_and_the_others_stay():
    has = HAS | {"qos": QOS.replace("DenyOnLimit", "DenyOnLimit,NoDecay")}
    options = changed([with_limits(NORMAL, Flags={"DenyOnLimit": False}), SCAVENGER, OLD])
    assert commands(options, has=has) == ["modify qos where name=normal set Flags=NoDecay"]


COORDINATED = [account("top", "zoe", coordinators=["zoe"]), account("below", "zoe", parent="top")]


def test_a_coordinator_is_made_at_the_uppermost_account():
    assert [line for line in commands((COORDINATED, [], [])) if "coordinator" in line] == [
        "add coordinator account=top names=zoe"
    ]


def test_a_coordinator_by_hand_is_named_and_pruned():
    options = changed(coordinators=[])
    assert commands(options) == []
    assert by_hand(parse("lab", HAS), wanted(*options)) == ["account lab-test: coordinator ada"]
    assert commands(options, prune=True) == ["delete coordinator account=lab-test names=ada"]


def test_coordinators_whom_another_cluster_may_have_made_are_kept_and_named():
    has = HAS | {"clusters": "lab\nother-lab\n"}
    options = changed(coordinators=[])
    assert commands(options, prune=True, has=has) == []
    current = parse("lab", has)
    goal = target(current, wanted(*options), prune=True)
    said = by_others(current, goal, wanted(*options))
    assert said == ["account lab-test: coordinator ada"]


def test_rights_that_another_cluster_may_have_given_are_not_lowered_by_default():
    has = HAS | {"clusters": "lab\nother-lab\n"}
    unsaid = ACCOUNTS, [user("ada", "other")], SETTLED[2]
    assert commands(unsaid) == ["modify user where name=alan set adminlevel=none"]
    assert commands(unsaid, has=has) == []
    current = parse("lab", has)
    said = by_others(current, current, wanted(*unsaid))
    assert said == ["user alan: admin level operator"]
    assert by_hand(current, wanted(*unsaid)) == []
    said = ACCOUNTS, [USERS[0], user("alan", admin_level="administrator")], SETTLED[2]
    assert commands(said, has=has) == ["modify user where name=alan set adminlevel=administrator"]


WITHOUT_ALAN = (
    [account("LAB-test", "ada", **LAB_TEST | {"associations": []}), ACCOUNTS[1]],
    [USERS[0]],
    SETTLED[2],
)


def test_rights_end_with_the_last_account_of_the_definition():
    current, wish = parse("lab", HAS), wanted(*WITHOUT_ALAN)
    goal = target(current, wish)
    taken = "modify user where name=alan set adminlevel=none"
    assert commands(WITHOUT_ALAN) == [taken]
    assert "adminlevel=operator" in shown("lab", current)
    assert "user alan: accounts=lab-test default=lab-test adminlevel=none" in shown("lab", goal)
    again = HAS | {"users": HAS["users"].replace("Operator", "None")}
    assert commands(WITHOUT_ALAN, has=again) == []


@pytest.mark.parametrize(
    ("prune", "said"),
    [
        (False, "user alan: admin level operator"),
        (True, "user alan: admin level operator, if another cluster has alan"),
    ],
)
def test_rights_that_another_cluster_may_have_given_to_others_are_named(prune, said):
    has = HAS | {"clusters": "lab\nother-lab\n"}
    current, wish = parse("lab", has), wanted(*WITHOUT_ALAN)
    assert [line for line in commands(WITHOUT_ALAN, prune, has=has) if "adminlevel" in line] == []
    assert by_others(current, target(current, wish, prune), wish) == [said]


def test_tres_that_slurmdbd_does_not_know_are_left_for_later():
    wish = wanted(*changed(limits={"GrpTRES": {"gres/gpu:h100": 2, "cpu": 4}}))
    unknown = unknown_tres(wish, parse("lab", HAS).tres)
    assert unknown == {"gres/gpu:h100": "account lab-test"}
    left = without_tres(wish, unknown)
    assert left.accounts["lab-test"].settings["GrpTRES", "cpu"] == "4"
    assert unknown_tres(left, parse("lab", HAS).tres) == {}


@pytest.mark.parametrize(
    ("printed", "amount"),
    [
        ("mem=500M", "500"),
        ("mem=1.50G", "1536"),
        ("mem=1.50T", "1572864"),
        ("mem=2G", "2048"),
        ("mem=NONE", None),
    ],
)
def test_memory_is_read_in_any_unit(printed, amount):
    has = HAS | {"qos": QOS.replace("mem=100G", printed)}
    settings = parse("lab", has).qos["normal"]
    assert settings.get(("MaxTRESPerUser", "mem")) == amount


REFUSED = {
    "a limit that there is none": {"MaxGPUs": 4},
    "shares, which have an option": {"FairShare": 2},
    "TRES as a number": {"GrpTRES": 4},
    "a negative number": {"MaxJobs": -1},
    "a number in words": {"MaxJobs": "many"},
    "TRES as none": {"GrpTRES": None},
    "an amount in another unit": {"GrpTRES": {"mem": "100G"}},
}
ROUNDED = 2**20 + 2**9
"""MiB that convert_num_unit2 in SLURM's source prints as 1.00T."""


def test_memory_that_sacctmgr_prints_rounded_is_refused():
    with pytest.raises(RefusedError, match="take a multiple of 1024"):
        wanted(*changed(limits={"GrpTRES": {"mem": ROUNDED}}))
    for mib in (0, 1, 1500, 1536, 122880, 2063872, 2**20, 2**20 + 1024, 3 * 2**29):
        goal = wanted(*changed(limits={"GrpTRES": {"mem": mib}}))
        assert goal.accounts["lab-test"].settings["GrpTRES", "mem"] == str(mib)


@pytest.mark.parametrize("case", REFUSED)
def test_a_limit_that_sacctmgr_would_misread_is_refused(case):
    with pytest.raises(RefusedError, match=r"^account lab-test: .*(choose from|has to be)"):
        wanted(*changed(limits=REFUSED[case]))


def test_limits_of_somebody_else_are_refused():
    with pytest.raises(RefusedError, match="eve has limits and is none of its users"):
        wanted(*changed(associations=[association("eve")]))


def test_a_qos_twice_is_refused():
    with pytest.raises(RefusedError, match='QoS "old" is there twice'):
        wanted(ACCOUNTS, USERS, [OLD, {"name": "OLD", "limits": {}}])
