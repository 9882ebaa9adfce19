"""Where the Pulumi engine works in a test: its folders, its environment, and the provider.

The provider is Google's own where its plugin is installed, else the test double; `PROVIDER=real`
or `PROVIDER=double` chooses. Both find the cloud by the same variables of the environment.
"""

import os
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from muster_sandbox.engine.cli import CACHE

PLUGIN = f"resource-gcp-v{metadata.version('pulumi-gcp')}"
"""The engine asks for the plugin of exactly the SDK's version."""

EXECUTABLE = "pulumi-resource-gcp"
PASSPHRASE = "only for stacks of tests"  # noqa: S105


class ProviderError(Exception):
    """PROVIDER asks for what isn't there."""


@dataclass(frozen=True)
class Provider:
    """Which provider a run uses; `folder` is the installed plugin of the real one."""

    folder: Path | None

    @property
    def real(self) -> bool:
        """Whether it is Google's own."""
        return self.folder is not None


def choose_provider(environment: Mapping[str, str] = os.environ) -> Provider:
    """Return the provider that PROVIDER names; without it the real one, if it is installed.

    Raises:
        ProviderError: PROVIDER=real, but the plugin isn't installed; or another word.

    """
    wish = environment.get("PROVIDER", "")
    home = Path(environment.get("PULUMI_HOME", Path.home() / ".pulumi"))
    folder = home / "plugins" / PLUGIN
    installed = (folder / EXECUTABLE).exists()
    if wish not in ("", "real", "double"):
        raise ProviderError(f"PROVIDER={wish}: it is `real` or `double`")
    if wish == "real" and not installed:
        version = metadata.version("pulumi-gcp")
        raise ProviderError(
            f"PROVIDER=real, but {folder} is not there: `pulumi plugin install resource gcp"
            f" {version}` installs it where the internet can be reached"
        )
    return Provider(folder if installed and wish != "double" else None)


def make_home(home: Path, provider: Provider) -> None:
    """Make a PULUMI_HOME with the provider's plugin in it."""
    target = home / "plugins" / PLUGIN
    target.parent.mkdir(parents=True)
    if provider.folder is not None:
        target.symlink_to(provider.folder)
        return
    target.mkdir()
    script = target / EXECUTABLE
    script.write_text(
        "#!/bin/sh\n"
        f"export MUSTER_DOUBLE_CACHE='{CACHE}'"
        f" MUSTER_DOUBLE_VERSION={metadata.version('pulumi-gcp')}\n"
        f"exec '{sys.executable}' -m muster_sandbox.provider\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)


ENDPOINTS = {
    "GOOGLE_CLOUD_BILLING_CUSTOM_ENDPOINT": "cloudbilling/v1/",
    "GOOGLE_COMPUTE_CUSTOM_ENDPOINT": "compute/beta/",
    "GOOGLE_IAM_BETA_CUSTOM_ENDPOINT": "iam/v1/",
    "GOOGLE_IAP_CUSTOM_ENDPOINT": "iap/v1/",
    "GOOGLE_RESOURCE_MANAGER_CUSTOM_ENDPOINT": "cloudresourcemanager/v1/",
    "GOOGLE_SECRET_MANAGER_CUSTOM_ENDPOINT": "secretmanager/v1/",
    "GOOGLE_SERVICE_USAGE_CUSTOM_ENDPOINT": "serviceusage/v1/",
    "GOOGLE_STORAGE_CUSTOM_ENDPOINT": "storage/v1/",
}
"""Settings of the provider -> paths of fakecloud."""


def cloud_environment(url: str, project: str, token: str = "owner") -> dict[str, str]:  # noqa: S107
    """Return what points provider and program at a fakecloud, and at nothing else.

    Args:
        url: of the server, without a slash at the end.
        project: its project.
        token: what stands for the caller.

    """
    return {
        **{name: f"{url}/{path}" for name, path in ENDPOINTS.items()},
        "GOOGLE_OAUTH_ACCESS_TOKEN": token,
        "GOOGLE_PROJECT": project,
        # The provider would ask Google itself for the list of regions.
        "PULUMI_GCP_SKIP_REGION_VALIDATION": "true",
        # Whatever else would go to Google ends here: fakecloud refuses to be a proxy and tells
        # which host was asked for. Plain http to 127.0.0.1 takes no proxy.
        "HTTPS_PROXY": url,
        "NO_PROXY": "",
    }


def engine_environment(pulumi: Path, folder: Path) -> dict[str, str]:
    """Return what the engine needs, on top of nothing: no setting of a person gets in.

    Args:
        pulumi: the CLI.
        folder: a folder of the test's own; `make_home` made `folder/home`.

    """
    backend = folder / "backend"
    backend.mkdir(exist_ok=True)
    # Beside the interpreter lie this project's tools; the engine's helpers start with its Python.
    path = [
        str(Path(sys.executable).parent),
        str(pulumi.parent),
        os.environ.get("PATH", os.defpath),
    ]
    return {
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "PATH": os.pathsep.join(path),
        "PULUMI_BACKEND_URL": f"file://{backend}",
        "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
        "PULUMI_DEBUG_COMMANDS": "true",  # gives the commands --event-log
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "PULUMI_HOME": str(folder / "home"),
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }
