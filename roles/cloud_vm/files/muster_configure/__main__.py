# SPDX-License-Identifier: Apache-2.0
"""The service muster-configure."""

import hashlib
import os
import sys
import threading
import time
from pathlib import Path

from .cloud import Cloud, TroubleError
from .configurer import Configurer, serve
from .keys import Keys
from .playbook import Playbook
from .report import Reporter
from .wanted import Watch

VENV = "/opt/muster/venv"
NOTICE = "/run/motd.d/muster"


def say(text: str) -> None:
    """Print a line for the journal at once."""
    print(f"muster: {text}", flush=True)


def own_digest() -> str:
    """Return the sha256 of this program's files."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def die(arguments: threading.ExceptHookArgs) -> None:
    """End the program when one of its threads fails: systemd restarts the unit."""
    threading.__excepthook__(arguments)
    os._exit(1)


def identity(cloud: Cloud) -> tuple[str, str]:
    """Return the VM's name and project; wait for the metadata server as long as needed."""
    while True:
        try:
            return cloud.identity()
        except TroubleError as error:
            say(str(error))
            time.sleep(2)


def main() -> None:
    """Run until the machine goes off."""
    begun_with = own_digest()
    threading.excepthook = die
    cloud = Cloud.of_environment()
    name, project = identity(cloud)
    reporter, watch = Reporter(cloud, NOTICE, say), Watch(cloud, say)
    reporter.start()
    watch.start()
    # The unit's RuntimeDirectory: root's alone, in memory, gone with the service.
    playbook = Playbook(VENV, os.environ["RUNTIME_DIRECTORY"])
    configurer = Configurer(
        cloud,
        watch=watch,
        reporter=reporter,
        keys=Keys(cloud, project),
        playbook=playbook,
        name=name,
    )
    serve(
        configurer,
        watch,
        reporter,
        changed=lambda: own_digest() != begun_with,
        restart=lambda: os.execv(sys.executable, [sys.executable, "-m", __package__]),
    )


if __name__ == "__main__":
    main()
