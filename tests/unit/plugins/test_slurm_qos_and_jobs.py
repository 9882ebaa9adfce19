"""QoS that are taken away, but not from jobs; limits of GPUs that wait for slurmctld."""

import subprocess
from types import SimpleNamespace

import pytest
from ansible_collections.muster.slurm.plugins.module_utils import sacctmgr
from ansible_collections.muster.slurm.plugins.module_utils.accounting_plan import plan
from ansible_collections.muster.slurm.plugins.module_utils.accounting_state import (
    READS,
    parse,
    qos_of,
)
from ansible_collections.muster.slurm.plugins.module_utils.accounting_target import (
    Job,
    jobs_without_qos,
    takes_qos_away,
    target,
    unlisted_qos,
)
from ansible_collections.muster.slurm.plugins.module_utils.accounting_wish import wanted
from ansible_collections.muster.slurm.plugins.module_utils.accounting_words import (
    by_hand,
    limits_changed,
)
from ansible_collections.muster.slurm.plugins.module_utils.refused_error import RefusedError
from ansible_collections.muster.slurm.plugins.modules import slurm_accounts
from lab_with_limits import (
    ACCOUNTS,
    ALAN,
    ASSOCIATIONS,
    HAS,
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
from sacctmgr_output import NO_LIMITS, account, association

WITHOUT_OLD = changed([NORMAL, SCAVENGER], qos=["normal", "scavenger"])


def test_a_qos_goes_last_when_no_list_names_it():
    has = HAS | {"qos": QOS.replace("|scavenger|cluster|DenyOnLimit", "|old,scavenger|cluster|")}
    assert "delete qos where name=old" not in commands(WITHOUT_OLD, has=has)
    assert unlisted_qos(parse("lab", has), wanted(*WITHOUT_OLD)) == {"old"}
    assert commands(WITHOUT_OLD, prune=True, has=has) == [
        "modify qos where name=normal set Preempt=scavenger Flags=DenyOnLimit",
        f"modify account {WHERE} QOSLevel=normal,scavenger",
        "delete qos where name=old",
    ]
    current = parse("lab", has)
    assert limits_changed(current, target(current, wanted(*WITHOUT_OLD), True)) == [
        "QoS normal: preempts old,scavenger -> scavenger",
        "QoS normal: flag DenyOnLimit no -> yes",
        "account lab-test: allowed QoS normal,old,scavenger -> normal,scavenger",
    ]


WITHOUT_NORMAL = ACCOUNTS, USERS, [SCAVENGER, OLD]


def test_slurm_s_own_qos_is_not_removed():
    assert "delete qos where name=normal" not in commands(WITHOUT_NORMAL, prune=True)


def test_limits_of_slurm_s_own_qos_that_is_not_listed_are_named_and_pruned():
    assert commands(WITHOUT_NORMAL) == []
    current = parse("lab", HAS)
    assert "QoS normal: GPUs at once of a user 8" in by_hand(current, wanted(*WITHOUT_NORMAL))
    assert commands(WITHOUT_NORMAL, prune=True) == [
        "modify qos where name=normal set Priority=0 Preempt= Flags=-1 "
        "MaxTRESPerUser=gres/gpu=-1,mem=-1 MaxWallDurationPerJob=-1"
    ]
    # Those of another cluster, perhaps.
    has = HAS | {"clusters": "lab\nother-lab\n"}
    assert commands(WITHOUT_NORMAL, prune=True, has=has) == []


JOBS = [
    Job("7", "lab-test", "ada", "old"),
    Job("8_[1-3]", "lab-test", "alan", "old"),
    Job("9", "lab-test", "alan", "normal"),
    # Of a partition's QoS, or of a time when it was allowed: it has lost its QoS before.
    Job("10", "other", "ada", "old"),
]


@pytest.mark.parametrize("prune", [True, False])
def test_jobs_that_could_no_longer_use_their_qos_are_found(prune):
    current = parse("lab", HAS)
    goal = target(current, wanted(*WITHOUT_OLD), prune)
    assert takes_qos_away(current, goal)
    assert jobs_without_qos(current, goal, JOBS) == JOBS[:2]
    assert jobs_without_qos(current, target(current, wanted(*SETTLED)), JOBS) == []


def test_allowed_qos_come_from_the_nearest_list_upwards():
    current = parse("lab", HAS)
    assert qos_of(current, "ada", "lab-test") == {"normal", "old", "scavenger"}
    assert qos_of(current, "ada", "other") == {"normal"}
    goal = target(
        current, wanted(*changed(associations=[association("ada", qos=["scavenger"])])), False
    )
    assert qos_of(goal, "ada", "lab-test") == {"scavenger"}


ADDED = ASSOCIATIONS.replace("lab-test|ada|||1||", "lab-test|ada|||1|+long|").replace(
    "other|ada|||1||", "other|ada|||1|-normal,+long|"
)
BY_HAND = HAS | {
    "associations": ADDED,
    "qos": QOS + QOS.splitlines()[1].replace("scavenger", "long"),
}
"""Somebody typed `sacctmgr modify user ada set qos+=long`."""


def test_qos_that_were_added_by_hand_are_allowed_beside_those_of_the_account():
    current = parse("lab", BY_HAND)
    assert qos_of(current, "ada", "lab-test") == {"normal", "old", "scavenger", "long"}
    assert qos_of(current, "ada", "other") == {"long"}
    assert commands(SETTLED, has=BY_HAND) == []
    assert "ada in lab-test: allowed QoS +long" in by_hand(current, wanted(*SETTLED))


def test_jobs_in_a_qos_that_was_added_by_hand_keep_it():
    current = parse("lab", BY_HAND)
    goal = target(current, wanted(*SETTLED), prune=True)
    assert goal.qos.keys() == {"normal", "old", "scavenger"}
    of_ada = Job("7", "lab-test", "ada", "long")
    assert jobs_without_qos(current, goal, [of_ada]) == [of_ada]


def test_qos_of_a_slurmdbd_with_other_clusters_are_not_removed():
    assert "delete qos where name=old" in commands(WITHOUT_OLD, prune=True)
    has = HAS | {"clusters": "lab\nother-lab\n"}
    assert "delete qos where name=old" not in commands(WITHOUT_OLD, prune=True, has=has)
    current = parse("lab", has)
    goal = target(current, wanted(*WITHOUT_OLD), prune=True)
    assert unlisted_qos(goal, wanted(*WITHOUT_OLD)) == {"old"}


@pytest.mark.parametrize("prune", [True, False])
def test_a_default_qos_goes_with_the_qos(prune):
    """slurmdbd refuses a list without it; the definition has neither any more."""
    has = ASSOCIATIONS.replace("scavenger|normal|", "scavenger|old|").replace(
        "lab-test|ada|||1|||", "lab-test|ada|||1||old|"
    )
    options = changed(qos=["normal", "scavenger"], default_qos=None)
    said = commands(options, prune, has=HAS | {"associations": has})
    assert f"modify account {WHERE} QOSLevel=normal,scavenger DefaultQOS=-1" in said
    assert "modify user where name=ada cluster=lab account=lab-test set DefaultQOS=-1" in said


def test_a_default_qos_of_an_account_below_goes_too_and_others_stay():
    others = "".join(
        f"{name}|||{parent}|1||old{NO_LIMITS}\n"
        for name, parent in (("below", "lab-test"), ("other-one", "root"))
    )
    has = ASSOCIATIONS + others
    said = commands(changed(qos=["normal", "scavenger"]), has=HAS | {"associations": has})
    assert "modify account where name=below cluster=lab set DefaultQOS=-1" in said
    assert not [line for line in said if "other-one" in line]


class FakeSlurmdbd:
    """Answers with HAS; all changes come true at once, as `after`."""

    def __init__(self, after=HAS, jobs=""):
        self.outputs = HAS
        self.jobs = jobs
        self.after = after
        self.changes = []

    def __call__(self, words, **_):
        if words[0].endswith("squeue"):
            return subprocess.CompletedProcess(words, 0, self.jobs, "")
        if words[1] == "-i":
            self.changes.append(" ".join(words[2:]))
            self.outputs = self.after
            return subprocess.CompletedProcess(words, 0, " Modified qos...\n", "")
        asked = next(name for name, read in READS.items() if read[1] == words[3])
        return subprocess.CompletedProcess(words, 0, self.outputs[asked], "")


@pytest.fixture
def talk(monkeypatch):
    monkeypatch.setattr(sacctmgr.shutil, "which", lambda name: f"/usr/bin/{name}")
    return lambda run: sacctmgr.Sacctmgr("lab", "db1", 6819, 0, run)


def test_a_changed_limit_is_read_again_and_done(talk):
    fake = FakeSlurmdbd(HAS | {"qos": QOS.replace("gres/gpu=8", "gres/gpu=4")})
    slurmdbd = talk(fake)
    few = with_limits(NORMAL, MaxTRESPerUser={"gres/gpu": 4, "mem": 102400})
    options = changed([few, SCAVENGER, OLD])
    sacctmgr.apply(slurmdbd, slurmdbd.state(), wanted(*options), False, frozenset())
    assert fake.changes == ["modify qos where name=normal set MaxTRESPerUser=gres/gpu=4"]


@pytest.mark.parametrize("prune", [True, False])
def test_a_qos_is_not_taken_from_jobs_and_they_are_named(talk, prune):
    slurmdbd = talk(FakeSlurmdbd(jobs="7|lab-test|ada|old\n8_[1-3]|lab-test|alan|old\n"))
    with pytest.raises(RefusedError, match=r"^QoS old would be taken from jobs 7, 8_\[1-3\]: "):
        sacctmgr.decide(slurmdbd, slurmdbd.state(), wanted(*WITHOUT_OLD), prune)


def test_of_many_jobs_the_first_are_named(talk):
    slurmdbd = talk(FakeSlurmdbd(jobs="".join(f"{n}|lab-test|ada|old\n" for n in range(1, 24))))
    with pytest.raises(RefusedError, match=r"from jobs 1, 2, .*19, 20 and 3 more: wait until"):
        sacctmgr.decide(slurmdbd, slurmdbd.state(), wanted(*WITHOUT_OLD), True)


def test_a_qos_without_jobs_is_taken(talk):
    slurmdbd = talk(FakeSlurmdbd(jobs="9|lab-test|alan|normal\n"))
    goal, *_ = sacctmgr.decide(slurmdbd, slurmdbd.state(), wanted(*WITHOUT_OLD), True)
    assert set(goal.qos) == {"normal", "scavenger"}


def drained(talk, options, prune=False, jobs="7|lab-test|ada|old\n", has=HAS):
    fake = FakeSlurmdbd(jobs=jobs)
    fake.outputs = has
    slurmdbd = talk(fake)
    current = slurmdbd.state()
    goal, _, left_to = sacctmgr.decide(slurmdbd, current, wanted(*options), prune, drain=True)
    said = [" ".join(words) for words in plan("lab", current, goal)]
    return said, sorted(job.number for job in left_to)


CLOSE_OLD = "modify qos where name=old set GrpSubmitJobs=0"
CLOSED_QOS = QOS.replace("NoReserve|1.000000|||||", "NoReserve|1.000000||||0|")


@pytest.mark.parametrize("prune", [True, False])
def test_a_qos_that_is_drained_is_left_to_its_jobs_and_takes_no_new_ones(talk, prune):
    said, left_to = drained(talk, WITHOUT_OLD, prune)
    assert [line for line in said if "old" in line] == [CLOSE_OLD]
    assert left_to == ["7"]
    # A second run changes nothing while they run.
    again, left_to = drained(talk, WITHOUT_OLD, prune, has=HAS | {"qos": CLOSED_QOS})
    assert [line for line in again if "old" in line] == []
    assert left_to == ["7"]


def test_a_drained_qos_goes_when_its_jobs_have_ended(talk):
    said, left_to = drained(talk, WITHOUT_OLD, True, jobs="", has=HAS | {"qos": CLOSED_QOS})
    assert f"modify account {WHERE} QOSLevel=normal,scavenger" in said
    assert said[-1] == "delete qos where name=old"
    assert left_to == []


def test_a_qos_that_others_go_on_using_is_not_closed(talk):
    of_lab_test_alone = changed(qos=["normal", "scavenger"])
    said, left_to = drained(talk, of_lab_test_alone)
    assert (said, left_to) == ([], ["7"])


def test_slurm_s_own_qos_is_not_closed_to_others(talk):
    """The definition need not describe `normal`, and accounts without a list have it."""
    options = changed([SCAVENGER, OLD], qos=["old", "scavenger"], default_qos="old")
    said, left_to = drained(talk, options, jobs="9|lab-test|ada|normal\n")
    assert [line for line in said if "GrpSubmitJobs" in line] == []
    assert left_to == ["9"]


def test_a_qos_that_an_account_outside_of_the_definition_uses_is_not_closed(talk):
    theirs = ASSOCIATIONS + f"theirs|||root|1|old|{NO_LIMITS}\ntheirs|bo|||1||{NO_LIMITS}\n"
    said, left_to = drained(talk, WITHOUT_OLD, has=HAS | {"associations": theirs})
    assert [line for line in said if "GrpSubmitJobs" in line] == []
    assert left_to == ["7"]


def test_a_qos_that_another_cluster_may_use_is_not_closed(talk):
    said, left_to = drained(talk, WITHOUT_OLD, has=HAS | {"clusters": "lab\nother-lab\n"})
    assert [line for line in said if "GrpSubmitJobs" in line] == []
    assert left_to == ["7"]


def test_a_list_of_the_users_own_keeps_it_too(talk):
    own = ASSOCIATIONS.replace("lab-test|ada|||1||", "lab-test|ada|||1|normal,old|")
    options = changed(associations=[ALAN, association("ada", qos=["normal"])])
    said, left_to = drained(talk, options, has=HAS | {"associations": own})
    assert (said, left_to) == ([], ["7"])


def test_a_drained_qos_that_comes_back_takes_jobs(talk):
    without = ASSOCIATIONS.replace("normal,old,scavenger|", "normal,scavenger|")
    has = HAS | {"qos": CLOSED_QOS, "associations": without}
    assert "modify qos where name=old set GrpSubmitJobs=-1" in commands(SETTLED, has=has)
    # What somebody closed by hand stays so.
    assert commands(SETTLED, has=HAS | {"qos": CLOSED_QOS}) == []


def test_a_qos_of_a_partition_that_somebody_closed_stays_so():
    """No association names it, and none is to."""
    without = ASSOCIATIONS.replace("normal,old,scavenger|", "normal,scavenger|")
    has = HAS | {"qos": CLOSED_QOS, "associations": without}
    options = changed(qos=["normal", "scavenger"])
    assert commands(options, has=has) == []
    assert by_hand(parse("lab", has), wanted(*options)) == ["QoS old: jobs, waiting ones too 0"]
    assert commands(options, prune=True, has=has) == [
        "modify qos where name=old set GrpSubmitJobs=-1"
    ]


def test_a_drained_qos_that_comes_back_to_a_user_alone_takes_jobs():
    without = ASSOCIATIONS.replace("normal,old,scavenger|", "normal,scavenger|")
    has = HAS | {"qos": CLOSED_QOS, "associations": without}
    own = association("ada", qos=["normal", "old"])
    said = commands(changed(qos=["normal", "scavenger"], associations=[ALAN, own]), has=has)
    assert "modify qos where name=old set GrpSubmitJobs=-1" in said


H100 = changed(limits={"GrpTRES": {"gres/gpu:h100": 2}})


def module(check_mode=False, **options):
    return SimpleNamespace(check_mode=check_mode, params={"slurmctld_runs": True} | options)


def test_limits_of_gpus_wait_for_slurmctld(talk):
    slurmdbd = talk(FakeSlurmdbd())
    _, wish, deferred = slurm_accounts.with_known_tres(
        module(slurmctld_runs=False), slurmdbd, slurmdbd.state(), wanted(*H100)
    )
    assert deferred == ["gres/gpu:h100"]
    assert wish.accounts["lab-test"].settings.keys() == {("QOSLevel", ""), ("DefaultQOS", "")}


def test_a_check_shows_limits_of_gpus_that_slurmctld_will_make_known(talk):
    slurmdbd = talk(FakeSlurmdbd())
    current, wish, deferred = slurm_accounts.with_known_tres(
        module(check_mode=True), slurmdbd, slurmdbd.state(), wanted(*H100)
    )
    assert deferred == []
    said = limits_changed(current, target(current, wish))
    assert "account lab-test: GPUs of type h100 at once none -> 2" in said


def test_limits_of_gpus_that_slurmctld_does_not_make_known_are_refused(talk):
    slurmdbd = talk(FakeSlurmdbd())
    with pytest.raises(RefusedError, match="account lab-test limits gres/gpu:h100, which slurmdbd"):
        slurm_accounts.with_known_tres(module(), slurmdbd, slurmdbd.state(), wanted(*H100))


class StrictSlurmdbd:
    """Keeps lists of QoS and default ones of account lab and its users, and refuses as 24.11 does.

    After a change each association of the account, or each user that is changed, needs its default
    QoS in its list; both may be those of the account (_foreach_check_default_qos in
    as_mysql_assoc.c).
    """

    def __init__(self, **associations):
        self.qos = ["normal", "long"]
        self.associations = {"": {}} | associations
        self.refused = []

    def __call__(self, words, **_):
        if words[0].endswith("squeue"):
            return subprocess.CompletedProcess(words, 0, "", "")
        if words[1] == "-i":
            code = self.change(words[2], words[3], dict(w.split("=") for w in words if "=" in w))
            self.refused += [" ".join(words[2:])] * code
            return subprocess.CompletedProcess(words, code, "", "")
        asked = next(name for name, read in READS.items() if read[1] == words[3])
        return subprocess.CompletedProcess(words, 0, self.shown()[asked], "")

    def change(self, verb, what, given):
        if what == "qos":
            self.qos += [given["name"]] * (verb == "add")
            self.qos = [name for name in self.qos if verb != "delete" or name != given["name"]]
            return 0
        settings = {key: given[key] for key in ("QOSLevel", "DefaultQOS") if key in given}
        changed = given["name"].split(",") if what == "user" else [""]
        after = {name: dict(own) for name, own in self.associations.items()}
        for name in changed:
            after[name] |= settings
            after[name] = {k: value for k, value in after[name].items() if value not in ("", "-1")}
        for name in changed if what == "user" else after:
            of_it = after[""] | after[name]
            if of_it.get("DefaultQOS", "") not in ["", *of_it["QOSLevel"].split(",")]:
                return 1
        self.associations = after
        return 0

    def shown(self):
        rows = [f"root||||1|normal|{NO_LIMITS}"]
        for name, own in self.associations.items():
            settings = f"{own.get('QOSLevel', '')}|{own.get('DefaultQOS', '')}"
            rows.append(f"lab|{name}||{'' if name else 'root'}|1|{settings}{NO_LIMITS}")
        return HAS | {
            "qos": "".join(f"{name}|0|00:00:00||cluster||1.0{'|' * 14}\n" for name in self.qos),
            "accounts": "lab|lab|lab||lab\nroot|default root account|root||root\n",
            "users": "eve|lab|None\nfinn|lab|None\n",
            "associations": "\n".join(rows) + "\n",
        }


LAB = {"QOSLevel": "long,normal", "DefaultQOS": "normal"}
LONG = {"DefaultQOS": "long"}
RENAMED = {
    "of users": ({"": LAB, "eve": LONG, "finn": LONG}, {"default_qos": "normal"}, "week"),
    "of the account": ({"": LAB | LONG, "eve": {}, "finn": {}}, {"default_qos": "week"}, None),
    "of the account, and a list of a user's own": (
        {"": LAB | LONG, "eve": {"QOSLevel": "long"}, "finn": {}},
        {"default_qos": "week", "associations": [association("eve", qos=["week"])]},
        None,
    ),
    "of users, and gone": ({"": LAB, "eve": LONG, "finn": LONG}, {"default_qos": "normal"}, None),
    "of a user with a list of the user's own": (
        {"": LAB, "eve": LAB | LONG, "finn": {}},
        {
            "default_qos": "normal",
            "associations": [association("eve", qos=["normal", "week"], default_qos="week")],
        },
        None,
    ),
}


@pytest.mark.parametrize("prune", [True, False])
@pytest.mark.parametrize("case", RENAMED)
def test_a_qos_that_is_a_default_one_gets_another_name(talk, case, prune):
    has, of_account, of_users = RENAMED[case]
    fake = StrictSlurmdbd(**has)
    slurmdbd = talk(fake)
    default = {} if of_users is None else {"default_qos": of_users}
    people = [association(name, **default) for name in ("eve", "finn") if default]
    lab = account("lab", "eve", "finn", qos=["normal", "week"], associations=people)
    wish = wanted([lab | of_account], [], [{"name": n, "limits": {}} for n in ("normal", "week")])
    sacctmgr.apply(slurmdbd, slurmdbd.state(), wish, prune, frozenset())
    assert plan("lab", slurmdbd.state(), target(slurmdbd.state(), wish, prune)) == []
    assert set(fake.qos) == {"normal", "week"} | ({"long"} if not prune else set())
    # The account's default one may wait for a user's own list, until the second round.
    assert len(fake.refused) == (case == "of the account, and a list of a user's own")
