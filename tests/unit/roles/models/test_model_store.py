"""The model store: folders, two writers, a killed one, verify, gc, and who may write."""

import errno
import io
import itertools
import json
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Program = Callable[..., int]
NAME = "lab/bert"
NOBODY = 65534
TEMPLATE = Path(__file__).parents[4] / "roles/models/templates/etc/sudoers.d/60-muster-models.j2"


def add(models: Program, folder: Path, name: str = NAME) -> int:
    return models("add", str(folder), "--name", name, "--licence", "mit")


def snapshots(store_root: Path, name: str = NAME) -> list[Path]:
    model = store_root / f"hub/models--{name.replace('/', '--')}"
    return sorted(path for path in model.glob("snapshots/*"))


def blobs(store_root: Path) -> list[Path]:
    return sorted((store_root / "blobs").iterdir())


def test_a_folder_becomes_a_model_of_the_cache(
    models: Program, store_root: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert add(models, folder) == 0
    [snapshot] = snapshots(store_root)
    assert capsys.readouterr().out.splitlines()[-1] == str(snapshot)
    assert (snapshot / "tokenizer/vocab.txt").read_text() == "a\nb\n"
    assert (store_root / "hub/models--lab--bert/refs/main").read_text() == snapshot.name
    assert len(snapshot.name) == 40
    told = json.loads(
        (store_root / f"hub/models--lab--bert/provenance/{snapshot.name}.json").read_text()
    )
    assert (told["origin"], told["licence"], told["added_by"]) == (str(folder), "mit", "ada")


def test_what_a_provenance_says_does_not_control_the_terminal(
    models: Program, store_root: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert add(models, folder) == 0
    [path] = store_root.glob("hub/models--lab--bert/provenance/*.json")
    told = json.loads(path.read_text())
    told |= {"origin": "\x1b]0;title\x07/home\nlab/faked", "licence": "\x9b31mmit\ud800"}
    told["files"][0] |= {"path": "\x1b[2Jconfig.json", "sha256": "0" * 64}
    path.write_text(json.dumps(told))
    capsys.readouterr()
    assert models("list") == models("list", NAME) == 0
    assert models("verify") == 2
    said = capsys.readouterr()
    lines = (said.out + said.err).split("\n")
    assert [line for line in lines if not line.isprintable()] == []
    assert not any(line.startswith("lab/faked") for line in lines)


def test_links_in_a_folder_are_followed(models: Program, store_root: Path, folder: Path) -> None:
    (folder / "model.bin").symlink_to(folder / "config.json")
    assert add(models, folder) == 0
    assert not (snapshots(store_root)[0] / "model.bin").resolve().is_relative_to(folder)


def test_the_folder_of_a_model_in_the_hub_s_cache_can_be_added_by_its_owner(
    models: Program, store_root: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "hub/models--lab--bert"
    snapshot = cache / "snapshots" / ("a" * 40)
    (snapshot / "tokenizer").mkdir(parents=True)
    (cache / "blobs").mkdir()
    for path in ("config.json", "tokenizer/vocab.txt"):
        name = path.replace("/", "-")
        (cache / "blobs" / name).write_text(path)
        up = "../" * (path.count("/") + 2)
        (snapshot / path).symlink_to(f"{up}blobs/{name}")
    assert add(models, snapshot) == 0
    [added] = snapshots(store_root)
    assert (added / "tokenizer/vocab.txt").read_text() == "tokenizer/vocab.txt"


@pytest.fixture
def key(folder: Path, tmp_path: Path) -> Path:
    """A file that the owner of `folder`, nobody, can't read."""
    if os.geteuid() != 0:
        pytest.skip("only root can make files of others")
    path = tmp_path / "etc/munge.key"
    path.parent.mkdir()
    path.write_text("secret")
    path.chmod(0o400)
    for one in (folder, *folder.rglob("*")):
        os.chown(one, NOBODY, NOBODY)
    return path


def linked(link: Path, to: Path) -> None:
    """Make a link of nobody's."""
    link.symlink_to(to)
    os.lchown(link, NOBODY, NOBODY)


def told_of_a_link(said: str, link: Path) -> bool:
    return f"error: {link} is a link of nobody, which is not followed" in said


def published(store_root: Path) -> list[str]:
    return [blob.read_text() for blob in (store_root / "blobs").glob("*")]


@pytest.mark.parametrize("leads_to", ["file", "folder", "by a link of root's", "folder itself"])
def test_a_link_of_somebody_else_brings_nothing_that_they_can_t_read(  # noqa: PLR0917
    models: Program,
    store_root: Path,
    folder: Path,
    key: Path,
    capsys: pytest.CaptureFixture[str],
    leads_to: str,
) -> None:
    link = folder / "model.safetensors"
    named = folder
    if leads_to == "file":
        linked(link, key)
    elif leads_to == "folder":
        linked(link, key.parent)
    elif leads_to == "by a link of root's":
        link = folder / "tokenizer/leads-on"
        linked(link, key)
        (folder / "model.safetensors").symlink_to("tokenizer/leads-on")
    else:
        named = link = folder.parent / "best"
        linked(link, key.parent)
    assert add(models, named) == 1
    said = capsys.readouterr().err
    assert told_of_a_link(said, link), said
    assert snapshots(store_root) == []
    assert published(store_root) == []


def test_a_file_that_becomes_a_link_meanwhile_is_the_file_that_was_looked_at(
    models: Program, store_root: Path, folder: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is a file and its opening must not be two looks at the folder."""
    is_regular = stat.S_ISREG
    file = folder / "config.json"

    def looked(mode: int) -> bool:
        if not file.is_symlink():
            file.unlink()
            linked(file, key)
        return is_regular(mode)

    monkeypatch.setattr(stat, "S_ISREG", looked)
    assert add(models, folder) == 0
    assert file.is_symlink()
    assert sorted(published(store_root)) == ["a\nb\n", '{"model_type": "bert"}']


def test_a_file_of_two_models_is_there_once(
    models: Program, store_root: Path, folder: Path
) -> None:
    assert add(models, folder) == add(models, folder, "lab/other") == 0
    assert len(blobs(store_root)) == 2
    one, other = (snapshots(store_root, name)[0] for name in (NAME, "lab/other"))
    assert (one / "config.json").resolve() == (other / "config.json").resolve()


def test_the_same_folder_twice_is_one_revision(
    models: Program, store_root: Path, folder: Path
) -> None:
    assert add(models, folder) == add(models, folder) == 0
    assert len(snapshots(store_root)) == 1


def test_a_changed_folder_is_another_revision_and_main_moves(
    models: Program, store_root: Path, folder: Path
) -> None:
    assert add(models, folder) == 0
    [first] = snapshots(store_root)
    (folder / "config.json").write_text("{}")
    assert add(models, folder) == 0
    [second] = set(snapshots(store_root)) - {first}
    assert (store_root / "hub/models--lab--bert/refs/main").read_text() == second.name
    assert (first / "config.json").read_text() != "{}"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["FOLDER", "--licence", "mit"], "needs a name; say --name TEAM/NAME"),
        (["FOLDER", "--name", "lab/bert"], "needs a licence"),
        (["FOLDER", "--name", "a--b", "--licence", "mit"], "can't be the name of a model"),
        (["FOLDER", "--name", "../b", "--licence", "mit"], "can't be the name of a model"),
        (["FOLDER/none", "--name", "lab/bert", "--licence", "mit"], "is no folder"),
        (["hf:lab/bert", "--name", "other"], "keeps its name; leave out --name"),
        (["FOLDER", "--name", "a", "--licence", "mit", "--sha256", "0"], "leave it out"),
    ],
)
def test_wrong_words_are_one_sentence(
    models: Program,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    says: str,
) -> None:
    assert models("add", *(word.replace("FOLDER", str(folder)) for word in words)) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ") and says in said
    assert len(said.splitlines()) == 1


def test_an_empty_folder_is_refused(
    models: Program, store_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert add(models, tmp_path / "empty") == 1
    assert "has no files" in capsys.readouterr().err
    assert snapshots(store_root) == []


def test_a_quota_that_is_used_up_says_so_and_leaves_nothing(
    models: Program,
    store_root: Path,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from muster_models import add as adding

    def full(_path: str, _file: Any, place: str, _progress: Any) -> Any:
        Path(place).write_bytes(b"a")
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), place)

    monkeypatch.setattr(adding, "_copied", full)
    assert add(models, folder) == 1
    said = capsys.readouterr().err
    assert "disk quota exceeded" in said
    assert "make room" in said
    assert blobs(store_root) == snapshots(store_root) == []
    assert list((store_root / ".incoming").iterdir()) == []


def test_a_real_full_disk_says_so_and_leaves_nothing(
    models: Program, store_root: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", store_root], check=True)
    try:
        (folder / "model.bin").write_bytes(os.urandom(2 << 20))
        assert add(models, folder) == 1
        assert "no space left on device" in capsys.readouterr().err
        assert blobs(store_root) == snapshots(store_root) == []
        assert list((store_root / ".incoming").iterdir()) == []
        (folder / "model.bin").write_bytes(b"small")
        assert add(models, folder) == 0
    finally:
        subprocess.run(["umount", str(store_root)], check=True)


KILLED = """
    import os, pwd, sys
    sys.path.insert(0, {library!r})
    from muster_models import durable, store
    from muster_models.models import main
    count = int(sys.argv[2])
    def end(function):
        def counted(*words, **more):
            global count
            count -= 1
            if count == 0:
                os._exit(9)
            return function(*words, **more)
        return counted
    for name in ("link", "symlink", "replace", "rename", "makedirs", "chmod", "fsync", "unlink"):
        setattr(os, name, end(getattr(os, name)))
    sys.exit(main(sys.argv[3:], sys.argv[1], pwd.getpwuid(os.geteuid()).pw_name))
"""


def test_a_model_whose_folder_can_t_be_made_is_not_published(
    store_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from muster_models import add as adding
    from muster_models.errors import ModelsError
    from muster_models.store import Store

    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        for path in ("ckpt", "ckpt/part"):
            archive.addfile(tarfile.TarInfo(path))
        end = tarfile.TarInfo("end")
        end.type = tarfile.DIRTYPE
        archive.addfile(end)
    stream.seek(0)
    store = Store(str(store_root))
    with pytest.raises(ModelsError, match="ckpt"):
        adding.from_archive(store, stream, "/home/ada/m", adding.Wanted(NAME, "mit", "ada"))
    assert list(store.provenances()) == []


def test_an_addition_killed_at_any_step_is_completed_by_the_next(
    models: Program, settings: Path, store_root: Path, folder: Path
) -> None:
    """Killed before each call that changes the file system, until one is not killed."""
    from model_library import LIBRARY

    script = textwrap.dedent(KILLED).format(library=str(LIBRARY))
    words = ["add", str(folder), "--name", NAME, "--licence", "mit"]
    for step in range(1, 100):
        done = subprocess.run(
            [sys.executable, "-S", "-c", script, str(settings), str(step), *words],
            env={**os.environ, "SUDO_USER": "ada"},
            capture_output=True,
            text=True,
            check=False,
        )
        # What a reader finds is whole, whenever it looks.
        for snapshot in snapshots(store_root):
            if not snapshot.name.startswith("."):
                assert (snapshot / "config.json").read_text() == '{"model_type": "bert"}'
                assert (snapshot / "tokenizer/vocab.txt").read_text() == "a\nb\n"
        main = store_root / "hub/models--lab--bert/refs/main"
        assert not main.exists() or (main.parent.parent / "snapshots" / main.read_text()).is_dir()
        if done.returncode == 0:
            break
        assert done.returncode == 9, done.stderr
        assert add(models, folder) == 0
        assert models("verify") == 0
        assert models("gc") == 0
        assert len(blobs(store_root)) == 2
        shutil.rmtree(store_root / "hub")
        assert models("gc") == 0
        assert blobs(store_root) == []
    else:
        pytest.fail("it never ended by itself")
    assert step > 15


def test_verify_names_the_file_that_differs_and_how_it_is_mended(
    models: Program, store_root: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert add(models, folder) == models("verify") == 0
    [snapshot] = snapshots(store_root)
    blob = (snapshot / "config.json").resolve()
    blob.chmod(0o644)
    blob.write_text('{"model_type": "BERT"}')
    capsys.readouterr()
    assert models("verify", NAME) == 2
    [said] = capsys.readouterr().err.splitlines()
    assert f"{NAME}@{snapshot.name[:12]}: config.json differs: its SHA-256 is " in said
    assert f"remove {blob} and add {folder} again" in said
    blob.unlink()
    assert models("verify") == 2
    assert "config.json is missing" in capsys.readouterr().err
    assert add(models, folder) == models("verify") == 0
    assert blob.read_text() == '{"model_type": "bert"}'


def test_a_file_that_was_cut_short_is_replaced_by_the_next_addition(
    models: Program, store_root: Path, folder: Path
) -> None:
    assert add(models, folder) == 0
    blob = (snapshots(store_root)[0] / "config.json").resolve()
    blob.chmod(0o644)
    blob.write_text("{")
    assert add(models, folder) == models("verify") == 0


def test_verify_sees_a_lost_link(
    models: Program, store_root: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert add(models, folder) == 0
    [snapshot] = snapshots(store_root)
    shutil.rmtree(snapshot)
    assert models("verify") == 2
    assert "does not lead to its file" in capsys.readouterr().err
    assert add(models, folder) == models("verify") == 0


def test_verify_goes_on_after_a_file_that_the_disk_can_t_read(
    models: Program,
    store_root: Path,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from muster_models import digests

    assert add(models, folder) == 0
    [snapshot] = snapshots(store_root)
    broken = (snapshot / "config.json").resolve()
    other = (snapshot / "tokenizer/vocab.txt").resolve()
    other.chmod(0o644)
    other.write_text("x\ny\n")
    digests_of = digests.digests_of

    def read(path: str, *kinds: str, **more: Any) -> dict[str, str]:
        if Path(path) == broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return digests_of(path, *kinds, **more)

    monkeypatch.setattr(digests, "digests_of", read)
    assert models("verify") == 2
    said = capsys.readouterr().err
    assert "config.json can't be read (input/output error); remove " in said
    assert "vocab.txt differs: " in said


NO_FILES: dict[str, Callable[[Path], object]] = {
    "a FIFO": os.mkfifo,
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to a file": lambda path: path.symlink_to("/etc/passwd"),
    "a folder": Path.mkdir,
}
"""What somebody may have put in the place of a file of the store, before root reads it."""


@pytest.fixture
def opens_files_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if anything but a file or a folder is opened: of a watchdog that alone is too much."""
    real = os.open

    def opened(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        handle = real(path, flags, *rest, **more)
        kind = os.fstat(handle).st_mode
        assert flags & os.O_PATH or stat.S_ISREG(kind) or stat.S_ISDIR(kind), path
        return handle

    monkeypatch.setattr(os, "open", opened)


@pytest.mark.usefixtures("opens_files_alone")
@pytest.mark.parametrize("make", NO_FILES.values(), ids=NO_FILES)
def test_verify_opens_nothing_but_files(
    make: Callable[[Path], object],
    models: Program,
    store_root: Path,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert add(models, folder) == 0
    [snapshot] = snapshots(store_root)
    blob = store_root / "blobs" / (snapshot / "config.json").resolve().name
    blob.unlink()
    make(blob)
    assert models("verify") == 2
    said = capsys.readouterr().err
    assert (
        f"config.json can't be read (it is no file); remove {blob} and add {folder} again" in said
    )


@pytest.mark.usefixtures("opens_files_alone")
@pytest.mark.parametrize("command", ["list", "verify", "gc"])
@pytest.mark.parametrize("make", NO_FILES.values(), ids=NO_FILES)
def test_nor_does_any_command_in_the_place_of_a_provenance(  # noqa: PLR0917
    make: Callable[[Path], object],
    command: str,
    models: Program,
    store_root: Path,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert add(models, folder) == 0
    [provenance] = (store_root / "hub/models--lab--bert/provenance").iterdir()
    provenance.unlink()
    make(provenance)
    assert models(command) == 1
    said = capsys.readouterr().err
    assert f"{provenance} can't be read (it is no file); remove it and add the model again" in said


@pytest.mark.usefixtures("opens_files_alone")
@pytest.mark.parametrize("make", NO_FILES.values(), ids=NO_FILES)
def test_nor_does_list_in_the_place_of_a_branch(
    make: Callable[[Path], object], models: Program, store_root: Path, folder: Path
) -> None:
    assert add(models, folder) == 0
    ref = store_root / "hub/models--lab--bert/refs/main"
    ref.unlink()
    make(ref)
    assert models("list") == 0


@pytest.mark.usefixtures("opens_files_alone")
def test_nor_what_a_provenance_names_in_the_place_of_a_digest(
    models: Program, store_root: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert add(models, folder) == 0
    [provenance] = (store_root / "hub/models--lab--bert/provenance").iterdir()
    facts = json.loads(provenance.read_text())
    facts["files"][0]["sha256"] = "/dev/zero"
    provenance.write_text(json.dumps(facts))
    assert models("verify") == 2
    assert f"{facts['files'][0]['path']} can't be read (it is no file); " in capsys.readouterr().err


def test_verify_of_an_unknown_model_is_one_sentence(
    models: Program, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert add(models, folder) == 0
    assert models("verify", "lab/none") == 1
    assert "no model lab/none is in" in capsys.readouterr().err


def test_gc_removes_what_no_model_names_and_nothing_else(
    models: Program, store_root: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert add(models, folder) == 0
    (folder / "config.json").write_text("{}")
    assert add(models, folder, "lab/other") == 0
    shutil.rmtree(store_root / "hub/models--lab--other")
    (store_root / ".incoming/models--lab--gone").mkdir()
    (store_root / ".incoming/models--lab--gone/part").write_bytes(b"x" * 10)
    (store_root / "blobs/.muster-new.1.abc").write_bytes(b"x")
    capsys.readouterr()
    assert models("gc") == 0
    said = capsys.readouterr().out
    assert said.count("removed ") == 3
    assert len(blobs(store_root)) == 2
    assert models("verify") == 0
    assert models("gc") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "nothing was left over"


def test_gc_leaves_what_comes_now(
    models: Program, store_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from muster_models.store import Store

    store = Store(str(store_root))
    store.make()
    incoming = store_root / ".incoming/models--lab--bert"
    incoming.mkdir()
    with store.locked(NAME, None):
        assert models("gc") == 0
        assert incoming.exists()
    assert capsys.readouterr().out == "nothing was left over\n"
    assert models("gc") == 0
    assert not incoming.exists()
    assert capsys.readouterr().out.splitlines()[1:] == ["0 B are free again"]


def test_gc_removes_nothing_where_a_provenance_can_t_be_read(
    models: Program, store_root: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert add(models, folder) == 0
    [provenance] = (store_root / "hub/models--lab--bert/provenance").iterdir()
    provenance.write_text("{")
    assert models("gc") == 1
    assert f"{provenance} can't be read" in capsys.readouterr().err
    assert len(blobs(store_root)) == 2


def test_gc_removes_nothing_where_a_folder_can_t_be_read(
    models: Program,
    store_root: Path,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as one that a file system's error or an evicted client of CephFS hides."""
    assert add(models, folder) == 0
    lost = str(store_root / "hub/models--lab--bert/provenance")
    listed, is_folder = os.listdir, os.path.isdir

    def fails(path: str) -> list[str]:
        if path == lost:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return listed(path)

    monkeypatch.setattr(os, "listdir", fails)
    # As it answers of a folder that gives an error.
    monkeypatch.setattr(os.path, "isdir", lambda path: path != lost and is_folder(path))
    assert models("gc") == 1
    assert lost in capsys.readouterr().err
    assert len(list((store_root / "blobs").iterdir())) == 2


def test_two_writers_of_two_models_with_a_file_in_common(
    settings: Path, store_root: Path, folder: Path, models: Program
) -> None:
    from model_library import LIBRARY

    (folder / "model.bin").write_bytes(os.urandom(1 << 20))
    script = f"""
import os, pwd, sys
sys.path.insert(0, {str(LIBRARY)!r})
from muster_models.models import main
sys.exit(main(sys.argv[2:], sys.argv[1], pwd.getpwuid(os.geteuid()).pw_name))
"""
    running = [
        subprocess.Popen(
            [
                *(sys.executable, "-S", "-c", script, str(settings)),
                *("add", str(folder), "--name", name, "--licence=mit"),
            ],
            stdout=subprocess.DEVNULL,
        )
        for name in ("lab/a", "lab/b", "lab/a")
    ]
    assert [process.wait(timeout=60) for process in running] == [0, 0, 0]
    assert models("verify") == 0
    assert len(blobs(store_root)) == 3


def test_a_file_of_two_models_that_are_published_at_the_same_moment(
    store_root: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one is published while the first one is about to give a file its name."""
    from muster_models import add as adding
    from muster_models.store import Store

    store = Store(str(store_root))
    replace = os.replace
    second: list[str] = []

    def late(source: str, target: str) -> None:
        if Path(target).parent == Path(store.blobs) and not second:
            second.append(NAME)
            adding.from_folder(store, str(folder), adding.Wanted("lab/b", "mit", "lea"))
        replace(source, target)

    monkeypatch.setattr(os, "replace", late)
    adding.from_folder(store, str(folder), adding.Wanted("lab/a", "mit", "ada"))
    monkeypatch.undo()
    assert second
    for name in ("lab/a", "lab/b"):
        [snapshot] = snapshots(store_root, name)
        assert (snapshot / "config.json").read_text() == '{"model_type": "bert"}'
    assert len(blobs(store_root)) == 2


def test_a_model_of_others_that_can_t_be_read_does_not_make_an_addition_fail(
    models: Program, store_root: Path, folder: Path
) -> None:
    assert add(models, folder, "lab/other") == 0
    [provenance] = (store_root / "hub/models--lab--other/provenance").iterdir()
    provenance.write_text("{")
    assert add(models, folder) == 0


@pytest.mark.parametrize("command", ["add", "gc"])
def test_all_read_the_store_whatever_the_umask_of_who_made_it(
    models: Program, store_root: Path, folder: Path, command: str
) -> None:
    before = os.umask(0o077)
    try:
        assert (add(models, folder) if command == "add" else models("gc")) == 0
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in store_root.iterdir()}
    assert modes == {"hub": 0o755, "blobs": 0o755, ".incoming": 0o700, ".locks": 0o700}
    assert (store_root / "hub/version.txt").stat().st_mode & 0o777 == 0o644


def test_transformers_does_not_take_the_store_for_an_older_cache(
    models: Program, store_root: Path, folder: Path
) -> None:
    """With less than 1 there transformers 4 warns, at each import, that nothing will load."""
    assert add(models, folder) == 0
    assert int((store_root / "hub/version.txt").read_text()) == 1


def test_what_has_come_already_needs_no_room(
    store_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from muster_models.errors import ModelsError
    from muster_models.store import Store

    store = Store(str(store_root))
    store.make()
    incoming = Path(store.incoming(NAME))
    incoming.mkdir()
    (incoming / "part").write_bytes(b"x" * 600)
    # Of a model too: it takes no room of its own.
    (store_root / "blobs/0").write_bytes(b"x" * 600)
    (incoming / "borrowed").hardlink_to(store_root / "blobs/0")
    usage = shutil._ntuple_diskusage(2000, 1600, 400)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    store.refuse_without_room(1000, str(incoming))
    with pytest.raises(ModelsError, match="has 400 bytes free, and 401 have to come"):
        store.refuse_without_room(1001, str(incoming))


def test_a_host_without_a_store_says_where_one_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from muster_models.models import main

    assert main(["list"], str(tmp_path / "none.json")) == 1
    assert "work on a login node" in capsys.readouterr().err


def test_help_tells_sources_and_exit_codes(
    models: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        models("add", "--help")
    assert ended.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "gs://BUCKET/PREFIX" in said
    assert "Exit code 0: done." in said
    assert "--origin" not in said


# -- as the account that the store belongs to -----------------------------------------------------

SUDO = """\
#!/bin/sh
# Like sudo, but the person stays the same: the last words are the program and its.
while [ $# -gt 0 ]; do
    case $1 in
        --list) [ -z "$MAY_NOT" ]; exit ;;
        --*) shift ;;
        *) break ;;
    esac
done
shift
# As sudo's env_keep has it.
unset HF_TOKEN GOOGLE_OAUTH_ACCESS_TOKEN
export SUDO_UID=1000
exec {python} -S -c "$AS_ACCOUNT" "$@"
"""


@pytest.fixture
def other_owner(
    monkeypatch: pytest.MonkeyPatch, settings: Path, tmp_path: Path
) -> pytest.MonkeyPatch:
    """The store belongs to somebody else, as whom sudo runs the program."""
    from model_library import LIBRARY
    from muster_models import account

    sudo = tmp_path / "bin/sudo"
    sudo.parent.mkdir()
    sudo.write_text(SUDO.format(python=sys.executable))
    sudo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{sudo.parent}:{os.environ['PATH']}")
    monkeypatch.setenv(
        "AS_ACCOUNT",
        f"import os, pwd, sys; sys.path.insert(0, {str(LIBRARY)!r})\n"
        "from muster_models.models import main\n"
        f"sys.exit(main(sys.argv[1:], {str(settings)!r}, pwd.getpwuid(os.geteuid()).pw_name))",
    )
    monkeypatch.setattr(account, "owner", lambda *_: "muster-models")
    return monkeypatch


def test_a_person_s_folder_is_read_by_their_own_process(
    models: Program, store_root: Path, folder: Path, other_owner: pytest.MonkeyPatch
) -> None:
    assert add(models, folder) == 0
    [snapshot] = snapshots(store_root)
    assert (snapshot / "tokenizer/vocab.txt").read_text() == "a\nb\n"
    [path] = (store_root / "hub/models--lab--bert/provenance").iterdir()
    told = json.loads(path.read_text())
    assert (told["origin"], told["added_by"]) == (str(folder), "ada")


def test_the_account_reads_no_folder_for_a_member_who_calls_it_by_sudo(
    models: Program,
    store_root: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It can read what other processes of its own have, such as /proc/PID/environ."""
    with subprocess.Popen(["sleep", "60"], env={"HF_TOKEN": "hf_secret"}) as other:
        try:
            (folder / "weights.bin").symlink_to(f"/proc/{other.pid}/environ")
            monkeypatch.setenv("SUDO_UID", "1000")
            assert add(models, folder) == 1
        finally:
            other.kill()
    assert "is read by your own process and not by the account" in capsys.readouterr().err
    assert published(store_root) == []


@pytest.mark.parametrize(
    ("source", "variable"),
    [
        ("hf:lab/bert", "HF_TOKEN"),
        ("gs://lab-data/bert", "GOOGLE_OAUTH_ACCESS_TOKEN"),
    ],
)
def test_a_token_comes_by_a_pipe_and_is_in_no_variable_and_no_word(
    models: Program,
    other_owner: pytest.MonkeyPatch,
    tmp_path: Path,
    source: str,
    variable: str,
) -> None:
    """All processes of the account can read the variables of each."""
    seen = tmp_path / "seen"
    (tmp_path / "bin/sudo").write_text(SEES.format(seen=seen))
    other_owner.setenv(variable, "secret-of-ada")
    words = [] if source.startswith("hf:") else ["--name", NAME, "--licence", "mit"]
    assert models("add", source, *words) == 0
    came, shown = seen.read_text().split("\n", 1)
    assert came == "secret-of-ada"
    assert f"--token-comes -- {source}" in shown
    assert "secret-of-ada" not in shown


SEES = """\
#!/bin/sh
# Like sudo with the variables that it lets pass, and a program that writes down what it has.
[ "$2" = --user=muster-models ] || exit 1
[ "$3" = --list ] && exit
kept=$(sed -n 's/.*env_keep += "\\(.*\\)"/\\1/p' {{template}} | tr '\\n' ' ')
for name in HF_TOKEN GOOGLE_OAUTH_ACCESS_TOKEN; do
    case " $kept " in *" $name "*) ;; *) unset $name ;; esac
done
{{ head -n 1; echo "$@"; env; }} > {seen}
""".replace("{{template}}", str(TEMPLATE))


def test_the_account_asks_with_the_token_that_came(
    models: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    from muster_models import add as adding
    from muster_models.errors import ModelsError

    tokens: list[Any] = []

    def told(*words: Any) -> None:
        tokens.append(words[-1])
        raise ModelsError("that was all")

    monkeypatch.setattr(adding, "from_hub", told)
    monkeypatch.setattr(adding, "from_bucket", told)
    for source in ("hf:lab/bert", "gs://lab-data/bert"):
        monkeypatch.setattr(sys, "stdin", io.StringIO("secret-of-ada\n"))
        words = [] if source.startswith("hf:") else ["--name", NAME, "--licence", "mit"]
        assert models("add", "--token-comes", *words, "--", source) == 1
    of_hub, of_bucket = tokens
    assert of_hub == "secret-of-ada"
    assert of_bucket.headers() == {"Authorization": "Bearer secret-of-ada"}


def test_the_account_and_the_person_make_the_same_revision(
    models: Program, store_root: Path, folder: Path, other_owner: pytest.MonkeyPatch
) -> None:
    from muster_models import account

    assert add(models, folder) == 0
    other_owner.setattr(account, "owner", lambda *_: None)
    assert add(models, folder) == 0
    assert len(snapshots(store_root)) == 1


def test_a_folder_that_can_t_be_read_whole_is_not_published(
    models: Program,
    store_root: Path,
    folder: Path,
    other_owner: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (folder / "zz-broken").symlink_to("nowhere")
    assert add(models, folder) == 1
    assert "zz-broken is no file" in capfd.readouterr().err
    assert snapshots(store_root) == []


@pytest.mark.parametrize("files", [0, 1, 2])
def test_an_archive_that_ends_between_two_files_is_not_published(
    store_root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    """As where the person's process is killed. tarfile takes what has come for all of it."""
    from muster_models import add as adding
    from muster_models.errors import ModelsError
    from muster_models.store import Store

    stream = io.BytesIO()
    files_in = adding._files_in

    def some(path: str) -> Any:
        yield from itertools.islice(files_in(path), files)
        raise KeyboardInterrupt

    monkeypatch.setattr(adding, "_files_in", some)
    with pytest.raises(KeyboardInterrupt):
        adding.pack(str(folder), stream)
    stream.seek(0)
    wanted = adding.Wanted(NAME, "mit", "ada")
    with pytest.raises(ModelsError, match="did not come whole"):
        adding.from_archive(Store(str(store_root)), stream, str(folder), wanted)
    assert snapshots(store_root) == []


def test_what_sudo_runs_as_root_is_not_killed(
    models: Program,
    store_root: Path,
    folder: Path,
    other_owner: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A person may not, and the refusal hid why their folder can't be read."""

    def refused(_: Any) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    other_owner.setattr(subprocess.Popen, "kill", refused)
    (folder / "zz-broken").symlink_to("nowhere")
    assert add(models, folder) == 1
    said = capfd.readouterr().err
    assert "zz-broken is no file" in said
    assert "operation not permitted" not in said
    assert snapshots(store_root) == []


def test_who_may_not_add_is_told_whom_to_ask(
    models: Program,
    store_root: Path,
    folder: Path,
    other_owner: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    other_owner.setenv("MAY_NOT", "1")
    assert add(models, folder) == models("gc") == 1
    said = capsys.readouterr().err
    assert said.count("ada may not add models; an administrator adds you to the group") == 2


def test_nothing_is_written_for_whom_the_store_was_given_to(
    settings: Path, store_root: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On CephFS root of a node can: to root, with a link in it that leads into /etc."""
    from muster_models.models import main

    elsewhere = store_root.parent / "etc"
    elsewhere.mkdir()
    (store_root / "hub").symlink_to(elsewhere)
    words = ["add", str(folder), "--name", NAME, "--licence", "mit"]
    assert main(words, str(settings)) == main(["gc"], str(settings)) == 1
    said = capsys.readouterr().err
    assert said.count(f"error: {store_root} belongs to ") == 2
    assert "not to muster-models" in said
    assert list(elsewhere.iterdir()) == []
    assert [path.name for path in store_root.iterdir()] == ["hub"]
