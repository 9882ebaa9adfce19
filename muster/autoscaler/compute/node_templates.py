"""The node sets from the controller's metadata, where pulumi/ writes them; pure."""

import json

from muster.autoscaler.reconcile.model import Choice, NodeSet

ATTRIBUTE = "muster-templates"
"""The metadata attribute: JSON, set -> {choices: [template, zone, machine_type, spot], compact}.

A choice also has `gpus` where some are attached.
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
                name, tuple(Choice(**choice) for choice in node_set["choices"]), node_set["compact"]
            )
            for name, node_set in json.loads(text).items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SetsError(
            f"the metadata's {ATTRIBUTE} can't be read: {error!r}; run `pulumi up`"
        ) from error
