#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Let apt see further components of the distribution's archive, or a repository of others."""

import os
import re
from collections.abc import Callable

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.commands import output, run
from ansible_collections.muster.slurm.plugins.module_utils.refused_error import RefusedError
from ansible_collections.muster.slurm.plugins.module_utils.text_files import read_text

DOCUMENTATION = r"""
module: apt_source
short_description: Let apt see more packages than the host was installed with
description:
  - Writes C(/etc/apt/sources.list.d/muster-NAME.sources) and fetches its package lists, of this
    file alone. Files of somebody else are read and never changed.
  - O(components) are taken from where the host gets the distribution from now, such as a mirror,
    with the same key; what the host has already is left out, since apt complains of doubles.
  - If a run is killed before it fetches the lists, the next run fetches them.
options:
  name:
    description: Name of the file, without its prefix.
    type: str
    required: true
  components:
    description: Components of the distribution, such as C(non-free).
    type: list
    elements: str
    default: []
  uri:
    description: Address of a repository outside the distribution, in place of components.
    type: str
    default: ""
  keyring:
    description: File with the key that O(uri) is signed with.
    type: path
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Let apt see contrib and non-free
  muster.slurm.apt_source:
    name: nvidia
    components: [contrib, non-free]
"""

RETURN = r"""
path:
  description: The file.
  type: str
  returned: always
"""

FOLDER = "/etc/apt/sources.list.d"
FIELDS = ["SOURCESENTRY", "REPO_URI", "RELEASE", "COMPONENT", "ORIGIN"]
DISTRIBUTIONS = ("Debian", "Ubuntu")
ENGLISH = {"LC_ALL": "C"}


def parsed(text: str) -> list[dict[str, str]]:
    """Return what C(apt-get indextargets) printed, as a mapping per package list."""
    rows = (line.split("|") for line in text.splitlines())
    return [dict(zip(FIELDS, row, strict=True)) for row in rows if len(row) == len(FIELDS)]


def key_of(text: str, entry: str) -> str:
    """Return Signed-By of an entry of a source file, as it is written; empty if it has none.

    `entry` is the file with the number of a paragraph (deb822) or of a line behind its colon.
    """
    path, _, number = entry.rpartition(":")
    if not path.endswith(".sources"):
        match = re.search(r"signed-by=([^\s\]]+)", text.splitlines()[int(number) - 1])
        return match.group(1) if match else ""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines).strip("\n"))
    # The key itself may be there, on lines that begin with a space.
    pattern = r"^signed-by:[ \t]*(.*(?:\n[ \t].*)*)"
    match = re.search(pattern, paragraphs[int(number) - 1], re.IGNORECASE | re.MULTILINE)
    return match.group(1) if match else ""


def stanza(uri: str, suites: str, components: str, key: str | None) -> str:
    """Return a paragraph of a source file."""
    lines = ["Types: deb", f"URIs: {uri}", f"Suites: {suites}"]
    lines += [f"Components: {components}"] if components else []
    lines += [f"Signed-By: {key}"] if key else []
    return "\n".join(lines)


def wanted_stanzas(
    targets: list[dict[str, str]], components: list[str], read: Callable[[str], str | None]
) -> list[str]:
    """Return the paragraphs that add `components` to each suite of the distribution.

    `targets` are the package lists of other files; `read` returns the text of a file.
    """
    suites: dict[tuple[str, str], dict[str, str]] = {}
    for target in targets:
        place = (target["REPO_URI"], target["RELEASE"])
        if target["ORIGIN"] in DISTRIBUTIONS:
            suites.setdefault(place, {})[target["COMPONENT"]] = target["SOURCESENTRY"]
    stanzas = []
    for (uri, release), there in suites.items():
        missing = [component for component in components if component not in there]
        if "main" in there and missing:
            path = there["main"].rpartition(":")[0]
            key = key_of(read(path) or "", there["main"])
            stanzas.append(stanza(uri, release, " ".join(missing), key))
    return stanzas


class Source:
    """The file of this name."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.path = f"{FOLDER}/muster-{module.params['name']}.sources"

    def targets(self) -> list[dict[str, str]]:
        """Return the package lists of all source files."""
        form = "|".join(f"$({field})" for field in FIELDS)
        command = ["apt-get", "indextargets", "--format", form, "Created-By: Packages"]
        return parsed(output(command, environ=ENGLISH))

    def of_others(self) -> list[dict[str, str]]:
        """Return the package lists of the distribution that other files name."""
        others = [
            target for target in self.targets() if not target["SOURCESENTRY"].startswith(self.path)
        ]
        return [target for target in others if target["ORIGIN"] in DISTRIBUTIONS]

    def text(self) -> str:
        """Return what the file is to hold; empty: nothing is missing."""
        params = self.module.params
        if params["uri"]:
            # A flat repository: its lists are beside the packages.
            stanzas = [stanza(params["uri"], "/", "", params["keyring"])]
        else:
            others = self.of_others()
            if not others and not self.module.check_mode:
                # A new machine knows the origin of its archive only after its first update.
                output(["apt-get", "update"], environ=ENGLISH)
                others = self.of_others()
            if not others:
                self.module.fail_json(
                    msg="apt knows no archive of the distribution; fix /etc/apt/sources.list.d "
                    "until `apt-get update` ends well, and run again"
                )
            stanzas = wanted_stanzas(others, params["components"], read_text)
        return "# Written by Muster.\n" + "\n\n".join(stanzas) + "\n" if stanzas else ""

    def write(self, text: str) -> None:
        """Write `text` into the file where it differs."""
        if not text:
            os.unlink(self.path)
            return
        new = f"{self.path}.new"  # apt reads no file with this ending
        with open(new, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.chmod(new, 0o644)
        os.replace(new, self.path)

    def fetched(self) -> bool:
        """Say whether apt has package lists of the file; it names no list that it has not."""
        return any(target["SOURCESENTRY"].startswith(self.path) for target in self.targets())

    def fetch(self) -> None:
        """Fetch the lists of this file alone: the others are as fresh as their owner keeps them."""
        only = [f"Dir::Etc::SourceList={self.path}", "Dir::Etc::SourceParts=/dev/null"]
        options = [
            word for option in [*only, "APT::Get::List-Cleanup=0"] for word in ("-o", option)
        ]
        # apt-get ends with 0 when a server could not be reached: it says W: then.
        code, out, err = run(["apt-get", "update", *options], environ=ENGLISH)
        if code != 0 or not self.fetched():
            lines = [line for line in (out + err).splitlines() if line[:2] in ("E:", "W:")]
            said = lines[0] if lines else "nothing"
            self.module.fail_json(
                msg=f"apt can't fetch the package lists of {self.path}; see that this host reaches "
                f"the archive, and run again; apt said: {said}"
            )


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "components": {"type": "list", "elements": "str", "default": []},
            "uri": {"type": "str", "default": ""},
            "keyring": {"type": "path"},
        },
        supports_check_mode=True,
    )
    source = Source(module)
    try:
        before, wanted = read_text(source.path) or "", source.text()
        changed = before != wanted
        if not module.check_mode:
            if changed:
                source.write(wanted)
            if wanted and (changed or not source.fetched()):
                source.fetch()
                changed = True
    except RefusedError as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=changed,
        path=source.path,
        diff={"before": before, "after": wanted, "before_header": source.path},
    )


if __name__ == "__main__":
    main()
