"""The node sets as the controller's metadata says them, where pulumi/ has put them; pure."""

import json

from muster.autoscaler.reconcile.model import Choice, NodeSet

ATTRIBUTE = "muster-templates"
"""The metadata attribute: JSON, set -> {choices: [template, zone, machine_type, spot], compact}.

A choice has `gpus`, too, where some are attached.
"""


class SetsError(Exception):
    """The attribute can't be read; the message is one sentence."""


def parse(text: str) -> dict[str, NodeSet]:
    """Return the node sets by name.

    Raises:
        SetsError: the text is not what pulumi/ writes.

    """
    try:
        return {
            name: NodeSet(
                name, tuple(Choice(**choice) for choice in found["choices"]), found["compact"]
            )
            for name, found in json.loads(text).items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SetsError(
            f"the metadata's {ATTRIBUTE} can't be read: {error!r}; run `pulumi up`"
        ) from error
