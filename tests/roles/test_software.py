"""Modules load what they promise, only what Lmod accepts is published, builds are closed off."""

import io
import json
import re
import shlex
import subprocess
import tarfile
import time
from pathlib import Path

import pytest
from ansible import module_utils

ROOT = Path(__file__).parents[2]
TORCH = "libs/python/torch/1.13.1-cuda-11.7-python-3.10"
UV = ROOT / "roles/software/files/usr/local/lib/muster/uv.txt"
TREE, CACHE = "/var/tmp/trial/modules", "/var/tmp/trial/cache"


def shell(host, command):
    """Run `command` in a login shell that inherits nothing."""
    return host.run("env -i HOME=/root PATH=/usr/bin:/bin LMOD_PAGER=none bash -lc %s", command)


def release(host, name):
    """Return the folder that a module points to: that of its version, and the release in it."""
    text = host.file(f"/apps/modules/{name}.lua").content_string
    root = re.search(r'^local root = "(.*)"$', text, re.MULTILINE)[1]
    assert re.fullmatch(f"/apps/software/{re.escape(name)}/[0-9a-f]{{16}}", root)
    return root


def loaded(host, command):
    """Return the names of the modules that are loaded after `command`."""
    done = shell(host, f"{command} 2>/dev/null; module -t list 2>&1")
    return [line for line in done.stdout.split() if "/" in line]


def test_without_a_version_the_default_is_loaded_and_runs(host):
    done = shell(host, "module load apps/python && python -c 'import sys; print(sys.prefix)'")
    assert done.stdout == f"{release(host, 'apps/python/3')}\n"


def test_what_is_built_brings_a_pip_of_its_own(host):
    done = shell(host, "module load apps/python && pip --version")
    assert f" from {release(host, 'apps/python/3')}/" in done.stdout


def test_a_module_brings_what_it_depends_on_and_takes_it_away(host):
    assert loaded(host, f"module load {TORCH}") == ["apps/python/3.10", "apps/cuda/11.7", TORCH]
    assert loaded(host, f"module load {TORCH}; module unload {TORCH}") == []


def test_what_the_user_loaded_before_stays_when_a_dependent_goes(host):
    command = f"module load apps/cuda; module load {TORCH}; module unload {TORCH}"
    assert loaded(host, command) == ["apps/cuda/11.7"]


def test_of_a_family_only_one_is_loaded(host):
    assert loaded(host, "module load apps/python; module load apps/conda") == ["apps/conda/1"]


def test_a_conflict_is_refused(host):
    done = shell(host, "module load libs/python/tensorflow; module load libs/python/torch")
    assert done.rc != 0
    assert "libs/python/tensorflow" in done.stderr


def test_a_module_sets_what_it_promises(host):
    done = shell(host, f"module load {TORCH}; echo $CUDA_HOME $PYTHONPATH")
    assert done.stdout == f"{release(host, 'apps/cuda/11.7')} {release(host, TORCH)}\n"


def test_one_that_is_not_built_loads_and_says_the_command_on_stderr(host):
    done = shell(host, "module load apps/cuda/11.7")
    assert (done.rc, done.stdout) == (0, "")
    assert "declared, but not built" in done.stderr
    root = release(host, "apps/cuda/11.7")
    assert f"   muster-build {root} 'sh cuda.run --toolkitpath={root}'\n" in done.stderr


def test_one_that_is_not_built_is_marked(host):
    avail = shell(host, "module avail 2>&1").stdout
    assert re.search(r"apps/cuda/11\.7 +\(g,N\)", avail)
    assert not re.search(r"apps/conda/1 +\([^)]*N", avail)


def test_help_of_one_that_is_not_built_has_the_command(host):
    text = shell(host, f"module help {TORCH} 2>&1").stdout
    assert 'Says "hello" with \\backslashes\\ and ]] brackets.' in text
    root = release(host, TORCH)
    pip = f"{release(host, 'apps/python/3.10')}/bin/python -m pip install"
    assert f"   muster-build {root} '{pip} --target {root} torch'\n" in text


def test_one_that_is_built_says_nothing(host):
    done = shell(host, "module load apps/python")
    assert (done.rc, done.stdout, done.stderr) == (0, "", "")


