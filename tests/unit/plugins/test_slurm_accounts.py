"""What slurm_accounts reads from sacctmgr, decides and runs, as data; no slurmdbd."""

import fcntl
import re
import subprocess
from pathlib import Path

import pytest
from ansible_collections.muster.slurm.plugins.module_utils import sacctmgr
from ansible_collections.muster.slurm.plugins.module_utils.accounting_plan import (
    NAMES_PER_COMMAND,
    plan,
)
from ansible_collections.muster.slurm.plugins.module_utils.accounting_state import READS, parse
from ansible_collections.muster.slurm.plugins.module_utils.accounting_target import Job, target
from ansible_collections.muster.slurm.plugins.module_utils.accounting_wish import wanted
from ansible_collections.muster.slurm.plugins.module_utils.refused_error import RefusedError
from sacctmgr_output import FRESH, NO_LIMITS, OUTPUT, account, user


def state(version):
    return parse("lab", FRESH if version == "fresh" else OUTPUT[version])


def commands(version, accounts, users=(), prune=False, busy=()):
    current = state(version)
    wish = wanted(accounts, list(users))
    goal = target(current, wish, prune, frozenset(busy))
    return [" ".join(words) for words in plan("lab", current, goal)]


LAB_TEST = {"description": "First trials", "organization": "lab", "fairshare": 3}
SETTLED = [account("LAB-test", "ada", "alan", **LAB_TEST), account("other", "ada")]
AS_IT_IS = [user("ada", "other"), user("alan", admin_level="operator")]


@pytest.mark.parametrize("version", ["22.05", "24.11"])
def test_root_and_left_overs_of_removed_accounts_are_not_part_of_the_state(version):
    current = state(version)
    assert current.registered
    assert set(current.accounts) == {"lab-test", "other"}
    assert set(current.users) == {"ada", "alan"}
    assert current.users["alan"].admin_level == "operator"
    assert current.accounts["lab-test"].parent == "root"


def test_a_settled_cluster_needs_no_command_whatever_the_case_of_the_names():
    assert commands("24.11", SETTLED, AS_IT_IS) == []
    assert commands("24.11", SETTLED, AS_IT_IS, prune=True) == []


