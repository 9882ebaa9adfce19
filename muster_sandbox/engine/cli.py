"""Find a `pulumi` to run: the installed one if its version fits, else one built with Go.

The CLI is a Go module, so it can be built where no download page is reachable. What the module
lacks is put beside it: the language host for Python and the provider of `pulumi.dynamic` come
from this folder, the script that runs a program from the module of Pulumi's SDK.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

VERSION = metadata.version("pulumi")
"""The SDK's version; pyproject.toml and go.mod pin it, a test holds them together."""

CACHE = Path.home() / ".cache" / "muster"
MODULE = Path(__file__).parent
"""The folder of go.mod."""

HELPERS = {
    "pulumi-language-python": Path(__file__).with_name("language_host.py"),
    "pulumi-resource-pulumi-python": Path(__file__).with_name("dynamic_provider.py"),
}
"""Executables that the engine looks for beside the CLI."""

TOOL = "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
SDK = "github.com/pulumi/pulumi/sdk/v3"
BUILD_TIMEOUT = 1800
"""Seconds; a build takes 200 on two idle cores, downloads included."""


class NoPulumiError(Exception):
    """There is no `pulumi` and it can't be built; the sentence says what is missing."""


@dataclass(frozen=True)
class Pulumi:
    """An executable `pulumi` and where it came from."""

    path: Path
    origin: str
    """`installed` or `built`."""


def show(line: str) -> None:
    """Print progress where pytest and make show it at once."""
    print(line, file=sys.__stderr__, flush=True)


def ensure(
    search: str | None = None, cache: Path = CACHE, say: Callable[[str], None] = show
) -> Pulumi:
    """Return a CLI whose major and minor version are the SDK's, building it if necessary.

    Args:
        search: where to look for `pulumi` and `go`, as PATH; None: this process's PATH.
        cache: built ones are kept in `<cache>/pulumi-<version>/`.
        say: is called with lines about a build's progress.

    Raises:
        NoPulumiError: none is installed and Go is missing or could not build it.

    """
    installed = find_installed(search)
    if installed:
        return Pulumi(installed, "installed")
    folder = cache / f"pulumi-{VERSION}"
    if not (folder / "pulumi").exists():
        go = shutil.which("go", path=search)
        if go is None:
            raise NoPulumiError(
                f"neither pulumi {minor(VERSION)} nor Go is installed; install one of them"
            )
        cache.mkdir(parents=True, exist_ok=True)
        # Two runs at the same time build it once: the second waits, then uses the first one's.
        with (cache / f"pulumi-{VERSION}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "pulumi").exists():
                build(go, folder, say)
    install_helpers(folder)
    return Pulumi(folder / "pulumi", "built")


def minor(version: str) -> str:
    """Return `3.259` of `v3.259.0`."""
    return ".".join(version.strip().removeprefix("v").split(".")[:2])


def find_installed(search: str | None) -> Path | None:
    """Return the `pulumi` on the path, if it can be run and is of the SDK's minor version."""
    program = shutil.which("pulumi", path=search)
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env=os.environ | {"PULUMI_SKIP_UPDATE_CHECK": "true"},
        )
    except (OSError, subprocess.SubprocessError) as error:
        print(f"{program} is not used: {error}", file=sys.stderr)  # noqa: T201
        return None
    return Path(program).resolve() if minor(done.stdout) == minor(VERSION) else None


def build(go: str, folder: Path, say: Callable[[str], None]) -> None:
    """Build the CLI and put it with its helpers into `folder`, which appears when it is whole.

    Raises:
        NoPulumiError: Go failed; the message holds the end of what it said.

    """
    for left in folder.parent.glob(f"{folder.name}.*/"):  # left by a build that was killed
        shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as name:
        made = Path(name) / "whole"
        made.mkdir()
        say(f"building pulumi {VERSION} with Go, once for this machine (about 3 minutes)")
        version = f"-X {SDK}/go/common/version.Version={VERSION}"
        run_go(
            [go, "build", "-trimpath", "-ldflags", f"-s -w {version}", "-o", str(made), TOOL],
            say,
        )
        listed = run_go([go, "list", "-m", "-json", SDK], say)
        runner = Path(json.loads(listed)["Dir"]) / "python/cmd/pulumi-language-python-exec"
        shutil.copyfile(runner, made / runner.name)
        (made / runner.name).chmod(0o755)
        install_helpers(made)
        made.rename(folder)


def run_go(command: list[str], say: Callable[[str], None]) -> str:
    """Run Go at low priority in the module's folder and return what it printed.

    Raises:
        NoPulumiError: it failed or took longer than BUILD_TIMEOUT.

    """
    start = time.monotonic()
    with (
        tempfile.TemporaryFile("w+") as output,
        subprocess.Popen(
            ["nice", *command],
            cwd=MODULE,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
            env=os.environ | {"GOFLAGS": "-mod=readonly -buildvcs=false", "CGO_ENABLED": "0"},
        ) as process,
    ):
        try:
            while True:
                try:
                    printed, _ = process.communicate(timeout=20)
                    break
                except subprocess.TimeoutExpired:
                    elapsed = time.monotonic() - start
                    if elapsed > BUILD_TIMEOUT:
                        raise NoPulumiError(f"go took longer than {BUILD_TIMEOUT} s") from None
                    say(f"  still building after {elapsed:.0f} s")
        finally:
            process.kill()
        if process.returncode != 0:
            output.seek(0)
            raise NoPulumiError(f"{' '.join(command[:3])} failed:\n" + tail(output))
    return printed


def tail(lines: Iterable[str], count: int = 15) -> str:
    """Return the last lines of a log."""
    return "".join(list(lines)[-count:])


def install_helpers(folder: Path) -> None:
    """Put this checkout's helpers beside the CLI, whole at any moment."""
    for name, source in HELPERS.items():
        target, wanted = folder / name, source.read_bytes()
        if target.exists() and target.read_bytes() == wanted:
            continue
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(wanted)
        Path(file.name).chmod(0o755)
        Path(file.name).rename(target)


def main() -> int:
    """Print the path of `pulumi`, for Makefile and shell."""
    try:
        print(ensure().path)  # noqa: T201
    except NoPulumiError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
