"""What the tests of stacks find in an export."""

import pytest
from stackkit import texts_of_nothing


@pytest.mark.parametrize(
    "text", ["None", "t-controller is at None", "http://None/b", "10.0.0.2:None", "gs://None"]
)
def test_a_text_of_an_output_without_a_value_is_found(text: str):
    assert texts_of_nothing({"resources": [{"outputs": {"a": [text], "b": "fine"}}]}) == [text]


@pytest.mark.parametrize(
    "value", [None, "NoneType", "NONE", "None of these people", 3, True, [None, {"a": None}]]
)
def test_a_null_and_a_word_are_no_such_text(value: object):
    assert texts_of_nothing({"outputs": value}) == []
