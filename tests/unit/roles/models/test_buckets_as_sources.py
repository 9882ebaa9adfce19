"""Files of buckets: fakecloud's, by its JSON API over HTTP."""

import base64
import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from broken_servers import told_server

from muster_sandbox.fakecloud import Settings
from muster_sandbox.fakecloud.server import Server

Program = Callable[..., int]
FILES = {
    "sets/train/a.tar": b"a" * 5000,
    "sets/train/b/c.tar": b"c" * 300,
    "sets/trainer.txt": b"another",
}


def client_of(server: Server) -> httpx.Client:
    """Return a client that is logged in."""
    owner = {"Authorization": "Bearer owner"}
    return httpx.Client(base_url=server.url, headers=owner, trust_env=False)


def make_bucket(server: Server, bucket: str) -> None:
    """Make a bucket."""
    with client_of(server) as client:
        project = {"project": "demo-project"}
        client.post("/storage/v1/b", params=project, json={"name": bucket}).raise_for_status()


def put(server: Server, bucket: str, name: str, content: bytes) -> None:
    """Put a file into a bucket."""
    with client_of(server) as client:
        client.post(
            f"/upload/storage/v1/b/{bucket}/o",
            params={"uploadType": "media", "name": name},
            content=content,
        ).raise_for_status()


@pytest.fixture(scope="module")
def google() -> Iterator[Server]:
    """A cloud with a bucket `lab-data`."""
    server = Server(Settings()).start()
    make_bucket(server, "lab-data")
    for name, content in {**FILES, "sets/train/folder/": b""}.items():
        put(server, "lab-data", name, content)
    yield server
    server.stop()
    assert server.cloud.failures == []


@pytest.fixture(autouse=True)
def _endpoint(google: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", google.url)
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "owner")


def stage(source: str, folder: Path) -> int:
    from muster_models.data import main

    return main(["stage", source, str(folder)])


