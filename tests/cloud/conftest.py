"""Fixtures that all tests of this folder have."""

from interrupts import end_cleanly_when_told  # noqa: F401 (a fixture)
