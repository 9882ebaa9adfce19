"""Models of the hub, with its own client, huggingface_hub, against a small hub."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Thread

import pytest
import yaml
from small_hub import CUT, Fault, SmallHub, commit, sibling, small_hub

Program = Callable[..., int]

WEIGHTS = b"weights " * 500
FILES = {"config.json": b'{"model_type": "bert"}', "model.safetensors": WEIGHTS}
NAME = "lab/bert"
SNAPSHOT = "hub/models--lab--bert/snapshots"


def read(store_root: Path, revision: str, path: str) -> bytes:
    return (store_root / SNAPSHOT / revision / path).read_bytes()


def test_a_model_is_in_the_cache_as_the_client_has_it(
    hub: SmallHub, models: Program, store_root: Path
) -> None:
    revision = hub.put(NAME, FILES | {"onnx/model.onnx": b"onnx" * 400})
    assert models("add", f"hf:{NAME}") == 0
    model = store_root / "hub/models--lab--bert"
    assert (model / "refs/main").read_text() == revision
    assert read(store_root, revision, "onnx/model.onnx") == b"onnx" * 400
    assert (model / "blobs").resolve() == store_root / "blobs"
    assert {path.stat().st_mode & 0o777 for path in (store_root / "blobs").iterdir()} == {0o444}
    assert list((store_root / ".incoming").iterdir()) == []


OFFLINE = """
    import json, sys
    from huggingface_hub import hf_hub_download, scan_cache_dir, snapshot_download
    path = snapshot_download("lab/bert")
    [model] = scan_cache_dir().repos
    print(json.dumps([path, hf_hub_download("lab/bert", "config.json"), model.repo_id,
                      model.size_on_disk, model.nb_files]))
