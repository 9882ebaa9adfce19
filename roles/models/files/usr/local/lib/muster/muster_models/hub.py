# SPDX-License-Identifier: Apache-2.0
"""Models of the Hugging Face hub, by its own client, huggingface_hub.

The client has what comes in a cache of its own in the store. What is there of a model that came
before, it does not ask for again; a file that was cut off comes from its beginning.
"""

import errno
import logging
import os
import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from muster_models import digests, durable, paths
from muster_models.download import LONGEST_WAIT_S, WAITS_S
from muster_models.errors import ModelsError
from muster_models.progress import Progress, say
from muster_models.store import Staged, Store

ENDPOINT = "https://huggingface.co"
"""The hub that all know."""
TRIES = 3
"""Of each request, in all; the client itself repeats most of them up to five times."""
_AGAIN = (408, 429, 500, 502, 503, 504)
_COMMIT = re.compile("[0-9a-f]{40}")
_SHA256 = re.compile("[0-9a-f]{64}")
_ETAG = re.compile('(?:W/)?"?(?:[0-9a-f]{40}|[0-9a-f]{64})"?')
"""Of a file: its digest for git, or in Git LFS its SHA-256."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_T = TypeVar("_T")

# Read when the client is imported. The profile of the cluster says offline, for all who only read.
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "0",
    "TRANSFORMERS_OFFLINE": "0",
    "HUGGINGFACE_CO_STAGING": "0",
    "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_SHARED_BLOBS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_UPDATE_CHECK": "1",
}


class Model(NamedTuple):
    """A model of the hub at one commit."""

    name: str
    wanted: str
    """Branch, tag or commit that was asked for."""
    revision: str
    """The commit that it is."""
    licence: str | None
    files: tuple["HubFile", ...]


class HubFile(NamedTuple):
    """A file of a model, and what the hub says that it is."""

    path: str
    size: int
    digest: digests.Digest


class _LongWaitError(Exception):
    """The hub asks for a longer pause than anybody waits."""


class _NoDigestError(Exception):
    """The hub sends what is no digest where the client takes it for a part of a path."""


class Hub:
    """The hub at an endpoint, as one person."""

    def __init__(self, store: Store, endpoint: str, name: str, token: str | None) -> None:
        self._store = store
        self._token: str | bool = token or False
        home = os.path.join(store.incoming(name), "client")
        os.environ.update(
            _ENVIRONMENT,
            HF_ENDPOINT=endpoint,
            HF_HOME=home,
            HF_XET_CACHE=os.path.join(home, "xet"),
        )
        if endpoint.startswith("http://"):
            _ask_this_host_directly()
        try:
            import huggingface_hub  # noqa: PLC0415 (half a second, for this alone)
        except ImportError as error:
            raise ModelsError(
                f"huggingface_hub, the client of the hub, is not installed here ({error}); run "
                "site.yml for this host, or add the model on another one"
            ) from error
        self._client: Any = huggingface_hub
        self._client.set_client_factory(self._http_client)
        # It tells each retry, with traces of its own.
        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)

    def _http_client(self) -> Any:
        from huggingface_hub.utils import _http  # noqa: PLC0415

        client = _http.default_client_factory()
        hooks = client.event_hooks
        hooks["response"] = [*hooks.get("response", []), _refuse_long_wait, _refuse_no_digest]
        client.event_hooks = hooks
        return client

    def model(self, name: str, wanted: str) -> Model:
        """Return what the hub has under a name. Raises ModelsError."""
        api = self._client.HfApi(token=self._token)
        info = self._asked(
            name, lambda: api.model_info(name, revision=wanted, files_metadata=True, timeout=60)
        )
        files = tuple(_file(name, sibling) for sibling in info.siblings or ())
        if not _COMMIT.fullmatch(info.sha or "") or not files:
            raise ModelsError(f"{name} has no files on the hub at {wanted}; name another revision")
        card = info.card_data
        licence = card.get("license") if card is not None else None
        if licence == "other":
            licence = card.get("license_name") or licence
        return Model(name, wanted, str(info.sha), str(licence) if licence else None, files)

    def bring(self, model: Model, cache: str, progress: Progress) -> list[Staged]:
        """Have the client bring the files of a model that the store lacks, and check them.

        Raises ModelsError or OSError.
        """
        staged = []
        for file in model.files:
            known = None
            if self._is_known(file):
                known = self._store.borrow(file.digest.value, cache)
            if known is not None:
                staged.append(Staged(file.path, known, file.digest.value, file.size))
            else:
                staged.append(self._file(model, file, cache))
            progress.add(file.size)
        return staged

    def missing(self, model: Model) -> int:
        """Return how many bytes of a model have to come."""
        return sum(file.size for file in model.files if not self._is_known(file))

    def _is_known(self, file: HubFile) -> bool:
        digest = file.digest
        return digest.kind == "sha256" and self._store.holds(digest.value, file.size)

    def _file(self, model: Model, file: HubFile, cache: str) -> Staged:
        link = self._asked(
            f"{file.path} of {model.name}",
            lambda: self._client.hf_hub_download(
                model.name,
                file.path,
                revision=model.revision,
                cache_dir=cache,
                token=self._token,
                library_name="muster",
            ),
        )
        path = os.path.realpath(link)
        came = digests.digests_of(path, "sha256", file.digest.kind)
        if came[file.digest.kind] != file.digest.value:
            # Else the client would take it for the right one.
            durable.remove(link)
            durable.remove(path)
            raise ModelsError(
                f"{file.path} of {model.name} has the {file.digest.kind} "
                f"{came[file.digest.kind]} and not {file.digest.value}, which the hub tells; "
                "nothing was published: run it again, and if it is the same again, tell the "
                "model's makers"
            )
        return Staged(file.path, path, came["sha256"], os.path.getsize(path))

    def _asked(self, what: str, ask: Callable[[], _T]) -> _T:
        """Return the client's answer, asked for again where a fault may pass."""
        for number in range(1, TRIES + 1):
            try:
                return ask()
            except _LongWaitError as error:
                raise ModelsError(f"{what}: {error}; run it again after that") from error
            except _NoDigestError as error:
                raise ModelsError(f"{what}: {error}") from error
            except Exception as error:  # of many kinds; unknown ones are raised again
                why = self._why(error)
                if why is None:
                    refusal = self._refusal(what, error)
                    if refusal is None:
                        raise
                    raise refusal from error
                if number == TRIES:
                    raise ModelsError(
                        f"{what}: {why}, {number} times in a row; run it again later: what has "
                        "come whole stays"
                    ) from error
                say(f"{what}: {why}; once more in {WAITS_S[number]:.0f} s")
            time.sleep(WAITS_S[number])
        raise AssertionError

    def _why(self, error: Exception) -> str | None:
        """Why the client failed, if it may pass; None: it is for good."""
        import httpx2  # noqa: PLC0415 (comes with the client)

        errors = self._client.errors
        # It hides what went wrong behind a missing file.
        cause: BaseException = error
        if isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__ is not None:
            cause = error.__cause__
        if isinstance(cause, errors.HfHubHTTPError):
            code = cause.response.status_code
            return f"the hub answers {code}" if code in _AGAIN else None
        if isinstance(cause, httpx2.TransportError):
            return f"the connection broke ({cause})"
        if isinstance(cause, OSError) and "Consistency check failed" in str(cause):
            return "the connection ended too early"
        return None

    def _refusal(self, what: str, error: Exception) -> ModelsError | None:
        """Return what a fault of the hub means that stays; None: it is another's.

        Raises OSError where there is no room: also of hf_xet, whose errors have no number.
        """
        errors = self._client.errors
        if isinstance(error, errors.LocalEntryNotFoundError) and isinstance(
            error.__cause__, Exception
        ):
            error = error.__cause__
        for kind, meaning in (
            (
                errors.GatedRepoError,
                ": its makers let in only whom they know; accept their terms on the hub, then set "
                "HF_TOKEN or run `hf auth login`",
            ),
            (
                errors.RevisionNotFoundError,
                " has no such revision on the hub; name a branch, tag or commit",
            ),
            (
                errors.RepositoryNotFoundError,
                " is not on the hub, or is private; correct the name, or set HF_TOKEN or run "
                "`hf auth login`",
            ),
        ):
            if isinstance(error, kind):
                return ModelsError(f"{what}{meaning}")
        said = " ".join(str(error).split())
        if isinstance(error, errors.HfHubHTTPError):
            code, url = error.response.status_code, error.response.url.copy_with(query=None)
            return ModelsError(f"{what}: the hub refuses it ({code}); see {url} in a browser")
        if isinstance(error, OSError) and error.errno is not None:
            return None
        if any(os.strerror(number) in said for number in (errno.ENOSPC, errno.EDQUOT)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._store.root) from error
        return ModelsError(
            f"{what}: the client of the hub does not get on ({said}); see models_hub_endpoint "
            "and the proxy, and run it again"
        )


