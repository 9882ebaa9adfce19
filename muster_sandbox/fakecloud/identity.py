"""The identity of a caller, from its bearer token.

Three kinds of tokens are accepted: the owner's, for people (GOOGLE_OAUTH_ACCESS_TOKEN, gcloud);
those that the token endpoint and the metadata server issued for service accounts, which expire; and
JWTs that an account signed itself, which Google's clients send where they have a key
(https://google.aip.dev/auth/4111). Everything else is 401.
"""

import base64
import hashlib
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from google.auth import crypt, jwt

from muster_sandbox.fakecloud import resource_names
from muster_sandbox.fakecloud.api_errors import ApiError, unauthenticated
from muster_sandbox.fakecloud.cloud import Cloud

OWNER_TOKEN = "owner"  # noqa: S105 (what people's tools send here; it opens nothing else)
TOKENS = "identity.tokens"
"""The store's kind of issued tokens; scope "", name: digest of the token."""
KEYS = "iam.keys"
"""The store's kind of account keys; scope: email, name: key id."""
LIFETIME_SECONDS = 3600
PURGED_AT_ONCE = 10
# https://developers.google.com/identity/protocols/oauth2/service-account: at most an hour; and
# Google allows for clocks that differ.
LONGEST_JWT_SECONDS = 3600
SKEW_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller. `scopes` are those of its token; None: limited by its roles alone."""

    email: str
    scopes: frozenset[str] | None = None

    @property
    def members(self) -> frozenset[str]:
        """The members in bindings that mean this caller."""
        return _members(self.email)


@lru_cache(maxsize=1024)
def _members(email: str) -> frozenset[str]:
    kind = "serviceAccount" if email.endswith(".gserviceaccount.com") else "user"
    domain = email.rpartition("@")[2]
    return frozenset({f"{kind}:{email}", f"domain:{domain}", "allUsers", "allAuthenticatedUsers"})


OWNER = Identity("owner@example.com")


class JwtError(Exception):
    """A JWT that proves nothing; the message is the token endpoint's error_description."""


def identify(cloud: Cloud, headers: Mapping[str, str]) -> Identity:
    """The identity behind the Authorization header; header names are lower case.

    Raises:
        ApiError: 401 for no token, an unknown or expired one, or an account that is deleted.

    """
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise unauthenticated(
            "Request is missing required authentication credential. Expected OAuth 2 access "
            "token, login cookie or other valid authentication credential."
        )
    if token == OWNER_TOKEN:
        return OWNER
    if token.count(".") == 2 and token.startswith("ey"):
        return _self_signed(cloud, token)
    issued = cloud.store.get(TOKENS, "", _digest(token))
    if issued is None or issued["expires"] <= cloud.clock.now():
        raise _refused()
    if not usable(cloud, issued["email"]):
        raise _refused()
    return Identity(issued["email"], frozenset(issued["scopes"]))


def _refused() -> ApiError:
    return unauthenticated(
        "Request had invalid authentication credentials. Expected OAuth 2 access token, login "
        "cookie or other valid authentication credential."
    )


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def issue(
    cloud: Cloud, email: str, scopes: Iterable[str], lifetime_seconds: float = LIFETIME_SECONDS
) -> str:
    """A new access token of a service account; expires in `lifetime_seconds`."""
    now = cloud.clock.now()
    # The oldest come first and, as most have the same lifetime, expire first.
    for name, token in list(islice(cloud.store.within(TOKENS, "").items(), PURGED_AT_ONCE)):
        if token["expires"] <= now:
            cloud.store.delete(TOKENS, "", name)
    new = f"ya29.{secrets.token_urlsafe(48)}"
    record = {"email": email, "scopes": sorted(scopes), "expires": now + lifetime_seconds}
    cloud.store.put(TOKENS, "", _digest(new), record)
    return new


def usable(cloud: Cloud, email: str) -> bool:
    """Whether a service account exists and is not disabled."""
    account = cloud.store.get(resource_names.ACCOUNTS, cloud.settings.project, email)
    return account is not None and not account.get("disabled", False)


def verified_claims(cloud: Cloud, token: str) -> dict[str, Any]:
    """The claims of a JWT that a service account's key signed.

    Raises:
        JwtError: it isn't signed by a key of its issuer, or has expired.

    """
    try:
        key_id = jwt.decode_header(token).get("kid", "")  # type: ignore[no-untyped-call]
        claims: dict[str, Any] = jwt.decode(token, verify=False)  # type: ignore[no-untyped-call]
    except ValueError as error:
        raise JwtError("Invalid JWT: Failed audience check.") from error
    issuer = str(claims.get("iss", ""))
    if not usable(cloud, issuer):
        raise JwtError("Invalid grant: account not found")
    key = cloud.store.get(KEYS, issuer, key_id)
    signed, _, signature = token.rpartition(".")
    if key is None or not crypt.verify_signature(  # type: ignore[no-untyped-call]
        signed.encode(), _unpadded(signature), key["publicKeyPem"].encode()
    ):
        raise JwtError("Invalid JWT Signature.")
    now = cloud.clock.now()
    begins, ends = float(claims.get("iat", 0)), float(claims.get("exp", 0))
    if not (begins - SKEW_SECONDS <= now <= ends + SKEW_SECONDS) or (
        ends - begins > LONGEST_JWT_SECONDS
    ):
        raise JwtError(
            "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable "
            "timeframe. Check your iat and exp values in the JWT claim."
        )
    return claims


def _unpadded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _self_signed(cloud: Cloud, token: str) -> Identity:
    try:
        claims = verified_claims(cloud, token)
    except JwtError as error:
        raise _refused() from error
    scope = str(claims.get("scope", ""))
    if not scope and not str(claims.get("aud", "")).startswith("http"):
        raise _refused()
    return Identity(claims["iss"], frozenset(scope.split()) if scope else None)
