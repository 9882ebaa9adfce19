"""Steps of a demo check what they show."""


class TourError(Exception):
    """A step did not show what it should."""


def expect(shown: str, *wanted: str) -> str:
    """Return `shown` if it contains all of `wanted`.

    Raises:
        TourError: something is missing.

    """
    for text in wanted:
        if text not in shown:
            raise TourError(f"{text!r} is missing in what came out:\n{shown}")
    return shown
