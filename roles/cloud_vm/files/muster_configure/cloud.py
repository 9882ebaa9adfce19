# SPDX-License-Identifier: Apache-2.0
"""Google Cloud for one VM: its metadata, and with the VM's identity objects and secrets."""

import base64
import binascii
import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

# The address needs no DNS: https://cloud.google.com/compute/docs/metadata/querying-metadata
METADATA = "http://169.254.169.254/computeMetadata/v1/"
STORAGE = "https://storage.googleapis.com/storage/v1/"
SECRETS = "https://secretmanager.googleapis.com/v1/"
FLAVOR = {"Metadata-Flavor": "Google"}

REQUEST_S = 30.0
DOWNLOAD_S = 120.0
# https://cloud.google.com/iam/docs/access-change-propagation
NOT_IN_FORCE = (
    "; the VM's account gets its rights in `pulumi up`, and they are in force some minutes later: "
    "this is tried again"
)
WAIT_S = 300
"""How long one request waits for a change before it is repeated: a connection may die unnoticed."""


class TroubleError(Exception):
    """What went wrong, in one sentence; may be over at the next try."""


class StatusError(TroubleError):
    """An answer that is an error."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Cloud:
    """The services that a VM asks; each address ends with a slash."""

    def __init__(
        self,
        metadata: str = METADATA,
        storage: str = STORAGE,
        secrets: str = SECRETS,
        opener: Callable[..., http.client.HTTPResponse] | None = None,
    ) -> None:
        """`opener`: what opens a urllib request, by default one without a proxy."""
        self.metadata = metadata
        self.storage = storage
        self.secrets = secrets
        # No proxy of the environment: the metadata server is on this machine.
        no_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._open = opener or no_proxy.open

    @classmethod
    def of_environment(cls) -> "Cloud":
        """The services at Google's addresses, or at those of these environment variables."""
        return cls(
            storage=os.environ.get("GOOGLE_STORAGE_CUSTOM_ENDPOINT", STORAGE),
            secrets=os.environ.get("GOOGLE_SECRET_MANAGER_CUSTOM_ENDPOINT", SECRETS),
        )

    def identity(self) -> tuple[str, str]:
        """Return this VM's name and its project."""
        name = self._ask("the metadata server", f"{self.metadata}instance/name", FLAVOR)
        project = self._ask("the metadata server", f"{self.metadata}project/project-id", FLAVOR)
        return name[0].decode(), project[0].decode()

    def attributes(self, etag: str | None = None) -> tuple[dict[str, str], str]:
        """Return the VM's attributes and their etag; with the last etag, when they have changed.

        After WAIT_S seconds without a change they come as they are.
        """
        address = f"{self.metadata}instance/attributes/?recursive=true&alt=json"
        timeout = REQUEST_S
        if etag is not None:
            address += f"&wait_for_change=true&last_etag={etag}&timeout_sec={WAIT_S}"
            timeout += WAIT_S
        text, headers = self._ask("the metadata server", address, FLAVOR, timeout=timeout)
        return _parsed("the metadata server", text), headers["ETag"]

    def tell(self, name: str, value: str) -> None:
        """Set a guest attribute, `namespace/key`."""
        address = f"{self.metadata}instance/guest-attributes/{name}"
        self._ask("the metadata server", address, FLAVOR, verb="PUT", body=value.encode())

    def download(self, bucket: str, name: str) -> bytes:
        """Return the bytes of an object."""
        address = f"{self.storage}b/{bucket}/o/{name}?alt=media"
        return self._ask("Cloud Storage", address, self._token(), timeout=DOWNLOAD_S)[0]

    def secret(self, project: str, name: str) -> str | None:
        """Return the latest version of a secret as text; None where there is no version."""
        address = f"{self.secrets}projects/{project}/secrets/{name}/versions/latest:access"
        try:
            text, _ = self._ask("Secret Manager", address, self._token())
        except StatusError as error:
            if error.status == 404:
                return None
            raise
        try:
            data = _parsed("Secret Manager", text)["payload"]["data"]
            return base64.b64decode(data, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError, LookupError, TypeError):
            # Without the cause: a traceback would show the secret.
            raise TroubleError(f"the secret {name} is no text; add a version that is") from None

    def add_version(self, project: str, name: str, value: str) -> None:
        """Add a version to a secret."""
        address = f"{self.secrets}projects/{project}/secrets/{name}:addVersion"
        body = {"payload": {"data": base64.b64encode(value.encode()).decode()}}
        headers = {**self._token(), "Content-Type": "application/json"}
        data = json.dumps(body).encode()
        self._ask("Secret Manager", address, headers, verb="POST", body=data)

    def _token(self) -> dict[str, str]:
        address = f"{self.metadata}instance/service-accounts/default/token"
        text, _ = self._ask("the metadata server", address, FLAVOR)
        try:
            token = _parsed("the metadata server", text)["access_token"]
        except (LookupError, TypeError) as error:
            raise TroubleError("the metadata server's answer has no access_token") from error
        return {"Authorization": f"Bearer {token}"}

    def _ask(
        self,
        who: str,
        address: str,
        headers: Mapping[str, str],
        *,
        verb: str = "GET",
        body: bytes | None = None,
        timeout: float = REQUEST_S,
    ) -> tuple[bytes, http.client.HTTPMessage]:
        """Return the bytes and headers of an answer.

        Raises:
            TroubleError: `who` does not answer, or with an error.

        """
        request = urllib.request.Request(address, body, dict(headers), method=verb)  # noqa: S310
        try:
            with self._open(request, timeout=timeout) as answer:
                return answer.read(), answer.headers
        except urllib.error.HTTPError as error:
            with error:
                said = _sentence(error.read().decode(errors="replace"))
            late = NOT_IN_FORCE if error.code == 403 else ""
            raise StatusError(f"{who} answers {error.code}: {said}{late}", error.code) from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise TroubleError(
                f"{who} does not answer: {reason or type(error).__name__}"
            ) from error


def _parsed(who: str, text: bytes) -> Any:
    """Return what an answer says as JSON.

    Raises:
        TroubleError: it is no JSON, such as an empty answer.

    """
    try:
        return json.loads(text)
    except ValueError as error:
        raise TroubleError(f"{who}: no JSON ({error})") from error


def _sentence(text: str) -> str:
    """Return an error's message: Google's, or the first line of what it is."""
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return text.strip().partition("\n")[0][:200]
