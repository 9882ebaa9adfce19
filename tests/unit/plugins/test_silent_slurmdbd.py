"""What slurm_accounts says where slurmdbd does not answer, or stops answering half-way."""

import subprocess

import pytest
from ansible_collections.muster.slurm.plugins.module_utils import sacctmgr
from ansible_collections.muster.slurm.plugins.module_utils.accounting_state import READS
from ansible_collections.muster.slurm.plugins.module_utils.accounting_wish import wanted
from ansible_collections.muster.slurm.plugins.module_utils.refused_error import RefusedError
from sacctmgr_output import FRESH, OUTPUT, account, user

SILENT = "echo 'sacctmgr: error: slurm_persist_conn_open: Connection refused' >&2; exit 1"
UTILS = "ansible_collections.muster.slurm.plugins.module_utils"
WANTED = {
    "cluster": "lab",
    "accounts": [account("lab-test", "ada")],
    "qos": [{"name": "long", "limits": {"Priority": 10}}],
}


def before(tmp_path, *, configured):
    """Where the module looks for slurmdbd's configuration, and locks."""
    conf = tmp_path / "slurmdbd.conf"
    if configured:
        conf.write_text("DbdHost=db1\n")
    return (
        f"import {UTILS}.sacctmgr as sacctmgr, {UTILS}.one_run as one_run; "
        f"sacctmgr.SLURMDBD_CONF = {str(conf)!r}; one_run.FOLDER = {str(tmp_path)!r}"
    )


def check(run_module, tmp_path, path, *, configured, **more):
    return run_module(
        "slurm_accounts",
        WANTED | more,
        check=True,
        env={"PATH": path},
        before=before(tmp_path, configured=configured),
    )


def warning(outcome):
    (warned,) = outcome["warnings"]
    return warned["event"]["msg"]


@pytest.mark.parametrize(("configured", "more"), [(True, {}), (False, {"host": "db1"})])
def test_a_check_says_what_it_could_not_read_and_shows_nothing_as_to_be_made(
    run_module, stand_ins, tmp_path, configured, more
):
    path = stand_ins({"sacctmgr": SILENT})
    outcome = check(run_module, tmp_path, path, configured=configured, **more)
    assert not outcome["changed"], outcome.printed
    assert (outcome["commands"], outcome["changes"], outcome["diff"]) == ([], [], [])
    assert warning(outcome) == (
        f"slurmdbd on {more.get('host', 'localhost')}:6819 does not answer (sacctmgr: error: "
        "slurm_persist_conn_open: Connection refused), so QoS, accounts and limits could not be "
        "read and what a run would change of them is not shown; start it there (systemctl status "
        "slurmdbd, systemctl status muster-munge) and run again"
    )


def test_before_the_first_run_all_is_to_be_made(run_module, stand_ins, tmp_path):
    """SLURM's packages are there, slurmdbd has no configuration yet."""
    outcome = check(run_module, tmp_path, stand_ins({"sacctmgr": SILENT}), configured=False)
    assert outcome["changed"], outcome.printed
    assert outcome["commands"][0] == "sacctmgr add cluster lab"
    assert (
        warning(outcome) == "lab: slurmdbd has not been set up yet, so all is shown as to be made"
    )


def test_before_the_packages_are_installed_all_is_to_be_made(run_module, tmp_path):
    outcome = check(run_module, tmp_path, str(tmp_path), configured=False)
    assert outcome["commands"][0] == "sacctmgr add cluster lab"
    assert "slurmdbd has not been set up yet" in warning(outcome)


def test_a_run_fails_with_the_remedy(run_module, stand_ins, tmp_path):
    outcome = run_module(
        "slurm_accounts",
        WANTED | {"timeout_seconds": 0},
        env={"PATH": stand_ins({"sacctmgr": SILENT})},
        before=before(tmp_path, configured=True),
    )
    assert outcome["msg"].startswith("slurmdbd on localhost:6819 did not answer within 0 s (")
    assert outcome["msg"].endswith("systemctl status muster-munge) and run again")


class DyingSlurmdbd:
    """Takes `changes` changes, then answers nothing."""

    def __init__(self, changes):
        self.changes = changes
        self.asked = []

    def __call__(self, words, **_):
        self.asked.append(" ".join(words[2:]))
        changes = words[1] == "-i"
        if self.changes == 0 and (changes or len(self.asked) > len(READS)):
            refused = "sacctmgr: error: Connection refused\n"
            return subprocess.CompletedProcess(words, 1, "", refused)
        if changes:
            self.changes -= 1
            return subprocess.CompletedProcess(words, 0, " Adding\n", "")
        asked = next(name for name, read in READS.items() if read[1] == words[3])
        return subprocess.CompletedProcess(words, 0, FRESH[asked], "")


