"""Which release users get back, and which ones are removed; Lmod and SLURM are stand-ins.

With the real Lmod: tests/roles/test_software.py.
"""

import errno
import fcntl
import functools
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import build_log
import mount_table
import pytest
from lmod_tools import MARK
from muster_build import build, packing
from muster_software import main, rollback, settings
from release_system import this_system

OLD, NEW, OTHER = "0" * 15 + "a", "0" * 15 + "b", "0" * 15 + "c"
PYTHON, TORCH = "apps/python/3", "libs/torch/2"
DAY = 24 * 3600

Done = tuple[int, str, str]


class Cluster:
    """A shared folder, and the programs that are asked."""

    def __init__(self, folder: Path) -> None:
        self.apps, self.bin, self.init = folder / "apps", folder / "libexec", folder / "init"
        self.bin.mkdir()
        self.init.mkdir()
        (self.apps / "modules").mkdir(parents=True)
        self.wanted: dict[str, str] = {}
        self.module('export LOADEDMODULES="$2"')
        self.program("update_lmod_system_cache_files", f'echo "$@" >{folder}/cache')
        self.queue()

    def program(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def module(self, text: str) -> None:
        """Let the command `module` be this in all shells."""
        for shell in ("bash", "sh", "zsh"):
            (self.init / shell).write_text(f"module() {{ {text}; }}\n")

    def queue(self, *jobs: str) -> None:
        """Let squeue print jobs: time of submission, restarts, number."""
        self.program("squeue", "".join(f"echo '{job}'\n" for job in jobs) or "true")

    def root(self, module: str, name: str) -> Path:
        return self.apps / "software" / module / name

    def release(
        self,
        module: str,
        name: str,
        *,
        days: float = 0,
        built_on: tuple[Path, ...] = (),
        system: str | None = this_system(),
    ) -> Path:
        """Make a release that was built some days ago."""
        root = self.root(module, name)
        root.mkdir(parents=True)
        (root / "file").touch()
        beside = {
            "module": module,
            "built_on": [str(path) for path in built_on],
            "modulefile": f'local root = "{root}"\n',
        }
        if system is not None:
            beside["system"] = system
        Path(f"{root}.json").write_text(json.dumps(beside))
        then = time.time() - days * DAY
        os.utime(root, (then, then))
        return root

    def publish(self, module: str, name: str, *, days: float = 0) -> Path:
        """Write the modulefile that names a release, as the play did some days ago."""
        path = self.apps / "modules" / f"{module}.lua"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{MARK}local root = "{self.root(module, name)}"\n')
        then = time.time() - days * DAY
        os.utime(path, (then, then))
        self.wanted[module] = str(self.root(module, name))
        return path


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster(tmp_path)
    monkeypatch.setattr(settings, "SETTINGS", str(tmp_path / "settings"))
    monkeypatch.setattr(main, "LOCK", str(tmp_path / "lock"))
    monkeypatch.setattr(build, "LOCK", str(tmp_path / "build_lock"))
    monkeypatch.setattr(build_log, "FOLDER", str(tmp_path))
    here = functools.partial(rollback.Lmod, home=str(tmp_path))
    monkeypatch.setattr(rollback, "Lmod", here)
    monkeypatch.setenv("PATH", f"{made.bin}:/usr/bin:/bin")
    return made


@pytest.fixture
def run(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    def run(*words: str) -> Done:
        written = {"root": str(cluster.apps), "wanted": cluster.wanted}
        Path(settings.SETTINGS).write_text(json.dumps(written))
        code = main.main(words)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def replaced(cluster: Cluster, *, days: float) -> Path:
    """Let a release be replaced by another one some days ago; return its folder."""
    old = cluster.release(PYTHON, OLD, days=days + 1)
    cluster.release(PYTHON, NEW, days=days)
    cluster.publish(PYTHON, NEW, days=days)
    return old


class TestList:
    def test_it_says_which_one_users_load_and_which_one_is_asked_for(self, cluster, run):
        replaced(cluster, days=1)
        cluster.publish(PYTHON, OLD)
        cluster.wanted = {
            PYTHON: str(cluster.root(PYTHON, NEW)),
            TORCH: str(cluster.root(TORCH, OTHER)),
        }
        code, out, err = run("list")
        lines = [line.split(maxsplit=3) for line in out.splitlines()]
        assert (code, err) == (0, "")
        assert lines[0] == [PYTHON]
        assert (lines[1][0], lines[1][3]) == (OLD, "users load it")
        assert (lines[2][0], lines[2][3]) == (NEW, "the definition asks for it")
        assert lines[3:] == [[TORCH], [OTHER, "not", "built", "the definition asks for it"]]

    def test_programs_get_the_folders(self, cluster, run):
        old = replaced(cluster, days=1)
        code, out, _ = run("list", "--json")
        new = str(cluster.root(PYTHON, NEW))
        assert code == 0
        assert json.loads(out) == {PYTHON: {"published": new, "releases": [str(old), new]}}

    def test_what_is_being_built_is_no_release_yet(self, cluster, run):
        root = cluster.release(PYTHON, OLD)
        Path(f"{root}.building").touch()
        assert run("list") == (0, "", "")

    def test_without_the_role_it_says_who_writes_its_settings(self, capsys, monkeypatch):
        monkeypatch.setattr(settings, "SETTINGS", "/nonexistent/software.json")
        assert main.main(["list"]) == 1
        assert "there is no /nonexistent/software.json; run site.yml" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["list"], ["rollback", PYTHON], ["gc"]])
