"""Keys that people write for something that the schema says in another way or at another place."""

from dataclasses import dataclass

from pydantic import BaseModel

from muster.definition.schema.database import Database
from muster.definition.schema.directory import Directory
from muster.definition.schema.limits import Association
from muster.definition.schema.mail import Mail
from muster.definition.schema.node_sets import Machines, Partition, VirtualMachines
from muster.definition.schema.people import Account


@dataclass(frozen=True)
class OtherKey:
    """What to write in place of a key, of which a likeness of names would tell something else."""

    remedy: str
    meant: str | None = None
    """The key of the same mapping that it stands for, if it does."""


def _secret(name: str, where: str = "in secrets.yml") -> OtherKey:
    return OtherKey(f"it is `secrets.{name}`, {where} and never in cluster.yml")


_GPUS = OtherKey(
    "GPUs are limited by `max_tres_per_job: {gpu: N}` for one job, `grp_tres: {gpu: N}` for all "
    "together"
)
_OTHER_KEYS: dict[tuple[type[BaseModel], str], OtherKey] = {
    (Directory, "bind_password"): _secret("directory_password"),
    (Database, "password"): _secret("slurmdbd_password"),
    (Mail, "password"): _secret(
        "mail_password", "in secrets.yml or, in the cloud, in Secret Manager,"
    ),
    (Mail, "server"): OtherKey('did you mean "relay"?', "relay"),
    (Partition, "allow_accounts"): OtherKey(
        "say `groups` of the partition, or `allow_qos` with a QoS that only these accounts have"
    ),
    (Partition, "max_nodes"): OtherKey(
        "say `max_tres_per_job: {node: N}` of a QoS, with that QoS as `qos` of the partition"
    ),
    (Account, "max_gpus"): _GPUS,
    (Association, "max_gpus"): _GPUS,
    (VirtualMachines, "min_nodes"): OtherKey(
        "take it out: nodes exist while jobs run, and `idle_seconds` after the last one"
    ),
    (Machines, "memory_gib"): OtherKey(
        "write `memory_mib`, in MiB: 120 GiB are 122880", "memory_mib"
    ),
}


def other_key(owner: type[BaseModel] | None, key: str) -> OtherKey | None:
    """What to write in place of a key that a mapping does not have, if people often write it."""
    return _OTHER_KEYS.get((owner, key)) if owner else None
