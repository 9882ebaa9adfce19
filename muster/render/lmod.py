"""The definition's software -> modulefiles for Lmod, and what has to be built for them.

Pure: texts and paths. The Ansible module `module_tree` writes, checks and publishes them;
`software_build` builds.
"""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import PurePosixPath

from muster.definition.schema.software import STANDARD_LIBRARY, Software, SoftwareVersion

PROPERTY = ("build", "declared")
"""What a module that is not built is marked with; the role lmod tells Lmod how to show it."""


@dataclass(frozen=True)
class Installation:
    """The folder that a module points to."""

    root: str
    build: str | None
    """Shell command that the play runs if the folder is missing; None: the play runs none."""


@dataclass(frozen=True)
class ModuleTree:
    """All modulefiles of a cluster and what they need."""

    files: dict[str, str]
    """Path below the module tree -> text."""
    installations: tuple[Installation, ...]
    """In the order in which they can be built: what others depend on, or name, comes first."""
    build_packages: tuple[str, ...]
    """Packages of the distribution that only the builds need."""


def packages(software: Software, os: str) -> list[str]:
    """Return what each host needs at run time from the distribution `os` (`debian-12`).

    The whole standard library of its Python is among it: a module or a job that finds a part of it
    on one host must find it on all.
    """
    named = {
        package
        for versions in software.modules.values()
        for data in versions.values()
        for package in data.packages
    }
    return sorted({*STANDARD_LIBRARY[os], *named})


def render(software: Software, apps: str) -> ModuleTree:
    """Return the modulefiles of `software` for a cluster whose shared programs are below `apps`.

    Raises:
        graphlib.CycleError: modules depend on each other in a circle (`muster check` refuses it).

    """
    versions = {
        f"{name}/{version}": data
        for name, by_version in software.modules.items()
        for version, data in by_version.items()
    }
    roots = {
        full_name: data.root or f"{apps}/software/{full_name}"
        for full_name, data in versions.items()
    }
    files = {
        f"{full_name}.lua": _modulefile(full_name, data, roots)
        for full_name, data in versions.items()
    }
    for name, by_version in software.modules.items():
        for version, data in by_version.items():
            if data.default:
                files[f"{name}/.modulerc.lua"] = (
                    f"module_version({_text(f'{name}/{version}')}, {_text('default')})\n"
                )
    order = TopologicalSorter(
        {
            full_name: [other for other in data.built_after(full_name) if other in versions]
            for full_name, data in versions.items()
        }
    )
    by_play = {
        full_name: _filled(data.build, full_name, roots)
        for full_name, data in versions.items()
        if data.build is not None and data.built
    }
    return ModuleTree(
        files=files,
        installations=tuple(
            Installation(roots[full_name], by_play.get(full_name))
            for full_name in order.static_order()
            if _has_root(versions[full_name])
        ),
        build_packages=tuple(
            sorted({package for name in by_play for package in versions[name].build_packages})
        ),
    )


def _has_root(data: SoftwareVersion) -> bool:
    """Whether the module points into its own folder; if not, it only sets the environment."""
    return (
        data.root is not None
        or data.build is not None
        or any("{root}" in value for value in data.env.values())
        or any(not path.startswith("/") for path in data.prepend_path.values())
    )


def _filled(text: str, full_name: str, roots: dict[str, str]) -> str:
    """Replace `{root}` and `{apps/python/3.10}` by folders; other braces belong to the shell."""
    for name, root in roots.items():
        text = text.replace(f"{{{name}}}", root)
    return text.replace("{root}", roots[full_name])


def _modulefile(full_name: str, data: SoftwareVersion, roots: dict[str, str]) -> str:
    path = PurePosixPath(full_name)
    root = roots[full_name]
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
        lines += _missing_root(full_name, data, roots)
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
        f"setenv({_text(variable)}, {_text(_filled(value, full_name, roots))})"
        for variable, value in data.env.items()
    ]
    lines += [
        f"prepend_path({_text(variable)}, {_text(str(PurePosixPath(root) / folder))})"
        for variable, folder in data.prepend_path.items()
    ]
    return "\n".join(lines) + "\n"


def _missing_root(full_name: str, data: SoftwareVersion, roots: dict[str, str]) -> Iterator[str]:
    """Yield the Lua that says what is wrong if the folder of the module is missing."""
    root = roots[full_name]
    yield f"local root = {_text(root)}"
    # A build that has not ended has a file beside its folder: see software_build.
    yield 'if not isDir(root) or isFile(root .. ".building") then'
    if data.built:
        # Only on load: a module that can't be unloaded or listed would make things worse.
        message = (
            f"{full_name}: the folder {root} is not on this host; is it mounted? "
            "If an administrator runs site.yml again, it builds the module or says why it can't."
        )
        yield f'   if mode() == "load" then LmodError({_text(message)}) end'
    else:
        note = f"{full_name} is declared, but not built: there is no {root}."
        command = ""
        if data.build is not None:
            note += " An administrator builds it on the controller with"
            # Not the command itself: pasted as root, it would run as root.
            build = shlex.quote(_filled(data.build, full_name, roots).strip())
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
