"""Checks of which group writes to which shared folder, and of the nodes' scratch folder."""

from collections.abc import Iterator

from muster.definition.checks.paths import is_well_formed
from muster.definition.checks.registry import Finding, check
from muster.definition.checks.rows import Spelling, UnknownName, at, table
from muster.definition.checks.storage import below, of_the_system
from muster.definition.definition import Definition
from muster.definition.schema import patterns
from muster.definition.schema.base import Model
from muster.definition.schema.storage import Folder, project_number

_Place = tuple[str, ...]

# fmt: off
table(
    Spelling("project-name",
        "A project whose name is not that of one folder",
        at("storage.projects.<name>"), patterns.PROJECT_NAME,
        '"{value}" can\'t be the name of a folder in `data`',
        "use letters, digits and _ . -, a letter or digit first"),
    UnknownName("writers-unknown-group",
        "A project, models or images for a group that is not there",
        at("storage.projects.<name>.group", "storage.models.group", "storage.images.group"),
        "users.groups.<name>",
        'no group "{value}"',
        "add it to users.groups"),
)
# fmt: on


def _projects(d: Definition) -> Iterator[tuple[_Place, str, str, Folder]]:
    """Each project: the place of its group, the group, the key of its folder, the folder."""
    storage = d.cluster.storage
    for name, project in storage.projects.items():
        yield ("storage", "projects", name, "group"), project.group, "data", storage.data


def _groups(d: Definition) -> Iterator[tuple[_Place, str, str, Folder]]:
    """Each folder that a group writes to, likewise: those of projects, and the stores."""
    yield from _projects(d)
    storage = d.cluster.storage
    if storage.models is not None and storage.models.group is not None:
        yield ("storage", "models", "group"), storage.models.group, "models", storage.models
    if storage.images is not None and storage.images.group is not None:
        yield ("storage", "images", "group"), storage.images.group, "images", storage.images


@check("writers-read-only")
def writers_read_only(d: Definition) -> Iterator[Finding]:
    """A group that is to write to a folder which all hosts mount read-only."""
    for place, group, key, folder in _groups(d):
        if folder.read_only:
            yield Finding(
                place,
                f'"{group}" could not write: storage.{key} is `read_only`',
                "leave one of the two out",
            )


@check("writers-elsewhere")
def writers_elsewhere(d: Definition) -> Iterator[Finding]:
    """A project in a folder of a server which Muster does not set up.

    POSIX access lists don't pass NFS 4.2: its server alone can set them (setfacl(1)).
    """
    for place, _, key, folder in _projects(d):
        if folder.server is not None:
            yield Finding(
                place,
                f"only {folder.server} can set access lists in storage.{key}",
                "make the folder there, as docs/storage.md says, and take this out",
            )


_QUOTAS = ("quota_gib", "quota_files")


def _quotas(d: Definition, key: str) -> Iterator[tuple[_Place, int]]:
    """Each quota of a folder in `home` or `data`: its place and its value."""
    storage = d.cluster.storage
    owners: dict[_Place, Model] = {}
    if key == "data":
        for name, project in storage.projects.items():
            owners["storage", "projects", name] = project
    else:
        owners["storage", "home"] = storage.home
        for name, person in d.cluster.users.people.items():
            owners["users", "people", name] = person
    for place, owner in owners.items():
        for quota in _QUOTAS:
            value = getattr(owner, quota)
            if value is not None:
                yield (*place, quota), value


@check("home-quota")
def home_quota(d: Definition) -> Iterator[Finding]:
    """A quota of a home where Muster does not enforce it."""
    if not d.cluster.storage.keeps_quotas("home"):
        for place, _ in _quotas(d, "home"):
            yield Finding(
                place,
                "storage.home is no folder that the host in the group `storage` serves by NFS",
                "leave it out, and set the quota where homes are served",
            )


@check("project-quota")
def project_quota(d: Definition) -> Iterator[Finding]:
    """A quota of a project where nothing enforces it."""
    if not d.cluster.storage.keeps_quotas("data"):
        for place, _ in _quotas(d, "data"):
            yield Finding(
                place,
                "storage.data is no folder that Muster serves, by NFS or by a Ceph cluster that it "
                "builds",
                "leave it out, and set the quota where the folder is served",
            )


@check("quota-too-large")
def quota_too_large(d: Definition) -> Iterator[Finding]:
    """A quota of a home or project above what the folder around it holds."""
    for key in ("home", "data"):
        whole = getattr(d.cluster.storage, key).size_gib
        for place, value in _quotas(d, key):
            if place[-1] == "quota_gib" and whole is not None and value > whole:
                yield Finding(
                    place,
                    f"{value} GiB are more than storage.{key} may hold, {whole} GiB",
                    f"say at most {whole}, or a larger `size_gib` of storage.{key}",
                )


@check("project-number-twice")
def project_number_twice(d: Definition) -> Iterator[Finding]:
    """Two projects that the file system would count as one."""
    names: dict[int, str] = {}
    for name in d.cluster.storage.projects:
        other = names.setdefault(project_number(name), name)
        if other != name:
            yield Finding(
                ("storage", "projects", name),
                f'the number of "{name}" for quotas, which follows from the name, is that of '
                f'"{other}"',
                "call it by another name",
            )


@check("scratch-of-the-system")
def scratch_of_the_system(d: Definition) -> Iterator[Finding]:
    """A scratch folder that belongs to the system."""
    path = d.cluster.storage.scratch
    if path is not None and is_well_formed(path) and of_the_system(path):
        yield Finding(
            ("storage", "scratch"),
            f'"{path}" belongs to the system',
            "write the path of a separate folder, such as /scratch",
        )


@check("private-tmp-impossible")
def private_tmp_impossible(d: Definition) -> Iterator[Finding]:
    """A private /tmp where jobs can't have one."""
    cluster = d.cluster
    if not cluster.storage.private_tmp:
        return
    key = ("storage", "private_tmp")
    if cluster.cloud:
        yield Finding(key, "VMs of the cloud give jobs no private /tmp", "leave it out")
    elif cluster.slurm_version < "22.05":
        yield Finding(
            key,
            f"SLURM {cluster.slurm_version} gives jobs no private /tmp, 22.05 is the first",
            "leave it out, or take a system with a later SLURM",
        )


@check("scratch-shared")
def scratch_shared(d: Definition) -> Iterator[Finding]:
    """Scratch in a folder that hosts share: the nodes of a job would share it too."""
    path = d.cluster.storage.scratch
    if path is None or of_the_system(path) or not is_well_formed(path):
        return
    for key, folder in d.cluster.storage.folders():
        if below(path, folder.path) or below(folder.path, path):
            yield Finding(
                ("storage", "scratch"),
                f'"{path}" and storage.{key} "{folder.path}" overlap',
                "scratch is a node's own: name a folder on a disk of the nodes",
            )