def test_one_that_is_built_later_by_hand_says_nothing_any_more(host):
    root = release(host, "apps/cuda/11.7")
    try:
        done = shell(host, f"mkdir -p {root}; module load apps/cuda")
    finally:
        host.run("rm -r /apps/software/apps/cuda")
    assert (done.rc, done.stderr) == (0, "")


def test_one_whose_folder_is_missing_is_refused_and_says_why(host):
    done = shell(host, "module load apps/gone; module is-loaded apps/gone")
    assert done.rc != 0
    assert "the folder /apps/software/apps/gone/1 is not" in " ".join(done.stderr.split())


def test_spider_finds_a_module_by_a_part_of_its_name(host):
    assert TORCH in shell(host, "module -t spider torch 2>&1").stdout


def test_avail_and_spider_read_the_cache(host):
    # Its text differs from the modulefile's: what users see is the cache's.
    modulefile = "/apps/modules/apps/python/3.lua"
    host.check_output("sed -i.kept 's/Python of the distribution/Changed since/' %s", modulefile)
    try:
        text = shell(host, "module spider apps/python/3 2>&1").stdout
    finally:
        host.check_output("mv %s.kept %s", modulefile, modulefile)
    assert "Python of the distribution" in text


def test_nothing_is_left_beside_what_was_built(host):
    assert host.check_output("find /apps -name '*.building' -o -name '*.muster-new'") == ""


def test_beside_a_release_is_whose_it_is_and_how_users_got_to_it(host):
    beside = json.loads(host.file(f"{release(host, 'apps/python/3')}.json").content_string)
    published = host.file("/apps/modules/apps/python/3.lua").content_string
    assert (beside["module"], beside["built_on"]) == ("apps/python/3", [])
    assert published.endswith(beside["modulefile"])


def test_an_archive_is_unpacked_without_the_folder_around_it(host):
    done = shell(host, "module load apps/tool && tool && command -v tool")
    assert done.stdout == f"tool of an archive\n{release(host, 'apps/tool/1')}/bin/tool\n"


VERSION_AND_PREFIX = "-c 'import greeting, sys; print(greeting.VERSION, sys.prefix)'"


def test_an_environment_has_what_its_requirements_say(host):
    done = shell(host, f"module load libs/python/greeting && python3 {VERSION_AND_PREFIX}")
    assert done.stdout == f"1 {release(host, 'libs/python/greeting/1')}\n", done.stderr


def test_a_user_sees_with_pip_what_an_environment_has(host):
    done = shell(host, "module load libs/python/greeting && pip list --format=freeze")
    assert "greeting==1" in done.stdout.splitlines(), done.stderr


def test_uv_is_there_for_builds_and_belongs_to_root(host):
    current = host.file("/opt/muster-uv/current").linked_to
    there = host.check_output("ls -A /opt/muster-uv").split()
    assert sorted(there) == sorted(["current", Path(current).name])
    assert host.check_output("find /opt/muster-uv ! -user root -o ! -type l -perm /022") == ""
    [version] = re.findall("^uv==(.*) ", UV.read_text(encoding="utf-8"), re.MULTILINE)
    assert host.check_output("%s/bin/uv --version", current).startswith(f"uv {version} ")
    assert shell(host, "command -v uv").stdout == ""


def test_a_user_s_own_environment_sees_a_module_s_and_comes_first(host):
    own = "/tmp/own"
    install = f"{own}/bin/pip install --quiet --no-index --find-links /opt/trial greeting==2"
    command = (
        f"module load libs/python/greeting && python3 -m venv {own} && "
        f"{own}/bin/python {VERSION_AND_PREFIX} && {install} && "
        f"{own}/bin/python {VERSION_AND_PREFIX}; rm -r {own}"
    )
    done = shell(host, command)
    assert done.stdout == f"1 {own}\n2 {own}\n", done.stderr


def test_users_load_what_the_definition_asks_for(host):
    lines = host.check_output("muster-software list").splitlines()
    shown = lines[lines.index("apps/tool/1") + 1].split(maxsplit=3)
    name = Path(release(host, "apps/tool/1")).name
    assert (shown[0], shown[3]) == (name, "users load it, the definition asks for it")


