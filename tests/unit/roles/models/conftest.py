"""The model store (roles/models/files), as a package, with an empty store and no pauses."""

import json
import os
import pwd
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import model_library  # noqa: F401 (makes muster_models importable)
import pytest
from small_hub import SmallHub, small_hub

# Of who runs the tests: a login for the hub or for Google must play no part.
for _name in ("HF_TOKEN", "HF_TOKEN_PATH", "HF_ENDPOINT", "GOOGLE_OAUTH_ACCESS_TOKEN"):
    os.environ.pop(_name, None)


@pytest.fixture
def store_root(tmp_path: Path) -> Path:
    path = tmp_path / "models"
    path.mkdir()
    return path


@pytest.fixture
def settings(tmp_path: Path, store_root: Path) -> Path:
    """The file that says where the store is."""
    path = tmp_path / "models.json"
    path.write_text(json.dumps({"path": str(store_root)}), encoding="utf-8")
    return path


@pytest.fixture
def models(settings: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """The program muster-models; it returns its exit code."""
    from muster_models.models import main

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SUDO_USER", "ada")
    return lambda *words: main(words, str(settings), pwd.getpwuid(os.geteuid()).pw_name)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that programs make, in seconds; they take no time."""
    made: list[float] = []
    sleep = time.sleep
    # Threads that other tests have left.
    others = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}

    def pause(seconds: float) -> None:
        (sleep if threading.get_ident() in others else made.append)(seconds)

    monkeypatch.setattr(time, "sleep", pause)
    return made


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, pauses: list[float], settings: Path) -> Iterator[SmallHub]:
    """A hub without models, as the client's own hub and the one of the settings."""
    from huggingface_hub import constants

    with small_hub() as server:
        said = json.loads(settings.read_text(encoding="utf-8"))
        settings.write_text(json.dumps({**said, "hub": server.url}), encoding="utf-8")
        # The client has read the variable when it was imported.
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(
            constants,
            "HUGGINGFACE_CO_URL_TEMPLATE",
            server.url + "/{repo_id}/resolve/{revision}/{filename}",
        )
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a model's files."""
    path = tmp_path / "trained"
    (path / "tokenizer").mkdir(parents=True)
    (path / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
    (path / "tokenizer/vocab.txt").write_text("a\nb\n", encoding="utf-8")
    return path
