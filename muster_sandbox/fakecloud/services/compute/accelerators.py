"""GPUs that are attached to instances; each type is in all zones.

The instance doesn't list the GPUs that belong to its machine type:
https://cloud.google.com/compute/docs/reference/rest/v1/AcceleratorConfig
"""

from muster.catalog.accelerators import KINDS, api_name, most_cpus, taken_by
from muster.catalog.machine_types import machine_types
from muster_sandbox.fakecloud.api_errors import invalid
from muster_sandbox.fakecloud.call import Call
from muster_sandbox.fakecloud.http import Resource
from muster_sandbox.fakecloud.operations import LINK
from muster_sandbox.fakecloud.services.compute import resources

_KINDS = {api_name(kind): kind for kind in KINDS}


def attached(call: Call, given: list[Resource], machine_type: str) -> list[Resource]:
    """The GPUs of an instance with links of their types; 400 if they don't fit its machine type."""
    shape = machine_types()[machine_type.rpartition("/")[2]]
    checked = []
    for number, entry in enumerate(given):
        field = f"resource.guestAccelerators[{number}]"
        text, count = entry.get("acceleratorType", ""), entry.get("acceleratorCount", 0)
        link = _link(call, text, f"{field}.acceleratorType")
        name = link.rpartition("/")[2]
        if not taken_by(shape):
            raise invalid(
                f"[{shape.name}, {name}] features are not compatible for creating instance."
            )
        most = most_cpus(_KINDS[name])
        wrong = f"Invalid value for field '{field}.acceleratorCount': '{count}'."
        if count not in most:
            raise invalid(
                f"{wrong} Number of accelerator cards attached to an instance must be one of "
                f"{list(most)}."
            )
        if shape.cpus > most[count]:
            raise invalid(
                f"{wrong} At most {most[count]} vCPUs can be used along with {count} accelerator "
                "cards in an instance."
            )
        checked.append({"acceleratorType": link, "acceleratorCount": count})
    return checked


def refuse_links(properties: Resource) -> None:
    """400 for a template with a link to an accelerator type: a template has no zone, only names."""
    for number, entry in enumerate(properties.get("guestAccelerators", [])):
        if "/" in entry.get("acceleratorType", ""):
            raise invalid(
                "Invalid value for field "
                f"'resource.properties.guestAccelerators[{number}].acceleratorType': "
                f"'{entry['acceleratorType']}'. Must be the name of an accelerator type."
            )


def _link(call: Call, text: str, field: str) -> str:
    name, place = text.rpartition("/")[2], resources.location(call)
    given = text.partition("zones/")[2].partition("/")[0]
    if name not in _KINDS or (given and f"zones/{given}" != place):
        raise invalid(
            f"Invalid value for field '{field}': '{text}'. "
            f"Accelerator type with name '{name}' does not exist in zone '{place[6:]}'."
        )
    return f"{LINK}projects/{call.project}/{place}/acceleratorTypes/{name}"