REPLACED = """
set -e
old={root} new=/apps/software/apps/tool/1/0123456789abcdef
modulefile=/apps/modules/apps/tool/1.lua
cp --archive $old $new && touch $new
printf '#!/bin/sh\\necho newer\\n' >$new/bin/tool
sed "s:$old:$new:g" $old.json >$new.json
job() {{ env -i HOME=/root PATH=/usr/bin:/bin bash -lc "module load apps/tool; $1"; }}
job 'touch /tmp/started; until test -e /tmp/go; do sleep 0.1; done; tool >/tmp/of-job' &
until test -e /tmp/started; do sleep 0.1; done
muster-software rollback apps/tool/1 0123456789abcdef >/dev/null
job tool
touch /tmp/go; wait; cat /tmp/of-job
muster-software rollback apps/tool/1
job tool
printf '%s\\n' '#!/bin/sh' 'echo "$(date +%s) 0 7"' >/usr/local/bin/squeue
chmod 755 /usr/local/bin/squeue
muster-software gc
touch --date '20 days ago' $modulefile
muster-software gc
ls $old.json $old/bin; ls -d $new* || echo collected
"""


def test_a_release_is_replaced_under_a_running_shell_taken_back_and_collected(host):
    # SLURM is not on this host: a stand-in says that there is one job, of now.
    root = release(host, "apps/tool/1")
    try:
        done = host.run("bash -c %s", REPLACED.format(root=root))
    finally:
        host.run("rm -rf /usr/local/bin/squeue /tmp/started /tmp/go /tmp/of-job")
        host.run("rm -rf /apps/software/apps/tool/1/0123456789abcdef*")
    lines = done.stdout.splitlines()
    assert lines[:2] == ["newer", "tool of an archive"], done.stderr
    back = f"apps/tool/1 is {Path(root).name} again, and not 0123456789abcdef"
    assert lines[2:4] == [back, "tool of an archive"]
    new = "/apps/software/apps/tool/1/0123456789abcdef"
    assert lines[4].startswith(f"{new}: stays until ")
    assert lines[5:] == [f"{new}: removed", f"{root}.json", "", f"{root}/bin:", "tool", "collected"]


# From here on the modules are run against the real Lmod and systemd, on trees of their own.


