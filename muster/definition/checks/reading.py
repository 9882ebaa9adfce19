"""Checks of the files as YAML, before their meaning is looked at."""

from collections.abc import Iterator

from muster.definition.checks.registry import Finding, source_check, suggestion
from muster.definition.hosts_file import GROUP_KEYS
from muster.definition.schema.cluster import Cluster
from muster.definition.sources import Sources
from muster.definition.yaml_file import KeyPath


def _findings(
    sources: Sources, *kinds: str, message: str, remedy: str, only_cluster: bool = False
) -> Iterator[Finding]:
    """One finding per fault; `{text}` is what the file has there.

    `only_cluster`: in other files it may be on purpose (`mode: 0640`).
    """
    for file, fault in sources.faults(*kinds):
        if only_cluster and file != "cluster":
            continue
        yield Finding(
            _below_cluster(file, fault.path),
            message.format(text=fault.text),
            remedy.format(text=fault.text),
            file,
            fault.line,
        )


def _below_cluster(file: str, path: KeyPath) -> KeyPath:
    return path[1:] if file == "cluster" and path[:1] == ("cluster",) else path


@source_check("file-missing", "file-missing")
def file_missing(sources: Sources) -> Iterator[Finding]:
    """cluster.yml or hosts.yml is not there or can't be read."""
    yield from _findings(
        sources,
        "file-missing",
        message="{text}",
        remedy="an inventory has hosts.yml and group_vars/all/cluster.yml: see inventories/lab",
    )


@source_check("yaml-syntax", "yaml-syntax")
def yaml_syntax(sources: Sources) -> Iterator[Finding]:
    """A file that is no YAML."""
    yield from _findings(
        sources,
        "yaml-syntax",
        message="no YAML: {text}",
        remedy="look for a missing colon, quote or space at the start of this line or above",
    )


@source_check("duplicate-key", "duplicate-key")
def duplicate_key(sources: Sources) -> Iterator[Finding]:
    """A key that is written twice: YAML silently takes the last."""
    yield from _findings(
        sources,
        "duplicate-key",
        message='"{text}" is written twice in one mapping',
        remedy="keep one of them",
    )


@source_check("key-not-text", "key-not-text")
def key_not_text(sources: Sources) -> Iterator[Finding]:
    """A key that YAML reads as a number or as true or false: 3.10 becomes 3.1."""
    yield from _findings(
        sources,
        "key-not-text",
        message="the key {text} is not text for YAML",
        remedy='put it in quotes: "{text}"',
        only_cluster=True,
    )


@source_check("number-with-colons", "base-60")
def number_with_colons(sources: Sources) -> Iterator[Finding]:
    """A time without quotes: YAML 1.1 reads 4:00:00 as the number 14400."""
    yield from _findings(
        sources,
        "base-60",
        message="YAML reads {text} as a number to the base 60",
        remedy='put it in quotes: "{text}"',
        only_cluster=True,
    )


@source_check("number-with-leading-zero", "base-8")
def number_with_leading_zero(sources: Sources) -> Iterator[Finding]:
    """A number with a leading zero: YAML 1.1 reads 020 as 16."""
    yield from _findings(
        sources,
        "base-8",
        message="YAML reads {text} as a number to the base 8",
        remedy="leave out the leading zero, or put it in quotes if it is text",
        only_cluster=True,
    )


@source_check("tag-in-definition", "tag")
def tag_in_definition(sources: Sources) -> Iterator[Finding]:
    """A value with a YAML tag such as !vault in cluster.yml."""
    for file, fault in sources.faults("tag"):
        # Elsewhere Ansible reads the tags: an encrypted variable of a host is fine.
        if file == "cluster":
            yield Finding(
                _below_cluster(file, fault.path),
                f"a value with the tag {fault.text}",
                "write plain text here; secrets belong in secrets.yml",
                file,
                fault.line,
            )


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


@source_check("control-character")
def control_character(sources: Sources) -> Iterator[Finding]:
    """A line break or another control character in a value that goes into one line."""
    for path, text in _texts(sources.definition):
        # Help texts and build commands of modules may have several lines.
        if path[:1] != ("software",) and any(ord(char) < 32 or ord(char) == 127 for char in text):
            yield Finding(path, "a line break or control character", "write the value in one line")


@source_check("cluster-missing")
def cluster_missing(sources: Sources) -> Iterator[Finding]:
    """cluster.yml has no mapping `cluster`."""
    if sources.faults("file-missing", "yaml-syntax"):
        return
    data = sources.cluster.data
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
    for key in data:
        if key != "cluster":
            remedy = (
                "indent it: it belongs below `cluster`"
                if key in Cluster.model_fields
                else "put your own variables into another file of group_vars"
            )
            yield Finding(
                (), f'"{key}" is beside `cluster`', remedy, line=sources.cluster.line((key,))
            )


@source_check("hosts-shape", "hosts-shape")
def hosts_shape(sources: Sources) -> Iterator[Finding]:
    """hosts.yml has a list or text where Ansible expects a mapping."""
    yield from _findings(
        sources,
        "hosts-shape",
        message="{text}",
        remedy="write each name followed by a colon, not as a list",
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


@source_check("hosts-range", "hosts-range")
def hosts_range(sources: Sources) -> Iterator[Finding]:
    """A range of host names that Ansible can't expand."""
    yield from _findings(
        sources, "hosts-range", message="{text}", remedy="write it like lab-cpu-[01:16]"
    )


@source_check("hosts-cycle", "hosts-cycle")
def hosts_cycle(sources: Sources) -> Iterator[Finding]:
    """A group of hosts.yml that is its own child."""
    yield from _findings(
        sources,
        "hosts-cycle",
        message='group "{text}" is below itself',
        remedy="take it out of its own children",
    )