def test_a_shared_folder_that_is_not_mounted_is_refused(cluster, run, words, tmp_path, monkeypatch):
    replaced(cluster, days=8)
    fstab = tmp_path / "fstab"
    fstab.write_text(f"s:/apps {cluster.apps} nfs rw 0 0\n")
    monkeypatch.setattr(mount_table, "FSTAB", str(fstab))
    code, out, err = run(*words)
    assert (code, out) == (1, "")
    assert err.startswith(f"{cluster.apps} is not mounted, though {fstab} says that it should be")
    assert cluster.root(PYTHON, OLD).is_dir()


# It is not waited for, as the real one may hang in the kernel.
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
@pytest.mark.parametrize("words", [["list"], ["rollback", PYTHON], ["gc"]])
def test_while_the_server_of_the_shared_folder_is_away_it_says_so(cluster, run, words, monkeypatch):
    replaced(cluster, days=8)
    cluster.program("stat", "exec sleep 20")
    monkeypatch.setattr(mount_table, "SECONDS", 0.5, raising=False)
    begin = time.monotonic()
    code, out, err = run(*words)
    assert time.monotonic() - begin < 10
    assert (code, out) == (1, "")
    assert err.startswith(f"{cluster.apps} does not answer within 0.5 s; bring the server")
    assert cluster.root(PYTHON, OLD).is_dir()


REFUSED = {
    "no such module": (["apps/none/1"], "there is no release of apps/none/1"),
    "no such release": ([PYTHON, OTHER], f"has no release {OTHER}; there are {OLD}, {NEW}"),
    "the same": ([PYTHON, NEW], f"users load {NEW} of {PYTHON} already"),
}


