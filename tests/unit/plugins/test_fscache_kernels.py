"""Which kernels the role fscache refuses, and that the definition's check thinks the same."""

from pathlib import Path

import pytest
import yaml
from ansible.plugins.test import core
from jinja2 import Environment

from muster.definition.schema.storage import KERNELS, POOR_CACHE

ROOT = Path(__file__).resolve().parents[3]
VARIABLES = yaml.safe_load((ROOT / "roles/fscache/vars/main.yml").read_text())


def fault(release: str) -> str:
    """What the role says of a kernel (`uname -r`), "" if nothing."""
    environment = Environment(autoescape=False)  # noqa: S701 (no page is made)
    environment.tests |= core.TestModule().tests()
    kernel = {"stdout": release}
    return environment.from_string(VARIABLES["__fscache_fault"]).render(__fscache_kernel=kernel)


@pytest.mark.parametrize(
    ("release", "said"),
    [
        ("5.15.0-119-generic", "stops caching"),
        ("6.1.0-50-cloud-amd64", "30 to 40 MB/s"),
        ("6.3.13", "30 to 40 MB/s"),
        ("6.8.0-1021-gcp", "faults"),
        ("6.10.11+bpo-amd64", "faults"),
        ("6.11.0-26-generic", ""),
        ("6.12.107+deb13-cloud-amd64", ""),
        ("7.0.1", ""),
    ],
)
def test_the_role_knows_which_kernels_are_bad_at_it(release: str, said: str) -> None:
    sentence = fault(release)
    assert said in sentence
    assert bool(sentence) == bool(said)


def test_the_definition_s_check_refuses_the_same_kernels() -> None:
    for kernel in KERNELS.values():
        assert bool(fault(f"{kernel}.0-generic")) == (kernel in POOR_CACHE)
