"""Modules whose packages are missing on the host that builds are neither built nor published."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
StandIns = Callable[[Mapping[str, str]], str]

# As of two architectures, with a package that takes the place of an older one.
DPKG = r"""[ $# = 2 ] || exit 2
printf 'there\tamd64\tinstalled\t1.2-3\t\n'
printf 'removed\tamd64\tconfig-files\t1.2-3\told (= 1.2-3)\n'
printf 'tzdata\tall\tinstalled\t2025b-4\ttzdata-trixie\n'
printf 'dpkg\tamd64\tinstalled\t1.22.21\t\n'
printf 'libc6\tamd64\tinstalled\t2.41-12\t\n'
printf 'libc6\ti386\tinstalled\t2.41-12\t\n'
printf 'libfuse2t64\tamd64\tinstalled\t2.9.9-9\tlibfuse2 (= 2.9.9-9), fuse-library, there (= 7)\n'
"""

SAID = (
    " not installed on this host, which modules need to run here and where jobs run; run site.yml "
    "with `--tags lmod_install` and without `--limit`, which installs what is missing on all these "
    "hosts, then this again"
)


def wanted(module: str, folder: Path, *packages: str) -> dict[str, Any]:
    given: dict[str, Any] = {"packages": [*packages]}
    if module == "module_tree":
        return given | {"path": str(folder / "modules"), "cache": str(folder / "c"), "files": {}}
    return given | {"installations": [{"root": f"{folder}/x", "build": f"mkdir {folder}/x"}]}


@pytest.fixture
def path(stand_ins: StandIns) -> str:
    return stand_ins({"dpkg-query": DPKG, "muster-build": "touch $3"})


@pytest.mark.parametrize("module", ["module_tree", "software_build"])
@pytest.mark.parametrize(
    "packages",
    [
        ["away"],
        ["there", "away", "removed"],
        ["there=9.*"],
        ["there=7"],
        ["there:i386"],
        ["old"],
        ["libfuse2=2.10*"],
        ["libfuse2:i386"],
        ["fuse-library=2.9*"],
    ],
)
def test_a_missing_package_ends_the_task(
    run_module: Run, path: str, tmp_path: Path, module: str, packages: list[str]
) -> None:
    apps = tmp_path / "apps"
    apps.mkdir()
    done = run_module(module, wanted(module, apps, *packages), env={"PATH": path})
    lacking = [name for name in packages if name != "there"]
    assert done["msg"] == f"{', '.join(lacking)} {'are' if lacking[1:] else 'is'}{SAID}"
    assert not [*apps.iterdir()]


@pytest.mark.parametrize(
    "packages",
    [
        [],
        ["there"],
        ["there=1.2*"],
        ["there:amd64"],
        ["tzdata", "tzdata:amd64", "tzdata-trixie:amd64"],
        ["libc6", "libc6:i386"],
        ["libfuse2", "libfuse2=2.9.9*", "libfuse2:amd64", "fuse-library"],
    ],
)
def test_what_is_installed_is_asked_for_no_more(
    run_module: Run, path: str, tmp_path: Path, packages: list[str]
) -> None:
    done = run_module(
        "software_build", wanted("software_build", tmp_path, *packages), env={"PATH": path}
    )
    assert done["changed"]


@pytest.mark.parametrize("module", ["module_tree", "software_build"])
def test_a_check_warns_since_the_run_may_install_it_before(
    run_module: Run, path: str, tmp_path: Path, module: str
) -> None:
    given = wanted(module, tmp_path / "apps", "away")
    done = run_module(module, given, check=True, env={"PATH": path})
    assert not done.result.get("failed")
    assert f"away is{SAID}" in done.printed
