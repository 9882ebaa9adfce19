"""The boot program of nodes, as a module."""

import importlib.util
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

PROGRAM = Path(__file__).parents[3] / "roles/cloud_node/files/usr/local/lib/muster/node.py"
KEY = b"a key of the trial, thirty-two bytes and more"


def load() -> ModuleType:
    """The program as a module, less patient."""
    spec = importlib.util.spec_from_file_location("muster_node", PROGRAM)
    assert spec
    assert spec.loader
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    # So long a test waits for what a node waits a minute for.
    found.PATIENCE_S, found.LONGEST_WAIT_S = 0.5, 0.2
    return found


def begin(work: Any) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
