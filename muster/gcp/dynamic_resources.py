"""The dynamic resources of pulumi/: what takes long and has no resource in Google's provider.

The state refers to these classes by their names, and a stack of an older Muster is destroyed with
them, so the names stay. A delete needs its id alone.
"""

import re
import secrets
from typing import Any

from pulumi.dynamic import CreateResult, DiffResult, ResourceProvider, UpdateResult

from muster.gcp import first_boot, image, sweep
from muster.gcp.api import CloudError, exists
from muster.gcp.names import Names
from muster.gcp.patient import PatientCompute

Props = dict[str, Any]

_ID = re.compile(r"projects/([^/]+)/(?:.*/)?([^/]+)")
_NODE_SET = re.compile(r"projects/([^/]+)/clusters/([^/]+)/nodeSets/([^/]+)")


def _progress(line: str) -> None:
    # The engine shows each line at once, beside the resource.
    print(line, flush=True)  # noqa: T201


def _compute(project: str) -> PatientCompute:
    """A client that waits for rights that its caller got just now, and says so."""
    return PatientCompute(project, _progress)


def _parts(identity: str, pattern: re.Pattern[str] = _ID) -> tuple[str, ...]:
    """Project and name of an id `projects/P/.../N`."""
    match = pattern.fullmatch(identity)
    if match is None:
        raise CloudError(f"{identity} is not an id of Muster: the state was changed by hand")
    return match.groups()


def _differs(old: Props, new: Props, *keys: str) -> list[str]:
    return [key for key in keys if old.get(key) != new.get(key)]


class _Provider(ResourceProvider):
    # Google's credentials are the environment's: nothing secret gets into the state this way.
    serialize_as_secret_always = False


class ClaimProvider(_Provider):
    """A cluster's name in a project: refused where another cluster has it.

    Output `suffix` makes names unique that stay taken after their resource is deleted.
    """

    def create(self, props: Props) -> CreateResult:
        """Refuse if the network exists: this stack has none yet."""
        network = Names(props["cluster"], props["project"]).network
        compute = _compute(props["project"])
        if exists(lambda: compute.get(f"global/networks/{network}")):
            raise CloudError(
                f'the project {props["project"]} has a network "{network}" that is not of this '
                "stack: another cluster has the name. Take another cluster.name, another project, "
                "or the stack that the other cluster was made with"
            )
        identity = f"projects/{props['project']}/clusters/{props['cluster']}"
        return CreateResult(identity, {**props, "suffix": secrets.token_hex(3)})

    def diff(self, _id: str, old: Props, new: Props) -> DiffResult:
        """Another cluster or project is another claim."""
        changed = _differs(old, new, "cluster", "project")
        return DiffResult(changes=bool(changed), replaces=changed)


class ImageProvider(_Provider):
    """An image; props are the fields of `image.Build`. Outputs: `name`, `link`."""

    def create(self, props: Props) -> CreateResult:
        """Build it, which takes minutes."""
        fields = {name: props[name] for name in image.Build.__annotations__}
        made = image.build(_compute(props["project"]), image.Build(**fields), _progress)
        return CreateResult(made.link, {**props, "name": made.name, "link": made.link})

    def diff(self, _id: str, old: Props, new: Props) -> DiffResult:
        """Only new contents make another image; the old one goes when nothing refers to it."""
        changed = _differs(old, new, "cluster", "digest", "project")
        return DiffResult(changes=bool(changed), replaces=changed, delete_before_replace=False)

    def delete(self, _id: str, _props: Props) -> None:
        """Delete it."""
        project, name = _parts(_id)
        image.delete(_compute(project), name)


class FirstBootProvider(_Provider):
    """The wait until a VM has applied a bundle.

    Props: `project`, `zone`, `name`, `instance_id`, `bundle` (sha256).
    """

    def create(self, props: Props) -> CreateResult:
        """Wait for a new VM."""
        self._wait(props)
        identity = f"projects/{props['project']}/zones/{props['zone']}/instances/{props['name']}"
        return CreateResult(identity, props)

    def diff(self, _id: str, old: Props, new: Props) -> DiffResult:
        """A VM that is new, or has another bundle to apply, is waited for again."""
        changed = _differs(old, new, "bundle", "instance_id")
        moved = _differs(old, new, "project", "zone", "name")
        return DiffResult(changes=bool(changed or moved), replaces=moved)

    def update(self, _id: str, _old: Props, new: Props) -> UpdateResult:
        """Wait for a VM that exists already."""
        self._wait(new)
        return UpdateResult(new)

    @staticmethod
    def _wait(props: Props) -> None:
        compute = _compute(props["project"])
        first_boot.wait(compute, props["zone"], props["name"], props["bundle"], _progress)


class SweeperProvider(_Provider):
    """No resource in Google Cloud; its deletion deletes whatever the cluster has left.

    On a destroy it comes after the controller, which would recreate nodes, and before the network.
    """

    def create(self, props: Props) -> CreateResult:
        """Make nothing."""
        return CreateResult(f"projects/{props['project']}/clusters/{props['cluster']}", props)

    def diff(self, _id: str, old: Props, new: Props) -> DiffResult:
        """Another cluster or project is swept by another sweeper."""
        changed = _differs(old, new, "cluster", "project")
        return DiffResult(changes=bool(changed), replaces=changed)

    def delete(self, _id: str, _props: Props) -> None:
        """Sweep."""
        project, cluster = _parts(_id)
        sweep.everything(_compute(project), cluster, _progress)


class NodeSweeperProvider(_Provider):
    """No resource in Google Cloud; its deletion deletes the nodes that a node set has left.

    The controller can't: it has rights only on the nodes of sets that the definition has.
    """

    def create(self, props: Props) -> CreateResult:
        """Make nothing."""
        cluster = f"projects/{props['project']}/clusters/{props['cluster']}"
        return CreateResult(f"{cluster}/nodeSets/{props['node_set']}", props)

    def diff(self, _id: str, old: Props, new: Props) -> DiffResult:
        """Another set is swept by another sweeper."""
        changed = _differs(old, new, "cluster", "project", "node_set")
        return DiffResult(changes=bool(changed), replaces=changed)

    def delete(self, _id: str, _props: Props) -> None:
        """Sweep."""
        project, cluster, node_set = _parts(_id, _NODE_SET)
        sweep.nodes(_compute(project), cluster, node_set, _progress)
