"""Images in the store: pulled once, whole or not at all, and what goes wrong said in a sentence."""

import json
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from oci_images import layout

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
    assert copies[0].startswith(f"copy --quiet docker://{REF} oci:{store}/.pull-")
    assert [path.name for path in store.iterdir()] == ["tool"]
    assert program("list") == 0
    assert capsys.readouterr().out == "tool:1.2\tamd64\t0.00 GiB\n"


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
    program: Program, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program("pull", "--store", str(tmp_path / "nowhere"), REF) == 1
    assert "can't be written (No such file or directory): images are pulled on login" in said(
        capsys
    )


def test_half_an_image_is_a_sentence(program: Program, source: Path, store: Path) -> None:
    from muster_containers import images
    from muster_containers.errors import ContainerError

    assert program("pull", REF) == 0
    index = json.loads((store / "tool/=1.2/index.json").read_text())
    digest = index["manifests"][0]["digest"].removeprefix("sha256:")
    (store / "tool/=1.2/blobs/sha256" / digest).unlink()
    with pytest.raises(ContainerError, match=r"is no whole image, .* is missing: pull it again"):
        images.find("tool:1.2", str(store))
