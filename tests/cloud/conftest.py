"""Fixtures of all tests of this folder."""

from interrupts import end_cleanly_when_told  # noqa: F401 (a fixture)
