"""Fields of the type "byte": base64 in JSON, which has more than one spelling for the same bytes.

https://protobuf.dev/programming-guides/json/: standard or URL-safe base64, with or without padding,
is accepted. gcloud reads fingerprints and etags in any and sends them URL-safe.
"""

import base64


def decoded(text: str) -> bytes:
    """The bytes of a field.

    Raises:
        ValueError: it is not base64.

    """
    standard = text.rstrip("=").replace("-", "+").replace("_", "/")
    return base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)


def same(given: str | None, present: str) -> bool:
    """Whether a caller's value means the bytes of the present one."""
    if given is None or given == present:
        return given == present
    try:
        return decoded(given) == decoded(present)
    except ValueError:
        return False
