"""Whether an identity may make a call."""

from muster.fakecloud.call import Call


def check(_call: Call) -> None:
    """Called before each handler; raises ApiError 403 where the granted roles don't allow it."""
