"""Members of roles on instances, subnetworks, buckets, secrets, accounts, projects, tunnels."""

from collections.abc import Mapping
from typing import Any

from muster_sandbox.provider.fields import Field
from muster_sandbox.provider.iam import VERSION, Member, Policy
from muster_sandbox.provider.links import last, relative, same_link, same_name
from muster_sandbox.provider.resource import PROJECT

PLACE = Field(local=True, replace=True, computed=True)
OPTIONS = {"options": {"requestedPolicyVersion": VERSION}}


class ComputeMember(Member):
    """GET and POST of Compute Engine."""

    def get_policy(self, path: str) -> Policy:
        query = {"optionsRequestedPolicyVersion": str(VERSION)}
        return self.rest.call("GET", self.product, f"{path}/getIamPolicy", query=query)

    def set_policy(self, path: str, policy: Policy) -> None:
        self.rest.call("POST", self.product, f"{path}/setIamPolicy", body={"policy": policy})


class InstanceMember(ComputeMember):
    kind = "compute/instanceIAMMember:InstanceIAMMember"
    target = {
        "instanceName": Field(local=True, replace=True, same=same_name),
        "project": PROJECT,
        "zone": PLACE,
    }

    def path(self, inputs: Mapping[str, Any]) -> str:
        name = inputs["instanceName"]
        if "/" in name:
            return relative(name)
        return f"projects/{self.project(inputs)}/zones/{self.zone(inputs)}/instances/{name}"


class SubnetworkMember(ComputeMember):
    kind = "compute/subnetworkIAMMember:SubnetworkIAMMember"
    target = {
        "project": PROJECT,
        "region": PLACE,
        "subnetwork": Field(local=True, replace=True, same=same_link),
    }

    def path(self, inputs: Mapping[str, Any]) -> str:
        name = inputs["subnetwork"]
        if "/" in name:
            return relative(name)
        return f"projects/{self.project(inputs)}/regions/{self.region(inputs)}/subnetworks/{name}"


class ImageMember(ComputeMember):
    kind = "compute/imageIamMember:ImageIamMember"
    target = {"image": Field(local=True, replace=True, same=same_link), "project": PROJECT}

    def path(self, inputs: Mapping[str, Any]) -> str:
        return f"projects/{self.project(inputs)}/global/images/{last(inputs['image'])}"


class DiskMember(ComputeMember):
    kind = "compute/diskIamMember:DiskIamMember"
    named_by = "name"
    target = {
        "name": Field(local=True, replace=True, computed=True, same=same_name),
        "project": PROJECT,
        "zone": PLACE,
    }

    def path(self, inputs: Mapping[str, Any]) -> str:
        zone = self.zone(inputs)
        return f"projects/{self.project(inputs)}/zones/{zone}/disks/{last(inputs['name'])}"


class BucketMember(Member):
    kind = "storage/bucketIAMMember:BucketIAMMember"
    product = "storage"
    target = {"bucket": Field(local=True, replace=True, same=same_name)}

    def path(self, inputs: Mapping[str, Any]) -> str:
        return f"b/{last(inputs['bucket'])}"

    def get_policy(self, path: str) -> Policy:
        query = {"optionsRequestedPolicyVersion": str(VERSION)}
        return self.rest.call("GET", self.product, f"{path}/iam", query=query)

    def set_policy(self, path: str, policy: Policy) -> None:
        self.rest.call("PUT", self.product, f"{path}/iam", body=policy)


class SecretMember(Member):
    kind = "secretmanager/secretIamMember:SecretIamMember"
    product = "secret_manager"
    target = {"project": PROJECT, "secretId": Field(local=True, replace=True, same=same_name)}

    def path(self, inputs: Mapping[str, Any]) -> str:
        return f"projects/{self.project(inputs)}/secrets/{last(inputs['secretId'])}"

    def get_policy(self, path: str) -> Policy:
        query = {"options.requestedPolicyVersion": str(VERSION)}
        return self.rest.call("GET", self.product, f"{path}:getIamPolicy", query=query)

    def set_policy(self, path: str, policy: Policy) -> None:
        self.rest.call("POST", self.product, f"{path}:setIamPolicy", body={"policy": policy})


class AccountMember(Member):
    kind = "serviceaccount/iAMMember:IAMMember"
    product = "iam_beta"
    target = {"serviceAccountId": Field(local=True, replace=True, same=same_link)}

    def path(self, inputs: Mapping[str, Any]) -> str:
        return relative(inputs["serviceAccountId"])

    def get_policy(self, path: str) -> Policy:
        query = {"options.requestedPolicyVersion": str(VERSION)}
        return self.rest.call("POST", self.product, f"{path}:getIamPolicy", query=query)

    def set_policy(self, path: str, policy: Policy) -> None:
        self.rest.call("POST", self.product, f"{path}:setIamPolicy", body={"policy": policy})


class ProjectMember(Member):
    """Its id begins with the project's name alone, and `project` must be given."""

    kind = "projects/iAMMember:IAMMember"
    product = "resource_manager"
    batched = True
    deletes_first = True
    target = {"project": Field(local=True, replace=True, same=same_name)}

    def path(self, inputs: Mapping[str, Any]) -> str:
        return str(last(inputs["project"]))

    def get_policy(self, path: str) -> Policy:
        return self.rest.call("POST", self.product, f"projects/{path}:getIamPolicy", body=OPTIONS)

    def set_policy(self, path: str, policy: Policy) -> None:
        body = {"policy": policy, "updateMask": "bindings,etag,auditConfigs"}
        self.rest.call("POST", self.product, f"projects/{path}:setIamPolicy", body=body)


class TunnelInstanceMember(Member):
    kind = "iap/tunnelInstanceIAMMember:TunnelInstanceIAMMember"
    product = "iap"
    target = {
        "instance": Field(local=True, replace=True, same=same_name),
        "project": PROJECT,
        "zone": PLACE,
    }

    def path(self, inputs: Mapping[str, Any]) -> str:
        project, zone = self.project(inputs), self.zone(inputs)
        return f"projects/{project}/iap_tunnel/zones/{zone}/instances/{last(inputs['instance'])}"

    def get_policy(self, path: str) -> Policy:
        return self.rest.call("POST", self.product, f"{path}:getIamPolicy", body=OPTIONS)

    def set_policy(self, path: str, policy: Policy) -> None:
        self.rest.call("POST", self.product, f"{path}:setIamPolicy", body={"policy": policy})