class TestRollback:
    def test_users_get_the_release_before(self, cluster, run, tmp_path):
        old = replaced(cluster, days=1)
        code, out, err = run("rollback", PYTHON)
        assert (code, err) == (0, "")
        assert out.startswith(f"{PYTHON} is {OLD} again, and not {NEW}; the next run of site.yml")
        text = (cluster.apps / "modules" / f"{PYTHON}.lua").read_text()
        assert text == f'{MARK}local root = "{old}"\n'
        cache = cluster.apps / "lmod/cache"
        asked = f"-d {cache}/cacheDir -t {cache}/timestamp {cluster.apps}/modules\n"
        assert (tmp_path / "cache").read_text() == asked

    def test_a_release_can_be_named_and_forward_is_possible_too(self, cluster, run):
        replaced(cluster, days=1)
        run("rollback", PYTHON)
        assert run("rollback", PYTHON, NEW)[:2] == (0, f"{PYTHON} is {NEW} again, and not {OLD}\n")

    @pytest.mark.parametrize("case", REFUSED)
    def test_it_says_what_there_is(self, cluster, run, case):
        words, said = REFUSED[case]
        replaced(cluster, days=1)
        code, out, err = run("rollback", *words)
        assert (code, out) == (1, "")
        assert said in err

    def test_before_the_oldest_there_is_none(self, cluster, run):
        replaced(cluster, days=1)
        run("rollback", PYTHON)
        assert f"has no release before {OLD}; there are {OLD}, {NEW}" in run("rollback", PYTHON)[2]

    def test_one_that_is_built_on_what_is_gone_is_refused(self, cluster, run):
        gone = cluster.root(PYTHON, OLD)
        cluster.release(TORCH, OLD, days=2, built_on=(gone,))
        cluster.release(TORCH, NEW)
        cluster.publish(TORCH, NEW)
        assert run("rollback", TORCH)[2] == (
            f"{OLD} is built on {gone}, which is gone; name another release\n"
        )

    @pytest.mark.parametrize(
        ("system", "said"),
        [
            ("debian 11 x86_64", "{0} was built on debian 11 x86_64, and this is {1}, where its "),
            (f"{this_system()}-v3", f"{{0}} was built on {this_system()}-v3, and this is {{1}}, "),
            (None, "{0}.json does not say on which system {0} was built, and this is {1}; name "),
        ],
    )
    def test_one_of_another_system_is_refused(self, cluster, run, system, said):
        old = cluster.release(PYTHON, OLD, days=2, system=system)
        cluster.release(PYTHON, NEW)
        path = cluster.publish(PYTHON, NEW)
        before = path.read_text()
        code, out, err = run("rollback", PYTHON)
        assert (code, out) == (1, "")
        assert err.startswith(said.format(old, this_system()))
        assert err.endswith("; name another release\n")
        assert path.read_text() == before

    def test_one_that_lmod_does_not_load_is_not_published(self, cluster, run):
        replaced(cluster, days=1)
        path = cluster.apps / "modules" / f"{PYTHON}.lua"
        before = path.read_text()
        cluster.module("echo 'Lmod has detected an error' >&2; false")
        code, _, err = run("rollback", PYTHON)
        assert code == 1
        assert f"{OLD} is not published, since Lmod does not load it: Lmod has detected" in err
        assert path.read_text() == before

    def test_one_that_lmod_loads_without_it_is_not_published(self, cluster, run):
        replaced(cluster, days=1)
        cluster.module("export LOADEDMODULES=apps/other/1")
        assert run("rollback", PYTHON)[2] == (
            f"{OLD} is not published, since Lmod does not load it: {PYTHON} is not loaded "
            "(in bash); "
            "name another release\n"
        )

    def test_a_modulefile_that_lmod_names_is_named_by_its_place(self, cluster, run):
        replaced(cluster, days=1)
        cluster.module('echo "${MODULEPATH%%:*}/apps/python/3.lua: unknown symbol" >&2; false')
        err = run("rollback", PYTHON)[2]
        assert f"load it: {cluster.apps}/modules/{PYTHON}.lua: unknown symbol (in bash)" in err

    def test_a_cache_that_is_not_built_is_said(self, cluster, run):
        old = replaced(cluster, days=1)
        cluster.program("update_lmod_system_cache_files", "echo disk full >&2; exit 1")
        code, _, err = run("rollback", PYTHON)
        path = cluster.apps / "modules" / f"{PYTHON}.lua"
        assert (code, str(old) in path.read_text()) == (1, True)
        assert err == (
            f"{path} is published, but `module avail` may show the old one: the spider cache in "
            f"{cluster.apps}/lmod/cache was not built: disk full; have the definition ask for this "
            "release, and run site.yml, which rebuilds Lmod's cache\n"
        )

    def test_a_modulefile_of_somebody_else_stays(self, cluster, run):
        replaced(cluster, days=1)
        path = cluster.apps / "modules" / f"{PYTHON}.lua"
        path.write_text(f'local root = "{cluster.root(PYTHON, NEW)}"\n')
        assert f"{path} was not written by Muster" in run("rollback", PYTHON)[2]


UNKNOWN = {
    "slurmctld does not answer": ("echo 'Unable to contact' >&2; exit 1", "Unable to contact"),
    "squeue prints something else": ("echo 'CLUSTER: lab'", "prints what is no job"),
}


