"""Instance templates.

https://cloud.google.com/compute/docs/reference/rest/v1/instanceTemplates
"""

from muster.catalog.machine_types import machine_types
from muster_sandbox.fakecloud.api_errors import invalid
from muster_sandbox.fakecloud.call import Call, handler
from muster_sandbox.fakecloud.http import Resource
from muster_sandbox.fakecloud.services.compute import accelerators, defaults, resources
from muster_sandbox.fakecloud.services.compute.labels import metadata
from muster_sandbox.fakecloud.services.compute.resources import Kind

TEMPLATE = Kind("instanceTemplates", "instanceTemplate", "global")

resources.serve(TEMPLATE, "get", "list", "delete", "aggregatedList")


@handler("compute.instanceTemplates.insert")
def insert(call: Call) -> Resource:
    """Make a template. It can't be changed, and what it names is looked up when it is used."""
    body = resources.body(call)
    given = body.get("properties", {})
    machine_type = given.get("machineType", "")
    if "/" in machine_type or machine_type not in machine_types():
        raise invalid(
            f"Invalid value for field 'resource.properties.machineType': '{machine_type}'. "
            "Must be the name of a machine type."
        )
    accelerators.refuse_links(given)
    if not given.get("disks"):
        raise invalid("Invalid value for field 'resource.properties.disks': ''. At least one disk.")
    properties = {
        **defaults.template(given),
        "metadata": metadata(given.get("metadata", {}), "resource.properties.metadata"),
    }
    whole = {"description": "", **body, "properties": properties}
    target, template = resources.new(call, TEMPLATE, whole)
    return resources.insert(call, target, template)
