"""Checks of the module tree: what Lmod can't use."""

from collections.abc import Iterator

from muster.definition.checks.registry import Finding, check, source_check
from muster.definition.checks.rows import Spelling, UnknownName, at, table
from muster.definition.definition import Definition
from muster.definition.examples import text_of
from muster.definition.schema.software import KINDS, SoftwareVersion, folders_in
from muster.definition.schema_errors import UNVERSIONED
from muster.definition.sources import Sources
from muster.definition.yaml_file import KeyPath

# Names of folders: 255 bytes at most. A file VERSION.building is beside the folder of a version.
_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,254}(?:/[A-Za-z0-9_][A-Za-z0-9_.+-]{0,254})*"
_VERSION = r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,245}"
_MODULE = "software.modules.<name>.<version>"


def _versions(d: Definition) -> Iterator[tuple[str, KeyPath, SoftwareVersion]]:
    """Full name, place and content of each module."""
    for name, versions in d.cluster.software.modules.items():
        for version, content in versions.items():
            path = ("software", "modules", name, version)
            yield f"{name}/{version}", path, content


def _inserted_folders(d: Definition) -> Iterator[tuple[KeyPath, str]]:
    for _, path, content in _versions(d):
        texts: dict[KeyPath, str] = {("build",): content.build or ""}
        texts |= {("env", name): value for name, value in content.env.items()}
        for place, text in texts.items():
            for wanted in folders_in(text):
                yield (*path, *place), wanted


# fmt: off
table(
    Spelling("module-name",
        "A module name that can't be a path below the module tree",
        at("software.modules.<name>"), _NAME,
        '"{value}" can\'t be the name of a module',
        "write it like apps/python: up to 255 letters, digits and _.+- between slashes"),
    Spelling("module-version",
        "A module version that can't be the name of a file",
        at(_MODULE), _VERSION,
        '"{value}" can\'t be the version of a module',
        "use up to 246 letters, digits and _.+-"),
    Spelling("module-underscores",
        "Two underscores at the start of a name: Lmod keeps them for itself",
        at("software.modules.<name>"), lambda name: "/__" not in f"/{name}",
        '"{value}" has two underscores at the start of a name',
        "leave them out"),
    UnknownName("module-unknown-dependency",
        "A module that depends on one that is not there",
        at(f"{_MODULE}.depends_on.[]"), _MODULE,
        'no module "{value}"',
        "write name and version: apps/python/3.10"),
    Spelling("module-variable",
        "An environment variable that no shell takes",
        at(f"{_MODULE}.env.<name>", f"{_MODULE}.prepend_path.<name>"), r"[A-Za-z_][A-Za-z0-9_]*",
        '"{value}" can\'t be an environment variable',
        "use letters, digits and underscores, no digit first"),
    UnknownName("module-unknown-folder",
        "A `{name/version}` in a command or variable that names no module",
        _inserted_folders, _MODULE,
        'no module "{value}" has a folder to insert there',
        "write name and version: {apps/python/3.10}"),
    UnknownName("module-unknown-interpreter",
        "A Python environment on a module that is not there",
        at(f"{_MODULE}.environment.python"), _MODULE,
        'no module "{value}"',
        "write name and version: apps/python/3.11"),
)
# fmt: on


@source_check("module-content-without-version", UNVERSIONED)
def module_content_without_version(sources: Sources) -> Iterator[Finding]:
    """The keys of a version directly below a module, or below a name with the version in it."""
    for error in sources.schema_errors:
        if error.kind == UNVERSIONED:
            name, family, keys = error.path[-1], error.context["family"], error.context["keys"]
            content = f"{{{', '.join(f'{key}: ...' for key in keys)}}}"
            if family != name:
                said = f'"{name}" has its version in its name'
                version = text_of(error.value)
                remedy = f"name the module {family}, and write {version}: {content} below it"
            else:
                said = f'"{name}" has no version above {", ".join(keys) or "it"}'
                spelt = sources.cluster.raw.get(("cluster", *error.path, "version"))
                version = text_of(spelt or error.value or "VERSION")
                remedy = f"write {family}: {{{version}: {content}}}"
            yield Finding(error.path, said, remedy)


