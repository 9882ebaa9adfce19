"""The syntax of the files: what is written is read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.render.slurm.conf_syntax import line, merge, parse, word

VALUE = st.text(
    st.characters(codec="ascii", min_codepoint=32, exclude_characters='"'), min_size=1
).filter(lambda text: text == text.strip())
KEY = st.from_regex(r"[A-Z][A-Za-z]{1,20}", fullmatch=True)


@given(st.dictionaries(KEY, VALUE, min_size=1, max_size=5))
def test_a_line_is_read_back_as_it_was_written(keys):
    assert parse(line(keys)) == [keys]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (True, "yes"),
        (False, "no"),
        (60, "60"),
        ("a b", '"a b"'),
        ("a#b", r"a\#b"),
        (r"a\b", r"a\\b"),
        ("gres/gpu=1", "gres/gpu=1"),
    ],
)
def test_values_are_written_as_slurm_reads_them(value, written):
    assert word(value) == written


@pytest.mark.parametrize("value", ["a\nSlurmUser=root", 'a"b', "a\rb"])
def test_a_value_that_would_begin_another_line_is_refused(value):
    with pytest.raises(ValueError, match="can stand in a value"):
        word(value)


def test_comments_are_not_read():
    assert parse("# ClusterName=old\nClusterName=lab # not=this\n\n") == [{"ClusterName": "lab"}]


def test_overrides_replace_in_place_and_new_ones_follow_by_name():
    own = {"A": "1", "MessageTimeout": "60", "Z": "1"}
    merged = merge(own, {"messagetimeout": 10, "TreeWidth": 16, "BcastParameters": "x"}, {})
    assert list(merged.items()) == [
        ("A", "1"),
        ("MessageTimeout", 10),
        ("Z", "1"),
        ("BcastParameters", "x"),
        ("TreeWidth", 16),
    ]


def test_an_override_can_not_take_away_a_kept_entry():
    own = {"SlurmctldParameters": "enable_configless,x"}
    kept = {"SlurmctldParameters": "enable_configless"}
    assert merge(own, {"SlurmctldParameters": "rl_enable"}, kept) == {
        "SlurmctldParameters": "enable_configless,rl_enable"
    }
    assert merge(own, {"SlurmctldParameters": "rl_enable,enable_configless"}, kept) == {
        "SlurmctldParameters": "rl_enable,enable_configless"
    }


def test_of_several_kept_entries_those_are_added_that_an_override_lacks():
    own = {"SlurmctldParameters": "a,b,c,d"}
    kept = {"SlurmctldParameters": "a,b,d,e", "PrivateData": "cloud"}
    # Neither `e` nor PrivateData is among Muster's own this time.
    assert merge(own, {"slurmctldparameters": "x,b", "PrivateData": "jobs"}, kept) == {
        "SlurmctldParameters": "a,d,x,b",
        "PrivateData": "jobs",
    }
