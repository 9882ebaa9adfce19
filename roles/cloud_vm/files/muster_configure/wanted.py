# SPDX-License-Identifier: Apache-2.0
"""What the metadata asks of this VM, and waiting until it asks something else."""

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn, overload

from .cloud import Cloud, TroubleError

BUNDLE = re.compile(r"gs://([a-z0-9._-]+)/(bundle-([0-9a-f]{64})\.tar\.gz)")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0


@dataclass(frozen=True)
class Wanted:
    """The attributes that a run depends on; what a node set's template is, is not among them."""

    cluster: str
    role: str
    bundle: str
    """gs://BUCKET/bundle-SHA256.tar.gz"""
    hosts: str
    """JSON: host -> fixed address."""

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, str]) -> "Wanted":
        """Read the attributes.

        Raises:
            TroubleError: one is missing or can't be right.

        """
        names = ("muster-cluster", "muster-role", "muster-bundle")
        missing = [name for name in names if name not in attributes]
        if missing:
            raise TroubleError(f"the metadata has no {' and no '.join(missing)}; run `pulumi up`")
        cluster, role, bundle = (attributes[name] for name in names)
        wanted = cls(cluster, role, bundle, attributes.get("muster-hosts", "{}"))
        wanted.address()
        try:
            json.loads(wanted.hosts)
        except ValueError as error:
            raise TroubleError(f"muster-hosts is no JSON ({error}); run `pulumi up`") from error
        return wanted

    def address(self) -> re.Match[str]:
        """Return the parts of the bundle's address.

        Raises:
            TroubleError: it is none.

        """
        match = BUNDLE.fullmatch(self.bundle)
        if not match:
            raise TroubleError(
                f"muster-bundle is {self.bundle}, not gs://BUCKET/bundle-SHA256.tar.gz; "
                "run `pulumi up`"
            )
        return match

    @property
    def bucket(self) -> str:
        """Bucket of the bundle."""
        return self.address()[1]

    @property
    def object(self) -> str:
        """Name of the bundle in its bucket."""
        return self.address()[2]

    @property
    def digest(self) -> str:
        """sha256 that the bundle must have."""
        return self.address()[3]

    @property
    def addresses(self) -> dict[str, str]:
        """Host -> fixed address."""
        addresses: dict[str, str] = json.loads(self.hosts)
        return addresses


class Watch:
    """Knows what is wanted now. A thread asks the metadata server by requests that hang."""

    def __init__(self, cloud: Cloud, say: Callable[[str], object]) -> None:
        """`say` is called with a sentence when something is wrong."""
        self._cloud = cloud
        self._say = say
        self._now: Wanted | None = None
        self._changed = threading.Condition()

    def start(self) -> None:
        """Begin to watch."""
        threading.Thread(target=self._watch, daemon=True).start()

    @overload
    def other_than(self, wanted: Wanted | None) -> Wanted: ...

    @overload
    def other_than(self, wanted: Wanted | None, timeout_s: float) -> Wanted | None: ...

    def other_than(self, wanted: Wanted | None, timeout_s: float | None = None) -> Wanted | None:
        """Wait until something else than `wanted` is wanted; None if it isn't in time."""
        with self._changed:
            self._changed.wait_for(lambda: self._now not in (None, wanted), timeout_s)
            return None if self._now == wanted else self._now

    def _watch(self) -> NoReturn:
        etag: str | None = None
        pause = FIRST_PAUSE_S
        while True:
            try:
                attributes, etag = self._cloud.attributes(etag)
                now = Wanted.from_attributes(attributes)
            except (TroubleError, ValueError) as error:
                self._say(str(error))
                # What is missing may come any time; a server that is away comes back.
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
                continue
            pause = FIRST_PAUSE_S
            with self._changed:
                self._now = now
                self._changed.notify_all()
