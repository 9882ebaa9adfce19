"""Checks of the files as YAML, before their meaning is looked at."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from muster.definition.checks.registry import Check, Finding, source_check, suggestion
from muster.definition.checks.rows import Row, table
from muster.definition.hosts_file import GROUP_KEYS
from muster.definition.schema.cluster import Cluster
from muster.definition.sources import Sources
from muster.definition.yaml_file import KeyPath


@dataclass(frozen=True)
class FileFault(Row):
    """Faults that were found when the files were read; `{text}` is what the file has there.

    The faults have the name of the check.
    """

    message: str
    remedy: str
    only: tuple[str, ...] = ()
    """Files in which it is wrong, if not in all: others may have `mode: 0640` or `!vault`."""

    def check(self) -> Check:
        """The check of these faults."""
        claims = frozenset({self.name})
        return Check(self.name, self.refuses, of_sources=self.findings, claims=claims)

    def findings(self, sources: Sources) -> Iterator[Finding]:
        """One finding per fault."""
        for file, fault in sources.faults(self.name):
            if not self.only or file in self.only:
                below_cluster = file == "cluster" and fault.path[:1] == ("cluster",)
                yield Finding(
                    fault.path[1:] if below_cluster else fault.path,
                    self.message.format(text=fault.text),
                    self.remedy.format(text=fault.text),
                    file,
                    fault.line,
                )


# fmt: off
table(
    FileFault("file-missing",
        "cluster.yml or hosts.yml is not there or can't be read",
        "{text}",
        "an inventory has hosts.yml and group_vars/all/cluster.yml: see inventories/lab"),
    FileFault("file-unreadable",
        "A file, or a folder with variables, that can't be read",
        "{text}",
        "put a file or folder there that you can read, or take this away"),
    FileFault("file-never-read",
        "A file with variables that Ansible leaves out in silence",
        "{text}",
        "put its variables into the file or folder that Ansible reads, and take this away"),
    FileFault("hosts-empty",
        "A hosts.yml without hosts: Ansible would do nothing",
        "{text}",
        "name the hosts below the groups `controller`, `compute` and so on: see inventories/lab"),
    FileFault("hosts-encrypted",
        "A hosts.yml that is encrypted: Muster could not read it",
        "{text}",
        "decrypt it with ansible-vault; secrets belong in secrets.yml"),
    FileFault("yaml-bounds",
        "A file in which more is nested, or repeated by aliases, than any use has",
        "{text}",
        "write it flatter, or write out what the aliases stand for"),
    FileFault("yaml-syntax",
        "A file that is no YAML",
        "no YAML: {text}",
        "look for a missing colon, quote or space at the start of this line or above"),
    FileFault("duplicate-key",
        "A key that is written twice: YAML silently takes the last",
        '"{text}" is written twice in one mapping',
        "keep one of them"),
    FileFault("key-not-text",
        "A key that YAML reads as a number or as true or false: 3.10 becomes 3.1",
        "the key {text} is not text for YAML",
        'put it in quotes: "{text}"', only=("cluster", "hosts")),
    FileFault("number-with-leading-zero",
        "A number with a leading zero: YAML 1.1 reads 020 as 16",
        "YAML reads {text} as a number to the base 8",
        "leave out the leading zero, or put it in quotes if it is text", only=("cluster",)),
    FileFault("tag-in-definition",
        "A value with a YAML tag such as !vault in cluster.yml",
        "a value with the tag {text}",
        "write plain text here; secrets belong in secrets.yml", only=("cluster",)),
    FileFault("hosts-shape",
        "hosts.yml has a list or text where Ansible expects a mapping",
        "{text}",
        "write each name followed by a colon, not as a list"),
    FileFault("hosts-range",
        "A range of host names that Ansible can't expand",
        "{text}",
        "write it like lab-cpu-[01:16]"),
)
# fmt: on


def _texts(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, below in value.items():
            yield from _texts(below, (*path, key))
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from _texts(below, (*path, index))


@source_check("template-in-definition")
def template_in_definition(sources: Sources) -> Iterator[Finding]:
    """A template in cluster.yml: only Ansible could say what it means."""
    for path, text in _texts(sources.definition):
        if "{{" in text or "{%" in text:
            yield Finding(
                path,
                "a template of Ansible",
                "write the value itself: the definition is read without Ansible too",
            )


# Control characters of ASCII and of Unicode, and Unicode's separators of lines and paragraphs: each
# ends a line for some program.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
# Help texts and build commands of modules, and certificates.
_OF_SEVERAL_LINES = (("software",), ("users", "directory", "ca"))


@source_check("control-character")
def control_character(sources: Sources) -> Iterator[Finding]:
    """A line break or another control character in a value that goes into one line."""
    wrong_shape = {error.path for error in sources.schema_errors}
    for path, text in _texts(sources.definition):
        has_lines = any(path[: len(place)] == place for place in _OF_SEVERAL_LINES)
        if not has_lines and path not in wrong_shape and _CONTROL.search(text):
            yield Finding(path, "a line break or control character", "write the value in one line")


@source_check("cluster-missing")
def cluster_missing(sources: Sources) -> Iterator[Finding]:
    """cluster.yml has no mapping `cluster`."""
    data = sources.cluster.data
    if data is None and sources.cluster.faults:
        return
    if sources.cluster.encrypted:
        yield Finding(
            (),
            "the file is encrypted",
            "decrypt it with ansible-vault; secrets belong in secrets.yml",
            line=1,
        )
    elif not isinstance(data, dict) or not isinstance(data.get("cluster"), dict):
        keys = list(data) if isinstance(data, dict) else []
        near = next((key for key in keys if key.lower()[:3] in ("clu", "cls", "clt")), None)
        yield Finding(
            (),
            "no mapping `cluster` in it",
            f'did you mean "cluster" where "{near}" is written?'
            if near
            else "begin the file with `cluster:` and indent all other keys below it",
            line=sources.cluster.line((near,)) if near else 1,
        )


@source_check("variable-beside-cluster")
def variable_beside_cluster(sources: Sources) -> Iterator[Finding]:
    """cluster.yml sets a variable beside `cluster`, where no check would look at it."""
    data = sources.cluster.data
    if not isinstance(data, dict) or not isinstance(data.get("cluster"), dict):
        return
    keys = [key for key in data if key in Cluster.model_fields]
    if keys:
        said, verb, it = ", ".join(f'"{key}"' for key in keys), "are", "them"
        if len(keys) == 1:
            verb, it = "is", "it"
        yield Finding(
            (),
            f"{said} {verb} beside `cluster`",
            f"indent {it}: {it if it == 'it' else 'they'} {'belongs' if it == 'it' else 'belong'} "
            "below `cluster`",
            line=sources.cluster.line((keys[0],)),
        )
    for key in data:
        if key != "cluster" and key not in keys:
            yield Finding(
                (),
                f'"{key}" is beside `cluster`',
                "put your own variables into another file of group_vars",
                line=sources.cluster.line((key,)),
            )


@source_check("hosts-unknown-key", "hosts-unknown-key")
def hosts_unknown_key(sources: Sources) -> Iterator[Finding]:
    """A group of hosts.yml has a key that Ansible does not know and skips."""
    for file, fault in sources.faults("hosts-unknown-key"):
        yield Finding(
            fault.path,
            f'unknown key "{fault.text}" in a group',
            suggestion(fault.text, GROUP_KEYS, "a group has hosts, children and vars"),
            file,
            fault.line,
        )
