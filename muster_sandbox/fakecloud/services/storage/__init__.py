"""Cloud Storage's JSON API: https://cloud.google.com/storage/docs/json_api.

Written here, after a look at the two servers that can be had from the registries:

* gcp-storage-emulator (PyPI 2026.7.19, 2,900 lines of Python, BSD) keeps a bucket's policy but
  doesn't enforce it, and answers testPermissions with all that was asked; it has no versions of
  objects, ignores fields that it doesn't know, and keeps a label that a PATCH takes away with null.
* fake-gcs-server (Go module 1.56.1, BSD) has no IAM at all: no policy to read, set or test. Its
  folder backend, the one that survives a restart, has no versions. And it would be a second program
  to build, start, watch and end, with Go on every machine that runs `make cloud-demo`.

Neither knows who calls, so each call would have to be taken apart here anyway for its permissions
(storage.objects.get on one object, storage.objects.delete when an upload overwrites, the bucket's
own policy and its conditions by name); that, with the API description's checks, faults and one
state that survives a restart, is more than the rest: buckets and objects are 800 lines.
"""

from muster_sandbox.fakecloud.services.storage import buckets, objects, rewrites, uploads

__all__ = ["buckets", "objects", "rewrites", "uploads"]
