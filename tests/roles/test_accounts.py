"""The accounts mean something: they let some people's jobs in and others' not."""

from pathlib import Path

import pytest
import yaml

VARIABLES = Path(__file__).parents[2] / "molecule/cluster/group_vars/all.yml"
ASSOCIATIONS = "sacctmgr -nP show association where cluster=trial format=account,user"


def submit(host, login, *options):
    """Submit a held job as `login`; return the result with the account it is charged to, if any."""
    done = host.run(
        f"cd /tmp && runuser -u {login} -- sbatch --parsable --hold --mem=10 {' '.join(options)} "
        "--wrap 'true'"
    )
    if done.rc != 0:
        return done, None
    job = done.stdout.strip().split(";")[0]
    shown = host.run(f"squeue --noheader --format=%a --jobs={job}").stdout.strip()
    host.run(f"scancel {job}")
    return done, shown


@pytest.mark.parametrize("spelling", ["LAB-test", "lab-test"])
def test_a_user_of_the_account_may_submit_in_either_spelling(host, spelling):
    done, account = submit(host, "ada", "-A", spelling)
    assert done.rc == 0, done.stderr
    assert account == "lab-test"


def test_a_job_without_account_goes_to_the_default_one(host):
    assert submit(host, "ada")[1] == "other"
    assert submit(host, "alan")[1] == "lab-test"


def test_a_stranger_is_refused(host):
    for options in ([], ["-A", "LAB-test"]):
        done, _ = submit(host, "eve", *options)
        assert done.rc != 0
        assert "Invalid account" in done.stderr


def test_a_user_is_refused_in_an_account_of_others(host):
    done, _ = submit(host, "alan", "-A", "other")
    assert done.rc != 0
    assert "Invalid account" in done.stderr


def test_the_tree_is_the_wanted_one(host):
    rows = host.run(
        "sacctmgr -nP show association where cluster=trial user= "
        "format=account,parentname,fairshare"
    )
    assert set(rows.stdout.split()) == {"root||1", "lab|root|10", "lab-test|lab|3", "other|root|1"}
    texts = host.run("sacctmgr -nP show account where name=lab,lab-test format=descr,organization")
    assert set(texts.stdout.splitlines()) == {"lab|ml team", "first trials, 2026|lab"}


def test_the_qos_are_the_wanted_ones(host):
    rows = host.check_output(
        "sacctmgr -nP show qos format=name,priority,preempt,preemptmode,gracetime,flags"
    )
    assert set(rows.splitlines()) == {
        "normal|10|scavenger|cluster|00:00:00|",
        "scavenger|0||requeue|00:00:30|",
        "short|100||cluster|00:00:00|DenyOnLimit",
        "gpus|0||cluster|00:00:00|DenyOnLimit",
    }
    limits = host.check_output(
        "sacctmgr -nP show qos where name=short,gpus "
        "format=name,maxwall,maxsubmitjobsperuser,maxtresperuser,mintres"
    )
    assert {tuple(row.split("|")[:3]) for row in limits.splitlines()} == {
        ("short", "00:30:00", "2"),
        ("gpus", "", ""),
    }
    tres = {row.split("|")[0]: set(row.split("|")[3:]) for row in limits.splitlines()}
    assert tres == {"short": {"gres/gpu=2,mem=1.50G", ""}, "gpus": {"", "gres/gpu=1"}}


def test_accounts_and_users_have_their_limits(host):
    rows = host.check_output(
        "sacctmgr -nP show association where cluster=trial account=lab,lab-test woplimits "
        "format=account,user,qos,defaultqos,grptres,grptresrunmins,maxjobs,maxtresperjob"
    )
    assert set(rows.splitlines()) == {
        "lab||gpus,normal,scavenger,short|normal|gres/gpu=8|cpu=100000||",
        "lab-test|||||||",
        "lab-test|ada||||||",
        "lab-test|alan|||||2|mem=2G",
    }


def test_a_qos_is_for_those_who_may_use_it(host):
    assert submit(host, "alan", "--qos=short", "--time=10")[1] == "lab-test"
    done, _ = submit(host, "ada", "-A", "other", "--qos=short", "--time=10")
    assert done.rc != 0
    assert "Invalid qos" in done.stderr


def test_a_job_beyond_a_limit_of_its_qos_is_refused(host):
    done, _ = submit(host, "alan", "--qos=short", "--time=31")
    assert done.rc != 0
    assert "QOSMaxWallDurationPerJobLimit" in done.stderr
    done, _ = submit(host, "alan", "--qos=gpus", "--time=10")
    assert done.rc != 0
    assert "QOSMinGRES" in done.stderr


def test_a_job_that_asks_for_no_time_has_the_longest_of_its_qos(host):
    job = host.check_output(
        "cd /tmp && runuser -u alan -- sbatch --parsable --hold --mem=10 --qos=short --wrap true"
    ).strip()
    shown = host.check_output(f"squeue --noheader --format=%l --jobs={job}")
    host.run(f"scancel {job}")
    assert shown.strip() == "30:00"


