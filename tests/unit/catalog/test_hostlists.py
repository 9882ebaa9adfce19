"""Hostlists: what goes in comes out, in a form that SLURM reads."""

import re
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.catalog.hostlists import expand, fold

LABEL = st.from_regex(r"[a-z][a-z0-9-]{0,8}[a-z0-9]", fullmatch=True)
NUMBERED = st.builds(
    lambda prefix, number, width: f"{prefix}{number:0{width}d}",
    LABEL,
    st.integers(0, 1200),
    st.integers(1, 4),
)
NAMES = st.sets(LABEL | NUMBERED, min_size=1, max_size=60)


@given(NAMES)
def test_a_folded_list_expands_to_the_names_that_went_in(names):
    assert set(expand(fold(names))) == names


@given(NAMES, st.randoms())
def test_the_order_of_the_names_does_not_matter(names, random):
    shuffled = list(names)
    random.shuffle(shuffled)
    assert fold(shuffled) == fold(sorted(names))


@given(NAMES)
def test_ranges_stand_only_at_the_end_of_a_name(names):
    # slurm.conf(5): "unit[0-31]rack" is invalid; 22.05 refuses it.
    assert not re.search(r"\][^,]", fold(names))


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        (["lab-gpu-01", "lab-gpu-02"], "lab-gpu-[01-02]"),
        (["n8", "n9", "n10"], "n[8-10]"),
        (["n08", "n09", "n10"], "n[08-10]"),
        (["n1", "n3"], "n[1,3]"),
        (["alone"], "alone"),
        (["n1-ib", "n2-ib"], "n1-ib,n2-ib"),
        (["r1n1", "r1n2", "r2n1", "r2n2"], "r1n[1-2],r2n[1-2]"),
        (["b", "a2", "a1"], "a[1-2],b"),
        (["7", "8"], "7,8"),
        ([], ""),
    ],
)
def test_fold(names, folded):
    assert fold(names) == folded


@pytest.mark.parametrize(
    ("hostlist", "names"),
    [
        ("n[0-99999]", 100_000),
        ("r[1-100]n[1-1000]", 100_000),
        ("n[0-99998/2]", 50_000),
        (",".join(["n1"] * 3), 1),
    ],
)
def test_a_long_hostlist_is_expanded(hostlist, names):
    assert len(expand(hostlist)) == names


@pytest.mark.parametrize(
    "hostlist",
    [
        "n[0-100000]",
        "r[1-1000]n[1-1000]",
        "a[1-100]b[1-100]c[1-100]d[1-100]",
        "a[1-60000],b[1-60000]",
        "a[1-60000,70001-130000]",
        f"n[1-1{'0' * 5000}]",
        ",".join(f"a[{n}-{n + 1}]b[{n}-{n + 1}]" for n in range(0, 4000, 3)),
    ],
)
def test_a_hostlist_that_would_fill_the_memory_is_refused_before_it_is_expanded(hostlist):
    before = time.process_time()
    with pytest.raises(ValueError, match="hostlist"):
        expand(hostlist)
    assert time.process_time() < before + 1


@pytest.mark.parametrize("text", ["," * 65_536, "[" * 65_536, "]" * 65_536, "a[1," * 16_384])
def test_one_of_64_kib_that_is_none_is_refused_in_a_second(text):
    before = time.process_time()
    with suppress(ValueError):
        expand(text)
    assert time.process_time() < before + 1
