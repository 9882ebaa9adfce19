"""Software that users load as modules (Lmod), and the commands that build it."""

import re
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from muster.definition.schema.base import Model

# Of the package python3 in the distributions' own archives.
PYTHONS = {
    "debian-12": "3.11",
    "debian-13": "3.13",
    "ubuntu-22.04": "3.10",
    "ubuntu-24.04": "3.12",
}

STANDARD_LIBRARY = {
    "debian-12": ("python3-distutils", "python3-gdbm", "python3-lib2to3", "python3-venv"),
    # distutils left Python in 3.12, lib2to3 in 3.13.
    "debian-13": ("python3-gdbm", "python3-venv"),
    "ubuntu-22.04": ("python3-distutils", "python3-gdbm", "python3-lib2to3", "python3-venv"),
    "ubuntu-24.04": ("python3-gdbm", "python3-lib2to3", "python3-venv"),
}
"""Packages with what the distribution splits off the standard library of its package python3.

All but python3-tk and idle, which need X libraries, and Python's own tests.
"""


# A placeholder for a folder; braces with anything else in them belong to the shell.
_FOLDER_OF = re.compile(r"(?<!\$)\{([A-Za-z0-9_.+-]+(?:/[A-Za-z0-9_.+-]+)+)\}")


def folders_in(text: str) -> list[str]:
    """Return the modules whose folders a command or variable inserts: `{apps/python/3.10}`."""
    return _FOLDER_OF.findall(text)


class Environment(Model):
    """Python packages in a prefix of their own, on the interpreter of another module."""

    python: Annotated[
        str,
        Field(
            description="Module, with version, that has the interpreter in `bin/python3` of its "
            "folder: `apps/python/3.11`.",
            examples=["apps/python/3.11"],
        ),
    ]
    requirements: Annotated[
        str,
        Field(
            description="File in the folder of the inventory with all packages, each with its "
            "version and hashes, as `uv pip compile --generate-hashes` writes it.",
            examples=["software/jupyter-4.txt"],
        ),
    ]


class Archive(Model):
    """A file that is fetched and unpacked; a single folder around all of it is left out."""

    url: Annotated[
        str,
        Field(description="Its address.", examples=["https://example.org/tool-1.0.tar.gz"]),
    ]
    sha256: Annotated[
        str, Field(description="Its SHA-256 in 64 small hexadecimal digits.", examples=["0" * 64])
    ]


KINDS = ("build", "environment", "archive")
"""Keys of a version of which one fills its folder."""


class SoftwareVersion(Model):
    """One version of a module, such as `apps/python/3.10`.

    Its folder is filled by one of `build`, `environment` and `archive`, or by nobody: then it only
    sets the environment, or brings `packages`. In `env` and `build`, `{root}` is the folder of this
    version and `{apps/python/3.10}` that of another one.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"build": "..."}]})

    default: Annotated[
        bool, Field(description="Loaded when no version is named; at most one of a module.")
    ] = False
    family: Annotated[
        str | None,
        Field(description="Only one module of a family can be loaded; null: no family."),
    ] = None
    depends_on: Annotated[
        list[str],
        Field(description="Modules loaded with it, with version: `apps/python/3.10`."),
    ] = []
    conflict: Annotated[
        list[str], Field(description="Modules that can't be loaded beside it.")
    ] = []
    properties: Annotated[
        dict[str, str],
        Field(
            description="Marks in `module avail` that Lmod knows, such as `arch: gpu`.",
            examples=[{"arch": "gpu"}],
        ),
    ] = {}
    help: Annotated[str, Field(description="Text of `module help`.")] = ""
    whatis: Annotated[str, Field(description="One line for `module spider`.")] = ""
    env: Annotated[
        dict[str, str],
        Field(
            description="Environment variables that it sets, such as `CUDA_HOME: {root}`; nothing "
            "replaces `$HOME` or `~` in them.",
            examples=[{"CUDA_HOME": "{root}"}],
        ),
    ] = {}
    prepend_path: Annotated[
        dict[str, str],
        Field(
            description="Folder put in front of a path variable, such as `PATH: bin`; relative to "
            "the folder of the version, which is itself the empty text.",
            examples=[{"PATH": "bin"}],
        ),
    ] = {}
    root: Annotated[
        str | None,
        Field(
            description="Folder it is installed in; null: <apps>/software/<module>/<version>. What "
            "Muster builds is in a release below it: a folder named by the digest of all that it "
            "is made from, which never changes afterwards."
        ),
    ] = None
    packages: Annotated[
        list[str],
        Field(
            description="Packages of the distribution that it needs at run time: installed on all "
            "hosts that run jobs, log people in or build, and in the image of a cloud."
        ),
    ] = []
    build_packages: Annotated[
        list[str],
        Field(
            description="Packages of the distribution that only its build needs, on the controller."
        ),
    ] = []
    build: Annotated[
        str | None,
        Field(
            description="Shell command that installs it into its folder, which is there and "
            "empty; it can write there and to `$TMPDIR`. null: nothing to do."
        ),
    ] = None
    environment: Annotated[
        Environment | None,
        Field(description="Python packages that are installed into it; null: none."),
    ] = None
    archive: Annotated[
        Archive | None, Field(description="File that is unpacked into it; null: none.")
    ] = None
    imports: Annotated[
        list[str],
        Field(
            description="Python packages that must be importable with the module before the play "
            "publishes a release: `torch`.",
            examples=[["torch"]],
        ),
    ] = []
    built: Annotated[
        bool,
        Field(
            description="true: the play builds the release if it is missing; false: an "
            "administrator does, and until then the module loads with a note that says how."
        ),
    ] = True
    form: Annotated[
        Literal["folder", "squashfs"],
        Field(
            description="What the play publishes: `folder`, or `squashfs`: one file, which a host "
            "mounts when somebody enters the folder. Over a network thousands of small files then "
            "cost a few large reads."
        ),
    ] = "folder"

    @property
    def is_built(self) -> bool:
        """Whether its folder is filled from the definition, by the play or an administrator."""
        return any(getattr(self, kind) is not None for kind in KINDS)

    @property
    def is_packed(self) -> bool:
        """Whether its releases are files that hosts mount."""
        return self.form == "squashfs"

    def built_after(self, full_name: str) -> list[str]:
        """Return what must be there before it is built: modules that it loads, or is built with.

        `full_name`: its own, which in `build` is another way to write `{root}`.
        """
        named = [name for name in folders_in(self.build or "") if name != full_name]
        on = [self.environment.python] if self.environment else []
        return list(dict.fromkeys([*self.depends_on, *on, *named]))


class Software(Model):
    """The module tree."""

    modules: Annotated[
        dict[str, dict[str, SoftwareVersion]],
        Field(
            description="Modules by full name (`apps/python`), then by version (`3.10`).",
            examples=[{"apps/python": {"3.10": {"build": "..."}}}],
        ),
    ] = {}
