"""The identity token that a machine shows to others: a JWT signed by Google, here by fakecloud.

https://cloud.google.com/compute/docs/instances/verifying-instance-identity#token_format. To verify
it, get the certificates: GET /oauth2/v3/certs of fakecloud, a JSON web key set.
"""

import base64
import json
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from muster_sandbox.fakecloud.call import plain
from muster_sandbox.fakecloud.cloud import Cloud
from muster_sandbox.fakecloud.http import Reply, Request, Resource, reply
from muster_sandbox.fakecloud.services.compute.resources import Reference
from muster_sandbox.fakecloud.usage import last

KIND = "identity.signing"
LIFETIME_SECONDS = 3600


def identity_token(
    cloud: Cloud,
    target: Reference,
    instance: Resource,
    email: str,
    audience: str,
    *,
    full: bool,
) -> str:
    """A signed JWT: who the machine's account is, and with `full` which machine it is."""
    now = int(cloud.clock.now())
    claims: dict[str, Any] = {
        "iss": "https://accounts.google.com",
        "aud": audience,
        "azp": email,
        "sub": email,
        "email": email,
        "email_verified": True,
        "iat": now,
        "exp": now + LIFETIME_SECONDS,
    }
    if full:
        claims["google"] = {
            "compute_engine": {
                "project_id": target.project,
                "project_number": int(cloud.settings.project_number),
                "zone": last(instance["zone"]),
                "instance_id": instance["id"],
                "instance_name": instance["name"],
            }
        }
    key_id, key = _key(cloud)
    header = {"alg": "RS256", "kid": key_id, "typ": "JWT"}
    signed = f"{_encoded(header)}.{_encoded(claims)}"
    signature = key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{signed}.{_base64(signature)}"


@plain("GET", "/oauth2/v3/certs")
def certificates(cloud: Cloud, _request: Request) -> Reply:
    """The public keys, as www.googleapis.com/oauth2/v3/certs has them."""
    key_id, key = _key(cloud)
    numbers = key.public_key().public_numbers()
    parts = {
        name: _base64(number.to_bytes((number.bit_length() + 7) // 8, "big"))
        for name, number in (("n", numbers.n), ("e", numbers.e))
    }
    entry = {"kty": "RSA", "alg": "RS256", "use": "sig", "kid": key_id, **parts}
    return reply({"keys": [entry]})


def _key(cloud: Cloud) -> tuple[str, rsa.RSAPrivateKey]:
    """The key of this cloud, made when it is first needed."""
    stored = cloud.store.get(KIND, "", "google")
    if stored is None:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        cloud.store.put(KIND, "", "google", {"pem": pem.decode()})
        return "fakecloud", key
    loaded = serialization.load_pem_private_key(stored["pem"].encode(), None)
    if not isinstance(loaded, rsa.RSAPrivateKey):
        raise TypeError("the stored key is not an RSA key")
    return "fakecloud", loaded


def _encoded(value: Any) -> str:
    return _base64(json.dumps(value, separators=(",", ":")).encode())


def _base64(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
