"""The checksum is the one that others compute."""

import google_crc32c
from hypothesis import given
from hypothesis import strategies as st

from muster_sandbox.fakecloud.crc32c import SHORT_BYTES, crc32c


def test_the_check_value_of_the_standard():
    assert crc32c(b"123456789") == 0xE3069283


@given(st.binary(max_size=3000), st.integers(0, 4 * SHORT_BYTES))
def test_it_agrees_with_googles(content: bytes, zeros: int):
    content += bytes(zeros) + content
    assert crc32c(content) == google_crc32c.value(content)