CASES = {
    "all at once, parents before children, the default account first": (
        ("fresh", [account("sub", "ada", "alan", parent="Top"), account("Top", "ada")]),
        {"users": [user("ada", "TOP")]},
        [
            "add cluster lab",
            "add account name=top cluster=lab parent=root fairshare=1 "
            "description=top organization=top",
            "add account name=sub cluster=lab parent=top fairshare=1 "
            "description=sub organization=top",
            "add user name=ada account=top cluster=lab defaultaccount=top",
            "add user name=alan account=sub cluster=lab defaultaccount=sub",
            "add user name=ada account=sub cluster=lab",
        ],
    ),
    "one command for the new users of an account": (
        ("24.11", [*SETTLED, account("new", "zoe", "bob")]),
        {"users": AS_IT_IS},
        [
            "add account name=new cluster=lab parent=root fairshare=1 "
            "description=new organization=new",
            "add user name=bob,zoe account=new cluster=lab defaultaccount=new",
        ],
    ),
    "only what differs is set": (
        ("24.11", [account("lab-test", "ada", "alan", **LAB_TEST | {"fairshare": 7}), SETTLED[1]]),
        {"users": AS_IT_IS},
        ["modify account where name=lab-test cluster=lab set fairshare=7"],
    ),
    "an account that moves below another": (
        (
            "24.11",
            [account("lab-test", "ada", "alan", **LAB_TEST, parent="other"), SETTLED[1]],
        ),
        {"users": AS_IT_IS},
        ["modify account where name=lab-test cluster=lab set parent=other"],
    ),
    "rights that nobody gave are taken": (
        ("24.11", SETTLED),
        {"users": [user("ada", "other")]},
        ["modify user where name=alan set adminlevel=none"],
    ),
    "a lost default account is set again": (
        ("22.05", SETTLED),
        {"users": AS_IT_IS},
        [
            "add user name=ada account=other cluster=lab",
            "modify user where name=ada cluster=lab set defaultaccount=other",
        ],
    ),
    "rights of people without an account in the definition are taken, and no more unasked": (
        ("24.11", []),
        {},
        ["modify user where name=alan set adminlevel=none"],
    ),
    "pruned: the new default account before the old one goes": (
        ("24.11", [account("lab-test", "ada", **LAB_TEST)]),
        {"prune": True},
        [
            "modify user where name=ada cluster=lab set defaultaccount=lab-test",
            "delete user where name=ada cluster=lab account=other",
            "delete user where name=alan cluster=lab",
            "delete account where name=other cluster=lab",
        ],
    ),
    "pruned: what has jobs stays, and the account above it": (
        ("24.11", []),
        {"prune": True, "busy": [("lab-test", "ada")]},
        [
            "modify user where name=ada cluster=lab set defaultaccount=lab-test",
            "delete user where name=ada cluster=lab account=other",
            "delete user where name=alan cluster=lab",
            "delete account where name=other cluster=lab",
        ],
    ),
    "pruned: whose jobs stay has no rights any more": (
        ("24.11", []),
        {"prune": True, "busy": [("lab-test", "alan")]},
        [
            "modify user where name=alan set adminlevel=none",
            "delete user where name=ada cluster=lab",
            "delete account where name=other cluster=lab",
        ],
    ),
    "pruned: an account with jobs of somebody who is no user of it any more stays": (
        ("24.11", []),
        {"prune": True, "busy": [("other", "gone"), ("root", "root")]},
        [
            "delete user where name=ada cluster=lab",
            "delete user where name=alan cluster=lab",
            "delete account where name=lab-test cluster=lab",
        ],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_plan(case):
    arguments, further, expected = CASES[case]
    assert commands(*arguments, **further) == expected


def test_a_deep_tree_is_removed_from_its_leaves():
    associations = OUTPUT["24.11"]["associations"].replace("other|||root|", "other|||lab-test|")
    current = parse("lab", OUTPUT["24.11"] | {"associations": associations})
    goal = target(current, wanted([], []), prune=True)
    last = [" ".join(words) for words in plan("lab", current, goal)][-2:]
    assert [line.split("name=")[1] for line in last] == [
        "other cluster=lab",
        "lab-test cluster=lab",
    ]
    kept = target(current, wanted([], []), prune=True, busy=frozenset({("other", "ada")}))
    assert set(kept.accounts) == {"other", "lab-test"}


def test_an_account_of_user_root_is_not_pruned():
    associations = OUTPUT["24.11"]["associations"] + f"other|root|||1||{NO_LIMITS}\n"
    current = parse("lab", OUTPUT["24.11"] | {"associations": associations})
    goal = target(current, wanted([], []), prune=True)
    assert set(goal.accounts) == {"other"}
    assert goal.users == {}


def test_an_association_with_one_partition_is_removed_alone():
    associations = OUTPUT["24.11"]["associations"] + f"other|ada|ml-gpu||1||{NO_LIMITS}ml-gpu\n"
    current = parse("lab", OUTPUT["24.11"] | {"associations": associations})
    goal = target(current, wanted(SETTLED, AS_IT_IS), prune=True)
    assert plan("lab", current, goal) == [
        [
            *("delete", "user", "where", "name=ada", "cluster=lab"),
            *("account=other", "partition=ml-gpu"),
        ]
    ]


def test_many_users_are_split_over_commands():
    people = [f"u{number}" for number in range(450)]
    names = [
        line.split("name=")[1].split()[0].split(",")
        for line in commands("fresh", [account("a", *people)])
        if line.startswith("add user")
    ]
    assert sorted(name for some in names for name in some) == sorted(people)
    assert max(map(len, names)) <= NAMES_PER_COMMAND


def test_lower_case_is_slurm_s_own():
    wish = wanted([account("A", description="GRÖßE")], [])
    assert wish.accounts["a"].description == "grÖße"


def row(name, text, coordinators="", organization="x"):
    """Return what sacctmgr prints of an account with a text of a coordinator."""
    return f"{name}|{text}|{organization}|{coordinators}|{name}\n"


def user_row(name, account="zzz", partition=""):
    return f"{account}|{name}|{partition}||1||{NO_LIMITS}{partition}\n"


HIDDEN = "lab-test|first trials|lab||lab-test"
UNTRUSTED = {
    "a description with line ends": ("accounts", row("zzz", "x\ny\nz"), "zzz|x"),
    "one that ends a row and begins one": (
        "accounts",
        row("zzz", f"x|x||zzz\n{HIDDEN}\nzzz|x"),
        HIDDEN,
    ),
    "one of the account itself that begins one of another": (
        "accounts",
        row("eve-lab", "x|x||eve-lab\nghost|x", "eve", organization="x"),
        "ghost|x|x|eve|eve-lab",
    ),
    "an organization that does so": (
        "accounts",
        row("zzz", "x", organization="x||zzz\nlab-test|x|x"),
        "lab-test|x|x||zzz",
    ),
    "one account twice": ("accounts", row("zzz", "x") + row("ZZZ", "x"), "ZZZ|x|x||ZZZ"),
    "a coordinator with a line end": ("accounts", row("zzz", "x", "eve\nghost|bo"), "zzz|x|x|eve"),
    "a partition that makes rows": (
        "associations",
        user_row("eve", partition=f"a||1||{NO_LIMITS}a\n{user_row('bo', 'lab-test')}zzz|eve|a"),
        f"zzz|eve|a||1||{NO_LIMITS}a||1||{NO_LIMITS}a",
    ),
    "a user with a bar": ("users", "x|y|zzz|None\n", "x|y|zzz|None"),
    "a QoS with a line end": ("qos", "x\ny|0" + "|" * 18 + "\n", "x"),
}
REMEDIES = {
    "accounts": "sacctmgr modify account where name=NAME set description=NAME organization=NAME",
    "users": "remove it from user_table by SQL",
    "associations": "remove it from lab_assoc_table by SQL",
    "qos": "remove it from qos_table by SQL",
}


@pytest.mark.parametrize("case", UNTRUSTED)
def test_a_row_that_a_line_end_or_a_bar_breaks_is_refused_with_the_remedy(case):
    what, forged, named = UNTRUSTED[case]
    has = OUTPUT["24.11"]
    with pytest.raises(RefusedError) as refused:
        parse("lab", has | {what: has[what] + forged})
    said = str(refused.value)
    assert said.startswith("slurmdbd has a name or a text with a line end or a bar, so that ")
    assert f" prints the row {named!r} and others can't be trusted (" in said
    assert f"); {REMEDIES[what]}" in said and "\n" not in said
    assert said.endswith("; then run again")


def test_the_remedy_for_a_text_with_a_line_end_works():
    has = OUTPUT["24.11"]
    texts = {"description": "x\ny", "organization": "a\nb"}

    def read():
        forged = row("zzz", texts["description"], organization=texts["organization"])
        return parse("lab", has | {"accounts": has["accounts"] + forged})

    with pytest.raises(RefusedError) as refused:
        read()
    command = re.search(
        r"sacctmgr modify account where name=NAME set (.*?) gives", str(refused.value)
    )
    texts |= dict(word.replace("NAME", "zzz").split("=") for word in command[1].split())
    assert read() == parse("lab", has)


NOT_HERE = {
    "a user of a list of names": ("users", "x,bob||None\n"),
    "a user with a quote": ("users", "o'brien|physics|Administrator\n"),
    "an account with a blank, and its coordinator": (
        "accounts",
        row("phys dept", "x", "dom\\ada"),
    ),
}


@pytest.mark.parametrize("case", NOT_HERE)
@pytest.mark.parametrize("prune", [False, True])
def test_names_that_this_cluster_does_not_use_are_not_looked_at(case, prune):
    what, more = NOT_HERE[case]
    has = OUTPUT["24.11"]
    current = parse("lab", has | {what: has[what] + more})
    assert current == parse("lab", has)
    goal = target(current, wanted(SETTLED, AS_IT_IS), prune)
    assert plan("lab", current, goal) == []


def account_row(name, parent):
    return f"{name}|||{parent}|1||{NO_LIMITS}\n"


def pruned(associations, **others):
    """Return the State with more associations, and the commands of a run that prunes."""
    has = OUTPUT["24.11"]
    current = parse("lab", has | others | {"associations": has["associations"] + associations})
    goal = target(current, wanted(SETTLED, AS_IT_IS), prune=True)
    return current, [" ".join(words) for words in plan("lab", current, goal)]


ZZZ = account_row("zzz", "root")
LEFT_OUT = {
    "a list as a user": (ZZZ + user_row("x,bob"), "association 'zzz|x,bob'"),
    "an accent, which MariaDB takes for none": (
        ZZZ + user_row("\u00e1da"),
        "association 'zzz|\u00e1da'",
    ),
    "what is no UTF-8": (ZZZ + user_row("bob\\xff"), "association 'zzz|bob\\\\xff'"),
    "a user in an account of such a name": (
        user_row("ada", "lab-test,other"),
        "association 'lab-test,other|ada'",
    ),
    "an account below another": (
        ZZZ + account_row("phys dept", "zzz"),
        "association 'phys dept'",
    ),
    "a list as a partition": (
        ZZZ + user_row("ada", partition="a,b"),
        "association 'zzz|ada|a,b'",
    ),
}


@pytest.mark.parametrize("case", LEFT_OUT)
def test_an_association_that_sacctmgr_can_t_name_is_left_as_it_is(case):
    associations, named = LEFT_OUT[case]
    current, commands = pruned(associations)
    assert current.left_out == (named,)
    assert commands == []


def test_an_account_below_one_that_sacctmgr_can_t_name_is_pruned():
    associations = account_row("phys dept", "root") + account_row("zzz", "phys dept")
    assert pruned(associations)[1] == ["delete account where name=zzz cluster=lab"]


def test_an_account_that_was_moved_below_one_that_sacctmgr_can_t_name_comes_back():
    has = OUTPUT["24.11"]["associations"].replace("other|||root|", "other|||phys dept|")
    current = parse("lab", OUTPUT["24.11"] | {"associations": has})
    goal = target(current, wanted(SETTLED, AS_IT_IS))
    assert plan("lab", current, goal) == [
        ["modify", "account", "where", "name=other", "cluster=lab", "set", "parent=root"]
    ]


def test_another_spelling_of_a_user_is_the_user():
    assert pruned(ZZZ + user_row("Ada"))[1] == [
        "delete user where name=ada cluster=lab account=zzz",
        "delete account where name=zzz cluster=lab",
    ]


def test_a_coordinator_that_sacctmgr_can_t_name_is_left():
    accounts = OUTPUT["24.11"]["accounts"].replace("|lab||", "|lab|alan,dom\\ada|")
    current, commands = pruned("", accounts=accounts)
    assert current.left_out == ("coordinator 'dom\\\\ada' of lab-test",)
    assert commands == ["delete coordinator account=lab-test names=alan"]


def test_a_name_of_two_coordinators_does_not_keep_them():
    accounts = OUTPUT["24.11"]["accounts"].replace("|lab||", "|lab|ada,eve|")
    current, commands = pruned(ZZZ + user_row("ada,eve"), accounts=accounts)
    assert current.left_out == ("association 'zzz|ada,eve'",)
    assert commands == ["delete coordinator account=lab-test names=ada,eve"]


def test_qos_of_an_association_that_is_left_are_left():
    qos = "".join(f"{name}|0|00:00:00||cluster||1.0{'|' * 14}\n" for name in ("a", "b", "c", "d"))
    left = f"phys dept|||root|1|+b,-a|c{NO_LIMITS}\n"
    assert pruned(left, qos=OUTPUT["24.11"]["qos"] + qos)[1] == ["delete qos where name=d"]


def test_a_qos_that_sacctmgr_can_t_name_is_left():
    has = OUTPUT["24.11"]
    qos = has["qos"] + f"50%|0|00:00:00|old|cluster||1.0{'|' * 14}\n"
    assert pruned("", qos=qos)[1] == []
    old = f"old|0|00:00:00||cluster||1.0{'|' * 14}\n"
    assert pruned("", qos=qos + old)[1] == ["delete qos where name=old"]


def test_a_description_with_bars_is_read():
    has = OUTPUT["24.11"]
    current = parse("lab", has | {"accounts": has["accounts"].replace("first", "a|b")})
    assert current.accounts["lab-test"].description == "a|b trials"


REFUSED = {
    "a circle": [account("a", parent="b"), account("b", parent="a")],
    "a parent that is no account": [account("a", parent="b")],
    "one account twice": [account("LAB"), account("lab")],
    "account root": [account("root")],
    "user root": [account("a", "root")],
    "a list in a name": [account("a,b")],
    "an option in a name": [account("-i")],
    "a name with a space": [account("a", "ada lovelace")],
    "a quote": [account("a", description="ada's")],
    "a bar": [account("a", organization="x|y")],
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_sacctmgr_would_misread_is_refused(case):
    with pytest.raises(RefusedError, match=r"; |not keep"):
        wanted(REFUSED[case], [])


def test_a_default_account_that_does_not_list_its_user_is_refused():
    with pytest.raises(RefusedError, match="user ada: default account b does not"):
        wanted([account("a", "ada"), account("b")], [user("ada", "b")])


class FakeSlurmdbd:
    """Answers as the programs do; `takes` says which changes come true."""

    def __init__(self, version, takes=True, busy=""):
        self.outputs = FRESH if version == "fresh" else OUTPUT[version]
        self.after = OUTPUT["24.11"]
        self.takes = takes
        self.busy = busy
        self.changes = []

    def __call__(self, words, env, **_):
        conf = Path(env["SLURM_CONF"]).read_text(encoding="utf-8")
        assert "ClusterName=lab\n" in conf
        assert "AccountingStorageHost=db1\n" in conf
        if words[0].endswith("squeue"):
            return subprocess.CompletedProcess(words, 0, self.busy, "")
        if words[1] == "-i":
            self.changes.append(words[2:])
            if self.takes:
                self.outputs = self.after
            return subprocess.CompletedProcess(words, 1, " Nothing new added.\n", "")
        asked = next(name for name, read in READS.items() if read[1] == words[3])
        return subprocess.CompletedProcess(words, 0, self.outputs[asked], "")


@pytest.fixture
def talk(monkeypatch):
    monkeypatch.setattr(sacctmgr.shutil, "which", lambda name: f"/usr/bin/{name}")
    return lambda run, seconds=0: sacctmgr.Sacctmgr("lab", "db1", 6819, seconds, run)


def test_the_exit_code_of_a_change_does_not_count_but_what_is_there_afterwards(talk):
    slurmdbd = talk(FakeSlurmdbd("fresh"))
    wish = wanted(SETTLED, AS_IT_IS)
    done = sacctmgr.apply(slurmdbd, slurmdbd.state(), wish, False, frozenset())
    assert done[0] == ["add", "cluster", "lab"]


def test_a_change_that_does_not_come_true_is_said_with_sacctmgr_s_words(talk):
    slurmdbd = talk(FakeSlurmdbd("24.11", takes=False))
    wish = wanted([*SETTLED, account("new")], AS_IT_IS)
    with pytest.raises(
        RefusedError, match=r"did not take: add account name=new .*Nothing new added"
    ):
        sacctmgr.apply(slurmdbd, slurmdbd.state(), wish, False, frozenset())


def test_jobs_are_asked_of_slurmctld(talk):
    fake = FakeSlurmdbd("24.11", busy="7|lab-test|ada|normal\n8_[1-3]|lab-test|alan|long\n")
    assert talk(fake).jobs() == [
        Job("7", "lab-test", "ada", "normal"),
        Job("8_[1-3]", "lab-test", "alan", "long"),
    ]


def test_without_slurmctld_nothing_is_taken_away(talk):
    """Exit code and words of 22.05 and 24.11."""

    def unreachable(words, **_):
        assert "--clusters=lab" in words, "not the cluster of this host's slurm.conf"
        said = "squeue: error: 'lab' can't be reached now, or it is an invalid entry for --cluster."
        return subprocess.CompletedProcess(words, 1, "", f"{said}\n")

    with pytest.raises(RefusedError, match=r"^squeue does not say .*nothing is taken away; start"):
        talk(unreachable).jobs()


def test_silence_of_slurmdbd_ends_at_the_bound_with_its_words(talk):
    def refused(words, **_):
        return subprocess.CompletedProcess(words, 1, "", "sacctmgr: error: Connection refused\n")

    with pytest.raises(
        RefusedError,
        match=r"db1:6819 did not answer within 0 s .*Connection refused",
    ):
        talk(refused).first_state()


def test_an_error_with_exit_code_0_is_an_error(talk):
    def half(words, **_):
        return subprocess.CompletedProcess(words, 0, "lab\n", "sacctmgr: error: half an answer\n")

    with pytest.raises(RefusedError, match="half an answer"):
        talk(half).state()


def test_a_forged_row_is_not_said_to_be_silence(talk):
    fake = FakeSlurmdbd("24.11")
    fake.outputs = fake.outputs | {"accounts": row("zzz", "x\ny")}
    with pytest.raises(RefusedError, match=r" account prints the row 'zzz\|x' and "):
        talk(fake).first_state()


def test_what_is_left_as_it_is_is_said_in_a_warning(run_module, stand_ins):
    associations = (ZZZ + user_row("bob\\377")).replace("\n", "\\n")
    sacctmgr = f"[ $3 != association ] || printf '{associations}'"
    outcome = run_module(
        "slurm_accounts",
        {"cluster": "lab", "host": "db1", "prune": True},
        check=True,
        env={"PATH": stand_ins({"sacctmgr": sacctmgr, "squeue": ":"})},
    )
    assert [warning["event"]["msg"] for warning in outcome["warnings"]] == [
        "lab: left as they are, as sacctmgr can't name them or would take them for others: "
        r"association 'zzz|bob\\xff'",
        "lab: kept, for jobs, user root, other clusters or what is left as it is use them: "
        "account zzz",
    ]


def test_a_command_that_hangs_is_an_answer_too(talk):
    def hanging(words, timeout, **_):
        raise subprocess.TimeoutExpired(words, timeout)

    with pytest.raises(RefusedError, match="did not end within 60 s"):
        talk(hanging).first_state()


def test_a_second_administrator_waits_for_the_first(run_module, tmp_path):
    before = (
        "import ansible_collections.muster.slurm.plugins.module_utils.one_run as one_run; "
        f"one_run.FOLDER = {str(tmp_path)!r}; one_run.SECONDS = 1"
    )
    with (tmp_path / "muster-accounts.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waited = run_module("slurm_accounts", {"cluster": "lab"}, before=before)
    assert "another run has been changing accounts and limits for 1 s" in waited["msg"]
