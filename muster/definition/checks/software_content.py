"""Checks of what a module sets, and of the command that builds it."""

import re
from collections.abc import Iterator

from muster.definition.checks.registry import Finding, check, suggestion
from muster.definition.checks.rows import Spelling, at, table
from muster.definition.definition import Definition
from muster.definition.schema.software import SoftwareVersion, folders_in
from muster.definition.yaml_file import KeyPath

_MODULE = "software.modules.<name>.<version>"
_PROPERTIES = {
    "arch": ("gpu", "mic", "offload"),
    "lmod": ("sticky",),
    "state": ("experimental", "obsolete", "testing"),
    "status": ("active",),
}
"""Properties and values of Lmod's own lmodrc.lua; it stops at any other."""
_LISTS = frozenset(
    (
        *("PATH", "MANPATH", "INFOPATH", "CDPATH", "FPATH", "MODULEPATH"),
        *("XDG_DATA_DIRS", "XDG_CONFIG_DIRS", "LD_LIBRARY_PATH", "LD_RUN_PATH", "LIBRARY_PATH"),
        *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "PKG_CONFIG_PATH", "ACLOCAL_PATH"),
        *("CMAKE_PREFIX_PATH", "PYTHONPATH", "PERL5LIB", "RUBYLIB", "GEM_PATH", "NODE_PATH"),
        *("CLASSPATH", "R_LIBS", "JULIA_LOAD_PATH"),
    )
)
"""Variables that hold folders of many modules and of the system."""
_TAKEN = frozenset(
    (
        *("LOADEDMODULES", "_LMFILES_", "HOME", "USER", "LOGNAME", "SHELL", "PWD"),
        *("BASH_ENV", "ENV", "SLURM_CONF", "MUSTER_ENVIRONMENTS"),
    )
)
"""Variables of Lmod, of the login, of SLURM's own configuration and of Python environments."""
_ENTRY = re.compile(r"/?(?:[A-Za-z0-9._+-]+(?:/[A-Za-z0-9._+-]+)*/?)?")
_WORD = re.compile(r"(?<!\$)\{([A-Za-z][A-Za-z0-9_]*)\}")
_BEHIND_DOLLAR = re.compile(r"\$\{([^{}]+)\}")
_GIT = re.compile(
    r"(?:git\+|git@|git:|ssh:).*|.*\.git/?(?:[#@][^/]*)?|https://git(?:hub|lab)\.com/[^/]+/[^/]+/?"
)
_NOT_ROOT = frozenset({"root", "prefix", "folder", "dir", "destdir", "installdir", "dest"})
"""What people write for `{root}`, in small letters. Another word in braces may be awk's."""


def _versions(d: Definition) -> Iterator[tuple[tuple[str, str, str, str], SoftwareVersion]]:
    for name, versions in d.cluster.software.modules.items():
        for version, content in versions.items():
            yield ("software", "modules", name, version), content


# fmt: off
table(
    Spelling("module-package",
        "A package of a module that apt would take for an option, a file or a removal",
        # Debian Policy 5.6.1; apt removes what ends in a hyphen.
        at(f"{_MODULE}.packages.[]", f"{_MODULE}.build_packages.[]"),
        r"[a-z0-9][a-z0-9+.-]*[a-z0-9+.]",
        '"{value}" can\'t be the name of a package',
        "write its name alone, in small letters, such as python3-venv"),
    Spelling("module-archive-address",
        "An address of an archive that no program can fetch",
        at(f"{_MODULE}.archive.url"),
        lambda url: _GIT.fullmatch(url) or re.fullmatch(r"(https?|ftp|file)://[!-~]+", url),
        '"{value}" can\'t be the address of an archive',
        "write it like https://example.org/tool-1.0.tar.gz, without blanks"),
    Spelling("module-archive-git",
        "An address of a git repository in place of an archive's",
        at(f"{_MODULE}.archive.url"), lambda url: not _GIT.fullmatch(url),
        '"{value}" is a git repository and no archive',
        "write the address of a release's archive, such as "
        "https://github.com/OWNER/NAME/archive/refs/tags/v1.0.tar.gz, and its sha256"),
    Spelling("module-archive-digest",
        "A SHA-256 of an archive that is none",
        at(f"{_MODULE}.archive.sha256"), r"[0-9a-f]{64}",
        '"{value}" can\'t be a SHA-256',
        "write the 64 small hexadecimal digits that sha256sum prints"),
    Spelling("module-import",
        "A Python package that no `import` can name",
        at(f"{_MODULE}.imports.[]"), lambda name: all(map(str.isidentifier, name.split("."))),
        '"{value}" can\'t be imported',
        "write what follows the word import in a program, such as torch or google.protobuf"),
    Spelling("module-family",
        "A family that can't be a part of a variable, which Lmod makes of it",
        at(f"{_MODULE}.family"), r"[A-Za-z0-9_]+",
        '"{value}" can\'t be a family of modules',
        "use letters, digits and underscores"),
    Spelling("module-whatis",
        "Several lines for `module spider`, which has one",
        at(f"{_MODULE}.whatis"), lambda text: "\n" not in text.strip("\n"),
        "whatis has more than one line",
        "write one line, and the rest into `help`"),
)
# fmt: on


