"""The accounts mean something: they let some people's jobs in and others' not."""

import pytest

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


def test_users_have_no_rights_over_others(host):
    rows = host.run("sacctmgr -nP show user format=user,adminlevel")
    assert set(rows.stdout.split()) == {"root|Administrator", "ada|None", "alan|None"}
    done = host.run("runuser -u ada -- sacctmgr -i add account mine cluster=trial")
    assert done.rc != 0
    assert "mine" not in host.run(ASSOCIATIONS).stdout