@check("module-without-version")
def module_without_version(d: Definition) -> Iterator[Finding]:
    """A module without any version."""
    for name, versions in d.cluster.software.modules.items():
        if not versions:
            yield Finding(
                ("software", "modules", name), f'"{name}" has no version', "add one, or take it out"
            )


@check("module-below-module")
def module_below_module(d: Definition) -> Iterator[Finding]:
    """A module whose versions lie beside the folder of another: Lmod drops those versions."""
    modules = d.cluster.software.modules
    for name in modules:
        parts = name.split("/")
        above = ["/".join(parts[:length]) for length in range(1, len(parts))]
        for folder in above:
            if folder in modules:
                yield Finding(
                    ("software", "modules", name),
                    f'"{name}" lies in the folder of the module "{folder}"',
                    "versions and folders can't be mixed: rename one of the two",
                )


@check("two-default-versions")
def two_default_versions(d: Definition) -> Iterator[Finding]:
    """Two default versions of one module."""
    for name, versions in d.cluster.software.modules.items():
        defaults = [version for version, content in versions.items() if content.default]
        for version in defaults[1:]:
            yield Finding(
                ("software", "modules", name, version, "default"),
                f"{name}/{defaults[0]} is the default already",
                "leave `default: true` with one version",
            )


@check("module-cycle")
def module_cycle(d: Definition) -> Iterator[Finding]:
    """Modules that need each other in a ring, to be loaded or to be built."""
    modules = {full: (path, content) for full, path, content in _versions(d)}
    done: set[str] = set()

    def ring(full: str, chain: list[str]) -> list[str] | None:
        if full in chain:
            return [*chain[chain.index(full) :], full]
        if full in done or full not in modules:
            return None
        chain.append(full)
        for wanted in modules[full][1].built_after(full):
            if cycle := ring(wanted, chain):
                return cycle
        chain.pop()
        done.add(full)
        return None

    for full in modules:
        if full not in done and (cycle := ring(full, [])):
            done.update(cycle)
            path, content = modules[cycle[0]]
            environment = content.environment
            if cycle[1] in content.depends_on:
                place: KeyPath = ("depends_on",)
            elif environment is not None and cycle[1] == environment.python:
                place = ("environment", "python")
            else:
                place = ("build",)
            yield Finding(
                (*path, *place),
                f"{' needs '.join(cycle)}: a ring",
                "take one of them out of `depends_on`, `build` or `environment`",
            )


@check("module-conflicts-with-dependency")
def module_conflicts_with_dependency(d: Definition) -> Iterator[Finding]:
    """A module that can't be loaded beside what it loads itself."""
    for _, path, content in _versions(d):
        for index, other in enumerate(content.conflict):
            hit = [w for w in content.depends_on if w == other or w.startswith(f"{other}/")]
            if hit:
                yield Finding(
                    (*path, "conflict", index),
                    f'"{other}" is in conflict, and depends_on loads {hit[0]}',
                    "take it out of one of the two",
                )


@check("module-family-twice")
def module_family_twice(d: Definition) -> Iterator[Finding]:
    """A module that depends on two of one family: Lmod swaps one for the other."""
    families = {full: content.family for full, _, content in _versions(d)}
    for _, path, content in _versions(d):
        first: dict[str, str] = {}
        for index, wanted in enumerate(content.depends_on):
            family = families.get(wanted)
            other = first.setdefault(family, wanted) if family else wanted
            if other != wanted:
                yield Finding(
                    (*path, "depends_on", index),
                    f"{wanted} and {other} are both of the family {family}, of which one can be "
                    "loaded",
                    "take one of them out",
                )


