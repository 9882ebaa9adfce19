"""A later Muster destroys the cluster of an older one."""

from collections.abc import Callable
from pathlib import Path

import pytest
from clusterkit import CLUSTER, check_out
from stackkit import Stack

pytestmark = pytest.mark.proof("half a minute for what changes with a provider alone")

OLDER = {
    "dynamic_resources.py": {
        "_Provider": "_Dynamic",
        "_parts": "_split",
        "image.delete": "image.remove",
        "sweep.everything": "sweep.clear",
    },
    "image.py": {"def delete(": "def remove(", "starting the": "an older Muster starts the"},
    "sweep.py": {"def everything(": "def clear("},
}
"""By file of muster/gcp: present names -> the older version's names."""


def make_older(checkout: Path) -> None:
    """Give a checkout the code of another Muster, which uses none of the present names."""
    for name, words in OLDER.items():
        file = checkout / "muster" / "gcp" / name
        text = file.read_text()
        for present, older in words.items():
            assert present in text
            text = text.replace(present, older)
        file.write_text(text)


def test_a_stack_of_an_older_muster_is_destroyed_and_leaves_nothing(
    cluster: Stack, contents: Callable[[], set[tuple[str, str]]]
):
    """Simulates `git pull` between `pulumi up` and `pulumi destroy`.

    A destroy runs no program: pickled providers in the state, from the older code's `up`, delete
    the dynamic resources. The present code must have everything they refer to, so that may only be
    their classes: here all else that they use has another name.
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