@pytest.fixture
def nested(cluster: Cluster) -> Iterator[Path]:
    """A release that nobody needs, of 1200 folders that are each in the one before."""
    old = replaced(cluster, days=8)
    for depth in range(1200):
        old.joinpath(*["n"] * (depth + 1)).mkdir()
    yield old
    # After a failed test pytest's own removal would fail on them.
    subprocess.run(["rm", "-rf", old], check=True)


class TestCollect:
    def test_what_nobody_needs_is_removed_with_the_files_beside_it(self, cluster, run):
        old = replaced(cluster, days=8)
        Path(f"{old}.txt").touch()
        log = Path(build_log.log_of(str(old)))
        log.touch()
        assert run("gc") == (0, f"{old}: removed\n", "")
        assert not log.exists()
        assert sorted(path.name for path in old.parent.iterdir()) == [NEW, f"{NEW}.json"]
        assert run("gc") == (0, "", "")

    def test_shells_may_have_loaded_what_was_replaced_days_ago(self, cluster, run):
        old = replaced(cluster, days=6)
        code, out, _ = run("gc")
        assert (code, out.startswith(f"{old}: stays until ")) == (0, True)
        assert old.is_dir()

    def test_who_has_chains_of_jobs_can_leave_them_more_time(self, cluster, run):
        old = replaced(cluster, days=20)
        # It may not have loaded it: such a job keeps nothing, however many days are asked for.
        cluster.queue(f"{int(time.time() - 5 * DAY)} 0 7")
        code, out, _ = run("gc", "--days", "21")
        day = time.strftime("%Y-%m-%d", time.localtime(time.time() + DAY))
        said = f"{old}: stays until {day}, shells and chains of jobs may have loaded it\n"
        assert (code, out) == (0, said)
        assert run("gc", "--days", "19")[1] == f"{old}: removed\n"

    @pytest.mark.parametrize("days", ["6", "-1", "many"])
    def test_less_than_a_shell_may_last_is_refused(self, run, days, capsys):
        with pytest.raises(SystemExit) as refused:
            run("gc", "--days", days)
        assert refused.value.code == 2
        assert "--days" in capsys.readouterr().err

    @pytest.mark.parametrize(("days", "restarts"), [(20, 0), (9, 0), (1, 1)])
    def test_a_job_that_may_have_loaded_it_keeps_it(self, cluster, run, days, restarts):
        # Submitted before the release was replaced, from a shell of then, or queued again.
        old = replaced(cluster, days=15)
        cluster.queue(f"{int(time.time())} 0 8", f"{int(time.time() - days * DAY)} {restarts} 7")
        assert run("gc") == (0, f"{old}: stays, job 7 may have loaded it\n", "")
        assert old.is_dir()

    def test_a_job_of_later_does_not_keep_it(self, cluster, run):
        old = replaced(cluster, days=15)
        cluster.queue(f"{int(time.time() - 7 * DAY)} 0 7")
        assert run("gc")[1] == f"{old}: removed\n"

    @pytest.mark.parametrize("name", ["SQUEUE_STATES", "SQUEUE_USERS", "SLURM_CLUSTERS"])
    def test_a_shell_whose_squeue_shows_some_jobs_hides_none(self, cluster, run, monkeypatch, name):
        old = replaced(cluster, days=15)
        cluster.program("squeue", f'[ "${name}" ] || echo "{int(time.time() - 20 * DAY)} 0 7"')
        monkeypatch.setenv(name, "PENDING")
        assert run("gc") == (0, f"{old}: stays, job 7 may have loaded it\n", "")

    def test_what_is_needed_stays(self, cluster, run):
        base = cluster.release(PYTHON, OLD, days=30)
        cluster.release(TORCH, OLD, days=30, built_on=(base,))
        cluster.publish(TORCH, OLD, days=30)
        # In the definition, but rolled back; and named by somebody's own modulefile.
        asked = cluster.release(PYTHON, NEW, days=30)
        cluster.wanted[PYTHON] = str(asked)
        mine = cluster.release(PYTHON, OTHER, days=30)
        own = cluster.apps / "modules/mine.lua"
        own.write_text(f'prepend_path("PATH", "{mine}/bin")\n')
        os.utime(own, (0, 0))
        assert run("gc") == (0, "", "")

    def test_what_a_modulefile_below_a_linked_folder_names_stays(self, cluster, run, tmp_path):
        """Lmod follows such links; one that leads in a circle ends."""
        old = replaced(cluster, days=30)
        own = tmp_path / "site/tools"
        own.mkdir(parents=True)
        (own / "mine.lua").write_text(f'prepend_path("PATH", "{old}/bin")\n')
        (own / "up").symlink_to(cluster.apps / "modules")
        (cluster.apps / "modules/site").symlink_to(tmp_path / "site")
        assert run("gc") == (0, "", "")
        assert old.is_dir()
        (own / "mine.lua").unlink()
        assert run("gc") == (0, f"{old}: removed\n", "")

    def test_what_another_release_is_built_on_stays_as_long_as_that_one(self, cluster, run):
        base = cluster.release(PYTHON, OLD, days=30)
        cluster.release(PYTHON, NEW, days=20)
        cluster.publish(PYTHON, NEW, days=20)
        cluster.release(TORCH, OLD, days=25, built_on=(base,))
        cluster.release(TORCH, NEW, days=3)
        cluster.publish(TORCH, NEW, days=3)
        code, out, _ = run("gc")
        assert (code, out.count("stays until"), base.is_dir()) == (0, 2, True)

    def test_a_module_that_left_the_definition_goes_in_time(self, cluster, run):
        old = cluster.release(TORCH, OLD, days=30)
        folder = cluster.apps / "modules"
        for days, stays in ((1, True), (8, False)):
            then = time.time() - days * DAY
            os.utime(folder, (then, then))
            run("gc")
            assert old.is_dir() == stays

    def test_the_remains_of_a_killed_build_or_removal_go(self, cluster, run):
        root = cluster.release(PYTHON, OLD)
        Path(f"{root}.building").touch()
        assert run("gc") == (0, f"{root}: removed, it was not complete\n", "")
        assert list(root.parent.iterdir()) == []

    def test_what_is_being_built_on_another_host_stays(self, cluster, run):
        root = cluster.release(PYTHON, OLD)
        # Of `muster-build`, which has the lock also across a file server.
        with Path(f"{root}.building").open("w") as mark:
            fcntl.flock(mark, fcntl.LOCK_EX)
            code, out, _ = run("gc")
        assert f"{root}: stays, it is being built\n" in out
        assert (code, root.is_dir(), Path(f"{root}.building").exists()) == (0, True, True)

    def test_a_release_of_deeply_nested_folders_goes(self, run, nested):
        assert run("gc") == (0, f"{nested}: removed\n", "")
        assert sorted(path.name for path in nested.parent.iterdir()) == [NEW, f"{NEW}.json"]

    def test_while_something_is_built_nothing_is_removed(self, cluster, run):
        old = replaced(cluster, days=8)
        with Path(build.LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            code, _, err = run("gc")
        assert (code, old.is_dir()) == (1, True)
        assert "a build, rollback or gc runs on this host; wait for it" in err

    @pytest.mark.parametrize("case", UNKNOWN)
    def test_without_slurm_s_word_nothing_is_removed(self, cluster, run, case):
        text, said = UNKNOWN[case]
        old = replaced(cluster, days=8)
        cluster.program("squeue", text)
        code, _, err = run("gc")
        assert (code, old.is_dir()) == (1, True)
        assert said in err
        assert "nothing is removed" in err

    def test_what_site_yml_asks_for_meanwhile_stays(self, cluster, run):
        old = replaced(cluster, days=8)
        asked = json.dumps({"root": str(cluster.apps), "wanted": {PYTHON: str(old)}})
        cluster.program("squeue", f"echo '{asked}' >{settings.SETTINGS}")
        assert run("gc") == (0, f"{old}: stays, it is needed again\n", "")
        assert old.is_dir()

    def test_where_a_folder_of_modulefiles_can_t_be_read_nothing_is_removed(
        self, cluster, run, monkeypatch
    ):
        old = replaced(cluster, days=8)
        folder = cluster.apps / "modules/mine"
        folder.mkdir()
        scandir = os.scandir

        def stale(path):
            if str(path) == str(folder):
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))
            return scandir(path)

        monkeypatch.setattr(os, "scandir", stale)
        code, out, err = run("gc")
        assert (code, out, old.is_dir()) == (1, "", True)
        assert err.startswith(f"{folder}: Stale file handle; nothing else was changed: fix")

    def test_without_the_modulefiles_nothing_is_removed(self, cluster, run):
        old = replaced(cluster, days=8)
        (cluster.apps / "modules").rename(cluster.apps / "away")
        code, _, err = run("gc")
        assert (code, old.is_dir()) == (1, True)
        assert "is it mounted?" in err