@pytest.fixture
def broken_off(monkeypatch):
    """Return what is said, and what was asked, where slurmdbd dies after some changes."""
    monkeypatch.setattr(sacctmgr.shutil, "which", lambda name: f"/usr/bin/{name}")

    def run(changes):
        fake = DyingSlurmdbd(changes)
        slurmdbd = sacctmgr.Sacctmgr("lab", "db1", 6819, 0, fake)
        wish = wanted([account("a", "ada"), account("b", "bob")], [user("ada", "a")])
        with pytest.raises(RefusedError) as refused:
            sacctmgr.apply(slurmdbd, slurmdbd.state(), wish, False, frozenset())
        return str(refused.value), fake.asked

    return run


ADD = "add account name={0} cluster=lab parent=root fairshare=1 description={0} organization={0}"


def test_slurmdbd_that_dies_half_way_is_said_with_what_was_done_and_what_was_not(broken_off):
    said, asked = broken_off(2)
    assert said == (
        "slurmdbd on db1:6819 stopped answering (sacctmgr: error: Connection refused); done: add "
        f"cluster lab; {ADD.format('a')}; not done, or not known to be: {ADD.format('b')}; add "
        "user name=ada account=a cluster=lab defaultaccount=a; add user name=bob account=b "
        "cluster=lab defaultaccount=b; start it there (systemctl status slurmdbd, systemctl status "
        "muster-munge) and run again"
    )
    # The commands after it are not tried: each would wait for its bound.
    assert [line for line in asked if line.startswith("add user")] == []


def test_slurmdbd_that_dies_before_the_first_change(broken_off):
    said, _ = broken_off(0)
    assert "; done: nothing; not done, or not known to be: add cluster lab; " in said


def test_slurmdbd_that_dies_after_the_last_change(broken_off):
    said, _ = broken_off(5)
    assert "; done, but not read again: add cluster lab; " in said
    assert "not done" not in said
    assert said.endswith("and run again")


def test_what_was_refused_before_it_died_is_not_said_to_be_done(monkeypatch):
    monkeypatch.setattr(sacctmgr.shutil, "which", lambda name: f"/usr/bin/{name}")
    dying = DyingSlurmdbd(1)

    def refusing_the_first(words, **more):
        if words[1] == "-i" and "cluster" in words[2:4] and words[2] == "add":
            return subprocess.CompletedProcess(words, 1, " Nothing new added.\n", "")
        return dying(words, **more)

    slurmdbd = sacctmgr.Sacctmgr("lab", "db1", 6819, 0, refusing_the_first)
    wish = wanted([account("a"), account("b")], [])
    with pytest.raises(RefusedError, match=f"; done: {ADD.format('a')}; not done"):
        sacctmgr.apply(slurmdbd, slurmdbd.state(), wish, False, frozenset())


def test_of_many_commands_the_first_are_said(monkeypatch):
    monkeypatch.setattr(sacctmgr.shutil, "which", lambda name: f"/usr/bin/{name}")
    slurmdbd = sacctmgr.Sacctmgr("lab", "db1", 6819, 0, DyingSlurmdbd(0))
    wish = wanted([account(f"a{n:02}") for n in range(40)], [])
    with pytest.raises(RefusedError, match=r"name=a18 .* and 21 more; start it there"):
        sacctmgr.apply(slurmdbd, slurmdbd.state(), wish, False, frozenset())


def test_a_command_that_is_refused_is_no_silence(monkeypatch):
    """sacctmgr exits with 1 for what is there already; slurmdbd answers still."""
    monkeypatch.setattr(sacctmgr.shutil, "which", lambda name: f"/usr/bin/{name}")

    def refusing(words, **_):
        if words[1] == "-i":
            return subprocess.CompletedProcess(words, 1, " Nothing new added.\n", "")
        asked = next(name for name, read in READS.items() if read[1] == words[3])
        return subprocess.CompletedProcess(words, 0, OUTPUT["24.11"][asked], "")

    slurmdbd = sacctmgr.Sacctmgr("lab", "db1", 6819, 0, refusing)
    with pytest.raises(RefusedError, match="did not take: add account name=new "):
        sacctmgr.apply(slurmdbd, slurmdbd.state(), wanted([account("new")], []), False, frozenset())