@pytest.fixture(scope="module")
def workshop(host):
    """The modules and what they import, on the host: a run costs a tenth of one by Ansible."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("ansible/__init__.py"))
        tar.add(Path(module_utils.__file__).parent, "ansible/module_utils")
        shared = "ansible_collections/muster/slurm/plugins/module_utils"
        for path in (ROOT / "ansible/collections" / shared).glob("*.py"):
            tar.add(path, f"{shared}/{path.name}")
        for name in ("module_tree", "software_build"):
            tar.add(ROOT / f"ansible/plugins/modules/{name}.py", f"{name}.py")
    into_host(host, ["tar", "--directory=/var/tmp", "--one-top-level=trial", "-xf", "-"], archive)
    yield host
    host.check_output("rm -r /var/tmp/trial")


@pytest.fixture
def tree(workshop):
    workshop.check_output("rm -rf %s %s", TREE, CACHE)
    return workshop


def into_host(host, command, stdin):
    """Run `command` on the host with `stdin`, which testinfra can't give; return its output."""
    way = host.backend
    done = subprocess.run(
        ["ssh", "-F", way.ssh_config, way.host.name, shlex.join(command)],
        input=stdin.getvalue(),
        stdout=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    return done.stdout.decode()


def publish(host, files, check=False, **more):
    """Run module_tree on the host as Ansible does; return its result."""
    wanted = {"path": TREE, "cache": CACHE, "files": files, "_ansible_check_mode": check, **more}
    return json.loads(into_host(host, running("module_tree"), arguments(wanted)))


def running(module):
    """Return the command that runs a module on the host."""
    return ["env", "PYTHONPATH=/var/tmp/trial", "python3", f"/var/tmp/trial/{module}.py"]


def arguments(of_module):
    return io.BytesIO(json.dumps({"ANSIBLE_MODULE_ARGS": of_module}).encode())


def build(host, command, name="trial", **more):
    """Run software_build on the host as Ansible does; return the folder and the result."""
    root = f"/apps/software/{name}/1"
    command = f"mkdir -p {root}; {command.replace('ROOT', root)}"
    wanted = {"installations": [{"root": root, "build": command}], **more}
    return root, json.loads(into_host(host, running("software_build"), arguments(wanted)))


def value_of(host, variable, name):
    """Return what `variable` is after loading the module `name` of the tree."""
    return shell(host, f"module use {TREE}; module load {name}; echo ${variable}").stdout.strip()


ONE = {
    "a/one/1.lua": 'setenv("ONE", "1")\n',
    "a/one/.modulerc.lua": 'module_version("a/one/1", "default")\n',
}
TWO = {"b/two/2.lua": 'depends_on("a/one/1")\nsetenv("TWO", "2")\n'}


BROKEN = {
    # Seen by Lmod's own checker, and what that passes over.
    "property": ("a/one/1.lua", 'add_property("arch", "abacus")'),
    "default": ("a/one/.modulerc.lua", 'module_version("a/one/1'),
}


def test_a_broken_modulefile_never_replaces_a_good_one(tree):
    publish(tree, ONE)
    for fault, (file, text) in BROKEN.items():
        refused = publish(tree, {**ONE, **TWO, file: text})
        assert refused.get("failed"), fault
        assert f"{TREE} is left as it was" in refused["msg"], fault
        assert f"{TREE}/{file}" in refused["msg"], fault
        assert value_of(tree, "ONE", "a/one") == "1", fault
        assert not tree.file(f"{TREE}/b").exists, fault


def test_a_module_that_loads_in_bash_alone_is_not_published(tree):
    publish(tree, ONE, loads=["a/one/1"])
    assert tree.file(f"{CACHE}/loads").content_string == "a/one/1\n"
    of_bash = 'execute{cmd="array=(1 2)", modeA={"load"}}\n'
    refused = publish(tree, {"a/one/1.lua": of_bash}, loads=["a/one/1"])
    assert refused["msg"].startswith(f"{TREE} is left as it was; Lmod refuses ")
    assert refused["msg"].endswith("(in sh)")
    assert value_of(tree, "ONE", "a/one") == "1"


def test_the_cache_has_a_module_as_soon_as_it_is_published(tree):
    publish(tree, ONE)
    assert publish(tree, ONE | TWO)["changed"]
    assert "b/two/2" in tree.file(f"{CACHE}/cacheDir/spiderT.lua").content_string
    assert not publish(tree, ONE | TWO)["changed"]
    assert value_of(tree, "TWO", "b/two") == "2"


def test_what_left_the_data_vanishes_and_what_people_wrote_stays(tree):
    publish(tree, ONE | TWO)
    tree.check_output(
        'mkdir -p %s/mine && echo \'setenv("MINE", "3")\' > %s/mine/3.lua', TREE, TREE
    )
    assert publish(tree, ONE)["changed"]
    assert not tree.file(f"{TREE}/b").exists
    assert value_of(tree, "MINE", "mine") == "3"
    cache = tree.file(f"{CACHE}/cacheDir/spiderT.lua").content_string
    assert "b/two/2" not in cache
    assert "mine/3" in cache


def test_check_mode_shows_what_would_change_and_changes_nothing(tree):
    publish(tree, ONE)
    shown = publish(tree, {**ONE, "a/one/1.lua": 'setenv("ONE", "9")\n'}, check=True)
    assert shown["changed"]
    assert [part["after_header"] for part in shown["diff"]] == [
        f"{TREE}/a/one/1.lua",
        f"{CACHE} (spider cache)",
    ]
    assert value_of(tree, "ONE", "a/one") == "1"


def python(statement):
    return f"python3 -c {shlex.quote(f'from socket import *; {statement}')}"


def packet(address):
    return python(f'socket(AF_INET, SOCK_DGRAM).sendto(b"x", ("{address}", 9))')


OTHER = "$(echo /apps/software/apps/python/3/*[0-9a-f]/)"
"""The folder of a release, for the shell: beside it are files with an ending."""

# What a build command must not be able to do, each with a command that ends well where it can.
ATTACKS = {
    "be root": '[ "$(id -u)" = 0 ]',
    "have a capability": "! grep -q '^CapBnd:.0*$' /proc/self/status",
    "gain rights by a program": "! grep -q '^NoNewPrivs:.1$' /proc/self/status",
    "read munge's key": "cat /etc/munge/munge.key",
    "reach munge": python('socket(AF_UNIX).connect("/run/munge/trial")'),
    "read the password of the database": "cat /etc/slurm/slurmdbd.conf",
    "read Muster's settings": "cat /etc/muster/trial",
    "read SLURM's state": "cat /var/lib/slurm/slurmctld/trial",
    "read secrets of services": "cat /run/secrets/trial",
    "read root's files": "cat /root/.ssh/authorized_keys",
    "see the home of somebody": "ls /home/trial",
    "write into the home of somebody": "touch /home/trial/written",
    "write where all can": "touch /data-of-trial/written",
    "write where all can, mounted later": "touch /mounted-of-trial/written",
    "write to /etc": "touch /etc/written-by-a-build",
    "write to the modulefiles": "touch /apps/modules/written",
    "write into another version": f"touch {OTHER}/written",
    "write beside its folder": "touch ROOT.run",
    "write its mark": "test -w ROOT.building",
    "ask systemd": "systemd-run --quiet touch /run/asked-systemd",
    "see what others run": "ls /proc/1",
    "make a set-uid program": "cp /bin/sh ROOT/sh && chmod 4755 ROOT/sh",
    "make a set-gid folder": "mkdir ROOT/folder && chmod 2755 ROOT/folder",
    "make a device": "mknod ROOT/device c 1 3 && rm ROOT/device",
    "send to the metadata server": packet("169.254.169.254"),
}

# What it needs.
NEEDS = {
    "write into its folder": "touch ROOT/file",
    "have TMPDIR": 'touch "$TMPDIR/file"',
    "have a home": 'mkdir "$HOME/.cache"',
    "have /tmp": "touch /tmp/trial",
    "have shared memory": "touch /dev/shm/trial",
    "use other versions": f"{OTHER}/bin/python --version",
    "know who resolves names": "cat /etc/resolv.conf",
    "reach other hosts": packet("192.0.2.1"),
}


def trying(commands):
    """Return a script that tries commands; ROOT/done has the names of those that worked."""
    return "".join(
        f"if ( {command} ) >/dev/null 2>&1; then echo {shlex.quote(name)} >>ROOT/done; fi\n"
        for name, command in commands.items()
    )


@pytest.fixture(scope="module")
def hostile(workshop):
    """A build that attacks what a controller has, even where a mode is wrong."""
    workshop.check_output(
        "for f in /etc/munge/munge.key /etc/slurm/slurmdbd.conf /etc/muster/trial "
        "/var/lib/slurm/slurmctld/trial /run/secrets/trial; do "
        "mkdir -p $(dirname $f); test -e $f || echo secret >$f; done; "
        "mkdir -p /home/trial /data-of-trial /mounted-of-trial /run/munge; "
        "chmod 755 /etc/munge /var/lib/slurm /var/lib/slurm/slurmctld /run/munge; "
        "chmod 1777 /home/trial /data-of-trial; "
        "printf '[Mount]\nWhat=tmpfs\nType=tmpfs\nWhere=/mounted-of-trial\nOptions=mode=1777\n' "
        ">/run/systemd/system/mounted\\\\x2dof\\\\x2dtrial.mount; "
        "printf '[Automount]\nWhere=/mounted-of-trial\n' "
        ">/run/systemd/system/mounted\\\\x2dof\\\\x2dtrial.automount; "
        # As on a real machine, where what the host mounts appears everywhere.
        "mount --make-shared /; "
        "systemctl daemon-reload; systemctl start 'mounted\\x2dof\\x2dtrial.automount'; "
        "systemd-run --quiet --unit=trial-munge --property=UMask=0 python3 -c "
        '\'import socket, time; s = socket.socket(socket.AF_UNIX); s.bind("/run/munge/trial"); '
        "s.listen(9); time.sleep(9999)'; "
        "until test -e /run/munge/trial; do sleep 0.1; done"
    )
    left = (
        "setsid sleep 47110815 >/dev/null 2>&1 &\n"
        "(trap '' TERM HUP; setsid sleep 47110816 >/dev/null 2>&1) &\n"
        "chmod 777 ROOT; ln -s /etc/passwd ROOT/link; touch ROOT/open; chmod 666 ROOT/open\n"
    )
    root, result = build(workshop, f"{trying(ATTACKS | NEEDS)}{left}")
    assert not result.get("failed"), result
    yield root
    workshop.check_output("systemctl stop trial-munge 'mounted\\x2dof\\x2dtrial.automount'")
    workshop.run(
        "systemctl stop 'mounted\\x2dof\\x2dtrial.mount'; pkill -f '[s]leep 4711081'; "
        "rm -rf /run/systemd/system/mounted* /etc/munge/munge.key /etc/slurm/slurmdbd.conf "
        "/etc/muster/trial /var/lib/slurm/slurmctld/trial /run/secrets/trial /run/munge/trial "
        "/home/trial /data-of-trial /mounted-of-trial /apps/software/trial /apps/software/by-root "
        "/etc/written-by-a-build /run/asked-systemd /apps/modules/written "
        "/apps/software/apps/python/3/*/written; "
        "chmod 700 /etc/munge; mount --make-private /; systemctl daemon-reload"
    )


def done(host, folder):
    return host.file(f"{folder}/done").content_string.splitlines()


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_build_can_not(host, hostile, attack):
    assert attack not in done(host, hostile)


def test_root_of_the_host_can(host, hostile):
    """Each attack works where it is not closed off. After the build: one of them mounts."""
    root = "/apps/software/by-root/1"
    host.check_output(f"mkdir -p {root} && touch {root}.building")
    into_host(host, ["sh"], io.BytesIO(trying(ATTACKS).replace("ROOT", root).encode()))
    assert {*ATTACKS} - {*done(host, root)} == set()


def test_a_build_can_do_what_it_needs(host, hostile):
    assert {*NEEDS} <= {*done(host, hostile)}


def test_nothing_of_a_build_outlives_it(host, hostile):
    assert host.run("pgrep -fa '[s]leep 4711081'").stdout == ""
    assert host.run("systemctl list-units --all --plain --no-legend 'muster-build*'").stdout == ""
    assert not host.file("/tmp/trial").exists
    assert not host.file("/dev/shm/trial").exists


def test_what_was_built_is_roots_and_nobody_else_writes_there(host, hostile):
    assert host.check_output("find %s ! -user root -o ! -group root", hostile) == ""
    assert host.check_output("find %s ! -type l -perm /6022", hostile) == ""
    assert host.file(f"{hostile}/link").linked_to == "/etc/passwd"
    assert host.file("/etc/passwd").mode == 0o644


def test_the_account_that_builds_has_no_shell_no_home_and_no_other_group(host):
    account = host.user("muster-build")
    assert (account.shell, account.groups) == ("/usr/sbin/nologin", ["muster-build"])
    assert not host.file(account.home).exists


def test_a_fifo_or_socket_in_what_was_built_is_refused(workshop):
    root, result = build(workshop, "mkdir ROOT/in; mkfifo ROOT/in/fifo", name="special")
    assert result.get("failed")
    assert f"{root}/in/fifo" in result["msg"]
    assert workshop.check_output("find /apps/software/special -mindepth 1") == ""


@pytest.mark.proof("waits until the time of a build is over")
def test_a_build_that_takes_too_long_is_ended_with_all_it_has_started(workshop):
    started = time.monotonic()
    _, result = build(
        workshop, "trap '' TERM; setsid sleep 4712 & sleep 4712", name="slow", timeout_seconds=5
    )
    assert result.get("failed")
    assert "it did not end within 5 s" in result["msg"]
    assert time.monotonic() - started < 30
    assert workshop.run("pgrep -fa '[s]leep 4712'").stdout == ""
    assert workshop.check_output("find /apps/software/slow -mindepth 1") == ""


CHECK = "/usr/local/sbin/muster-check-release"

UNUSABLE = {
    "a library is missing": (
        # Debian's ls needs libselinux.
        "sed s/libselinux.so.1/libselinuy.so.1/ /bin/ls >ROOT/ls && chmod 755 ROOT/ls",
        f"{CHECK} ROOT",
        "no library libselinuy.so.1, which ls needs",
    ),
    "a package can't be imported": (
        "touch ROOT/file",
        f"{CHECK} --import nothing_like_it ROOT",
        "`import nothing_like_it` failed: ModuleNotFoundError",
    ),
}


@pytest.mark.parametrize("fault", UNUSABLE)
def test_what_was_built_and_does_not_work_is_removed(workshop, fault):
    command, verify, said = UNUSABLE[fault]
    root = "/apps/software/unusable/1"
    command, verify = (text.replace("ROOT", root) for text in (command, verify))
    wanted = {"installations": [{"root": root, "build": command, "verify": verify}]}
    result = json.loads(into_host(workshop, running("software_build"), arguments(wanted)))
    assert result.get("failed")
    assert f"{root} was built, but does not work" in result["msg"]
    assert said in result["msg"]
    assert workshop.check_output("find /apps/software/unusable -mindepth 1") == ""


ENDED = {
    # What ends, and what is left: a program that was killed can't clean up.
    "Ansible": (None, False),
    "the module": ("pkill -KILL -f '[s]oftware_build.py'", False),
    "the program": ("pkill -KILL -f '[s]bin/muster-build --timeout'", True),
}


@pytest.mark.proof("kills three builds and waits until they have ended")
@pytest.mark.parametrize("ended", ENDED)
def test_a_build_ends_with_whoever_asked_for_it(workshop, ended):
    command, killed = ENDED[ended]
    root = "/apps/software/ended/1"
    wanted = {"installations": [{"root": root, "build": f"touch {root}/half; sleep 4713"}]}
    way = workshop.backend
    ssh = ["ssh", "-F", way.ssh_config, "-o", "ControlPath=none", way.host.name]
    asking = subprocess.Popen(
        [*ssh, shlex.join(running("software_build"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        asking.stdin.write(arguments(wanted).getvalue())
        asking.stdin.close()
        until(lambda: workshop.file(f"{root}/half").exists)
        if command is not None:
            workshop.check_output(command)
            asking.wait(timeout=30)
    finally:
        asking.kill()
        asking.wait()
    until(lambda: workshop.run("pgrep -fa '[s]leep 4713'").stdout == "")
    until(lambda: workshop.file(f"{root}.building").exists == killed)
    # Until what ends it has done so, another build is refused.
    until(lambda: build(workshop, "touch ROOT/whole", name="ended")[1].get("changed"))
    assert workshop.check_output("ls -A %s", root) == "whole"
    workshop.check_output("rm -r /apps/software/ended")


def until(true):
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_an_administrator_builds_by_hand_in_the_same_way(host):
    root = "/apps/software/hand/1"
    done = host.run("muster-build %s %s", root, f"id -un; touch {root}/file")
    assert (done.rc, done.stdout) == (0, "muster-build\n"), done.stderr
    assert host.file(f"{root}/file").user == "root"
    again = host.run("muster-build %s true", root)
    assert again.rc == 1
    assert f"{root} is there already" in again.stderr
    host.check_output("rm -r /apps/software/hand")


def test_where_systemd_can_not_close_a_build_off_nothing_is_built(workshop):
    # As a kernel without cgroup-BPF: systemd says nothing and goes on without the filter.
    drop_in = "/run/systemd/system/muster-build.service.d"
    workshop.check_output(
        f"mkdir -p {drop_in} && printf '[Service]\\nIPAddressDeny=\\n' >{drop_in}/99-trial.conf "
        "&& systemctl daemon-reload"
    )
    try:
        _, result = build(workshop, "touch ROOT/file", name="open")
    finally:
        workshop.check_output(f"rm -r {drop_in} && systemctl daemon-reload")
    assert result.get("failed")
    assert "169.254.169.254" in result["msg"]
    assert workshop.check_output("find /apps/software/open -mindepth 1") == ""
