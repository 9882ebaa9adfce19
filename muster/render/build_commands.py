"""How each kind of software comes into its folder: commands for /bin/sh, pure.

They run as an account that can write to the folder and to `$TMPDIR` alone (role `software`).
"""

import shlex

from muster.definition.schema.software import Archive

ARCHIVE_PACKAGES = ("ca-certificates", "curl", "libarchive-tools")
"""What the command of an archive runs: bsdtar reads tar files of all compressions, and zip."""

UV = "/opt/muster-uv/current/bin/uv"
"""What installs Python packages; the role software brings it where there are environments."""

UV_OPTIONS = (
    "--no-cache",
    "--link-mode=copy",
    "--compile-bytecode",
    "--no-python-downloads",
    "--system-certs",
    "--index-strategy=unsafe-best-match",
)
"""Nothing is kept between builds; a user can't write the bytecode later; certificates are those
that the host trusts. Of several indexes the hash decides whose file is taken: by itself uv would
look no further than into the first that has a package."""

PACK_PACKAGES = ("squashfs-tools",)
"""What the program that builds packs a release with."""

# Prints how many components of a list of names are the one folder around all; 0: there is none.
# A dot in front (`./tool/bin`) is one that bsdtar counts too.
_AROUND_ALL = (
    'awk -F/ \'{dot = sub(/^\\.\\//, "")} '
    '$1 != "" {if (dot) dotted = 1; else plain = 1; top[$1]; if (NF > 1) deep = 1} '
    "END {for (name in top) count++; "
    "print count == 1 && deep && dotted + plain == 1 ? 1 + dotted : 0}'"
)


def environment(root: str, python: str, requirements: str, *, has_index: bool) -> str:
    """Return the command that installs Python packages.

    The interpreter makes the virtual environment, so that users have pip in it.

    Args:
        root: The folder.
        python: Folder of the module with the interpreter.
        requirements: File with the packages and their hashes.
        has_index: Whether it names an index of its own. uv would take that of the host's
            /etc/uv/uv.toml before it.

    """
    options = [*UV_OPTIONS, *(["--no-config"] if has_index else [])]
    return (
        f"{python}/bin/python3 -m venv {root} && {UV} pip install --python {root}/bin/python3 "
        f"{' '.join(options)} --require-hashes --requirement {requirements}"
    )


def archive(root: str, source: Archive) -> str:
    """Return the command that fetches an archive, compares its digest and unpacks it."""
    url, file = shlex.quote(source.url), '"$TMPDIR/archive"'
    wrong = shlex.quote(f"{source.url} has another sha256 than the definition says: ")
    return (
        "curl --fail --location --silent --show-error --retry 5 --retry-connrefused "
        f"--output {file} {url} && "
        f"sum=$(sha256sum <{file}) && "
        f'if [ "${{sum%% *}}" != {source.sha256} ]; then '
        f'printf "%s%s\\n" {wrong} "${{sum%% *}}"; exit 1; fi && '
        f"around=$(bsdtar --list --file {file} | {_AROUND_ALL}) && "
        f"bsdtar --extract --no-same-owner --file {file} --directory {root} "
        "--strip-components $around"
    )
