"""The program of pulumi/ without an engine: what each resource is asked for."""

import json
import runpy
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml
from pulumi.runtime import MockCallArgs, MockResourceArgs, Mocks, set_all_config, set_mocks

from muster.gcp import bundle, preflight

ROOT = Path(__file__).parents[3]
PROJECT = "demo-project"


@dataclass
class Cloud(Mocks):
    """Records the resources that it is asked for, and answers with what the program reads."""

    made: dict[str, MockResourceArgs] = field(default_factory=dict)
    components: dict[str, str] = field(default_factory=dict)
    """Name -> type."""

    def new_resource(self, args: MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        if args.typ.startswith("muster:gcp:"):
            self.components[args.name] = args.typ
            return None, {}
        assert args.name not in self.made
        self.made[args.name] = args
        name = args.inputs.get("name", args.name)
        email = f"{args.inputs.get('accountId')}@{PROJECT}.iam.gserviceaccount.com"
        outputs = {
            "name": name,
            "selfLink": f"link/{name}",
            "email": email,
            "member": f"serviceAccount:{email}",
            "address": "10.10.0.2",
            "instanceId": f"number of {name}",
            "suffix": "abc123",
            "link": "projects/demo-project/global/images/slurm10-1",
        }
        if "namePrefix" in args.inputs:
            outputs["name"] = f"{args.inputs['namePrefix']}1"
        if args.typ.startswith("gcp:serviceaccount"):
            outputs["name"] = f"projects/{PROJECT}/serviceAccounts/{email}"
        if args.typ == "gcp:projects/iAMCustomRole:IAMCustomRole":
            outputs["name"] = f"projects/{PROJECT}/roles/{args.inputs['roleId']}"
        return f"id/{args.name}", {**outputs, **args.inputs}

    def call(self, args: MockCallArgs) -> dict[str, Any]:
        raise AssertionError(f"the program asks {args.token}")

    def inputs(self, name: str) -> dict[str, Any]:
        return dict(self.made[name].inputs)

    def kinds(self, part: str) -> list[str]:
        """Names of the resources whose type has a part."""
        return sorted(name for name, args in self.made.items() if part in args.typ)


@pytest.fixture
def inventory(tmp_path: Path) -> Callable[..., Path]:
    """Write the example cluster of inventories/cloud, changed."""

    def write(change: Callable[[dict[str, Any]], None] = lambda _: None) -> Path:
        source = ROOT / "inventories" / "cloud" / "group_vars" / "all" / "cluster.yml"
        whole = yaml.safe_load(source.read_text())
        change(whole["cluster"])
        file = tmp_path / "inventory" / "group_vars" / "all" / "cluster.yml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(whole))
        return tmp_path / "inventory"

    return write


@pytest.fixture
def program_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program's modules can be imported, as when it runs."""
    monkeypatch.syspath_prepend(str(ROOT / "pulumi"))


@pytest.fixture
def run(
    inventory: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, program_path: None
) -> Iterator[Callable[..., Cloud]]:
    """Run the program and return what it asked for."""
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "owner")
    monkeypatch.setattr(preflight, "problems", lambda *_: [])
    monkeypatch.setattr(bundle, "machine_bundle", lambda *_: b"machine")
    monkeypatch.setattr(bundle, "image_bundle", lambda *_: b"image")

    def program(
        change: Callable[[dict[str, Any]], None] = lambda _: None,
        stack: str = "slurm10",
        **config: str,
    ) -> Cloud:
        cloud = Cloud()
        settings = {
            "gcp:project": PROJECT,
            "muster:inventory": str(inventory(change)),
            **{key.replace("__", ":"): value for key, value in config.items()},
        }
        settings = {key: value for key, value in settings.items() if value}
        set_mocks(cloud, project="muster", stack=stack)
        set_all_config(settings)
        monkeypatch.setenv("PULUMI_CONFIG", json.dumps(settings))

        @pulumi.runtime.test
        def body() -> None:
            for name in [name for name in sys.modules if name.split(".")[0] == "components"]:
                del sys.modules[name]
            runpy.run_path(str(ROOT / "pulumi" / "__main__.py"), run_name="__main__")

        body()
        return cloud

    yield program
    set_all_config({})
