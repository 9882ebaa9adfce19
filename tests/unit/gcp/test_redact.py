"""What a recording leaves out, and what it keeps."""

from base64 import b64encode
from typing import Any

import pytest

from muster.gcp import redact
from muster.gcp.redact import REDACTED

SECRET = "planted-7f3a91c2d4"  # noqa: S105
ENCODED = b64encode(SECRET.encode()).decode()
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFzWZ8Jb1Jm0cWb2Yk6pYxC4o0m1o8rJqf0nXq0Zb1aQ"

PLANTED: dict[str, Any] = {
    "a secret's version": {"payload": {"data": ENCODED, "dataCrc32c": SECRET}},
    "a token": {"access_token": SECRET, "token_type": "Bearer"},
    "a token of another name": {"identityToken": SECRET, "idToken": SECRET, "token": SECRET},
    "a JWT for a token": {"assertion": SECRET},
    "an account's key": {"privateKeyData": ENCODED, "private_key": SECRET},
    "a client": {"client_secret": SECRET, "clientSecret": SECRET},
    "a password": [{"rootPassword": SECRET, "passwd": {"of": [SECRET]}}],
    "a disk's key": {"diskEncryptionKey": {"rawKey": ENCODED, "rsaEncryptedKey": SECRET}},
    "another program's metadata": {"items": [{"key": "db-root", "value": SECRET}]},
    "people's keys": {"items": [{"key": "ssh-keys", "value": f"ada:{SECRET}"}]},
    "host keys": {"queryValue": {"items": [{"key": "ssh-ed25519", "value": SECRET}]}},
    "a console": {"contents": f"root password is {SECRET}"},
    "a key in a text": f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----",
    "a key that is cut": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{SECRET}",
    "a public key in a text": f"muster-people: {KEY} ada",
    "an access token in a text": f"curl: ya29.{SECRET}",
    "a header in a text": f"Authorization: Bearer {SECRET}",
    "a JWT in a text": f"eyJhbGciOiJSUzI1NiJ9.{ENCODED.rstrip('=')}.{SECRET}",
    "a password in a text": f'mysql: password={SECRET}; {{"token": "{SECRET}"}}',
    "a hash in a text": f"$6$rounds=5000$abc${SECRET.replace('-', '')}{'x' * 60}",
    "a URL": f"https://ada:{SECRET}@example.org/x",
    "a known one": {"description": f"it is known-{SECRET}"},
    "a known one as a name": {f"known-{SECRET}": 1},
}


@pytest.mark.parametrize("case", PLANTED)
def test_a_planted_secret_is_gone(case: str) -> None:
    shown = str(redact.value(PLANTED[case], [f"known-{SECRET}"]))
    for text in (SECRET, SECRET.replace("-", ""), ENCODED.rstrip("="), KEY.split(" ")[1]):
        assert text not in shown
    assert REDACTED in shown


def test_what_tells_how_google_answers_stays() -> None:
    found = {
        "name": "slurm10-munge-key",
        "selfLink": "https://www.googleapis.com/compute/v1/projects/p/zones/z/instances/i",
        "bindings": [{"role": "roles/owner", "members": ["user:ada@example.org"]}],
        "etag": "BwYx",
        "fingerprint": "abc=",
        "nextPageToken": "page2",
        "secrets": [{"name": "projects/1/secrets/slurm10-munge-key"}],
        "networkInterfaces": [{"accessConfigs": [{"type": "ONE_TO_ONE_NAT"}]}],
        "metadata": {
            "items": [
                {"key": "muster-bundle", "value": "gs://b/bundle-0.tar.gz"},
                {"key": "enable-oslogin", "value": "FALSE"},
            ]
        },
        "queryValue": {"items": [{"namespace": "muster", "key": "report", "value": "{}"}]},
        "error": {"code": 403, "message": "Required 'compute.instances.create' permission"},
        "operations": [None, True, 1.5],
    }
    assert redact.value(found) == found


def test_parameters_of_a_query() -> None:
    pairs = [("alt", "json"), ("filter", "a"), ("filter", "b"), ("key", SECRET)]
    pairs += [("access_token", SECRET), ("pageToken", "2"), ("secretId", "lab"), ("q", SECRET)]
    assert redact.query(pairs, [SECRET]) == {
        "alt": "json",
        "filter": "a, b",
        "key": REDACTED,
        "access_token": REDACTED,
        "pageToken": "2",
        "secretId": "lab",
        "q": REDACTED,
    }


def test_a_short_word_is_no_known_secret() -> None:
    assert redact.text("roles/owner", ["owner"]) == "roles/owner"
