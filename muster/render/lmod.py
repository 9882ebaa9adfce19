"""The definition's software -> modulefiles for Lmod, and what has to be built for them.

Pure: texts and paths. The Ansible module `module_tree` writes, checks and publishes them;
`software_build` builds.
"""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from muster.definition.schema.software import STANDARD_LIBRARY, Software, SoftwareVersion
from muster.render import verification
from muster.render.releases import IMAGES, Release, filled, releases, versions

PROPERTY = ("build", "declared")
"""What a module that is not built is marked with; the role lmod tells Lmod how to show it."""

ENVIRONMENTS = "MUSTER_ENVIRONMENTS"
"""Variable with the environments that are loaded, for sitecustomize.py of the role software.

That shows their packages to a user's own virtual environment, behind the packages of that one. In
PYTHONPATH they would come first, and hide them.
"""


MOUNTER = "autofs"
"""Package that mounts packed releases when somebody enters them (role lmod)."""


@dataclass(frozen=True)
class Installation:
    """The folder that a module points to."""

    module: str
    """Name and version: `apps/python/3.11`."""
    root: str
    build: str | None
    """Shell command that the play runs if the folder is missing; None: the play runs none."""
    verify: str | None
    """Shell command that looks whether it works; None: nothing does."""
    is_release: bool
    """Whether it is made from the definition, by the play or by hand, and then never changes."""
    image: str | None
    """File that the folder is packed into; None: it stays a folder."""
    requirements: str | None
    """Text of the file `root`.txt; None: there is none."""
    built_on: list[str]
    """Releases that must stay as long as this one."""


@dataclass(frozen=True)
class ModuleTree:
    """All modulefiles of a cluster and what they need."""

    files: dict[str, str]
    """Path below the module tree -> text."""
    installations: tuple[Installation, ...]
    """In the order in which they can be built: what others depend on, or name, comes first."""
    build_packages: tuple[str, ...]
    """Packages of the distribution that only the builds need."""
    loads: tuple[str, ...]
    """Modules that load on the host that builds, if nothing is wrong: `apps/python/3.11`.

    Not among them are those that need a folder which somebody else fills, maybe on other hosts."""


def packages(software: Software, os: str) -> list[str]:
    """Return what each host needs at run time from the distribution `os` (`debian-12`).

    The whole standard library of its Python is among it: a module or a job that finds a part of it
    on one host must find it on all. So is what mounts packed releases.
    """
    named = {
        package
        for versions in software.modules.values()
        for data in versions.values()
        for package in data.packages
    }
    mounter = [MOUNTER] if has_packed(software) else []
    return sorted({*STANDARD_LIBRARY[os], *named, *mounter})


def has_packed(software: Software) -> bool:
    """Whether there are releases that hosts mount."""
    return any(data.is_packed for data in versions(software).values())


def images(software: Software, apps: str) -> str:
    """Return the folder of packed releases, empty if there are none."""
    return f"{apps}/{IMAGES}" if has_packed(software) else ""


def render(software: Software, apps: str, os: str, requirements: Mapping[str, str]) -> ModuleTree:
    """Return the modulefiles of `software` for a cluster whose shared programs are below `apps`.

    Args:
        software: Of the definition.
        apps: Folder of shared programs.
        os: Release of the distribution: `debian-12`.
        requirements: Path in the definition -> text of each file of requirements.

    Raises:
        graphlib.CycleError: modules depend on each other in a circle (`muster check` refuses it).

    """
    named = versions(software)
    made = releases(software, apps, os, requirements)
    roots = {name: release.root for name, release in made.items()}
    modulefiles = {
        name: _Modulefile(name, data, made[name], roots, apps) for name, data in named.items()
    }
    files = {f"{name}.lua": modulefile.text() for name, modulefile in modulefiles.items()}
    for name, by_version in software.modules.items():
        for version, data in by_version.items():
            if data.default:
                files[f"{name}/.modulerc.lua"] = (
                    f"module_version({_text(f'{name}/{version}')}, {_text('default')})\n"
                )
    by_play = [release for name, release in made.items() if named[name].built and release.command]
    return ModuleTree(
        files=files,
        installations=tuple(
            Installation(
                module=name,
                root=release.root,
                build=release.command if named[name].built else None,
                verify=_verification(name, modulefiles) if release.command else None,
                is_release=release.command is not None,
                image=release.image,
                requirements=release.requirements,
                built_on=list(release.built_on),
            )
            for name, release in made.items()
            if _has_root(named[name])
        ),
        build_packages=tuple(sorted({name for release in by_play for name in release.packages})),
        loads=tuple(
            name
            for name in named
            if not any(_is_of_others(named[other]) for other in _loaded(name, modulefiles))
        ),
    )


def _verification(name: str, modulefiles: "Mapping[str, _Modulefile]") -> str:
    """Return the command that looks whether a release works as if its module was loaded."""
    loaded = [modulefiles[other] for other in _loaded(name, modulefiles)]
    return verification.command(
        modulefiles[name].release,
        modulefiles[name].data.imports,
        [variable for modulefile in loaded for variable in modulefile.variables()],
        [folder for modulefile in loaded for folder in modulefile.folders()],
    )


