"""The command `module` is there in every shell that people and jobs get."""

import pytest

LOAD = "module load tools/trial && echo $TRIAL"
PEOPLE = {"bash": "bea", "sh": "dan", "zsh": "zoe"}


def login(host, shell, command):
    """Run `command` in the login shell of the person who uses `shell`."""
    return host.run("su - %s -c %s", PEOPLE[shell], command)


@pytest.mark.parametrize("shell", PEOPLE)
def test_a_login_shell_has_modules(host, shell):
    assert login(host, shell, LOAD).stdout == "loaded\n"


@pytest.mark.parametrize("shell", PEOPLE)
def test_a_login_prints_nothing(host, shell):
    # scp and rsync take what a start file prints for the answer of the other side.
    silent = login(host, shell, "true")
    assert (silent.rc, silent.stdout, silent.stderr) == (0, "", "")


@pytest.mark.parametrize("shell", PEOPLE)
def test_a_bash_script_below_a_login_shell_has_modules(host, shell):
    # What sbatch does: the script starts with the environment of the shell that submitted it.
    script = f"printf '#!/bin/bash\\n{LOAD}\\n' >script; chmod +x script; ./script"
    assert login(host, shell, script).stdout == "loaded\n"


def test_a_zsh_script_below_a_login_shell_has_modules(host):
    script = f"printf '#!/bin/zsh\\n{LOAD}\\n' >script; chmod +x script; ./script"
    for shell in ("bash", "zsh"):
        assert login(host, shell, script).stdout == "loaded\n", shell


@pytest.mark.parametrize("first_line", ["#!/bin/bash -l", "#!/bin/sh -l", "#!/bin/zsh -l"])
def test_a_script_of_a_login_shell_has_modules_with_nothing_inherited(host, first_line):
    # What a job gets that was submitted with --export=NONE, by cron or by slurmrestd.
    write = "printf '%%s\\n' %s %s > /tmp/script && chmod 755 /tmp/script"
    host.check_output(write, first_line, LOAD)
    assert host.check_output("env -i PATH=/usr/bin:/bin HOME=/root /tmp/script") == "loaded"


@pytest.mark.parametrize("shell", PEOPLE)
def test_an_interactive_bash_that_is_no_login_shell_has_modules(host, shell):
    # srun --pty bash; PS1 is what an interactive bash has.
    assert login(host, shell, f"bash -i -c '{LOAD}' 2>/dev/null").stdout == "loaded\n"


def test_an_interactive_bash_has_modules_with_nothing_inherited(host):
    command = "env -i PATH=/usr/bin:/bin HOME=/root bash -i -c %s 2>/dev/null"
    assert host.check_output(command, LOAD) == "loaded"


def test_the_module_path_is_the_given_one(host):
    assert login(host, "bash", "echo $MODULEPATH").stdout == "/trial/modules:/later/modules\n"


def test_a_folder_that_is_mounted_after_the_login_works(host):
    command = (
        "mkdir -p /later/modules/tools/late && "
        'echo \'setenv("LATE", "there")\' > /later/modules/tools/late/1.0.lua && '
        "module load tools/late && echo $LATE"
    )
    assert not host.file("/later").exists
    try:
        done = host.run("env -i HOME=/root PATH=/usr/bin:/bin bash -lc %s", command)
    finally:
        host.run("rm -r /later")
    assert done.stdout == "there\n"


def test_users_see_the_modules_of_the_cluster_and_no_others(host):
    avail = login(host, "bash", "module -t avail 2>&1").stdout
    assert avail.split() == ["/trial/modules:", "tools/trial/", "tools/trial/1.0"]


def test_lmod_knows_where_the_spider_cache_is(host):
    config = login(host, "bash", "module --config 2>&1").stdout
    assert "/trial/cache/cacheDir" in config


def test_the_properties_of_lmod_itself_stay(host):
    # A property that is in no table of lmodrc.lua makes a module unloadable.
    lines = 'add_property("arch", "gpu") add_property("build", "declared") setenv("MARKED", "1")'
    command = (
        "mkdir -p mine/marked && printf '%s' > mine/marked/1.lua && module use $PWD/mine && "
        "module load marked && echo $MARKED"
    )
    done = host.run("su - bea -c %s", command % lines.replace("'", ""))
    assert done.stdout == "1\n", done.stderr


def test_a_host_proves_that_people_and_jobs_can_load_the_newest_module(host):
    check = "muster-check-modules /trial/modules /trial/cache"
    publish = "mkdir -p /trial/cache && echo tools/trial/1.0 >/trial/cache/loads"
    host.check_output(f"{publish} && touch /trial/cache/timestamp")
    kept = "/etc/zsh/zprofile.kept"
    try:
        assert host.check_output(check) == ""
        host.check_output("mv /etc/zsh/zprofile %s", kept)
        done = host.run(check)
    finally:
        host.run(f"mv {kept} /etc/zsh/zprofile; rm /trial/cache/loads /trial/cache/timestamp")
    assert done.rc == 1
    said = "`module load tools/trial/1.0` does not work on this host in zsh -l, zsh -l -i"
    assert done.stdout.startswith(said)


def test_a_bash_login_costs_less_than_a_second(host):
    elapsed = host.check_output("bash -c 'time -p su - bea -c true' 2>&1 | awk '/real/ {print $2}'")
    assert float(elapsed) < 1
