"""The real Pulumi engine, a provider, and a cloud for them."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from clusterkit import CLUSTER, ROOT, Definition, check_out
from fake_guests import Guests, Script
from gcloudkit import MISSING
from lifekit import OWNER, Life, Recorder
from stackkit import Stack

from muster_sandbox.engine import cli
from muster_sandbox.engine.home import (
    Provider,
    ProviderError,
    choose_provider,
    cloud_environment,
    engine_environment,
    make_home,
)
from muster_sandbox.fakecloud import Cloud, Settings
from muster_sandbox.fakecloud.server import Server
from muster_sandbox.provider.rest import Rest

GCLOUD = "tests/engine/test_gcloud.py"
PROGRAMS = Path(__file__).with_name("programs")
SETTINGS = {"gcp:pollInterval": "1s", "gcp:batching": '{"sendAfter":"0.1s"}'}
"""The stacks' settings: the provider's defaults of 10 s and 3 s only make tests slow."""

MEMORIES = {"compute.operations", "compute.requests", "compute.work"}
"""Kinds of fakecloud's store that record calls, not resources."""

ALWAYS_ASKED = {"openidconnect.googleapis.com:443"}
"""Google's provider always asks there for its identity; a refusal is harmless."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    left_out = terminalreporter.getreports("skipped")
    if any(report.nodeid.startswith(GCLOUD) for report in left_out):
        terminalreporter.write_line(f"gcloud: not run, {MISSING}")
    try:
        provider = choose_provider()
    except ProviderError:
        return  # each test has printed its own
    ran = any(terminalreporter.getreports(word) for word in ("passed", "failed"))
    if not (provider.real and ran):
        terminalreporter.write_line("real provider: not run")


@pytest.fixture(scope="session")
def pulumi() -> Path:
    """The CLI; without one the tests are skipped, but in CI they must run."""
    try:
        return cli.ensure().path
    except cli.NoPulumiError as error:
        sentence = f"the engine tests need the Pulumi CLI: {error}"
        if os.environ.get("CI") == "true":
            pytest.fail(sentence)
        pytest.skip(sentence)


@pytest.fixture(scope="session")
def provider() -> Provider:
    """The real provider, or the stand-in."""
    return choose_provider()


@pytest.fixture
def script() -> Script:
    """How the VMs of a cluster behave."""
    return Script()


@pytest.fixture
def fakecloud(script: Script) -> Iterator[Server]:
    """A cloud for one test."""
    server = Server(Settings(), backend=lambda fake, _url: Guests(fake, script)).start()
    yield server
    server.stop()
    assert server.cloud.failures == []
    assert set(server.cloud.refused_hosts) <= ALWAYS_ASKED


@pytest.fixture
def outside(fakecloud: Server) -> Iterator[httpx.Client]:
    """A client that reads and changes the cloud without Pulumi."""
    headers = {"Authorization": "Bearer owner"}
    with httpx.Client(base_url=fakecloud.url, headers=headers, trust_env=False) as client:
        yield client


@pytest.fixture
def contents(fakecloud: Server) -> Callable[[], set[tuple[str, str]]]:
    """All resources of the project: (kind, name)."""

    def look() -> set[tuple[str, str]]:
        def work(cloud: Cloud) -> set[tuple[str, str]]:
            store = cloud.store
            return {
                (kind, f"{scope}/{name}")
                for kind in store._kinds
                for scope, name, item in store.all(kind)
                # A deleted role stays for a while, marked as deleted.
                if kind not in MEMORIES and not item.get("deleted")
            }

        return fakecloud.do(work)

    return look


@pytest.fixture
def environment(
    tmp_path: Path, pulumi: Path, provider: Provider, fakecloud: Server
) -> dict[str, str]:
    """The environment of a Pulumi command."""
    make_home(tmp_path / "home", provider)
    return engine_environment(pulumi, tmp_path) | cloud_environment(
        fakecloud.url, fakecloud.cloud.settings.project
    )


@pytest.fixture
def new_stack(tmp_path: Path, pulumi: Path, environment: dict[str, str]) -> Callable[[str], Stack]:
    """Make a stack of a copy of one of the programs, so that a test may rewrite it."""

    def make(name: str) -> Stack:
        program = tmp_path / "program"
        shutil.copytree(PROGRAMS / name, program, ignore=shutil.ignore_patterns("__pycache__"))
        made = Stack(pulumi, program, "test", environment, tmp_path / "events")
        made.create(SETTINGS)
        return made

    return make


@pytest.fixture
def stack(new_stack: Callable[[str], Stack]) -> Stack:
    """The small program's."""
    return new_stack("small")


@pytest.fixture
def everything(new_stack: Callable[[str], Stack]) -> Stack:
    """The stack with one resource of each type."""
    return new_stack("everything")


@pytest.fixture
def definition(tmp_path: Path) -> Definition:
    """The definition for Muster's own program: a copy of the example that users start from."""
    folder = tmp_path / "inventory"
    shutil.copytree(ROOT / "inventories" / "cloud", folder)
    return Definition(folder / "group_vars" / "all" / "cluster.yml")


@pytest.fixture
def cluster(
    tmp_path: Path, pulumi: Path, environment: dict[str, str], definition: Definition
) -> Stack:
    """The stack of Muster's own program, which runs from a copy of the checkout."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    check_out(checkout)
    environment["PYTHONPATH"] = str(checkout)
    stack = Stack(pulumi, checkout / "pulumi", CLUSTER, environment, tmp_path / "events")
    stack.create(
        {
            **SETTINGS,
            "gcp:project": "demo-project",
            "muster:inventory": str(definition.inventory),
        }
    )
    return stack


@pytest.fixture
def life(fakecloud: Server) -> Iterator[Life]:
    """Resources made through the stand-in alone, against the test's own cloud."""
    environment = cloud_environment(fakecloud.url, OWNER)
    bases = [value for name, value in environment.items() if name.endswith("_ENDPOINT")]
    recorder = Recorder([*bases, fakecloud.url])
    config = {"zone": "europe-west4-a", "region": "europe-west4"}
    rest = Rest(
        {**config, "pollInterval": "1s", "batching": '{"sendAfter":"0.1s"}'},
        environment,
        transport=recorder,
    )
    yield Life(rest, recorder)
    rest.close()
