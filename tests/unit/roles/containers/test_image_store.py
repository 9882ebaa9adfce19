"""Images in the store: pulled once, whole or not at all, and what goes wrong said in a sentence."""

import errno
import hashlib
import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from oci_images import layout

LIBRARY = Path(__file__).parents[4] / "roles/containers/files/usr/local/lib/muster"
REF = "docker.io/library/tool:1.2"
Program = Callable[..., int]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return layout(tmp_path / "source", b"layer", variables=("PATH=/opt/bin:/bin", "LANG=C"))


def said(capsys: pytest.CaptureFixture[str]) -> str:
    text = capsys.readouterr().err
    assert text.startswith("muster-container: ")
    assert text.count("\n") == 1
    return text


def test_an_image_is_pulled_once(
    program: Program, source: Path, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program("pull", REF) == 0
    assert capsys.readouterr().out == f"tool:1.2 is in {store} (0.00 GiB)\n"
    assert program("pull", REF) == 0
    assert "was already in" in capsys.readouterr().out
    copies = [line for line in (tmp_path / "calls").read_text().splitlines() if "copy" in line]
    assert len(copies) == 1
    assert copies[0].startswith(
        f"copy --quiet docker://docker.io/library/tool@{digest(source)} oci:/proc/self/fd/"
    )
    assert [path.name for path in store.iterdir()] == ["tool"]


def digest(source: Path) -> str:
    """Of what the stand-in for skopeo gives as the manifest."""
    return f"sha256:{hashlib.sha256((source / 'index.json').read_bytes()).hexdigest()}"


def test_the_list_says_where_images_came_from_when_and_by_whom(
    program: Program,
    source: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(source.parent)
    assert program("pull", REF) == 0
    assert program("pull", "oci:source", "tool:3") == 0
    capsys.readouterr()
    assert program("list") == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [line[:5] for line in lines] == [
        ["tool:1.2", "amd64", "0.00 GiB", f"docker://{REF}", digest(source)],
        ["tool:3", "amd64", "0.00 GiB", f"oci:{source}", digest(source)],
    ]
    for *_, when, who in lines:
        assert abs(datetime.fromisoformat(when) - datetime.now(UTC)) < timedelta(minutes=1)
        assert who == pwd.getpwuid(os.getuid()).pw_name


def test_a_broken_image_hides_no_other_and_can_be_removed(
    program: Program, source: Path, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a:1", "b:1"):
        assert program("pull", REF, name) == 0
    (store / "a/=1/index.json").unlink()
    # Who made it with something else says nothing of where it came from.
    (store / "b/=1/muster.json").write_text('{"source": "\\u001b[2J"}')
    capsys.readouterr()
    assert program("list") == 1
    out, err = capsys.readouterr()
    assert "muster-container: a:1:" in err
    assert out == "b:1\tamd64\t0.00 GiB\t-\t-\t-\t-\n"
    assert program("remove", "a:1") == 0
    assert [path.name for path in store.iterdir()] == ["b"]


def test_a_record_prints_no_control_characters(
    program: Program, source: Path, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program("pull", REF) == 0
    record = store / "tool/=1.2/muster.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"by": "\x1b[2J"}))
    capsys.readouterr()
    assert program("list") == 0
    assert capsys.readouterr().out.endswith("\t?[2J\n")


def test_an_image_and_its_names_print_no_control_characters(
    program: Program, source: Path, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who may pull can also make folders there, and images with any text in them."""
    assert program("pull", REF) == 0
    layout(store / "\x1b]0;name\x07/=1", b"layer")
    layout(store / "told/=\x1b]0;tag\x07", b"layer")
    layout(store / "kind/=1", b"layer", architecture="amd64\x1b]52;c;cm0gLXJmIH4K\x07")
    broken = store / "broken/=1"
    layout(broken, b"layer")
    (broken / "index.json").write_text('{"manifests": [{"digest": "\\u001b]0;digest\\u0007"}]}')
    capsys.readouterr()
    assert program("list") == 1
    out, err = capsys.readouterr()
    assert "kind:1\tamd64?]52;c;cm0gLXJmIH4K?\t" in out
    assert "?]0;digest?" in err
    lines = (out.replace("\t", "") + err).splitlines()
    assert len(lines) == 5
    assert [line for line in lines if not line.isprintable()] == []


def test_an_image_has_the_group_of_the_store(program: Program, source: Path, store: Path) -> None:
    store.chmod(0o2775)
    assert program("pull", REF) == 0
    assert (store / "tool/=1.2").stat().st_mode & stat.S_ISGID


def test_another_one_takes_its_place_only_when_it_is_asked_for(
    program: Program, source: Path, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from muster_containers import images

    assert program("pull", REF, "group/tool:1") == 0
    before = images.find("group/tool:1", str(store)).digest
    shutil.rmtree(source)
    layout(source, b"another layer")
    assert program("pull", "--again", REF, "group/tool:1") == 0
    assert images.find("group/tool:1", str(store)).digest != before
    assert program("remove", "group/tool:1") == 0
    assert list(store.iterdir()) == []


def test_a_name_leads_to_whole_images_at_every_moment(
    program: Program, source: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a link that rename(2) replaces: no moment without an image, and none with a half."""
    from muster_containers import images

    assert program("pull", REF, "tool:1") == 0
    first = images.find("tool:1", str(store))
    link = store / "tool/=1"
    assert link.is_symlink()
    assert not link.readlink().is_absolute()
    rename, seen = os.rename, []

    def renamed(old: str, new: str) -> None:
        seen.append(images.find("tool:1", str(store)).digest)
        rename(old, new)
        seen.append(images.find("tool:1", str(store)).digest)

    monkeypatch.setattr(os, "rename", renamed)
    shutil.rmtree(source)
    layout(source, b"another layer", variables=("KIND=new",))
    assert program("pull", "--again", REF, "tool:1") == 0
    now = images.find("tool:1", str(store))
    assert seen == [first.digest] * 3 + [now.digest]
    # Who has begun to read the version before goes on with it.
    assert images.read("tool:1", first.path) == first
    assert program("remove", "tool:1") == 0
    assert list(store.iterdir()) == []


def test_an_image_is_removed_from_a_full_disk(
    program: Program, source: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_: str) -> str:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    assert program("pull", REF) == 0
    monkeypatch.setattr(tempfile, "mkdtemp", full)
    assert program("pull", REF, "other:1") == 1
    assert program("remove", "tool:1.2") == 0
    assert list(store.iterdir()) == []


def test_a_version_goes_a_day_after_it_was_replaced(
    program: Program, source: Path, store: Path
) -> None:
    def versions() -> set[str]:
        return {path.name for path in (store / "tool").iterdir() if path.name.startswith(".=1=")}

    def a_day_later() -> None:
        for path in (store / "tool").iterdir():
            then = path.stat().st_mtime - 90000
            os.utime(path, (then, then))

    assert program("pull", REF, "tool:1") == 0
    first = versions()
    a_day_later()
    assert program("pull", "--again", REF, "tool:1") == 0
    assert program("pull", REF, "other:1") == 0
    assert first < versions()
    second = versions() - first
    a_day_later()
    assert program("pull", REF, "other:2") == 0
    assert versions() == second
    # A tag that begins with another one has nothing of it.
    assert program("pull", REF, "tool:1-x") == 0
    assert program("remove", "tool:1") == 0
    assert sorted(path.name for path in (store / "tool").iterdir())[1:] == ["=1-x"]


def test_members_of_the_group_may_change_each_other_s_images(
    program: Program, source: Path, store: Path
) -> None:
    (source / "blobs").chmod(0o755)
    store.chmod(0o2775)
    assert program("pull", REF) == 0
    version = (store / "tool/=1.2").resolve()
    folders = [version, *(path for path in version.rglob("*") if path.is_dir())]
    assert {path.stat().st_mode & 0o775 for path in folders} == {0o775}


def test_a_folder_where_a_link_belongs_is_a_sentence(
    program: Program, source: Path, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout(store / "tool/=1", b"layer")
    assert program("pull", "--again", REF, "tool:1") == 1
    assert "is a folder, where a link belongs: muster-container remove tool:1" in said(capsys)
    assert program("remove", "tool:1") == 0
    assert list(store.iterdir()) == []


@pytest.mark.parametrize("manifest", ['{"schemaVersion": 1}', "[]", ""])
def test_a_manifest_that_can_t_be_named_by_a_digest_is_copied_by_its_tag(
    program: Program, source: Path, tmp_path: Path, manifest: str
) -> None:
    (tmp_path / "bin/manifest").write_text(manifest)
    skopeo = tmp_path / "bin/skopeo"
    skopeo.write_text(skopeo.read_text().replace("source/index.json", "bin/manifest"))
    assert program("pull", REF) == 0
    assert f"copy --quiet docker://{REF} oci:" in (tmp_path / "calls").read_text()


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (
            "no image found in manifest list for architecture amd64, variant , OS linux",
            "has no image for this machine's architecture, amd64: name an image that is made for",
        ),
        ("dial tcp 192.0.2.1:443: i/o timeout", "does not answer: check the name"),
        ("dial tcp: lookup docker.oi: no such host", "does not answer: check the name"),
        ("reading manifest 9 in docker.io/library/tool: manifest unknown", "there is no image"),
        ("requested access to the resource is denied", "type `skopeo login REGISTRY`"),
        ("x509: certificate signed by unknown authority", "no certificate that this host trusts"),
        ("write /images/x: disk quota exceeded", "could not be read"),
    ],
)
def test_what_the_registry_says_is_a_sentence(
    program: Program,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    answer: str,
    sentence: str,
) -> None:
    (tmp_path / "answer").write_text(f'time="now" level=fatal msg="first"\nError: {answer}\n')
    assert program("pull", REF) == 1
    assert sentence in said(capsys)
    assert list((tmp_path / "images").iterdir()) == []


def test_a_registry_without_an_answer_is_given_up(
    program: Program,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from muster_containers import store

    monkeypatch.setattr(store, "ANSWER_S", 0.2)
    (tmp_path / "bin/skopeo").write_text("#!/bin/sh\nexec sleep 60\n")
    assert program("pull", REF) == 1
    assert "has not answered for 0.2 s: check the name" in said(capsys)


@pytest.mark.parametrize("word", ["disk quota exceeded", "no space left on device"])
def test_a_full_quota_is_a_sentence_and_leaves_nothing(
    program: Program, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], word: str
) -> None:
    (tmp_path / "bin/skopeo").write_text(
        f'#!/bin/sh\n[ "$1" = copy ] || exit 0\necho "Error: write x: {word}" >&2\nexit 1\n'
    )
    assert program("pull", REF) == 1
    assert f"{store} takes no more files" in said(capsys)
    assert list(store.iterdir()) == []


def test_an_image_for_another_architecture_does_not_come_in(
    program: Program, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout(tmp_path / "source", b"layer", architecture="s390x")
    assert program("pull", REF) == 1
    assert "is for linux/s390x and this host is linux/amd64: pull an image for amd64" in said(
        capsys
    )
    assert list(store.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["pull", "debian:12"], "names no registry: write it in full, such as docker.io/library"),
        (["pull", "oci-archive:/x.tar"], "name the image: muster-container pull SOURCE NAME:TAG"),
        (["pull", REF, "Tool:1"], '"Tool:1" is no name of an image'),
        (["pull", REF, "../tool:1"], '"../tool:1" is no name of an image'),
        (["pull", REF, "tool:"], '"tool:" is no name of an image'),
        (["remove", "tool:3"], "has no image tool:3 (muster-container list shows all)"),
    ],
)
def test_wrong_words_are_a_sentence(
    program: Program, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    assert program(*words) == 1
    assert sentence in said(capsys)


def test_other_tags_of_a_missing_image_are_named(
    program: Program, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program("pull", REF) == 0
    capsys.readouterr()
    assert program("remove", "tool") == 1
    assert "has no image tool:latest (there is tool:1.2): pull it on a login node" in said(capsys)


def test_a_store_of_somebody_else_is_a_sentence(
    program: Program,
    source: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refused(**_: str) -> str:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(tempfile, "mkdtemp", refused)
    assert program("pull", REF) == 1
    assert "can't be written (Permission denied): images are pulled on login" in said(capsys)


def test_half_an_image_is_a_sentence(program: Program, source: Path, store: Path) -> None:
    from muster_containers import images
    from muster_containers.errors import ContainerError

    assert program("pull", REF) == 0
    index = json.loads((store / "tool/=1.2/index.json").read_text())
    digest = index["manifests"][0]["digest"].removeprefix("sha256:")
    (store / "tool/=1.2/blobs/sha256" / digest).unlink()
    with pytest.raises(ContainerError, match=r"is no whole image, .* is missing: pull it again"):
        images.find("tool:1.2", str(store))


ENDED = """
import signal, sys
# A shell has one ignored in the background.
for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
    signal.signal(number, signal.SIG_DFL)
sys.path.insert(0, {library!r})
from muster_containers import main, settings
settings.read = lambda: settings.Settings({store!r}, (), None)
sys.exit(main.main(["pull", {ref!r}]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_pull_that_is_ended_leaves_no_files_and_no_skopeo(
    program: Program, store: Path, tmp_path: Path, number: signal.Signals
) -> None:
    process, skopeo = pulling(store, tmp_path)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert err == f"muster-container: ended by {number.name}\n"
    assert process.returncode == 128 + number
    assert list(store.iterdir()) == []
    until(lambda: not Path(f"/proc/{skopeo}").exists())


def test_a_pull_that_is_killed_leaves_no_skopeo(
    program: Program, store: Path, tmp_path: Path
) -> None:
    process, skopeo = pulling(store, tmp_path)
    process.kill()
    process.communicate(timeout=30)
    until(lambda: not Path(f"/proc/{skopeo}").exists())


def pulling(store: Path, tmp_path: Path) -> tuple[subprocess.Popen[str], int]:
    """Return a pull that waits for skopeo, and that one's number."""
    (tmp_path / "bin/skopeo").write_text(
        f'#!/bin/sh\n[ "$1" = copy ] || exit 0\necho $$ >{tmp_path}/pid.new\n'
        f"mv {tmp_path}/pid.new {tmp_path}/pid\nexec sleep 60\n"
    )
    words = ENDED.format(library=str(LIBRARY), store=str(store), ref=REF)
    process = subprocess.Popen([sys.executable, "-c", words], stderr=subprocess.PIPE, text=True)
    until((tmp_path / "pid").exists)
    return process, int((tmp_path / "pid").read_text())


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_who_ignores_a_signal_goes_on_and_handlers_are_as_before(
    program: Program, source: Path, tmp_path: Path
) -> None:
    """A pull with nohup goes on when its terminal is closed."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        skopeo = tmp_path / "bin/skopeo"
        skopeo.write_text(skopeo.read_text().replace("echo", "kill -HUP $PPID\necho", 1))
        assert program("pull", REF) == 0
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) is interrupt
    finally:
        signal.signal(signal.SIGHUP, before)


def test_an_archive_in_a_file_may_take_longer_than_a_registry(
    program: Program, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Skopeo unpacks it to read the manifest."""
    from muster_containers import store

    skopeo = tmp_path / "bin/skopeo"
    skopeo.write_text(skopeo.read_text().replace("echo", "sleep 0.5\necho", 1))
    monkeypatch.setattr(store, "ANSWER_S", 0.1)
    assert program("pull", f"oci-archive:{tmp_path}/image.tar", "tool:1") == 0


def test_nobody_else_enters_the_folder_that_a_pull_writes(
    program: Program, source: Path, store: Path, tmp_path: Path
) -> None:
    """A member of the group could put a link there that leads what is written to another file."""
    store.chmod(0o2775)
    skopeo = tmp_path / "bin/skopeo"
    skopeo.write_text(
        skopeo.read_text().replace("mkdir", f"stat -c %a {store}/.pull-* >{tmp_path}/mode\nmkdir")
    )
    assert program("pull", REF) == 0
    assert int((tmp_path / "mode").read_text(), 8) & 0o777 == 0o700
    version = (store / "tool/=1.2").resolve()
    assert version.stat().st_mode & 0o7777 == 0o2775


@pytest.mark.parametrize("trap", ["ln -s {victim} $0/image", "mkdir $0/image; {links}"])
def test_a_folder_in_the_place_of_the_one_that_a_pull_writes_leads_nowhere(
    program: Program, source: Path, store: Path, tmp_path: Path, trap: str
) -> None:
    """Members of the group may rename it: they write in the store, and it is not sticky."""
    victim = tmp_path / "victim"
    (victim / "private").mkdir(parents=True, mode=0o700)
    (victim / "index.json").write_text("theirs")
    links = f"ln -s {victim}/index.json $0/image/index.json; ln -s {victim} $0/image/blobs"
    attack = f"mv $0 $0.moved; mkdir -m 777 $0; {trap.format(victim=victim, links=links)}"
    skopeo = tmp_path / "bin/skopeo"
    skopeo.write_text(
        skopeo.read_text().replace("mkdir", f"sh -c '{attack}' {store}/.pull-*\nmkdir", 1)
    )
    store.chmod(0o2775)
    assert program("pull", REF) == 0
    assert sorted(path.name for path in victim.iterdir()) == ["index.json", "private"]
    assert (victim / "index.json").read_text() == "theirs"
    assert (victim / "private").stat().st_mode & 0o777 == 0o700
    index = store / "tool/=1.2/index.json"
    assert not index.is_symlink()
    assert index.read_text() == (source / "index.json").read_text()


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize("swap", ["link", "open", "other", "file"])
def test_nor_does_one_that_is_there_before_the_pull_has_opened_its_own(
    program: Program,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    swap: str,
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o700)
    make = tempfile.mkdtemp

    def swapped(prefix: str, dir: str) -> str:  # noqa: A002 (as mkdtemp calls it)
        path = Path(make(prefix=prefix, dir=dir))
        if swap == "open":
            path.chmod(0o777)
        if swap == "other":
            monkeypatch.setattr(os, "geteuid", lambda: 4711)
        if swap in ("link", "file"):
            path.rmdir()
        if swap == "link":
            path.symlink_to(victim)
        if swap == "file":
            path.touch(0o600)
        return str(path)

    monkeypatch.setattr(tempfile, "mkdtemp", swapped)
    assert program("pull", REF) == 1
    assert f"by somebody who may write in {tmp_path}/images: pull again" in said(capsys)
    assert list(victim.iterdir()) == []
    assert "copy" not in (tmp_path / "calls").read_text()


def test_images_in_a_store_of_one_person_are_that_person_s(
    program: Program, source: Path, store: Path
) -> None:
    """Other members of the group must not decide what runs with the person's files."""
    store.chmod(0o755)
    assert program("pull", REF, "group/tool:1") == 0
    assert [path for path in store.rglob("*") if path.lstat().st_mode & 0o020] == [
        store / "group/tool/=1"  # A link, whose mode says nothing.
    ]


def test_a_version_is_marked_as_replaced_before_it_is(
    program: Program, source: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else somebody who tidies at that moment removes one that jobs read."""
    assert program("pull", REF) == 0
    version = (store / "tool/=1.2").resolve()
    os.utime(version, (1, 1))
    rename = os.rename

    def renamed(old: str, new: str) -> None:
        if Path(old).is_symlink():
            assert version.stat().st_mtime > 1
        rename(old, new)

    monkeypatch.setattr(os, "rename", renamed)
    assert program("pull", "--again", REF) == 0


@pytest.mark.parametrize("words", [["pull", REF], ["list"], ["remove", "tool:1"]])
def test_a_store_that_is_not_there_is_a_sentence(
    program: Program,
    source: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
) -> None:
    assert program(*words, "--store", str(tmp_path / "nowhere")) == 1
    assert "nowhere is no folder that you reach (No such file or directory): make a" in said(capsys)
