"""What one Muster has raised, a later one destroys."""

from collections.abc import Callable
from pathlib import Path

import pytest
from clusterkit import CLUSTER, check_out
from stackkit import Stack

pytestmark = pytest.mark.proof("half a minute for what changes with a provider alone")

OLDER = {
    "dynamic.py": {
        "_Provider": "_Dynamic",
        "_parts": "_split",
        "image.delete": "image.remove",
        "sweep.everything": "sweep.clear",
    },
    "image.py": {"def delete(": "def remove(", "starting the": "an older Muster starts the"},
    "sweep.py": {"def everything(": "def clear("},
}
"""By file of muster/gcp: words of the present -> the older one's."""


def make_older(checkout: Path) -> None:
    """Give a checkout the code of another Muster, which has none of the words of this one."""
    for name, words in OLDER.items():
        file = checkout / "muster" / "cloud" / name
        text = file.read_text()
        for present, older in words.items():
            assert present in text
            text = text.replace(present, older)
        file.write_text(text)


def test_a_stack_of_an_older_muster_is_destroyed_and_leaves_nothing(
    cluster: Stack, contents: Callable[[], set[tuple[str, str]]]
):
    """Stands for `git pull` between `pulumi up` and `pulumi destroy`.

    A destroy runs no program: the dynamic resources are deleted by the providers that the state
    holds pickled, from the `up` of the older code. What they refer to must be found in the present
    one, so it may be nothing but their classes: here all else that they use has another name.
    """
    before = contents()
    checkout = cluster.program.parent
    make_older(checkout)
    assert "an older Muster starts the builder" in cluster.up().output

    check_out(checkout)
    cluster.command("state", "unprotect", "--all", "--yes", "--stack", CLUSTER)
    cluster.destroy()
    assert contents() - before == set()
    assert cluster.resources() == {}
