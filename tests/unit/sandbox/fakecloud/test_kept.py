"""The digest of first boots, and which kept ones are removed."""

import os
from pathlib import Path
from typing import Any

import pytest

from muster_sandbox.fakecloud.backends import kept, machine
from muster_sandbox.fakecloud.backends.kept import Kept, Left

BASE = "localhost/debian:1"


def instance(**changes: Any) -> dict[str, Any]:
    items = {"startup-script": "#!/bin/sh\n", "bundle": "gs://b/image-1"} | changes.get("items", {})
    return {
        "machineType": changes.get("machine_type", "zones/a/machineTypes/n1-standard-2"),
        "metadata": {"items": [{"key": k, "value": v} for k, v in items.items() if v is not None]},
        "serviceAccounts": changes.get("accounts", [{"email": "builder@x", "scopes": ["all"]}]),
        "disks": [
            {"source": f"disks/{number}", "diskSizeGb": changes.get("size", "10")}
            for number in range(changes.get("disks", 1))
        ],
    }


def test_machines_made_alike_have_one_digest(tmp_path: Path) -> None:
    some = Kept(tmp_path)
    assert some.digest(BASE, instance()) == some.digest(BASE, instance()) != ""
    turned = instance()
    turned["metadata"]["items"].reverse()
    assert some.digest(BASE, turned) == some.digest(BASE, instance())


@pytest.mark.parametrize(
    ("source", "changes"),
    [
        ("localhost/debian:2", {}),
        (BASE, {"items": {"startup-script": "#!/bin/bash\n"}}),
        (BASE, {"items": {"bundle": "gs://b/image-2"}}),
        (BASE, {"items": {"more": ""}}),
        (BASE, {"machine_type": "zones/a/machineTypes/n2-standard-2"}),
        (BASE, {"accounts": []}),
        (BASE, {"size": "20"}),
    ],
)
def test_what_makes_a_difference(tmp_path: Path, source: str, changes: dict[str, Any]) -> None:
    some = Kept(tmp_path)
    assert some.digest(source, instance(**changes)) != some.digest(BASE, instance())


def test_sources_make_a_difference(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.mkdir()

    def digest() -> str:
        return Kept(tmp_path, [program]).digest(BASE, instance())

    without = digest()
    (program / "__main__.py").write_text("a program")
    one = digest()
    (program / "__main__.py").write_text("another")
    assert len({without, one, digest(), Kept(tmp_path).digest(BASE, instance())}) == 3
    (program / "__pycache__").mkdir()
    (program / "__pycache__/main.pyc").touch()
    assert digest() not in {without, one}


@pytest.mark.parametrize("changes", [{"items": {"startup-script": None}}, {"disks": 2}])
def test_what_may_end_otherwise_is_not_kept(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert Kept(tmp_path).digest(BASE, instance(**changes)) == ""


@pytest.fixture
def images(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Podman's images, by name."""
    present: set[str] = set()

    def podman(*words: str) -> str:
        command, *rest = words
        if command == "tag":
            present.add(rest[1])
        else:
            assert (command, rest[0]) == ("rmi", "--ignore")
            present.discard(rest[1])
        return ""

    monkeypatch.setattr(kept, "podman", podman)
    monkeypatch.setattr(kept, "exists", lambda kind, name: kind == "image" and name in present)
    return present


def test_the_latest_are_kept_as_they_were(tmp_path: Path, images: set[str]) -> None:
    some = Kept(tmp_path)
    for number in range(kept.MOST + 2):
        left = Left("localhost/x", b"console\r\n\xff", {"a/b": {"value": str(number)}})
        some.keep(f"d{number}", left)
        os.utime(tmp_path / f"d{number}.json", (number, number))
    names = [f"d{number}" for number in range(2, kept.MOST + 2)]
    assert images == {f"{kept.NAME}:{name}" for name in names}
    assert sorted(path.stem for path in tmp_path.iterdir()) == names
    latest = some.find("d3")
    assert latest is not None
    assert latest.image == f"{kept.NAME}:d3"
    assert latest.guest_attributes == {"a/b": {"value": "3"}}
    note, _, console = latest.console.partition(b"\n")
    assert note.startswith(b"fakecloud: kept from 20")
    assert console == b"console\r\n\xff"


def test_what_is_used_stays(tmp_path: Path, images: set[str]) -> None:
    some = Kept(tmp_path)
    for number in range(kept.MOST):
        some.keep(f"d{number}", Left("localhost/x", b"", {}))
        os.utime(tmp_path / f"d{number}.json", (number, number))
    assert some.find("d0") is not None
    some.keep("new", Left("localhost/x", b"", {}))
    assert some.find("d0") is not None
    assert some.find("d1") is None


@pytest.mark.parametrize("text", ["", "{", "{}", "[]"])
def test_a_record_that_can_not_be_read_is_none(tmp_path: Path, images: set[str], text: str) -> None:
    some = Kept(tmp_path)
    some.keep("one", Left("localhost/x", b"", {}))
    (tmp_path / "one.json").write_text(text)
    assert some.find("one") is None
    some.keep("one", Left("localhost/x", b"", {}))
    assert some.find("one") is not None


def test_where_nothing_can_be_kept_the_cloud_goes_on(
    tmp_path: Path, images: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    Kept(tmp_path / "file/kept").keep("one", Left("localhost/x", b"", {}))
    assert "what a builder left is not kept in" in caplog.text


def test_what_lacks_its_image_or_its_record_is_made_again(tmp_path: Path, images: set[str]) -> None:
    some = Kept(tmp_path)
    for name in ("one", "two"):
        some.keep(name, Left("localhost/x", b"", {}))
    images.discard(f"{kept.NAME}:one")
    (tmp_path / "two.json").unlink()
    assert [some.find(name) for name in ("one", "two", "", "three")] == [None] * 4


@pytest.mark.parametrize("text", [b"", b"one\r\ntwo\r\n", b"a\rb\n\nlast", b"\xff\n"])
def test_a_console_is_read_as_it_was_written(tmp_path: Path, text: bytes) -> None:
    machine.write_console(tmp_path / "log", text)
    assert machine.console(tmp_path / "log") == text
