"""The daemon's settings: /etc/muster/autoscaler.json, which the role `autoscaler` writes."""

import json
from dataclasses import dataclass, fields
from pathlib import Path

SETTINGS = Path("/etc/muster/autoscaler.json")


class SettingsError(Exception):
    """The settings can't be used; the message is one sentence."""


@dataclass(frozen=True)
class Settings:
    """The keys of the file."""

    cluster: str
    """Value of the label muster-cluster; names of nodes begin with it and a hyphen."""
    resume_timeout_s: float
    """ResumeTimeout of slurm.conf: within it each node is up or released."""
    spool: str = "/var/spool/muster-autoscaler"
    """Folder for the requests of SLURM's programs."""
    compute_endpoint: str = ""
    """Address of Compute Engine, if it isn't Google's."""


def read(path: Path) -> Settings:
    """Read the settings.

    Raises:
        SettingsError: the file does not exist, or is wrong.

    """
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
        unknown = sorted(set(settings) - {field.name for field in fields(Settings)})
        if unknown:
            raise SettingsError(f"{path} has unknown keys: {', '.join(unknown)}; run site.yml")
        return Settings(**settings)
    except (OSError, ValueError, TypeError) as error:
        raise SettingsError(f"{path} can't be read: {error}; run site.yml") from error
