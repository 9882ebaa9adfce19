"""Mail about jobs."""

from typing import Annotated, Any

from pydantic import Field

from muster.definition.schema.base import Model


def _sender(values: dict[str, Any]) -> str:
    return f"slurm@{values['domain']}"


class Mail(Model):
    """How mail about jobs leaves the cluster."""

    relay: Annotated[str, Field(description="Host that takes mail by SMTP.")]
    port: Annotated[int, Field(ge=1, le=65535, description="Its TCP port.")] = 25
    domain: Annotated[str, Field(description="Domain of users without their own address.")]
    sender: Annotated[
        str,
        Field(
            default_factory=_sender,
            description="Address that mail comes from; without it slurm@`domain`.",
        ),
    ]
