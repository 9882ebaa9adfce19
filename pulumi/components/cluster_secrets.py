"""The cluster's secrets, empty: neither this program nor the laptop that runs it sees a value.

The controller's first boot adds a version where there is none; a person adds the mail relay's
password if the relay wants one.
"""

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from muster.gcp.names import Names

READS = "roles/secretmanager.secretAccessor"
ADDS = "roles/secretmanager.secretVersionAdder"


@dataclass(frozen=True, kw_only=True)
class ClusterSecretsArgs:
    """Who reads what; all as members, `serviceAccount:EMAIL`."""

    names: Names
    controller: pulumi.Input[str]
    login: pulumi.Input[str]
    node: pulumi.Input[str]


class ClusterSecrets(pulumi.ComponentResource):
    """Secrets in Secret Manager, and who may read them and add to them."""

    def __init__(
        self,
        name: str,
        *,
        args: ClusterSecretsArgs,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("muster:gcp:ClusterSecrets", name, None, opts)
        munge_key = self._secret(f"{name}-munge-key", args.names, args.names.munge_key)
        password = self._secret(
            f"{name}-slurmdbd-password", args.names, args.names.slurmdbd_password
        )
        for what, secret in {"munge-key": munge_key, "slurmdbd-password": password}.items():
            self._allow(f"{name}-{what}-controller", secret, READS, args.controller)
            self._allow(f"{name}-{what}-controller-adds", secret, ADDS, args.controller)
        mail = self._secret(f"{name}-mail-password", args.names, args.names.mail_password)
        self._allow(f"{name}-mail-password-controller", mail, READS, args.controller)
        self._allow(f"{name}-munge-key-login", munge_key, READS, args.login)
        self._allow(f"{name}-munge-key-node", munge_key, READS, args.node)
        self.register_outputs({})

    def _secret(self, name: str, names: Names, secret_id: str) -> gcp.secretmanager.Secret:
        return gcp.secretmanager.Secret(
            name,
            secret_id=secret_id,
            replication={"auto": {}},
            labels={"muster-cluster": names.cluster},
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _allow(
        self, name: str, secret: gcp.secretmanager.Secret, role: str, member: pulumi.Input[str]
    ) -> None:
        gcp.secretmanager.SecretIamMember(
            name,
            secret_id=secret.secret_id,
            role=role,
            member=member,
            opts=pulumi.ResourceOptions(parent=self),
        )