@check("module-property")
def module_property(d: Definition) -> Iterator[Finding]:
    """A property that Lmod does not know: it would refuse each command."""
    for path, content in _versions(d):
        for name, value in content.properties.items():
            here = (*path, "properties", name)
            if name not in _PROPERTIES:
                remedy = suggestion(name, _PROPERTIES, "take it out")
                yield Finding(here, f'Lmod has no property "{name}"', remedy)
            elif value not in _PROPERTIES[name]:
                remedy = suggestion(value, _PROPERTIES[name], "take it out")
                yield Finding(here, f'the property {name} can\'t be "{value}"', remedy)


@check("module-variable-of-others")
def module_variable_of_others(d: Definition) -> Iterator[Finding]:
    """A variable that the system, Lmod or other modules need as it is."""
    lists = dict.fromkeys(_LISTS, "the system or other modules")
    for (_, _, name, version), content in _versions(d):
        lists |= dict.fromkeys(content.prepend_path, f"{name}/{version}")
    for path, content in _versions(d):
        for name in (*content.env, *content.prepend_path):
            if name in _TAKEN or name.startswith(("LMOD_", "__LMOD")):
                yield Finding(
                    (*path, "env" if name in content.env else "prepend_path", name),
                    f"{name} belongs to Lmod, to SLURM or to the user's login",
                    "use another variable",
                )
        for name in content.env:
            if name in lists:
                yield Finding(
                    (*path, "env", name),
                    f"{name} also holds folders of {lists[name]}, and `env` would replace them",
                    f"put the folder in front of them: `prepend_path: {{{name}: bin}}`",
                )


@check("module-path-entry")
def module_path_entry(d: Definition) -> Iterator[Finding]:
    """A folder for a path variable that is several, none, or outside of the version's folder."""
    for path, content in _versions(d):
        for name, folder in content.prepend_path.items():
            here = (*path, "prepend_path", name)
            if "{" in folder:
                yield Finding(
                    here,
                    f'nothing replaces "{folder}" here',
                    "write the folder below that of the version, such as bin, or an absolute path",
                )
            elif not _ENTRY.fullmatch(folder) or ".." in folder.split("/"):
                yield Finding(
                    here,
                    f'"{folder}" is not one folder below that of the version',
                    "write one such as bin or lib/python, or an absolute path, in letters, digits "
                    "and _ . + -",
                )


@check("module-placeholder")
def module_placeholder(d: Definition) -> Iterator[Finding]:
    """Braces that nothing replaces, or with a $: only `{root}` and `{module/version}` are."""
    names = {"root", *(f"{name}/{version}" for (_, _, name, version), _ in _versions(d))}
    for path, content in _versions(d):
        texts: dict[KeyPath, str] = {("build",): content.build or ""}
        texts |= {("env", name): value for name, value in content.env.items()}
        for place, text in texts.items():
            here = (*path, *place)
            # The folder would be put in behind the $.
            shell_like = (name for name in _BEHIND_DOLLAR.findall(text) if name in names)
            if (name := next(shell_like, None)) is not None:
                yield Finding(here, f"${{{name}}} is no placeholder", f"write {{{name}}} without $")
            elif word := _unreplaced(text, of_shell=place == ("build",)):
                yield Finding(
                    here,
                    f"nothing replaces {{{word}}}",
                    "write {root} for the folder of this version, {apps/python/3.10} for another's",
                )


def _unreplaced(text: str, *, of_shell: bool) -> str | None:
    """The first word in braces that is no placeholder.

    `of_shell`: the text is a command, in which other words in braces may be awk's.
    """
    for word in _WORD.findall(text):
        if word != "root" and (not of_shell or word.lower() in _NOT_ROOT):
            return str(word)
    return None


@check("module-value")
def module_value(d: Definition) -> Iterator[Finding]:
    """A variable's value with a NUL character, which no variable can hold."""
    for path, content in _versions(d):
        for name, value in content.env.items():
            if "\0" in value:
                yield Finding((*path, "env", name), "the value has a NUL character", "take it out")


def _names_root(build: str, name: str, version: str) -> bool:
    """Whether a command names the folder of its version, by `{root}` or by its own name."""
    return "{root}" in build or f"{name}/{version}" in folders_in(build)


@check("module-command")
def module_command(d: Definition) -> Iterator[Finding]:
    """A command that installs nothing into the folder of its version."""
    for path, content in _versions(d):
        build = content.build
        if build is None:
            continue
        here = (*path, "build")
        if not build.strip():
            yield Finding(here, "the command is empty", "write the command, or take `build` out")
        elif "\0" in build:
            yield Finding(here, "the command has a NUL character", "take it out")
        elif re.search(r"(?<!\$)\{root(?![A-Za-z0-9_}])", build):
            yield Finding(here, "{root is not closed", "write {root}")
        elif not _names_root(build, *path[2:]) and _unreplaced(build, of_shell=True) is None:
            yield Finding(
                here,
                "the command does not name {root}, so nothing comes into the folder of the module",
                "install into {root}, as in `python3 -m venv {root}`",
            )
