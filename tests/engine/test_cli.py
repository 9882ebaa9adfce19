"""The source of the CLI: the installed one, one that is built once, or an error."""

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from muster_sandbox.engine import cli
from muster_sandbox.engine.home import (
    EXECUTABLE,
    PLUGIN,
    Provider,
    ProviderError,
    choose_provider,
    make_home,
)

ROOT = Path(__file__).parents[2]


def program(folder: Path, name: str, script: str) -> Path:
    """Put an executable into a folder."""
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


def ensure(folder: Path) -> cli.Pulumi:
    """Look for the CLI, with only `folder/bin` on the path."""
    return cli.ensure(str(folder / "bin"), folder / "cache", lambda _: None)


def fake_go(folder: Path, module: Path, *, then: str = "") -> None:
    """A fake `go` that counts its builds and makes a `pulumi` immediately."""
    (module / "python/cmd").mkdir(parents=True, exist_ok=True)
    (module / "python/cmd/pulumi-language-python-exec").write_text("runner\n")
    program(
        folder,
        "go",
        f"""case $1 in
build) echo build >> {folder}/builds; {then}
  while [ "$1" != -o ]; do shift; done; echo '#!/bin/sh' > "$2/pulumi"; chmod 755 "$2/pulumi";;
list) echo '{{"Dir": "{module}"}}';;
esac""",
    )


def test_an_installed_cli_of_the_sdks_minor_version_is_used(tmp_path):
    minor = cli.minor(cli.VERSION)
    there = program(tmp_path / "bin", "pulumi", f"echo v{minor}.99")
    pulumi = ensure(tmp_path)
    assert pulumi == cli.Pulumi(there, "installed")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("script", ["echo v3.1.0", "echo broken; exit 1"])
def test_another_one_is_left_alone_and_ours_is_built(tmp_path, script):
    program(tmp_path / "bin", "pulumi", script)
    fake_go(tmp_path / "bin", tmp_path / "sdk")
    pulumi = ensure(tmp_path)
    assert pulumi.origin == "built"
    assert sorted(path.name for path in pulumi.path.parent.iterdir()) == [
        "pulumi",
        "pulumi-language-python",
        "pulumi-language-python-exec",
        "pulumi-resource-pulumi-python",
    ]
    assert all(os.access(path, os.X_OK) for path in pulumi.path.parent.iterdir())


def test_two_that_want_it_at_once_build_it_once(tmp_path):
    fake_go(tmp_path / "bin", tmp_path / "sdk", then="sleep 0.3;")
    results = []
    threads = [threading.Thread(target=lambda: results.append(ensure(tmp_path))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(set(results)) == 1
    assert (tmp_path / "bin/builds").read_text() == "build\n"


def test_a_failed_build_leaves_nothing_and_says_why(tmp_path):
    fake_go(tmp_path / "bin", tmp_path / "sdk", then="echo no space left >&2; exit 1;")
    with pytest.raises(cli.NoPulumiError, match=r"go build .*\n.*no space left"):
        ensure(tmp_path)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [f"pulumi-{cli.VERSION}.lock"]


def test_what_a_killed_build_left_is_swept(tmp_path):
    fake_go(tmp_path / "bin", tmp_path / "sdk")
    left = tmp_path / "cache" / f"pulumi-{cli.VERSION}.abc"
    left.mkdir(parents=True)
    ensure(tmp_path)
    assert not left.exists()


def test_the_helpers_are_this_checkouts(tmp_path):
    fake_go(tmp_path / "bin", tmp_path / "sdk")
    helper = ensure(tmp_path).path.parent
    host = helper / "pulumi-language-python"
    host.write_text("of an older checkout")
    ensure(tmp_path)
    assert host.read_bytes() == cli.HELPERS["pulumi-language-python"].read_bytes()


def test_the_module_builds_the_sdks_version():
    module = (cli.MODULE / "go.mod").read_text()
    assert re.findall(r"pulumi/(?:pkg|sdk)/v3 v(\S+)", module) == [cli.VERSION] * 2


@pytest.mark.parametrize(("ci", "code", "word"), [("", 0, "1 skipped"), ("true", 1, "1 error")])
def test_without_pulumi_and_go_the_tests_are_left_out_but_not_in_ci(tmp_path, ci, code, word):
    (tmp_path / "home").mkdir()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rsE"),
            "tests/engine/test_engine.py::test_destroy_leaves_nothing_and_up_works_again",
        ],
        cwd=ROOT,
        env={"PATH": str(tmp_path), "HOME": str(tmp_path / "home"), "CI": ci},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert word in done.stdout
    minor = cli.minor(cli.VERSION)
    assert f"neither pulumi {minor} nor Go is installed; install one of them" in done.stdout
    assert "real provider: not run" in done.stdout


def test_the_provider_is_the_real_one_where_it_is_installed(tmp_path):
    home = {"PULUMI_HOME": str(tmp_path)}
    assert not choose_provider(home).real
    with pytest.raises(ProviderError, match="pulumi plugin install resource gcp"):
        choose_provider(home | {"PROVIDER": "real"})
    with pytest.raises(ProviderError, match="it is `real` or `stand-in`"):
        choose_provider(home | {"PROVIDER": "reel"})
    (tmp_path / "plugins" / PLUGIN).mkdir(parents=True)
    program(tmp_path / "plugins" / PLUGIN, "pulumi-resource-gcp", "")
    assert choose_provider(home).folder == tmp_path / "plugins" / PLUGIN
    assert choose_provider(home | {"PROVIDER": "real"}).real
    assert not choose_provider(home | {"PROVIDER": "stand-in"}).real


@pytest.mark.parametrize("real", [True, False], ids=["real", "stand-in"])
def test_a_plugin_is_a_folder_and_no_link_to_one(tmp_path, real: bool):
    """The engine reads the folder's entries, and a link is none of its plugins."""
    installed = tmp_path / "installed" / PLUGIN
    installed.mkdir(parents=True)
    program(installed, EXECUTABLE, "exit 3")
    make_home(tmp_path / "home", Provider(installed if real else None))
    with os.scandir(tmp_path / "home" / "plugins") as entries:
        found = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
    assert found == {PLUGIN: True}
    executable = tmp_path / "home" / "plugins" / PLUGIN / EXECUTABLE
    assert os.access(executable, os.X_OK)
    if real:
        assert subprocess.run([executable], check=False).returncode == 3
