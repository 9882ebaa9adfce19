"""Modules load what they promise, and only what Lmod accepts is ever published."""

import io
import json
import re
import shlex
import subprocess
import tarfile
from pathlib import Path

import pytest
from ansible import module_utils

ROOT = Path(__file__).parents[2]
TORCH = "libs/python/torch/1.13.1-cuda-11.7-python-3.10"
TREE, CACHE = "/var/tmp/trial/modules", "/var/tmp/trial/cache"


def shell(host, command):
    """Run `command` in a login shell that inherits nothing."""
    return host.run("env -i HOME=/root PATH=/usr/bin:/bin LMOD_PAGER=none bash -lc %s", command)


def loaded(host, command):
    """Return the names of the modules that are loaded after `command`."""
    done = shell(host, f"{command} 2>/dev/null; module -t list 2>&1")
    return [line for line in done.stdout.split() if "/" in line]


def test_without_a_version_the_default_is_loaded_and_runs(host):
    done = shell(host, "module load apps/python && python -c 'import sys; print(sys.prefix)'")
    assert done.stdout == "/apps/software/apps/python/3\n"


def test_what_is_built_brings_a_pip_of_its_own(host):
    done = shell(host, "module load apps/python && pip --version")
    assert " from /apps/software/apps/python/3/" in done.stdout


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
    assert done.stdout == f"/apps/software/apps/cuda/11.7 /apps/software/{TORCH}\n"


def test_one_that_is_not_built_loads_and_says_the_command_on_stderr(host):
    done = shell(host, "module load apps/cuda/11.7")
    assert (done.rc, done.stdout) == (0, "")
    assert "declared, but not built" in done.stderr
    assert "   sh cuda.run --toolkitpath=/apps/software/apps/cuda/11.7\n" in done.stderr


def test_one_that_is_not_built_is_marked(host):
    avail = shell(host, "module avail 2>&1").stdout
    assert re.search(r"apps/cuda/11\.7 +\(g,N\)", avail)
    assert not re.search(r"apps/conda/1 +\([^)]*N", avail)


def test_help_of_one_that_is_not_built_has_the_command(host):
    text = shell(host, f"module help {TORCH} 2>&1").stdout
    assert 'Says "hello" with \\backslashes\\ and ]] brackets.' in text
    root = f"/apps/software/{TORCH}"
    pip = "/apps/software/apps/python/3.10/bin/python -m pip install"
    assert f"   {pip} --target {root} torch\n" in text


def test_one_that_is_built_says_nothing(host):
    done = shell(host, "module load apps/python")
    assert (done.rc, done.stdout, done.stderr) == (0, "", "")


def test_one_that_is_built_later_by_hand_says_nothing_any_more(host):
    root = "/apps/software/apps/cuda/11.7"
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


# From here on the module that publishes is run against the real Lmod, on a tree of its own.


@pytest.fixture(scope="module")
def workshop(host):
    """The module and what it imports, on the host: a run costs a tenth of one by Ansible."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("ansible/__init__.py"))
        tar.add(Path(module_utils.__file__).parent, "ansible/module_utils")
        shared = "ansible_collections/muster/slurm/plugins/module_utils"
        for path in (ROOT / "ansible/collections" / shared).glob("*.py"):
            tar.add(path, f"{shared}/{path.name}")
        tar.add(ROOT / "ansible/plugins/modules/module_tree.py", "module_tree.py")
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


def publish(host, files, check=False):
    """Run module_tree on the host as Ansible does; return its result."""
    wanted = {"path": TREE, "cache": CACHE, "files": files, "_ansible_check_mode": check}
    command = ["env", "PYTHONPATH=/var/tmp/trial", "python3", "/var/tmp/trial/module_tree.py"]
    arguments = json.dumps({"ANSIBLE_MODULE_ARGS": wanted}).encode()
    return json.loads(into_host(host, command, io.BytesIO(arguments)))


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
