"""The boot program of nodes when answers are odd: it says so, waits, and is no node yet."""

import getpass
import json
from base64 import b64encode
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from broken_servers import told_server
from node_boot_kit import KEY, Threads
from waiting import until

FACTS: dict[str, Any] = {
    "instance": {
        "name": "lab-debug-3",
        "attributes": {"muster-cluster": "lab", "muster-hosts": '{"lab-controller": "10.0.0.2"}'},
        "networkInterfaces": [{"ip": "10.0.0.9"}],
    },
    "project": {"projectId": "demo"},
}
TOKEN = (200, '{"access_token": "t"}')


def answer(document: Any) -> tuple[int, str]:
    return 200, json.dumps(document)


def secret(key: bytes) -> tuple[int, str]:
    return answer({"payload": {"data": b64encode(b64encode(key)).decode()}})


def facts(**attributes: str) -> tuple[int, str]:
    """The metadata with other attributes."""
    present = FACTS["instance"]["attributes"]
    changed = present | {name.replace("_", "-"): value for name, value in attributes.items()}
    return answer(FACTS | {"instance": FACTS["instance"] | {"attributes": changed}})


def without(place: str, name: str) -> tuple[int, str]:
    return answer(
        FACTS | {place: {key: value for key, value in FACTS[place].items() if key != name}}
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("etc/munge", "run", "var/lib/extrausers"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "etc/hosts").write_text("127.0.0.1 localhost\n")
    return tmp_path


def node(module: ModuleType, root: Path, metadata: str, secrets: str) -> Any:
    addresses = (f"http://{metadata}/computeMetadata/v1/", f"http://{secrets}/v1/")
    return module.Node(str(root), *addresses, getpass.getuser())


ODD_METADATA = {
    "busy": ((503, "try again"), "the metadata server answers 503: try again"),
    "not there": ((404, ""), "the metadata server answers 404"),
    "empty": ((200, ""), "the metadata server: no JSON"),
    "half": ((200, '{"instance": {'), "the metadata server: no JSON"),
    "a list": ((200, "[]"), "the metadata has no instance.attributes"),
    "no attributes": (without("instance", "attributes"), "has no instance.attributes"),
    "no cluster": (facts(muster_cluster=""), "the metadata has no muster-cluster; run `pulumi up`"),
    "no name": (without("instance", "name"), "the metadata has no instance.name"),
    "no address": (without("instance", "networkInterfaces"), "has no instance.networkInterfaces.0"),
    "no project": (without("project", "projectId"), "the metadata has no project.projectId"),
    "hosts": (facts(muster_hosts="lab-controller"), "muster-hosts: no JSON"),
    "hosts as a list": (facts(muster_hosts="[]"), "muster-hosts can't be []"),
    "gpus": (facts(muster_gpus="two"), "muster-gpus: no JSON"),
    "mounts": (facts(muster_mounts="{}"), "muster-mounts can't be {}"),
    "local SSDs": (facts(muster_local_ssds="[1]"), "muster-local-ssds can't be [1]"),
}
ODD_SECRETS = {
    "busy": ((503, "try again"), "Secret Manager answers 503: try again"),
    "empty": ((200, ""), "Secret Manager: no JSON"),
    "no data": ((200, '{"payload": {}}'), "the answer of Secret Manager has no payload.data"),
    "no text": (answer({"payload": {"data": 5}}), "the secret lab-munge-key is no munge key"),
    "short": (secret(b"short"), "the secret lab-munge-key is no munge key"),
    "no version": ((404, ""), "the secret lab-munge-key has no version yet"),
}


def is_no_node(root: Path) -> bool:
    return not any((root / path).exists() for path in ("run/muster-node", "etc/munge/munge.key"))


def until_said(capfd: pytest.CaptureFixture, sentence: str) -> None:
    """Wait until the console has had the sentence."""
    seen: list[str] = []

    def said() -> bool:
        seen.append(capfd.readouterr().out)
        return sentence in "".join(seen)

    until(said, sentence)


@pytest.mark.parametrize("odd", ODD_METADATA)
def test_odd_metadata_are_said_and_waited_out(
    module: ModuleType, root: Path, odd: str, capfd: pytest.CaptureFixture, threads: Threads
):
    what, sentence = ODD_METADATA[odd]
    answers = [what]
    with told_server(answers) as (metadata, _), told_server([secret(KEY)]) as (secrets, _):
        boot = threads.begin(node(module, root, metadata, secrets).key)
        until_said(capfd, sentence)
        assert is_no_node(root)
        answers[:] = [facts(), TOKEN]
        boot.join(20)
        assert (root / "run/muster-node/slurmd").exists()


@pytest.mark.parametrize("odd", ODD_SECRETS)
def test_odd_secrets_are_said_and_waited_out(
    module: ModuleType, root: Path, odd: str, capfd: pytest.CaptureFixture, threads: Threads
):
    what, sentence = ODD_SECRETS[odd]
    answers = [what]
    with (
        told_server([facts(), TOKEN]) as (metadata, _),
        told_server(answers) as (secrets, _),
    ):
        boot = threads.begin(node(module, root, metadata, secrets).key)
        until_said(capfd, sentence)
        assert is_no_node(root)
        answers[:] = [secret(KEY)]
        boot.join(20)
    assert (root / "etc/munge/munge.key").read_bytes() == KEY


@pytest.mark.parametrize("odd", [(200, ""), (200, "[]"), (404, "no account")])
def test_an_odd_token_is_said(
    module: ModuleType,
    root: Path,
    odd: tuple[int, str],
    capfd: pytest.CaptureFixture,
    threads: Threads,
):
    with (
        told_server([facts(), odd]) as (metadata, _),
        told_server([secret(KEY)]) as (secrets, asked),
    ):
        threads.begin(node(module, root, metadata, secrets).key)
        until_said(capfd, "fetch the munge key")
        assert asked == []
        assert is_no_node(root)