def test_more_jobs_than_a_user_may_have_are_refused(host):
    command = (
        "cd /tmp && runuser -u {} -- sbatch --parsable --hold --mem=10 -A lab-test --qos=short "
        "--time=10 --wrap true"
    )
    jobs = [host.check_output(command.format("alan")).strip() for _ in range(2)]
    try:
        third = host.run(command.format("alan"))
        assert third.rc != 0
        assert "QOSMaxSubmitJobPerUserLimit" in third.stderr
        # Somebody else's job is not counted.
        jobs.append(host.check_output(command.format("ada")).strip())
    finally:
        host.run(f"scancel {' '.join(jobs)}")


def test_the_account_has_its_coordinator(host):
    rows = host.check_output("sacctmgr -nP show account withcoordinators format=account,coord")
    assert set(rows.splitlines()) == {"root|", "lab|", "lab-test|alan", "other|"}


RIGHTS = {"root|Administrator", "ada|None", "alan|None", "olga|Operator"}


def rights(host):
    """Return who has which rights over others, by the words of sacctmgr."""
    return set(host.check_output("sacctmgr -nP show user format=user,adminlevel").split())


def test_users_have_no_rights_over_others(host):
    assert rights(host) == RIGHTS
    done = host.run("runuser -u ada -- sacctmgr -i add account mine cluster=trial")
    assert done.rc != 0
    assert "mine" not in host.run(ASSOCIATIONS).stdout


def test_a_coordinator_changes_limits_in_their_own_account_alone(host):
    shown = (
        "sacctmgr -nP show association where cluster=trial user=ada woplimits "
        "format=account,maxjobs"
    )
    before = {"lab-test|", "other|"}
    assert set(host.check_output(shown).split()) == before
    change = "sacctmgr -i modify user where name=ada cluster=trial account={} set MaxJobs={}"
    try:
        assert host.run(f"runuser -u alan -- {change.format('other', 1)}").rc != 0
        assert set(host.check_output(shown).split()) == before
        host.check_output(f"runuser -u alan -- {change.format('lab-test', 1)}")
        assert set(host.check_output(shown).split()) == {"lab-test|1", "other|"}
    finally:
        for account in ("lab-test", "other"):
            host.run(change.format(account, -1))
    assert set(host.check_output(shown).split()) == before


def test_an_operator_changes_limits_that_an_ordinary_person_may_not(host):
    """olga is neither coordinator nor user of the account."""
    shown = (
        "sacctmgr -nP show association where cluster=trial user=alan account=lab-test woplimits "
        "format=maxjobs"
    )
    change = "sacctmgr -i modify user where name=alan cluster=trial account=lab-test set MaxJobs={}"
    assert host.check_output(shown) == "2"
    try:
        assert host.run(f"runuser -u ada -- {change.format(9)}").rc != 0
        assert host.check_output(shown) == "2"
        host.check_output(f"runuser -u olga -- {change.format(9)}")
        assert host.check_output(shown) == "9"
    finally:
        host.run(change.format(2))
    for what in (
        "user where name=olga set adminlevel=admin",
        "qos where name=short set Priority=9",
    ):
        assert host.run(f"runuser -u olga -- sacctmgr -i modify {what}").rc != 0
    assert rights(host) == RIGHTS


def without_qos(name):
    """Return the role's variables with a QoS taken out."""
    variables = yaml.safe_load(VARIABLES.read_text(encoding="utf-8"))
    return {
        "accounts_qos": [qos for qos in variables["accounts_qos"] if qos["name"] != name],
        "accounts_tree": [
            account | {"qos": [qos for qos in account["qos"] if qos != name]}
            if "qos" in account
            else account
            for account in variables["accounts_tree"]
        ],
        "accounts_prune": True,
    }


@pytest.mark.proof("four runs of the role, a minute")
def test_a_qos_is_not_taken_from_a_job_and_goes_when_it_was_drained(host, converge):
    held = (
        "cd /tmp && runuser -u alan -- sbatch --parsable --hold --mem=10 -A lab-test --qos=short "
        "--time=10 --wrap true"
    )
    kinds = "sacctmgr -nP show qos format=name"
    job = host.check_output(held).strip()
    try:
        said = converge("cluster", "--tags=accounts_configure", **without_qos("short"))
        assert f"QoS short would be taken from jobs {job}: wait until" in " ".join(said.split())
        test_the_qos_are_the_wanted_ones(host)
        test_accounts_and_users_have_their_limits(host)

        drained = {**without_qos("short"), "accounts_drain_qos": True}
        said = converge("cluster", "--tags=accounts_configure", **drained)
        assert "failed=0" in said, said
        assert f"QoS short is left to jobs {job}; run again" in " ".join(said.split())
        assert host.check_output(f"squeue --noheader --format=%q --jobs={job}") == "short"
        assert host.run(held).rc != 0
        host.check_output(f"scancel {job}")
        said = converge("cluster", "--tags=accounts_configure", **drained)
        assert "failed=0" in said, said
        assert set(host.check_output(kinds).split()) == {"normal", "scavenger", "gpus"}
    finally:
        host.run(f"scancel {job}")
        converge("cluster", "--tags=accounts_configure", accounts_prune=True)
    test_the_qos_are_the_wanted_ones(host)
    test_accounts_and_users_have_their_limits(host)
