"""How long verify waits for nodes: for those that may come up by themselves."""

import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).parents[3] / "ansible/plugins/modules/cluster_report.py"
SPEC = importlib.util.spec_from_file_location("cluster_report", PATH)
cluster_report = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(cluster_report)

PARAMETERS = {"settle_seconds": 30, "answer_seconds": 120}


class Module:
    params = PARAMETERS


@pytest.mark.parametrize(
    ("state", "seconds"),
    [
        ("idle", 0),
        ("mixed", 0),
        ("completing", 0),
        ("idle*", 120),
        ("completing*", 120),
        ("unknown", 120),
        ("down", 30),
        ("down*", 30),
        # Switched off for a repair: nobody waits for it.
        ("drained*", 0),
        ("draining", 0),
    ],
)
def test_patience(state, seconds):
    cluster = cluster_report.Cluster(Module())
    assert cluster.patience({"name": "lab-cpu-01", "state": state}) == seconds