def _loaded(name: str, modulefiles: "Mapping[str, _Modulefile]") -> list[str]:
    """Return the modules that are loaded with one, in the order of loading; itself is the last."""
    names: dict[str, None] = {}
    for other in modulefiles[name].data.depends_on:
        if other in modulefiles:
            names |= dict.fromkeys(_loaded(other, modulefiles))
    return [*names, name]


def _is_of_others(data: SoftwareVersion) -> bool:
    """Whether the module refuses to load without a folder that Muster does not fill."""
    return _has_root(data) and data.built and not data.is_built


def _has_root(data: SoftwareVersion) -> bool:
    """Whether the module points into its own folder; if not, it only sets the environment."""
    return (
        data.root is not None
        or data.is_built
        or any("{root}" in value for value in data.env.values())
        or any(not path.startswith("/") for path in data.prepend_path.values())
    )


@dataclass(frozen=True)
class _Modulefile:
    name: str
    data: SoftwareVersion
    release: Release
    roots: Mapping[str, str]
    apps: str

    def text(self) -> str:
        """Return it in Lua."""
        data, path = self.data, PurePosixPath(self.name)
        lines = [
            f"whatis({_text(f'Name: {path.parent.name}')})",
            f"whatis({_text(f'Version: {path.name}')})",
            f"whatis({_text(f'Category: {path.parts[0]}')})",
        ]
        if data.whatis:
            lines.append(f"whatis({_text(f'Description: {data.whatis}')})")
        help_text = data.help or data.whatis
        lines.append(f"local text = {_text(f'{help_text.strip()}{chr(10)}')}")
        if _has_root(data):
            lines += self._missing_root()
        lines.append("help(text)")
        if data.family is not None:
            lines.append(f"family({_text(data.family)})")
        for call, names in (("depends_on", data.depends_on), ("conflict", data.conflict)):
            if names:
                lines.append(f"{call}({', '.join(_text(name) for name in names)})")
        lines += [
            f"add_property({_text(key)}, {_text(value)})" for key, value in data.properties.items()
        ]
        lines += [
            f"setenv({_text(variable)}, {_text(value)})" for variable, value in self.variables()
        ]
        lines += [
            f"prepend_path({_text(variable)}, {_text(folder)})"
            for variable, folder in self.folders()
        ]
        return "\n".join(lines) + "\n"

    def variables(self) -> Iterator[tuple[str, str]]:
        """Yield the variables that it sets, with their values."""
        for variable, value in self.data.env.items():
            yield variable, filled(value, self.roots, self.release.root)

    def folders(self) -> Iterator[tuple[str, str]]:
        """Yield the variables of paths, with the folder that it puts in front of each."""
        for variable, folder in self.data.prepend_path.items():
            yield variable, str(PurePosixPath(self.release.root) / folder)
        if self.data.environment is not None:
            if "PATH" not in self.data.prepend_path:
                yield "PATH", f"{self.release.root}/bin"
            yield ENVIRONMENTS, self.release.root
            yield "PYTHONPATH", f"{self.apps}/.muster/python"

    def _missing_root(self) -> Iterator[str]:
        """Yield the Lua that says what is wrong if the folder of the module is missing."""
        root = self.release.root
        yield f"local root = {_text(root)}"
        # A build that has not ended has a file beside its folder: see software_build.
        missing, packed = 'not isDir(root) or isFile(root .. ".building")', self.data.is_packed
        if packed:
            # A look mounts it, and Lmod evaluates all modulefiles when it makes its cache.
            missing = f'mode() == "load" and ({missing})'
        yield f"if {missing} then"
        if self.data.built:
            # Only on load: a module that can't be unloaded or listed would make things worse.
            mounts = f"is {self.apps} mounted, and does autofs run?" if packed else "is it mounted?"
            message = (
                f"{self.name}: the folder {root} is not on this host; {mounts} "
                "If an administrator runs site.yml again, it builds the module or says why it "
                "can't."
            )
            yield f'   if mode() == "load" then LmodError({_text(message)}) end'
        else:
            note = f"{self.name} is declared, but not built: there is no {root}."
            command = ""
            if self.release.command is not None:
                note += " An administrator builds it on the controller with"
                # Not the command itself: pasted as root, it would run as root.
                build = shlex.quote(self.release.command.strip())
                command = f"   muster-build {root} {build}\n"
            yield f"   whatis({_text('Status: declared, not built')})"
            yield f"   add_property({', '.join(_text(word) for word in PROPERTY)})"
            yield f"   local note = {_text(note)}"
            yield f"   local command = {_text(command)}"
            yield '   text = text .. "\\n" .. note .. "\\n" .. command'
            yield '   if mode() == "load" then'
            yield "      LmodMessage(note)"
            # Not in the message, which Lmod wraps: a command must stay in one line to be pasted.
            yield "      io.stderr:write(command)"
            yield "   end"
        yield "end"


def _text(value: str) -> str:
    """Return `value` as a string literal of Lua."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    # Three digits, so that a digit after it is not read as a part of the escape.
    return '"' + "".join(c if c.isprintable() else _bytes(c) for c in escaped) + '"'


def _bytes(character: str) -> str:
    return "".join(f"\\{byte:03d}" for byte in character.encode())
