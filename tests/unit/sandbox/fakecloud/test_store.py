"""The state survives the process, however it ends."""

import os
import subprocess
import sys
from pathlib import Path

from muster_sandbox.fakecloud.store import Store

WRITER = """
import os, sys
from pathlib import Path
from muster_sandbox.fakecloud.store import Store
store = Store(Path(sys.argv[1]))
for number in range(100):
    store.put("kind", "scope", f"n{number}", {"number": number})
store.delete("kind", "scope", "n7")
store.flush()
store.put("kind", "scope", "n8", {"number": "changed"})
store.flush()
os.kill(os.getpid(), 9)
"""


def test_what_was_flushed_survives_a_kill(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", WRITER, str(tmp_path)], timeout=60, check=False, env=os.environ
    )
    assert done.returncode == -9
    store = Store(tmp_path)
    entries = store.within("kind", "scope")
    assert set(entries) == {f"n{number}" for number in range(100)} - {"n7"}
    assert entries["n8"] == {"number": "changed"}
    store.close()


def test_close_writes_what_is_left(tmp_path: Path):
    store = Store(tmp_path)
    store.put("kind", "a/b", "name", {"x": [1, {"y": None}]})
    store.close()
    again = Store(tmp_path)
    assert list(again.all("kind")) == [("a/b", "name", {"x": [1, {"y": None}]})]
    again.close()


def test_scopes_are_found_by_prefix_and_empty_ones_are_left_out():
    store = Store()
    for scope in ("p/zones/a", "p/zones/b", "q/zones/a"):
        store.put("kind", scope, "x", {})
    store.delete("kind", "p/zones/b", "x")
    assert list(store.scopes("kind", "p/")) == ["p/zones/a"]
    store.close()


def test_a_new_folder_is_its_owner_s_alone(tmp_path: Path):
    Store(tmp_path / "new").close()
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
