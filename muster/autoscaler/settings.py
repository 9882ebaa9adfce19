"""The daemon's settings: /etc/muster/autoscaler.json, which the role `autoscaler` writes."""

import json
from dataclasses import dataclass, fields
from pathlib import Path

SETTINGS = Path("/etc/muster/autoscaler.json")


class SettingsError(Exception):
    """Settings that can't be used; the message is one sentence."""


@dataclass(frozen=True)
class Settings:
    """The file's keys."""

    cluster: str
    """Value of the label muster-cluster; names of nodes begin with it and a hyphen."""
    resume_timeout_s: float
    """ResumeTimeout of slurm.conf: within it each node has its verdict."""
    spool: str = "/var/spool/muster-autoscaler"
    """Folder of SLURM's requests."""
    compute_endpoint: str = ""
    """Address of Compute Engine where it isn't Google's."""


def read(path: Path) -> Settings:
    """Read the settings.

    Raises:
        SettingsError: there are none, or they are wrong.

    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        unknown = sorted(set(found) - {field.name for field in fields(Settings)})
        if unknown:
            raise SettingsError(f"{path} has unknown keys: {', '.join(unknown)}; run site.yml")
        return Settings(**found)
    except (OSError, ValueError, TypeError) as error:
        raise SettingsError(f"{path} can't be read: {error}; run site.yml") from error
