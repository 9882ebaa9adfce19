"""Mail about jobs."""

from typing import Annotated, Any, Literal

from pydantic import Field

from muster.definition.schema.base import Model

# RFC 8314: TLS from the first byte, or after STARTTLS on the port for submission.
_TLS_BY_PORT = {465: "tls", 587: "starttls"}


def _tls(values: dict[str, Any]) -> str:
    return _TLS_BY_PORT.get(values["port"], "none")


def _sender(values: dict[str, Any]) -> str:
    return f"slurm@{values['domain']}"


class Mail(Model):
    """How mail about jobs leaves the cluster."""

    relay: Annotated[str, Field(description="Host that takes mail by SMTP.")]
    port: Annotated[int, Field(ge=1, le=65535, description="Its TCP port.")] = 25
    tls: Annotated[
        Literal["none", "starttls", "tls"],
        Field(
            default_factory=_tls,
            description="Encryption, with a check of the relay's certificate: starttls, tls (from "
            "the first byte), none. Without it tls for port 465, starttls for 587, else none.",
        ),
    ]
    login: Annotated[
        str | None,
        Field(
            description="Login at the relay, whose password is `secrets.mail_password`; null: the "
            "relay asks for none."
        ),
    ] = None
    domain: Annotated[str, Field(description="Domain of users without their own address.")]
    domains: Annotated[
        list[str],
        Field(
            description="Further domains that users may have mail sent to (`sbatch --mail-user`), "
            'besides `domain` and the addresses of people; "*": any.'
        ),
    ] = []
    hourly_limit: Annotated[
        int,
        Field(ge=1, description="Mails about the jobs of one user that are sent in an hour."),
    ] = 100
    sender: Annotated[
        str,
        Field(
            default_factory=_sender,
            description="Address that mail comes from; without it slurm@`domain`.",
        ),
    ]
