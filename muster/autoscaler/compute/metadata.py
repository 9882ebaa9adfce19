"""Reads this VM's metadata: https://cloud.google.com/compute/docs/metadata/querying-metadata."""

import os

import urllib3

from muster.gcp.api import CloudError

TIMEOUT_S = 5.0
OK = 200

_http = urllib3.PoolManager(headers={"Metadata-Flavor": "Google"})


def read(path: str) -> str:
    """Return a value; `path` such as `project/project-id`.

    Raises:
        CloudError: it doesn't exist, or the server does not answer.

    """
    # The variable of Google's own libraries: google.auth.environment_vars.GCE_METADATA_HOST.
    host = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
    url = f"http://{host}/computeMetadata/v1/{path}"
    try:
        answer = _http.request("GET", url, timeout=TIMEOUT_S, retries=2)
    except urllib3.exceptions.HTTPError as error:
        raise CloudError(f"the metadata server does not answer: {error}") from error
    if answer.status != OK:
        raise CloudError(f"the metadata server answers {answer.status} to {path}")
    return answer.data.decode()
