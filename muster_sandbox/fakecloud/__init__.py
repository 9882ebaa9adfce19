"""Google Cloud's APIs on one machine: for `make cloud-demo` and the tests."""

from muster.fakecloud import batch  # noqa: F401 (its import registers handlers)
from muster.fakecloud.cloud import Cloud, Settings
from muster.fakecloud.services import (  # noqa: F401 (their import registers handlers)
    compute,
    iam,
    iamroles,
    iap,
    resourcemanager,
    secretmanager,
    serviceusage,
    storage,
    token,
)

__all__ = ["Cloud", "Settings"]
