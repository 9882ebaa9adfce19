"""What the Pulumi engine runs with in a test: its folders, its environment, and the provider.

The provider is Google's own where its plugin is installed, else the stand-in; `PROVIDER=real`
or `PROVIDER=stand-in` chooses. Both find the cloud by the same environment variables.
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
    """PROVIDER names a provider that isn't there."""


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
        ProviderError: PROVIDER=real, but the plugin isn't installed; or an unknown word.

    """
    wish = environment.get("PROVIDER", "")
    home = Path(environment.get("PULUMI_HOME", Path.home() / ".pulumi"))
    folder = home / "plugins" / PLUGIN
    installed = (folder / EXECUTABLE).exists()
    if wish not in ("", "real", "stand-in"):
        raise ProviderError(f"PROVIDER={wish}: it is `real` or `stand-in`")
    if wish == "real" and not installed:
        version = metadata.version("pulumi-gcp")
        raise ProviderError(
            f"PROVIDER=real, but {folder} is not there: `pulumi plugin install resource gcp"
            f" {version}` installs it where the internet can be reached"
        )
    return Provider(folder if installed and wish != "stand-in" else None)


def make_home(home: Path, provider: Provider) -> None:
    """Make a PULUMI_HOME with the provider's plugin in it.

    The engine follows a link to a plugin's executable, but it ignores a link to a plugin's folder:
    tryPlugin in Pulumi's sdk/go/common/workspace/plugins.go.
    """
    target = home / "plugins" / PLUGIN
    target.mkdir(parents=True)
    if provider.folder is not None:
        (target / EXECUTABLE).symlink_to(provider.folder / EXECUTABLE)
        return
    script = target / EXECUTABLE
    script.write_text(
        "#!/bin/sh\n"
        f"export MUSTER_PROVIDER_CACHE='{CACHE}'"
        f" MUSTER_PROVIDER_VERSION={metadata.version('pulumi-gcp')}\n"
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
    """Return the variables that make provider and program use a fakecloud, and nothing else.

    Args:
        url: of the server, without a slash at the end.
        project: its project.
        token: the caller's access token.

    """
    return {
        **{name: f"{url}/{path}" for name, path in ENDPOINTS.items()},
        "GOOGLE_OAUTH_ACCESS_TOKEN": token,
        "GOOGLE_PROJECT": project,
        # The provider would ask Google itself for the list of regions.
        "PULUMI_GCP_SKIP_REGION_VALIDATION": "true",
        # Any other call to Google fails: fakecloud refuses to be a proxy and records the host that
        # was asked for. Plain http to 127.0.0.1 uses no proxy.
        "HTTPS_PROXY": url,
        "NO_PROXY": "",
    }


def engine_environment(pulumi: Path, folder: Path) -> dict[str, str]:
    """Return the engine's whole environment, without any of the user's own settings.

    Args:
        pulumi: the CLI.
        folder: the test's folder; `make_home` made `folder/home`.

    """
    backend = folder / "backend"
    backend.mkdir(exist_ok=True)
    # This project's tools are beside the interpreter; the engine's helpers use its Python.
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