def _ask_this_host_directly() -> None:
    """Ask no proxy for the loopback: without TLS it could answer in place of the hub there.

    Some clients read no_proxy first, some NO_PROXY.
    """
    both = ("no_proxy", "NO_PROXY")
    said = [word.strip() for name in both for word in os.environ.get(name, "").split(",")]
    words = dict.fromkeys([*_LOOPBACK, *filter(None, said)])
    os.environ.update(dict.fromkeys(both, ",".join(words)))


def _refuse_long_wait(response: Any) -> None:
    said = response.headers.get("Retry-After", "")
    if said.isdecimal() and int(said) > LONGEST_WAIT_S:
        raise _LongWaitError(
            f"the hub answers {response.status_code} and asks for {said} s of pause"
        )


def _refuse_no_digest(response: Any) -> None:
    """Refuse what no path may be made of.

    The client joins the ETag of a file and the commit to paths of its cache as they come, so that
    `../` in one leads out of it.
    """
    if response.request.method != "HEAD":
        return
    headers = response.headers
    sent = [("X-Repo-Commit", _COMMIT)]
    if "X-Linked-Etag" in headers:
        sent.append(("X-Linked-Etag", _ETAG))
    elif not response.is_error and not _stays(response):
        sent.append(("ETag", _ETAG))
    for name, digest in sent:
        value = headers.get(name)
        if value is not None and not digest.fullmatch(value):
            url = response.request.url
            server = f"{url.scheme}://{url.netloc.decode('ascii')}"
            raise _NoDigestError(
                f"{server} sends the {name} {value[:80]!a}, which is no digest of 40 or 64 "
                "hexadecimal digits; nothing was published: check this server, and the proxy on "
                "the way to it"
            )


def _stays(response: Any) -> bool:
    """Whether this is a redirect on the same server; of such a one the client takes no ETag."""
    if not response.has_redirect_location:
        return False
    url = response.request.url
    to = url.join(response.headers["Location"])
    return bool((to.scheme, to.netloc) == (url.scheme, url.netloc))


def _file(name: str, sibling: Any) -> HubFile:
    path = paths.checked(sibling.rfilename, name)
    if sibling.lfs is not None and _SHA256.fullmatch(sibling.lfs.sha256):
        return HubFile(path, sibling.lfs.size, digests.Digest("sha256", sibling.lfs.sha256))
    if sibling.size is None or sibling.blob_id is None:
        raise ModelsError(
            f"the hub does not tell size and digest of {path} of {name}, so it could not be "
            "checked; see models_hub_endpoint"
        )
    return HubFile(path, sibling.size, digests.Digest("git", sibling.blob_id))