@check("module-without-command")
def module_without_command(d: Definition) -> Iterator[Finding]:
    """A module that is not built, and nothing that says how to."""
    for full, path, content in _versions(d):
        if not content.built and not content.is_built:
            yield Finding(
                (*path, "built"),
                f"{full} is not built and nothing says how to",
                "add `build` with the command, or take `built: false` out",
            )


@check("imports-without-release")
def imports_without_release(d: Definition) -> Iterator[Finding]:
    """Imports of a module that Muster does not build, and so does not verify."""
    for full, path, content in _versions(d):
        if content.imports and not content.is_built:
            yield Finding(
                (*path, "imports"),
                f"nothing builds {full}, so nothing verifies it",
                f"take them out, or say what fills its folder: {', '.join(KINDS)}",
            )


@check("packed-without-release")
def packed_without_release(d: Definition) -> Iterator[Finding]:
    """A module to be packed that Muster does not build, or that an administrator builds."""
    for full, path, content in _versions(d):
        if content.is_packed and not content.is_built:
            yield Finding(
                (*path, "form"),
                f"nothing builds {full}, so nothing can be packed",
                f"take `form` out, or say what fills its folder: {', '.join(KINDS)}",
            )
        elif content.is_packed and not content.built:
            yield Finding(
                (*path, "form"),
                f"an administrator builds {full}, and only what the play builds is packed",
                "take `form` out, or `built: false`",
            )


@check("packed-without-share")
def packed_without_share(d: Definition) -> Iterator[Finding]:
    """A module to be packed where Muster shares no folder of programs, so each host has its own."""
    apps = d.cluster.storage.apps
    for full, path, content in _versions(d):
        if content.is_packed and apps.kind == "existing":
            yield Finding(
                (*path, "form"),
                f"Muster mounts no shared folder at {apps.path}, so hosts could not mount {full}",
                "take `form` out, or give storage.apps a `kind: nfs` or `kind: ceph`",
            )


@check("packed-with-private-tmp")
def packed_with_private_tmp(d: Definition) -> Iterator[Finding]:
    """A module to be packed where jobs have a private /tmp: they see nothing mounted later."""
    for full, path, content in _versions(d):
        if content.is_packed and d.cluster.storage.private_tmp:
            yield Finding(
                (*path, "form"),
                f"a job with a private /tmp does not see {full}, which is mounted when it is used",
                "take `form` out, or storage.private_tmp",
            )


@check("module-two-kinds")
def module_two_kinds(d: Definition) -> Iterator[Finding]:
    """A module whose folder is filled in several ways."""
    for full, path, content in _versions(d):
        kinds = [kind for kind in KINDS if getattr(content, kind) is not None]
        for kind in kinds[1:]:
            yield Finding(
                (*path, kind),
                f"{full} has {kinds[0]} too, and one of them fills its folder",
                "take one of them out, or make two modules of it",
            )


@check("module-environment-without-interpreter")
def module_environment_without_interpreter(d: Definition) -> Iterator[Finding]:
    """A Python environment on a module that has no folder, and so no interpreter in it."""
    modules = {full: content for full, _, content in _versions(d)}
    for _, path, content in _versions(d):
        if content.environment is None:
            continue
        on = modules.get(content.environment.python)
        if on is not None and not on.is_built and on.root is None:
            yield Finding(
                (*path, "environment", "python"),
                f"nothing fills the folder of {content.environment.python}",
                "name a module with `build` that makes an interpreter, as "
                "`python3 -m venv {root}` does, or give it the `root` of one that is there",
            )


@check("packages-without-command")
def packages_without_command(d: Definition) -> Iterator[Finding]:
    """Packages for building a module that the play does not build."""
    for full, path, content in _versions(d):
        if content.build_packages and not (content.is_built and content.built):
            yield Finding(
                (*path, "build_packages"),
                f"the play does not build {full}, so it installs no packages for that",
                "take them out, write those that it needs at run time into `packages`, or let the "
                "play build it: with `build` for example, without `built: false`",
            )
