"""Checks of secrets.yml: that its secrets are usable, and that nobody else can read it."""

from collections.abc import Iterator

from muster.definition import secret_values
from muster.definition.checks.registry import Check, Finding, SourceCheck, add, source_check
from muster.definition.definition import HOST_GROUPS
from muster.definition.secret_names import NAMES, misspelt
from muster.definition.secret_values import Wrong
from muster.definition.sources import SECRETS_FILE, Sources
from muster.definition.spelling import nearest
from muster.definition.yaml_file import NO_YAML, Vaulted

_ONE_PER_LINE = "write each secret in its own line below `secrets:`, as in munge_key: TEXT"
_NUMBERS = ("number-with-colons", "number-with-leading-zero")


def _data(sources: Sources) -> object:
    """What secrets.yml holds; None where it is empty, encrypted, no YAML or not there."""
    document = sources.others.get(SECRETS_FILE)
    if document is None or any(fault.kind in NO_YAML for fault in document.faults):
        return None
    return document.data


def _secrets(sources: Sources) -> dict[str, object]:
    """What is below `secrets:`; empty where that can't be read."""
    data = _data(sources)
    secrets = data.get("secrets") if isinstance(data, dict) else None
    return secrets if isinstance(secrets, dict) else {}


def _at(sources: Sources, path: tuple[str, ...], wrong: Wrong) -> Finding:
    line = sources.others[SECRETS_FILE].line(path) or 1
    return Finding(path, wrong.message, wrong.remedy, SECRETS_FILE, line)


@source_check("secrets-shape")
def secrets_shape(sources: Sources) -> Iterator[Finding]:
    """A secrets.yml in which no secret is found: no mapping, secrets beside `secrets`, no text."""
    data = _data(sources)
    if not isinstance(data, dict):
        if data is not None:
            wrong = Wrong("secrets-shape", "the file is not a mapping", _ONE_PER_LINE)
            yield _at(sources, (), wrong)
        return
    if beside := [name for name in data if name in NAMES]:
        said = " and ".join(f'"{name}"' for name in beside)
        message = f"{said} {'is' if len(beside) == 1 else 'are'} beside `secrets`"
        wrong = Wrong("secrets-shape", message, "indent it below `secrets:`")
        yield _at(sources, (beside[0],), wrong)
    if not isinstance(data.get("secrets"), dict | None):
        wrong = Wrong("secrets-shape", "it is not a mapping", _ONE_PER_LINE)
        yield _at(sources, ("secrets",), wrong)
    yield from _of_values(sources, "secrets-shape")


@source_check("secret-missing")
def secret_missing(sources: Sources) -> Iterator[Finding]:
    """A secrets.yml without a secret that the cluster needs, under whatever spelling."""
    if not _tells_what_is_missing(sources):
        return
    there = _secrets(sources)
    # Where hosts.yml is wrong, as if each group had hosts.
    groups = sources.members.groups if sources.members else {name: [name] for name in HOST_GROUPS}
    wanted = secret_values.needed(sources.definition, [name for name in groups if groups[name]])
    if wrong := secret_values.missing(wanted, {*there, *misspelt(there).values()}):
        yield _at(sources, ("secrets",), wrong)


def _tells_what_is_missing(sources: Sources) -> bool:
    """Whether a secret that is not below `secrets` in secrets.yml is nowhere."""
    document = sources.others.get(SECRETS_FILE)
    cloud = isinstance(sources.definition, dict) and sources.definition.get("cloud") is not None
    # Only Ansible can read an encrypted file, and in the cloud secrets are in Secret Manager.
    if document is None or document.encrypted or cloud:
        return False
    data = _data(sources)
    if data is None:
        return not document.faults
    names = data.keys() - {"secrets"} if isinstance(data, dict) else ()
    elsewhere = any(nearest(name, ("secrets",)) for name in names)
    return not elsewhere and not any(secrets_shape(sources))


@source_check("secret-misspelt")
def secret_misspelt(sources: Sources) -> Iterator[Finding]:
    """A secret whose name is nearly that of one that Muster reads."""
    for name, meant in misspelt(_secrets(sources)).items():
        wrong = Wrong("secret-misspelt", f'"{name}" has no meaning', f'did you mean "{meant}"?')
        yield _at(sources, ("secrets", name), wrong)


@source_check("secrets-readable")
def secrets_readable(sources: Sources) -> Iterator[Finding]:
    """A secrets.yml, or a copy beside it, that others on this machine can read or write."""
    for name, mode in sources.secret_files.items():
        if mode & 0o077:
            message = f"others can read it (mode {mode:04o})"
            remedy = "run: chmod 600 on it, or encrypt it with ansible-vault"
            yield Finding((), message, remedy, name, 1)


@source_check("secrets-in-git")
def secrets_in_git(sources: Sources) -> Iterator[Finding]:
    """A secrets.yml, or a copy beside it, that is in git in plain text."""
    for name in sources.secret_files:
        if name in sources.in_git:
            message = "it is in git: whoever has a copy of the repository has the secrets"
            remedy = "git rm --cached it, and make new secrets: muster secrets"
            yield Finding((), message, remedy, name, 1)


@source_check("secret-template")
def secret_template(sources: Sources) -> Iterator[Finding]:
    """A secret that is a template in part: likely a password that Ansible would change."""
    for name, value in _secrets(sources).items():
        if name in NAMES and _has_template(value) and not _is_template(value):
            wrong = Wrong(
                "secret-template",
                "Ansible would read a part of it as a template",
                f"{secret_values.another(name)}, or write a template alone: '{{{{ ... }}}}'",
            )
            yield _at(sources, ("secrets", name), wrong)


def _has_template(value: object) -> bool:
    return isinstance(value, str) and any(mark in value for mark in ("{{", "{%", "{#"))


def _is_template(value: object) -> bool:
    """Whether only Ansible knows the value: site.yml's first play looks at it."""
    text = value.strip() if isinstance(value, str) else ""
    return text.startswith("{{") and text.endswith("}}")


def _of_values(sources: Sources, kind: str) -> Iterator[Finding]:
    """The findings of one kind about values."""
    document = sources.others.get(SECRETS_FILE)
    for name, value in _secrets(sources).items():
        if isinstance(value, Vaulted) or _has_template(value):
            continue
        place = ("secrets", name)
        spelt = document and any(f.kind in _NUMBERS and f.path == place for f in document.faults)
        if name not in NAMES and (spelt or not isinstance(value, str | None)):
            continue  # a site's own may be of any shape
        wrong = secret_values.wrong(name, 0 if spelt else value)
        if wrong and wrong.kind == kind:
            yield _at(sources, place, wrong)


def _of_kind(kind: str) -> SourceCheck:
    return lambda sources: _of_values(sources, kind)


# fmt: off
_KINDS = {
    "secret-empty": "A secret without a value",
    "secret-placeholder": "A secret that everybody knows, such as `changeme`",
    "secret-quote": "A password that slurmdbd.conf can't hold: there it is in double quotes",
    "secret-blanks": "A password that begins or ends with a blank",
    "secret-weak": "A password of the database that is short, or a row of the keyboard",
    "munge-key-public": "A munge key that is in public repositories, or made from a public string",
    "munge-key-not-base64": "A munge key that is not written in base64",
    "munge-key-short": "A munge key that munged refuses as too short",
    "munge-key-not-random": "A munge key that is readable text, repeats itself or counts",
    "ceph-key-shape": "A text that is no key of Ceph, such as the whole keyring",
}
# fmt: on
for _kind, _refuses in _KINDS.items():
    add(Check(_kind, _refuses, of_sources=_of_kind(_kind)))
