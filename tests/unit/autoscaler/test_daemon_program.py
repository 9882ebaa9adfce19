"""`python -m muster.autoscaler` where it can't start: its error, and its exit status."""

import json

import pytest
from killed_daemon import metadata_server

from muster.autoscaler.__main__ import main
from muster.autoscaler.compute import metadata
from muster.autoscaler.settings import Settings, read
from muster.gcp.api import CloudError

NEEDED = {"cluster": "lab", "resume_timeout_s": 300}


@pytest.fixture
def settings(tmp_path):
    return tmp_path / "autoscaler.json"


def test_settings_are_read_with_their_defaults(settings):
    settings.write_text(json.dumps(NEEDED))
    assert read(settings) == Settings("lab", 300, "/var/spool/muster-autoscaler", "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "can't be read: [Errno 2] No such file"),
        ("{", "can't be read: Expecting property name"),
        ('{"cluster": "lab"}', "can't be read: Settings.__init__() missing"),
        (json.dumps(NEEDED | {"colour": 1, "zone": "a"}), "has unknown keys: colour, zone"),
    ],
)
def test_settings_that_cant_be_used_end_it_with_2(settings, caplog, text, message):
    if text is not None:
        settings.write_text(text)
    assert main(settings) == 2
    [record] = caplog.records
    assert record.message.startswith(f"{settings} {message}")
    assert record.message.endswith("; run site.yml")


def test_a_metadata_server_that_does_not_answer_ends_it_with_1(settings, caplog, monkeypatch):
    settings.write_text(json.dumps(NEEDED))
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")
    assert main(settings) == 1
    # The tries of the HTTP library are not said.
    [record] = caplog.records
    assert record.message.startswith("the metadata server does not answer: ")


def test_metadata_is_read_and_a_missing_value_is_an_error(monkeypatch):
    with metadata_server({"project/project-id": "demo"}) as address:
        monkeypatch.setenv("GCE_METADATA_HOST", address)
        assert metadata.read("project/project-id") == "demo"
        with pytest.raises(CloudError, match="the metadata server answers 404 to project/number"):
            metadata.read("project/number")
