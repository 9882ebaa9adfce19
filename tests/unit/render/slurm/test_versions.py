"""The traps of SLURM's releases: nothing is rendered that one of them can't read."""

import json
from pathlib import Path

import pytest

from muster.catalog.slurm_parameters import REFUSED_VALUES, RELEASES, REMOVED, parameters
from muster.render.slurm import render
from muster.render.slurm.conf_syntax import parse

TRAPS = json.loads((Path(__file__).parent / "cases" / "version-traps.json").read_text())["traps"]
DESCRIBED = ("NodeName", "PartitionName")


def written(files, file: str) -> dict[str, str]:
    """Parameters of a file, without nodes and partitions."""
    text = {"slurm.conf": files.slurm_conf, "cgroup.conf": files.cgroup_conf}[file]
    return {
        key: value
        for line in parse(text)
        if not line.keys() & set(DESCRIBED)
        for key, value in line.items()
    }


@pytest.mark.parametrize("file", ["slurm.conf", "cgroup.conf"])
@pytest.mark.parametrize("version", RELEASES)
def test_every_parameter_exists_in_the_release(lab, file, version):
    known = parameters(file)
    for key, value in written(render(lab(version=version)), file).items():
        parameter = known[key.lower()]
        assert parameter.first <= version <= parameter.last, key
        assert parameter.name == key
        assert key.lower() not in REMOVED[file]
        for refused in REFUSED_VALUES:
            if (refused.file, refused.parameter) == (file, key) and refused.refused_by(version):
                assert refused.value not in value.split(",")


@pytest.mark.parametrize(
    ("trap", "version"),
    [
        pytest.param(trap, version, id=f"{version}-{trap['name']}")
        for trap in TRAPS
        for version in trap.get("releases", RELEASES)
    ],
)
def test_version_traps(lab, trap, version):
    got = written(render(lab(version=version)), trap["file"]).get(trap["key"])
    assert got == trap["expected"]