def files_in(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("source", ["gs://lab-data/sets/train", "gs://lab-data/sets/train/"])
def test_what_is_below_a_prefix_comes_with_its_folders(tmp_path: Path, source: str) -> None:
    assert stage(source, tmp_path) == 0
    assert files_in(tmp_path) == {"a.tar": b"a" * 5000, "b/c.tar": b"c" * 300}


def test_one_file_of_a_bucket(tmp_path: Path) -> None:
    assert stage("gs://lab-data/sets/trainer.txt", tmp_path) == 0
    assert files_in(tmp_path) == {"trainer.txt": b"another"}


def test_a_whole_bucket(tmp_path: Path) -> None:
    assert stage("gs://lab-data", tmp_path) == 0
    assert files_in(tmp_path) == FILES


def test_a_second_run_brings_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stage("gs://lab-data/sets/train", tmp_path) == 0
    (tmp_path / "a.tar").write_bytes(b"b" * 5000)
    (tmp_path / "b/c.tar").unlink()
    assert stage("gs://lab-data/sets/train", tmp_path) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("2 of them came now")
    assert files_in(tmp_path) == {"a.tar": b"a" * 5000, "b/c.tar": b"c" * 300}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder of who stages, with a file that a member of the project would like to replace."""
    path = tmp_path / "home"
    path.mkdir()
    (path / "c.tar").write_text("own")
    return path


@pytest.mark.parametrize("of", ["nobody", "root"])
def test_a_link_in_the_place_of_a_folder_is_not_followed(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str], of: str
) -> None:
    """Each member of a project can put one into its folder."""
    link = tmp_path / "set/b"
    link.parent.mkdir()
    link.symlink_to(home)
    if of == "nobody":
        given_to_nobody(link)
    assert stage("gs://lab-data/sets/train", tmp_path / "set") == 1
    assert files_in(home) == {"c.tar": b"own"}
    [said] = capsys.readouterr().err.splitlines()
    assert said.startswith(f"error: {link} is a link of ")
    assert said.endswith("put a folder in its place, or name another folder to bring the files to")


@pytest.mark.parametrize("below", ["", "b"])
def test_nor_is_a_link_of_somebody_else_on_the_way_to_the_folder(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str], below: str
) -> None:
    link = tmp_path / "set"
    link.symlink_to(home.parent if below else home)
    given_to_nobody(link)
    assert stage("gs://lab-data/sets/train/b", link / below) == 1
    assert files_in(home) == {"c.tar": b"own"}
    assert f"error: {link} is a link of nobody, which is not" in capsys.readouterr().err


def test_one_s_own_link_to_the_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    (tmp_path / "set").symlink_to("large")
    assert stage("gs://lab-data/sets/train", tmp_path / "set/new") == 0
    assert (tmp_path / "large/new/b/c.tar").read_bytes() == b"c" * 300


def test_a_link_that_takes_the_place_of_a_folder_meanwhile_is_not_followed(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from muster_models import download

    copy = download._copy
    folder = tmp_path / "set/b"

    def swapped(*words: Any) -> None:
        copy(*words)
        if folder.exists():
            folder.rename(tmp_path / "moved")
            folder.symlink_to(home)

    monkeypatch.setattr(download, "_copy", swapped)
    stage("gs://lab-data/sets/train", tmp_path / "set")
    assert folder.is_symlink()
    assert files_in(home) == {"c.tar": b"own"}
    assert files_in(tmp_path / "moved") == {"c.tar": b"c" * 300}


def test_a_link_in_the_place_of_a_file_is_replaced(tmp_path: Path, home: Path) -> None:
    (home / "c.tar").write_bytes(b"c" * 300)
    (tmp_path / "set/b").mkdir(parents=True)
    link = tmp_path / "set/b/c.tar"
    link.symlink_to(home / "c.tar")
    assert stage("gs://lab-data/sets/train", tmp_path / "set") == 0
    assert not link.is_symlink()
    assert link.read_bytes() == b"c" * 300


def given_to_nobody(link: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make links of others")
    os.lchown(link, 65534, 65534)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("gs://lab-data/none", "gs://lab-data/none has no files"),
        ("gs://lab-none/x", "gs://lab-none/x is not there (404)"),
        ("gs://Lab/x", "is no address in a bucket"),
        ("gs://", "is no address in a bucket"),
    ],
)
def test_what_is_not_there_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str, says: str
) -> None:
    assert stage(source, tmp_path) == 1
    [said] = capsys.readouterr().err.splitlines()
    assert says in said


def test_who_may_not_read_a_bucket_is_told_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "stranger")
    assert stage("gs://lab-data/sets", tmp_path) == 1
    said = capsys.readouterr().err
    assert "the server refuses it (401)" in said or "the server refuses it (403)" in said


def test_a_model_comes_from_a_bucket(models: Program, store_root: Path) -> None:
    words = ["--name", "lab/set", "--licence", "proprietary"]
    assert models("add", "gs://lab-data/sets/train", *words) == models("verify") == 0
    [snapshot] = (store_root / "hub/models--lab--set/snapshots").iterdir()
    assert (snapshot / "b/c.tar").read_bytes() == b"c" * 300
    [told] = (store_root / "hub/models--lab--set/provenance").iterdir()
    assert json.loads(told.read_text())["origin"] == "gs://lab-data/sets/train"
    assert list((store_root / ".incoming").iterdir()) == []


def test_a_disk_that_gets_full_in_the_middle_keeps_nothing_of_the_model(
    models: Program,
    store_root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The first file is whole by then; it would stay until somebody runs gc."""
    from muster_models import download

    copy = download._copy
    calls = []

    def full(*words: Any) -> None:
        calls.append(words)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        copy(*words)

    monkeypatch.setattr(download, "_copy", full)
    words = ["--name", "lab/set", "--licence", "proprietary"]
    assert models("add", "gs://lab-data/sets/train", *words) == 1
    assert "no space left on device; what did not fit was removed" in capsys.readouterr().err
    assert list((store_root / ".incoming").iterdir()) == []
    assert models("add", "gs://lab-data/sets/train", *words) == models("verify") == 0


def test_an_object_without_a_digest_is_said_to_be_unchecked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was composed of parts has no MD5; fakecloud composes nothing."""
    item = {"name": "both", "size": "4", "generation": "1"}
    with told_server([(200, json.dumps({"items": [item]})), (200, "both")]) as (host, _):
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{host}")
        assert stage("gs://lab-data", tmp_path) == 0
    assert "has no digest in its bucket; its size alone is checked" in capsys.readouterr().err
    assert files_in(tmp_path) == {"both": b"both"}


def test_what_has_come_of_another_generation_is_not_continued(
    tmp_path: Path, google: Server, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    """Of what was composed of parts nothing but its generation says which one it is."""
    from muster_models import buckets, download

    # fakecloud composes nothing: the digest is taken from what it lists.
    source = buckets._source
    monkeypatch.setattr(buckets, "_source", lambda *of: source(*of)._replace(digest=None))
    copy = download._copy

    def cut(response: Any, stream: Any, progress: Any) -> None:
        stream.write(response.read(3000))
        raise download.ModelsError("cut")

    make_bucket(google, "lab-composed")
    put(google, "lab-composed", "x.bin", b"1" * 5000)
    monkeypatch.setattr(download, "_copy", cut)
    assert stage("gs://lab-composed", tmp_path) == 1
    put(google, "lab-composed", "x.bin", b"2" * 5000)
    monkeypatch.setattr(download, "_copy", copy)
    assert stage("gs://lab-composed", tmp_path) == 0
    assert (tmp_path / "x.bin").read_bytes() == b"2" * 5000


def gcloud_that_prints(folder: Path, *tokens: str) -> str:
    """Make a gcloud whose next logins have these tokens, the last one for ever; return its PATH."""
    for number, token in enumerate(tokens):
        (folder / f"token{number}").write_text(token)
    program = folder / "gcloud"
    program.write_text(f"#!/bin/sh\ncd {folder}; set -- token*; cat $1; [ $# = 1 ] || rm $1\n")
    program.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def test_a_login_that_runs_out_is_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOOGLE_OAUTH_ACCESS_TOKEN")
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", gcloud_that_prints(tmp_path / "bin", "first", "second"))
    items = {"items": [listed("m/a", b"one"), listed("m/b", b"two")]}
    answers = [(200, json.dumps(items)), (200, "one"), (401, ""), (200, "two")]
    with told_server(answers) as (host, _):
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{host}")
        assert stage("gs://lab-data/m", tmp_path / "set") == 0
    assert files_in(tmp_path / "set") == {"a": b"one", "b": b"two"}


def test_what_can_be_no_token_is_refused_and_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "secret\nsecret")
    with told_server([]) as (host, asked):
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{host}")
        assert stage("gs://lab-data/m", tmp_path / "set") == 1
        assert asked == []
    said = capsys.readouterr().err
    assert "GOOGLE_OAUTH_ACCESS_TOKEN holds no access token" in said
    assert "secret" not in said


def test_a_server_that_refuses_each_login_is_asked_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GOOGLE_OAUTH_ACCESS_TOKEN")
    (tmp_path / "bin").mkdir()
    tokens = [f"token {number}" for number in range(9)]
    monkeypatch.setenv("PATH", gcloud_that_prints(tmp_path / "bin", *tokens))
    items = {"items": [listed("m/a", b"one")]}
    with told_server([(200, json.dumps(items)), (401, "")]) as (host, asked):
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{host}")
        assert stage("gs://lab-data/m", tmp_path / "set") == 1
    assert len(asked) == 3
    assert "the server refuses it (401)" in capsys.readouterr().err


def test_a_login_that_can_not_be_renewed_is_one_sentence_and_what_has_come_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    items = {"items": [listed("m/a", b"one"), listed("m/b", b"two")]}
    answers = [(200, json.dumps(items)), (200, "one"), (401, "")]
    with told_server(answers) as (host, asked):
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{host}")
        assert stage("gs://lab-data/m", tmp_path) == 1
    assert len(asked) == 3
    assert "where the login has run out meanwhile, run it again" in capsys.readouterr().err
    assert files_in(tmp_path) == {"a": b"one"}


def listed(name: str, content: bytes, **more: str) -> dict[str, str]:
    """Return an object of a bucket as Google lists it."""
    md5 = base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()
    return {"name": name, "size": str(len(content)), "generation": "1", "md5Hash": md5} | more


def test_google_fails_for_a_while_and_lists_in_pages(
    models: Program, store_root: Path, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = {"items": [listed("m/a", b"one")], "nextPageToken": "second"}
    second = {"items": [listed("m/b", b"two")]}
    answers = [(429, ""), (200, json.dumps(first)), (500, ""), (200, json.dumps(second))]
    answers += [(503, ""), (200, "one"), (200, "two")]
    with told_server(answers) as (host, paths):
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{host}")
        assert models("add", "gs://lab-data/m", "--name", "lab/set", "--licence", "mit") == 0
    assert ["pageToken=second" in path for path in paths] == [False] * 2 + [True] * 2 + [False] * 3
    assert len(pauses) == 3
    [snapshot] = (store_root / "hub/models--lab--set/snapshots").iterdir()
    assert files_in(snapshot) == {"a": b"one", "b": b"two"}


@pytest.mark.parametrize(
    "answer",
    [
        "<html>Log in</html>",
        "[]",
        '{"items": "none"}',
        '{"items": [{"name": "m/a", "generation": "1"}]}',
        '{"items": [{"size": "3", "generation": "1"}]}',
        json.dumps({"items": [{"name": "m/a", "generation": "1", "size": "3 B"}]}),
        json.dumps({"items": [{"name": "m/a", "generation": "1", "size": "3", "md5Hash": "x"}]}),
    ],
)
def test_what_is_no_list_of_a_bucket_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str
) -> None:
    with told_server([(200, answer)]) as (host, _):
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{host}")
        assert stage("gs://lab-data/m", tmp_path / "set") == 1
    [said] = capsys.readouterr().err.splitlines()
    assert said.startswith(f"error: gs://lab-data/m: what http://{host} answers is no list of")
    assert said.endswith("look at the proxy on the way to it (https_proxy), and run it again")


def test_a_file_of_a_bucket_with_a_wrong_digest_is_refused_and_nothing_is_published(
    models: Program,
    store_root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answers = [(200, json.dumps({"items": [listed("m/a", b"one")]})), (200, "two")]
    with told_server(answers) as (host, _):
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{host}")
        assert models("add", "gs://lab-data/m", "--name", "lab/set", "--licence", "mit") == 1
    assert " has the md5 " in capsys.readouterr().err
    assert list((store_root / "blobs").iterdir()) == []
    assert not (store_root / "hub/models--lab--set").exists()


def test_a_name_that_leads_out_of_the_folder_is_refused(
    tmp_path: Path, google: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    make_bucket(google, "lab-evil")
    put(google, "lab-evil", "evil/../../x", b"x")
    assert stage("gs://lab-evil/evil", tmp_path / "data") == 1
    assert "can't be a path below a folder" in capsys.readouterr().err


def test_a_file_in_the_place_of_a_folder_is_refused_before_anything_comes(
    models: Program, store_root: Path, google: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    make_bucket(google, "lab-both")
    for name in ("m/ckpt", "m/ckpt-2", "m/ckpt/parts/1"):
        put(google, "lab-both", name, b"x")
    assert models("add", "gs://lab-both/m", "--name", "lab/set", "--licence", "mit") == 1
    [said] = capsys.readouterr().err.splitlines()
    assert said == (
        "error: gs://lab-both/m has a file 'ckpt' and a folder of that name, which a file system "
        "can't have both; rename one of them there"
    )
    assert list(store_root.iterdir()) == []


def test_the_metadata_server_gives_a_vm_s_token(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from muster_models import buckets

    monkeypatch.delenv("GOOGLE_OAUTH_ACCESS_TOKEN")
    monkeypatch.setenv("PATH", str(tmp_path))
    with told_server([(200, '{"access_token": "of-the-vm"}')]) as (host, _):
        monkeypatch.setenv("GCE_METADATA_HOST", host)
        assert buckets.token() == "of-the-vm"
    with told_server([(403, "")]) as (host, _):
        monkeypatch.setenv("GCE_METADATA_HOST", host)
        assert buckets.token() is None