"""


def as_reader(store_root: Path, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script as somebody who only reads, with what the profile sets."""
    profile = (
        Path(__file__).parents[4] / "roles/models/templates/etc/profile.d/65-muster-models.sh.j2"
    )
    text = profile.read_text(encoding="utf-8").replace("{{ models_path }}", str(store_root))
    home = store_root.parent / "home"
    home.mkdir(exist_ok=True)
    return subprocess.run(
        ["/bin/sh", "-c", f'{text}\nexec "$0" -c "$1"', sys.executable, textwrap.dedent(script)],
        env={
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            **variables,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_verify_says_how_the_same_revision_comes_again(
    hub: SmallHub, models: Program, store_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    revision = hub.put(NAME, FILES)
    assert models("add", f"hf:{NAME}") == 0
    blob = (store_root / SNAPSHOT / revision / "config.json").resolve()
    blob.unlink()
    hub.put(NAME, {**FILES, "config.json": b"{}"}, 2)
    assert models("verify") == 2
    source = f"hf:{NAME}@{revision}"
    assert f"config.json is missing; remove {blob} and add {source} again" in (
        capsys.readouterr().err
    )
    assert models("add", source) == models("verify") == 0
    main = store_root / "hub/models--lab--bert/refs/main"
    assert main.read_text() == revision


def test_the_client_reads_the_store_offline_without_writing(
    hub: SmallHub, models: Program, store_root: Path
) -> None:
    revision = hub.put(NAME, FILES)
    assert models("add", f"hf:{NAME}") == 0
    before = sorted(str(path) for path in store_root.rglob("*"))
    hub.asked.clear()
    done = as_reader(store_root, OFFLINE, HF_ENDPOINT=hub.url)
    assert done.returncode == 0, done.stderr
    path, config, name, size, files = json.loads(done.stdout.splitlines()[-1])
    assert path == str(store_root / SNAPSHOT / revision)
    assert Path(config).read_bytes() == FILES["config.json"]
    assert (name, size, files) == (NAME, sum(map(len, FILES.values())), 2)
    assert hub.asked == []
    assert sorted(str(path) for path in store_root.rglob("*")) == before
    assert not (store_root.parent / "home/.cache/huggingface/hub").exists()


def test_zsh_reads_the_profile_too() -> None:
    path = Path(__file__).parents[4] / "roles/models/vars/main.yml"
    files = {
        entry["dest"]: entry
        for entry in yaml.safe_load(path.read_text(encoding="utf-8"))["__models_settings"]
    }
    profile = next(dest for dest in files if dest.startswith("/etc/profile.d/"))
    assert f". {profile}" in files["/etc/zsh/zprofile"]["block"]["text"]


def test_a_model_that_is_not_in_the_store_is_not_looked_for_elsewhere(
    hub: SmallHub, models: Program, store_root: Path
) -> None:
    hub.put(NAME, FILES)
    assert models("add", f"hf:{NAME}") == 0
    hub.put("lab/other", FILES)
    script = "from huggingface_hub import snapshot_download; snapshot_download('lab/other')"
    done = as_reader(store_root, script, HF_ENDPOINT=hub.url)
    assert done.returncode == 1
    assert "HF_HUB_OFFLINE" in done.stderr


def test_what_is_told_of_a_model(
    hub: SmallHub, models: Program, store_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    revision = hub.put(NAME, FILES)
    assert models("add", f"hf:{NAME}") == 0
    path = store_root / f"hub/models--lab--bert/provenance/{revision}.json"
    told = json.loads(path.read_text(encoding="utf-8"))
    assert told["origin"] == f"hf:{NAME}@main of {hub.url}"
    assert told["licence"] == "apache-2.0"
    assert told["added_by"] == "ada"
    assert [file["path"] for file in told["files"]] == sorted(FILES)
    capsys.readouterr()
    assert models("list") == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["MODEL", "REVISION", "SIZE", "LICENCE", "ADDED", "BY", "FROM"]
    assert row.split()[:3] == [NAME, revision[:12], "main"]
    assert models("list", NAME) == 0
    assert told["files"][0]["sha256"] in capsys.readouterr().out


def test_a_model_that_is_there_does_not_come_again(
    hub: SmallHub, models: Program, store_root: Path
) -> None:
    hub.put(NAME, FILES)
    assert models("add", f"hf:{NAME}") == models("add", f"hf:{NAME}") == 0
    assert hub.downloads("model.safetensors") == 1


def test_a_newer_revision_takes_only_what_is_new_and_the_older_one_stays(
    hub: SmallHub, models: Program, store_root: Path
) -> None:
    first = hub.put(NAME, FILES)
    assert models("add", f"hf:{NAME}") == 0
    second = hub.put(NAME, FILES | {"config.json": b"{}"}, 2)
    assert models("add", f"hf:{NAME}") == 0
    assert hub.downloads("model.safetensors") == 1
    assert read(store_root, first, "config.json") == FILES["config.json"]
    assert read(store_root, second, "config.json") == b"{}"
    assert (store_root / "hub/models--lab--bert/refs/main").read_text() == second


def test_a_tag_and_a_commit_can_be_asked_for(
    hub: SmallHub, models: Program, store_root: Path
) -> None:
    first = hub.put(NAME, FILES)
    hub.put(NAME, {"config.json": b"{}"}, 2)
    hub.refs[NAME]["v1"] = first
    assert models("add", f"hf:{NAME}@v1") == 0
    refs = store_root / "hub/models--lab--bert/refs"
    # Programs that name no revision get the only one that is there.
    assert {path.name: path.read_text() for path in refs.iterdir()} == {"v1": first, "main": first}
    assert models("add", f"hf:{NAME}@{commit(2)}") == 0
    assert (refs / "main").read_text() == first
    assert read(store_root, commit(2), "config.json") == b"{}"


@pytest.mark.parametrize("status", [429, 500])
def test_a_hub_that_fails_for_a_while_is_asked_again(
    hub: SmallHub, models: Program, store_root: Path, status: int, pauses: list[float]
) -> None:
    revision = hub.put(NAME, FILES)
    hub.faults += [
        Fault("GET /api/", status, times=2),
        Fault("HEAD .*config.json", status, times=2),
        Fault("GET /cdn/", status, times=2),
    ]
    assert models("add", f"hf:{NAME}") == 0
    assert read(store_root, revision, "model.safetensors") == WEIGHTS
    assert pauses


@pytest.mark.parametrize("matches", ["GET /api/", "HEAD ", "GET /cdn/"])
@pytest.mark.parametrize("status", [429, 500])
def test_a_hub_that_goes_on_failing_is_one_sentence(  # noqa: PLR0917
    hub: SmallHub,
    models: Program,
    store_root: Path,
    pauses: list[float],
    capsys: pytest.CaptureFixture[str],
    status: int,
    matches: str,
) -> None:
    hub.put(NAME, FILES)
    hub.faults.append(Fault(matches, status, times=1000))
    assert models("add", f"hf:{NAME}") == 1
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(said) == 1
    assert f"the hub answers {status}, 3 times in a row; run it again later" in said[0]
    assert not (store_root / "hub/models--lab--bert").exists()
    assert sum(pauses) < 300
    assert len(hub.asked) < 40


def test_a_hub_that_asks_for_an_hour_is_not_waited_for(
    hub: SmallHub,
    models: Program,
    pauses: list[float],
    capsys: pytest.CaptureFixture[str],
) -> None:
    hub.put(NAME, FILES)
    hub.faults.append(Fault("GET /cdn/", 429, times=9, retry_after_s=3600))
    assert models("add", f"hf:{NAME}") == 1
    assert "the hub answers 429 and asks for 3600 s of pause" in capsys.readouterr().err
    assert max(pauses, default=0) < 60


def test_a_download_that_is_cut_off_goes_on(
    hub: SmallHub, models: Program, store_root: Path
) -> None:
    revision = hub.put(NAME, FILES)
    hub.faults.append(Fault("GET /cdn/", times=3))
    assert models("add", f"hf:{NAME}") == 0
    assert read(store_root, revision, "model.safetensors") == WEIGHTS
    # It goes on and does not begin again: else 600 bytes would never be 4,000.
    assert len(WEIGHTS) > 3 * CUT


@pytest.mark.parametrize("file", sorted(FILES))
def test_a_wrong_file_is_refused_and_nothing_is_published(
    hub: SmallHub,
    models: Program,
    store_root: Path,
    capsys: pytest.CaptureFixture[str],
    file: str,
) -> None:
    revision = hub.put(NAME, FILES)
    hub.faults.append(Fault(f"GET .*{file}", wrong=True))
    assert models("add", f"hf:{NAME}") == 1
    said = capsys.readouterr().err
    assert f"error: {file} of {NAME} has the " in said
    assert "nothing was published" in said
    assert not (store_root / "hub/models--lab--bert").exists()
    assert list((store_root / "blobs").iterdir()) == []
    # Another try brings the right one.
    assert models("add", f"hf:{NAME}") == 0
    assert read(store_root, revision, file) == FILES[file]


def test_who_may_not_see_a_model_is_told_what_to_do(
    hub: SmallHub,
    models: Program,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hub.put(NAME, FILES)
    hub.token = "hf_secret"  # noqa: S105
    assert models("add", f"hf:{NAME}") == 1
    said = capsys.readouterr().err
    assert "lab/bert is not on the hub, or is private" in said
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert models("add", f"hf:{NAME}") == 0
    assert "hf_secret" not in capsys.readouterr().err
    hub.gated = True
    assert models("add", f"hf:{NAME}") == 1
    assert "accept their terms on the hub" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("hf:lab/none", "lab/none is not on the hub"),
        (f"hf:{NAME}@v9", "has no such revision on the hub"),
        ("hf:lab/a/b", "can't be the name of a model"),
        ("hf:../../etc", "can't be the name of a model"),
        (f"hf:{NAME}@../../main", "is no branch, tag or commit"),
    ],
)
def test_what_is_not_there_is_one_sentence(
    hub: SmallHub,
    models: Program,
    capsys: pytest.CaptureFixture[str],
    source: str,
    says: str,
) -> None:
    hub.put(NAME, FILES)
    assert models("add", source) == 1
    said = capsys.readouterr().err
    assert says in said
    assert len(said.splitlines()) == 1


def test_a_file_that_leads_out_of_the_folder_is_refused(
    hub: SmallHub, models: Program, store_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.put(NAME, FILES | {"../../../evil": b"x"})
    assert models("add", f"hf:{NAME}") == 1
    assert "can't be a path below a folder" in capsys.readouterr().err
    assert not (store_root / "hub/models--lab--bert").exists()


@pytest.mark.parametrize("missing", ["size", "blobId"])
def test_a_hub_that_tells_no_sizes_or_no_digests_is_refused(
    hub: SmallHub,
    models: Program,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    missing: str,
) -> None:
    """A mirror may not know the parameter `blobs` of the request."""
    hub.put(NAME, {"config.json": b"{}"})
    entry = sibling("config.json", b"{}")
    monkeypatch.setattr("small_hub.sibling", lambda *_: entry | {missing: None})
    assert models("add", f"hf:{NAME}") == 1
    assert capsys.readouterr().err.splitlines() == [
        f"error: the hub does not tell size and digest of config.json of {NAME}, so it could not "
        "be checked; see models_hub_endpoint"
    ]


OUT = "../../../../../../outside"


@pytest.mark.parametrize(
    ("file", "status", "headers", "shown"),
    [
        ("config.json", 0, {"ETag": f'"{OUT}"'}, f"the ETag '\"{OUT}\"'"),
        ("config.json", 0, {"ETag": f'W/"{"a" * 41}"'}, "the ETag 'W/"),
        ("config.json", 0, {"ETag": '""'}, "the ETag '\"\"'"),
        ("model.safetensors", 0, {"X-Linked-Etag": f'"/{OUT}"'}, "the X-Linked-Etag '\"/.."),
        ("config.json", 0, {"X-Repo-Commit": OUT}, f"the X-Repo-Commit '{OUT}'"),
        # The client notes what is not there.
        (
            "config.json",
            404,
            {"X-Repo-Commit": OUT, "X-Error-Code": "EntryNotFound"},
            f"the X-Repo-Commit '{OUT}'",
        ),
    ],
)
def test_what_is_no_digest_becomes_no_path(  # noqa: PLR0917
    hub: SmallHub,
    models: Program,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    file: str,
    status: int,
    headers: dict[str, str],
    shown: str,
) -> None:
    hub.put(NAME, {file: FILES[file]})
    hub.faults.append(Fault("HEAD ", status, times=9, headers=headers))
    assert models("add", f"hf:{NAME}") == 1
    [said] = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
    assert said.startswith(f"error: {file} of {NAME}: {hub.url} sends {shown}")
    assert "which is no digest of 40 or 64 hexadecimal digits; nothing was published" in said
    assert hub.downloads(file) == 0
    assert not list(tmp_path.rglob("outside*"))


def test_a_redirect_to_another_server_has_a_digest(
    hub: SmallHub, models: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.put(NAME, {"config.json": FILES["config.json"]})
    headers = {"Location": hub.cdn, "X-Repo-Commit": commit(1), "ETag": f'"{OUT}"'}
    hub.faults.append(Fault("HEAD ", 302, times=9, headers=headers))
    assert models("add", f"hf:{NAME}") == 1
    assert f"{hub.url} sends the ETag " in capsys.readouterr().err


def test_a_redirect_on_the_same_server_needs_none(
    hub: SmallHub, models: Program, store_root: Path
) -> None:
    """A repository that was renamed; some servers give the text of such an answer an ETag."""
    revision = hub.put(NAME, {"config.json": FILES["config.json"]})
    there = f"/{NAME}/resolve/{revision}/config.json"
    headers = {"Location": there, "ETag": 'W/"41-page"'}
    hub.faults.append(Fault("HEAD ", 307, headers=headers))
    assert models("add", f"hf:{NAME}") == 0
    assert read(store_root, revision, "config.json") == FILES["config.json"]


def test_who_adds_does_not_choose_the_hub(
    hub: SmallHub,
    models: Program,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hub.put(NAME, FILES)
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.example.org/")
    assert models("add", f"hf:{NAME}") == 1
    assert capsys.readouterr().err == (
        f"error: HF_ENDPOINT names https://hub.example.org, and models of the hub come from "
        f"{hub.url}; unset HF_ENDPOINT, or ask an administrator to set models_hub_endpoint\n"
    )
    assert hub.asked == []
    monkeypatch.setenv("HF_ENDPOINT", f"{hub.url}/")
    assert models("add", f"hf:{NAME}") == 0


REFUSED_HUBS = [
    "",
    "http://hub.example.org",
    "http://127.0.0.1.example.org",
    "http://localhost@hub.example.org",
    "http://127.0.0.1:80@hub.example.org",
    "https://",
    "https:///models",
    "hub.example.org",
    "ftp://hub.example.org",
    "https://hub.example.org\n",
    "https://hub.example.org models",
]


@pytest.mark.parametrize("said", REFUSED_HUBS)
def test_a_hub_that_a_proxy_could_stand_in_for_is_refused(
    settings: Path, models: Program, capsys: pytest.CaptureFixture[str], said: str
) -> None:
    """sudo keeps http_proxy: who adds would choose the server of http://hub.example.org."""
    text = json.loads(settings.read_text(encoding="utf-8"))
    settings.write_text(json.dumps({**text, "hub": said}), encoding="utf-8")
    assert models("add", f"hf:{NAME}") == 1
    assert capsys.readouterr().err == (
        f"error: {settings} names {said!r} as the hub, and its address must begin with https://; "
        "ask an administrator to correct models_hub_endpoint\n"
    )
    # The models that are there need no hub.
    assert models("gc") == 0


ROLE = Path(__file__).parents[4] / "roles/models"


@pytest.mark.parametrize("said", [*REFUSED_HUBS, None])
def test_the_role_refuses_such_a_hub_too(said: "str | None") -> None:
    assert is_refused_by_the_role(said)


@pytest.mark.parametrize(
    "said",
    [
        "https://huggingface.co",
        "https://hub.example.org:8443/hf/",
        "http://127.0.0.1:8080",
        "http://localhost/hf",
        "http://[::1]:8080/",
    ],
)
def test_hubs_that_are_let_through(
    said: str, settings: Path, models: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    from muster_models import add, errors

    asked: list[str] = []

    def from_hub(_: object, endpoint: str, *_more: object) -> None:
        asked.append(endpoint)
        raise errors.ModelsError("enough")

    monkeypatch.setattr(add, "from_hub", from_hub)
    text = json.loads(settings.read_text(encoding="utf-8"))
    settings.write_text(json.dumps({**text, "hub": said}), encoding="utf-8")
    assert models("add", f"hf:{NAME}") == 1
    assert asked == [said.rstrip("/")]
    assert not is_refused_by_the_role(said)


def is_refused_by_the_role(said: "str | None") -> bool:
    """Whether the first task of the role's configuration fails for a hub."""
    from ansible.parsing.dataloader import DataLoader
    from ansible.template import Templar

    loader = DataLoader()  # type: ignore[no-untyped-call]
    tasks = loader.load_from_file(str(ROLE / "tasks/configure.yml"), trusted_as_template=True)
    hubs = loader.load_from_file(str(ROLE / "vars/main.yml"))["__models_hubs"]
    variables = {"__models_hubs": hubs, "models_hub_endpoint": said}
    assert "ansible.builtin.fail" in tasks[0]
    return bool(Templar(loader=loader, variables=variables).evaluate_conditional(tasks[0]["when"]))


@pytest.mark.parametrize(
    ("name", "no_proxy"),
    [
        ("http_proxy", {}),
        ("ALL_PROXY", {}),
        ("HTTP_PROXY", {"no_proxy": "a.example", "NO_PROXY": "b.example"}),
        ("http_proxy", {"no_proxy": "127.0.0.1.example, ,127.0.0.2"}),
    ],
)
def test_no_proxy_stands_in_for_a_hub_on_the_same_host(
    hub: SmallHub, settings: Path, store_root: Path, name: str, no_proxy: dict[str, str]
) -> None:
    revision = hub.put(NAME, FILES)
    with small_hub() as proxy:
        proxy.put(NAME, {"config.json": b"of the proxy"})
        process = started(settings, hub, "add", f"hf:{NAME}", **{name: proxy.url}, **no_proxy)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert proxy.asked == []
    assert read(store_root, revision, "config.json") == FILES["config.json"]


@pytest.mark.parametrize("path", ["etc/sudoers.d/60-muster-models.j2", "etc/muster/models.json.j2"])
def test_the_role_and_not_the_caller_says_which_hub_it_is(path: str) -> None:
    text = (Path(__file__).parents[4] / "roles/models/templates" / path).read_text(encoding="utf-8")
    assert "HF_ENDPOINT" not in text
    assert ("models_hub_endpoint" in text) == path.endswith(".json.j2")


PROGRAM = """
    import os, pwd, sys
    sys.path.insert(0, {library!r})
    from muster_models.models import main
    sys.exit(main(sys.argv[2:], sys.argv[1], pwd.getpwuid(os.geteuid()).pw_name))
"""


def started(
    settings: Path, hub: SmallHub, *words: str, **variables: str
) -> "subprocess.Popen[str]":
    """Start muster-models in a process of its own."""
    from model_library import LIBRARY

    script = textwrap.dedent(PROGRAM).format(library=str(LIBRARY))
    return subprocess.Popen(
        [sys.executable, "-c", script, str(settings), *words],
        # The settings name the hub.
        env={
            **{
                name: value
                for name, value in os.environ.items()
                if name != "HF_ENDPOINT" and not name.lower().endswith("_proxy")
            },
            **variables,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_model_comes_once_however_many_ask_at_the_same_time(
    hub: SmallHub, settings: Path, store_root: Path
) -> None:
    hub.put(NAME, FILES)
    hub.barrier = Barrier(3)
    running = [started(settings, hub, "add", f"hf:{NAME}") for _ in range(3)]
    ends = [process.communicate(timeout=60) for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], ends
    assert hub.downloads("model.safetensors") == hub.downloads("config.json") == 1
    assert len({out for out, _ in ends}) == 1


def test_after_a_kill_what_has_come_whole_stays_and_the_rest_comes(
    hub: SmallHub, settings: Path, store_root: Path, models: Program
) -> None:
    """It is killed while the hub has sent a part of the weights and no more comes."""
    revision = hub.put(NAME, FILES)
    reached = Barrier(2)

    class Hanging(dict[str, bytes]):
        """Files of which one does not come."""

        def __getitem__(self, key: str) -> bytes:
            if key == "model.safetensors" and not reached.broken:
                reached.wait(timeout=30)
                reached.wait(timeout=30)
            return super().__getitem__(key)

    hub.models[NAME][revision] = Hanging(FILES)
    process = started(settings, hub, "add", f"hf:{NAME}")
    reached.wait(timeout=30)
    process.kill()
    process.communicate(timeout=30)
    releaser = Thread(target=reached.abort)
    releaser.start()
    releaser.join()
    assert not (store_root / "hub/models--lab--bert").exists()
    hub.models[NAME][revision] = FILES
    assert models("add", f"hf:{NAME}") == 0
    assert hub.downloads("config.json") == 1
    assert read(store_root, revision, "model.safetensors") == WEIGHTS
    assert list((store_root / ".incoming").iterdir()) == []
