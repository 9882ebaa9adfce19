"""What a change takes, by release; the cases are files in cases/change."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from muster.cluster.slurmparameters import RELEASES
from muster.slurm import Change, change, render

CASES = sorted((Path(__file__).parent / "cases" / "change").glob("*.json"))


def by_release(case: dict) -> dict[str, dict]:
    """What the change takes in each release; the case names spans, which cover all of them."""
    takes = {}
    for span, expected in case["takes"].items():
        first, last = span.split(" to ")
        for release in RELEASES[RELEASES.index(first) : RELEASES.index(last) + 1]:
            takes[release] = expected
    assert list(takes) == list(RELEASES)
    return takes


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_what_a_change_takes(lab, path):
    case = json.loads(path.read_text())
    for version, expected in by_release(case).items():
        old = render(lab(version=version))
        new = render(lab(case.get("cluster"), case.get("groups"), version))
        got = change(old, new, version)
        assert asdict(got) == asdict(Change(**{k: _tuple(v) for k, v in expected.items()})), version
        # The digests, which the roles compare, say the same.
        assert (old.restart.slurmctld != new.restart.slurmctld) == ("slurmctld" in got.restart)
        assert (old.restart.slurmd != new.restart.slurmd) == ("slurmd" in got.restart)


def _tuple(value):
    return tuple(value) if isinstance(value, list) else value


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
