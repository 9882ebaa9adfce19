"""The driver alone runs faster than a daemon can."""

import pytest
from quick import FastClock


@pytest.fixture
def clock() -> FastClock:
    return FastClock()
