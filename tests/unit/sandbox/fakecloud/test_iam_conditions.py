"""The language of IAM conditions: the implemented part, and that all else is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_sandbox.fakecloud.iam_conditions import ConditionError, parse

NODE = {
    "resource.name": "projects/p/zones/z/instances/lab-gpu-3",
    "resource.type": "compute.googleapis.com/Instance",
    "resource.service": "compute.googleapis.com",
}
NOTHING = dict.fromkeys(NODE, "")
LAB = 'resource.name.startsWith("projects/p/zones/z/instances/lab-")'
INSTANCE = 'resource.type == "compute.googleapis.com/Instance"'


@pytest.mark.parametrize(
    ("expression", "node", "nothing"),
    [
        (LAB, True, False),
        (INSTANCE, True, False),
        ("resource.type == 'compute.googleapis.com/Instance'", True, False),
        ('resource.service == "compute.googleapis.com"', True, False),
        ('resource.name.endsWith("-3")', True, False),
        (f"!{LAB}", False, True),
        (f"{LAB} && {INSTANCE}", True, False),
        (f"{LAB} && !({INSTANCE})", False, False),
        (f"!({INSTANCE}) || {LAB}", True, True),
        ('resource.type != "compute.googleapis.com/Instance" || ' + LAB, True, True),
        # && binds closer than ||.
        (f"{INSTANCE} || {LAB} && {LAB}", True, False),
        (f"({LAB} || {INSTANCE}) && {INSTANCE}", True, False),
        (f"  {LAB}\n&&\n{INSTANCE}  ", True, False),
        (r'resource.name == "a\"b"', False, False),
        ('resource.name.extract("/instances/{name}").startsWith("lab-")', True, False),
        ('resource.name.extract("/instances/{name}").startsWith("projects/")', False, False),
        ("resource.name.extract('/instances/{name}').endsWith('-3')", True, False),
        ('resource.name.extract("/disks/{name}").startsWith("lab-")', False, False),
        # Up to the first occurrence of what follows.
        ('resource.name.extract("/zones/{zone}/") == "z"', True, False),
        ('resource.name.extract("{start}/zones/") == "projects/p"', True, False),
        ('resource.name.extract("{all}") != ""', True, False),
        # The most operators that there may be.
        (" || ".join([LAB] * 13), True, False),
        # What is not there is empty, as is what is not followed by the rest of the template.
        ('resource.name.extract("/disks/{name}") == ""', True, True),
        ('resource.name.extract("/instances/{name}/disks") == ""', True, True),
    ],
)
def test_a_condition_holds_for_what_it_describes(expression: str, node: bool, nothing: bool):
    assert parse(expression)(NODE) is node
    assert parse(expression)(NOTHING) is nothing


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "true",
        "resource.name",
        "resource.name.startsWith(1)",
        "resource.name.startsWith(resource.type)",
        'resource.name.extract("x{y}")',
        'resource.name.extract("x{y}").matches("z")',
        'resource.name.extract("x{y}").extract("{z}") == "z"',
        'resource.name.extract("x") == "z"',
        'resource.name.extract("{x}{y}") == "z"',
        'resource.type.extract("x{y}") == "z"',
        'resource.name.extract("x{y}" == "z"',
        '.startsWith("lab-")',
        'resource.name.matches("x")',
        'resource.labels.a == "b"',
        'request.time < timestamp("2030-01-01T00:00:00Z")',
        f"{LAB} &&",
        f"{LAB} {INSTANCE}",
        f"({LAB}",
        f"{LAB})",
        'resource.name == "unfinished',
        '"a" == "a"',
        f"{LAB} & {INSTANCE}",
        # More than 12 logical operators.
        " || ".join([LAB] * 14),
        " || ".join([LAB] * 7) + f" && !{INSTANCE}" * 4,
    ],
)
def test_what_is_not_understood_is_refused(expression: str):
    with pytest.raises(ConditionError):
        parse(expression)


@given(st.text(alphabet="resource.nametypsWithx{}()\"'&|!= x", max_size=60))
def test_any_text_is_a_condition_or_refused(text: str):
    try:
        condition = parse(text)
    except ConditionError:
        return
    assert condition(NODE) in {True, False}
