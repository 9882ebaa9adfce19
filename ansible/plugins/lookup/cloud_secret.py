# SPDX-License-Identifier: Apache-2.0
"""A value from Google's Secret Manager, read with the rights of the person who runs the play."""

import subprocess
from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

DOCUMENTATION = r"""
name: cloud_secret
short_description: The latest version of a secret in Google's Secret Manager
description:
  - Asks C(gcloud), when the value is used. It is kept nowhere.
options:
  _terms:
    description: Names of secrets.
    required: true
  project:
    description: The project that has them.
    type: str
    required: true
"""

ASK_SECONDS = 60


class LookupModule(LookupBase):
    """Names -> values."""

    def run(
        self, terms: list[str], variables: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[str]:
        """Return the values of `terms`."""
        self.set_options(var_options=variables, direct=kwargs)
        return [value_of(name, self.get_option("project")) for name in terms]


def value_of(name: str, project: str) -> str:
    """Return the value of the secret `name`."""
    command = ["gcloud", "secrets", "versions", "access", "latest"]
    command += [f"--secret={name}", f"--project={project}", "--quiet"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ASK_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise AnsibleLookupError(
            f"the secret {name} is asked from gcloud, which is not installed here; install it as "
            "https://cloud.google.com/sdk/docs/install says"
        ) from None
    except subprocess.TimeoutExpired:
        raise AnsibleLookupError(
            f"gcloud did not tell the secret {name} within {ASK_SECONDS} s; see whether "
            "`gcloud auth list` answers"
        ) from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["(nothing)"])[-1]
        raise AnsibleLookupError(
            f"gcloud does not tell the secret {name} of {project}: {last}; it takes the role "
            "roles/secretmanager.secretAccessor, and a controller that has booted once"
        )
    return done.stdout.strip()
