# SPDX-License-Identifier: Apache-2.0
"""The cluster's secrets: made by the controller's first boot, read by every VM."""

import base64
import secrets
import string

from .cloud import Cloud, TroubleError

MUNGE_KEY_BYTES = 128
"""Length of a munge key; mungekey(8) makes 128, munged takes 32 to 1024."""
PASSWORD_CHARACTERS = 40
"""Letters and digits alone, so that no file format must quote it."""


def munge_key() -> str:
    """Return a new munge key, base64 in one line as the role munge takes it."""
    return base64.b64encode(secrets.token_bytes(MUNGE_KEY_BYTES)).decode()


def password() -> str:
    """Return a new password."""
    alphabet = string.ascii_letters + string.digits
    return "".join(secrets.choice(alphabet) for _ in range(PASSWORD_CHARACTERS))


class Keys:
    """The secrets in Secret Manager that a VM of a role works with."""

    def __init__(self, cloud: Cloud, project: str) -> None:
        self._cloud = cloud
        self._project = project
        self._added: set[str] = set()

    def read(self, cluster: str, role: str) -> dict[str, str]:
        """Return the secrets as site.yml takes them; the controller adds those without a version.

        Raises:
            TroubleError: one has no version yet, or Secret Manager does not give it.

        """
        makers = {"munge_key": munge_key}
        if role == "controller":
            makers["slurmdbd_password"] = password
        values = {}
        for name, make in makers.items():
            secret = f"{cluster}-{name.replace('_', '-')}"
            value = self._cloud.secret(self._project, secret)
            if value is None and role == "controller" and secret not in self._added:
                self._cloud.add_version(self._project, secret, make())
                # Once: what is not seen yet is waited for, not made again.
                self._added.add(secret)
                # Whatever is the latest now: another controller may have been as quick.
                value = self._cloud.secret(self._project, secret)
            if value is None:
                raise TroubleError(
                    f"the secret {secret} has no version yet; the controller's first boot adds it"
                )
            values[name] = value
        if role == "controller":
            # A person adds it, where the mail relay wants one.
            of_relay = self._cloud.secret(self._project, f"{cluster}-mail-password")
            if of_relay is not None:
                values["mail_password"] = of_relay
        return values
