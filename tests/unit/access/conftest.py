"""Fixtures of these tests."""

from accesskit import no_pulumi, pulumi  # noqa: F401 (fixtures)
