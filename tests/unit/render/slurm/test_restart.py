"""Which daemons a change restarts, by release; the cases are files in cases/change."""

import json
from pathlib import Path

import pytest

from muster.catalog.slurm_parameters import RELEASES
from muster.render.slurm import SlurmFiles, render

CASES = sorted((Path(__file__).parent / "cases" / "change").glob("*.json"))


def by_release(case: dict) -> dict[str, list[str]]:
    """What is restarted in each release; the case names spans, which cover all of them."""
    restarts = {}
    for span, expected in case["restarts"].items():
        first, last = span.split(" to ")
        for release in RELEASES[RELEASES.index(first) : RELEASES.index(last) + 1]:
            restarts[release] = expected
    assert list(restarts) == list(RELEASES)
    return restarts


def restarts(old: SlurmFiles, new: SlurmFiles) -> list[str]:
    """The daemons whose roles find that they run with something else."""
    return [
        *(["slurmdbd"] if old.slurmdbd_conf != new.slurmdbd_conf else []),
        *(["slurmctld"] if old.restart.slurmctld != new.restart.slurmctld else []),
        *(
            f"slurmd of {name}"
            for name, digest in old.restart.slurmd.items()
            if digest != new.restart.slurmd[name]
        ),
    ]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_what_a_change_restarts(lab, path):
    case = json.loads(path.read_text())
    for version, expected in by_release(case).items():
        old = render(lab(version=version))
        new = render(lab(case.get("cluster"), case.get("groups"), version))
        assert (old != new) == ("cluster" in case or "groups" in case)
        assert restarts(old, new) == expected, version


def test_slurmctld_conf_carries_its_restart_digest(lab):
    files = render(lab())
    assert f"# restart-slurmctld: {files.restart.slurmctld}\n" in files.slurm_conf


@pytest.mark.parametrize("version", RELEASES)
def test_a_new_node_set_leaves_every_slurmd_alone(lab, version):
    old = render(lab(version=version)).restart.slurmd
    new = render(
        lab(
            {
                "nodes": {"big": {"sockets": 1, "cores_per_socket": 64, "memory_mib": 524288}},
                "partitions": {"big": {"nodes": ["big"]}},
            },
            {"big": ["big-1"]},
            version,
        )
    ).restart.slurmd
    assert {name: new[name] for name in old} == old


@pytest.mark.parametrize(("version", "restarts_all"), [("22.05", True), ("24.11", False)])
def test_private_tmp_and_where_it_lies_restart_slurmd(lab, version, restarts_all):
    """A case would be for 21.08 too, which has none."""
    shared, private, elsewhere = (
        render(lab({"storage": {"scratch": scratch, "private_tmp": on}}, version=version))
        for scratch, on in (("/scratch", False), ("/scratch", True), ("/mnt/nvme", True))
    )
    nodes = ["slurmd of cpu", "slurmd of gpu"]
    assert restarts(shared, private) == (["slurmctld", *nodes] if restarts_all else [])
    assert restarts(private, elsewhere) == (nodes if restarts_all else [])
