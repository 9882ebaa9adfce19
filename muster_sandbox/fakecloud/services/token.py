"""The token endpoint, oauth2.googleapis.com/token: a signed JWT becomes an access token.

https://developers.google.com/identity/protocols/oauth2/service-account#httprest. The address of
this endpoint here (http://127.0.0.1:PORT/token) is the token_uri of the keys that services/iam.py
makes. Its errors are OAuth's, not those of Google's APIs: {"error": ..., "error_description": ...}.
"""

import json
from urllib.parse import parse_qs

from muster_sandbox.fakecloud import identity
from muster_sandbox.fakecloud.call import plain
from muster_sandbox.fakecloud.cloud import Cloud
from muster_sandbox.fakecloud.http import Reply, Request

JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"


@plain("POST", "/token")
def token(cloud: Cloud, request: Request) -> Reply:
    """Answer an access token, or OAuth's error with status 400."""
    form = {key: values[-1] for key, values in parse_qs(request.content.decode()).items()}
    kind = form.get("grant_type", "")
    if kind != JWT_BEARER:
        return _error("unsupported_grant_type", f"Invalid grant_type: {kind}")
    try:
        claims = identity.verified_claims(cloud, form.get("assertion", ""))
    except identity.JwtError as error:
        return _error("invalid_grant", str(error))
    if not str(claims.get("aud", "")).endswith("/token"):
        return _error("invalid_grant", "Invalid JWT: Failed audience check.")
    if "target_audience" in claims:
        return _error("unsupported_grant_type", "fakecloud issues no identity tokens for keys")
    scopes = str(claims.get("scope", "")).split()
    if not scopes:
        return _error("invalid_scope", "Invalid OAuth scope or ID token audience provided.")
    return _answer(
        200,
        {
            "access_token": identity.issue(cloud, claims["iss"], scopes),
            # One second less than its lifetime, as Google's answers say.
            "expires_in": identity.LIFETIME_SECONDS - 1,
            "token_type": "Bearer",
        },
    )


def _error(error: str, description: str) -> Reply:
    return _answer(400, {"error": error, "error_description": description})


def _answer(status: int, body: dict[str, str | int]) -> Reply:
    return Reply(
        json.dumps(body).encode(), status, {"content-type": "application/json; charset=utf-8"}
    )
