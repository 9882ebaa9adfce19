# SPDX-License-Identifier: Apache-2.0
"""The filter that turns the definition's software into the data of the role `software`."""

import json
from dataclasses import asdict

from muster.cluster import Software
from muster.modules import render


def modules(software, apps):
    """Return files, installations and packages of the mapping `software` for the folder `apps`."""
    # Through JSON: Ansible's texts carry tags that the schema would not take for text.
    return asdict(render(Software.model_validate(json.loads(json.dumps(software))), str(apps)))


class FilterModule:
    """Registers the filter."""

    def filters(self):
        """Return the filter by name."""
        return {"muster_modules": modules}