@pytest.fixture
def packed(cluster, tmp_path, monkeypatch) -> Path:
    """A release that is packed, replaced long ago, and not mounted; its folder is a link."""
    root = cluster.root(PYTHON, OLD)
    root.parent.mkdir(parents=True)
    root.symlink_to(tmp_path / "releases" / OLD)
    beside = {
        "module": PYTHON,
        "built_on": [],
        "system": this_system(),
        "modulefile": f'local root = "{root}"\n',
    }
    Path(f"{root}.json").write_text(json.dumps(beside))
    cluster.release(PYTHON, NEW, days=8)
    cluster.publish(PYTHON, NEW, days=8)
    images = cluster.apps / ".muster/images"
    images.mkdir(parents=True)
    for name in (f"{OLD}.squashfs", f"{OTHER}.squashfs"):
        (images / name).touch()
    then = time.time() - 9 * DAY
    os.utime(root, (then, then), follow_symlinks=False)
    # A mount of somebody is among them, with a name that is no text.
    (tmp_path / "mountinfo").write_bytes(
        b"30 29 0:27 / /tmp/.\r\xff\x1f rw - fuse.x x rw\n"
        b"31 29 0:28 / /apps ro shared:2 - nfs4 storage1:/apps ro\n"
    )
    monkeypatch.setattr(mount_table, "MOUNTINFO", str(tmp_path / "mountinfo"))
    monkeypatch.setattr(packing, "RELEASES", str(tmp_path / "releases"))
    return root


