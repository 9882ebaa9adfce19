"""How many threads the role nfs_server starts, by cores and connections."""

from pathlib import Path

import pytest
import yaml
from jinja2 import Environment

ROOT = Path(__file__).resolve().parents[3]
VARIABLES = yaml.safe_load((ROOT / "roles/nfs_server/vars/main.yml").read_text())


@pytest.mark.parametrize(
    ("cores", "connections", "asked", "threads"),
    [
        pytest.param(1, 0, 0, 16, id="at least 16"),
        pytest.param(2, 1000, 0, 50, id="connections decide"),
        pytest.param(2, 1001, 0, 51, id="a rest needs one more"),
        pytest.param(40, 1000, 0, 320, id="cores decide"),
        pytest.param(96, 1000, 0, 512, id="at most 512"),
        pytest.param(40, 1000, 20, 20, id="as asked for"),
    ],
)
def test_threads_are_enough_for_cores_and_connections(
    cores: int, connections: int, asked: int, threads: int
) -> None:
    template = Environment(autoescape=False).from_string(  # noqa: S701 (no page is made)
        VARIABLES["__nfs_server_threads"]
    )
    rendered = template.render(
        nfs_server_threads=asked,
        nfs_server_connections=connections,
        __nfs_server_cores={"stdout": str(cores)},
    )
    assert int(rendered) == threads
