"""Google Cloud's APIs on one machine: for `make cloud-demo` and the tests."""

from muster.fakecloud.cloud import Cloud, Settings
from muster.fakecloud.services import compute  # noqa: F401 (its import registers handlers)

__all__ = ["Cloud", "Settings"]