class TestPacked:
    """Nothing is at the end of the link: a look there would be an error, or mount it."""

    def test_it_is_listed_and_can_be_rolled_back_to(self, cluster, run, packed):
        _, out, _ = run("list")
        assert out.splitlines()[1].split()[::3] == [OLD, "squashfs"]
        assert run("rollback", PYTHON)[0] == 0
        assert f'"{packed}"' in (cluster.apps / "modules" / f"{PYTHON}.lua").read_text()

    def test_what_is_built_on_it_can_be_rolled_back_to(self, cluster, run, packed):
        old = cluster.release(TORCH, OLD, days=2, built_on=(packed,))
        cluster.release(TORCH, NEW)
        cluster.publish(TORCH, NEW)
        assert run("rollback", TORCH)[0] == 0
        assert f'"{old}"' in (cluster.apps / "modules" / f"{TORCH}.lua").read_text()

    def test_its_file_goes_with_it_and_no_other(self, cluster, run, packed):
        assert run("gc") == (0, f"{packed}: removed\n", "")
        assert sorted(path.name for path in packed.parent.iterdir()) == [NEW, f"{NEW}.json"]
        left = [path.name for path in (cluster.apps / ".muster/images").iterdir()]
        assert left == [f"{OTHER}.squashfs"]

    def test_while_this_host_has_it_mounted_it_stays(self, run, packed, tmp_path):
        place = f"{tmp_path}/releases/{OLD}"
        with (tmp_path / "mountinfo").open("a") as stream:
            stream.write(f"99 31 7:0 / {place} ro,nosuid - squashfs /dev/loop0 ro\n")
        code, out, _ = run("gc")
        assert (code, out.startswith(f"{packed}: stays, this host has it mounted")) == (0, True)
        assert packed.is_symlink()

    def test_the_remains_of_packing_that_was_killed_go(self, cluster, run, packed):
        # Between the removal of the folder and the link.
        packed.unlink()
        Path(f"{packed}.building").touch()
        (cluster.apps / f".muster/images/{OLD}.squashfs.new").touch()
        assert run("gc") == (0, f"{packed}: removed, it was not complete\n", "")
        assert sorted(path.name for path in packed.parent.iterdir()) == [NEW, f"{NEW}.json"]
        left = [path.name for path in (cluster.apps / ".muster/images").iterdir()]
        assert left == [f"{OTHER}.squashfs"]
