"""Google Cloud's APIs on one machine: for `make cloud-demo` and the tests."""

from muster_sandbox.fakecloud import batch  # noqa: F401 (its import registers handlers)
from muster_sandbox.fakecloud.cloud import Cloud, Settings
from muster_sandbox.fakecloud.dispatch import handle, open_cloud
from muster_sandbox.fakecloud.services import (  # noqa: F401 (their import registers handlers)
    compute,
    iam,
    iam_roles,
    iap,
    resourcemanager,
    secretmanager,
    serviceusage,
    storage,
    token,
)

__all__ = ["Cloud", "Settings", "handle", "open_cloud"]
