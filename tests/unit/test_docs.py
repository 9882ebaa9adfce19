"""What README.md, CONTRIBUTING.md, CHANGELOG.md and docs/ say is true.

Commands that need a cluster are typed by tests/live/test_documented_commands.py.
"""

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import clikit
import prove
import pytest
import typer
import yaml
from documentation import ROOT, Block, Command, Page, merged, pages

from muster import definition, secrets
from muster.autoscaler.report import timeline
from muster.cli.main import app
from muster.definition import requirements
from muster.definition.schema import node_sets
from muster.definition.schema_errors import plain_type
from muster.render import releases
from muster.render.slurm import slurm_conf
from muster_sandbox.containers import base_image
from muster_sandbox.demo import tour

LAB = ROOT / "inventories/lab"
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir())
README = Page(ROOT / "README.md")
CONTRIBUTING = Page(ROOT / "CONTRIBUTING.md")
DEMO = Page(ROOT / "docs/demo.md")
DESIGN = Page(ROOT / "docs/design.md")
SECURITY = Page(ROOT / "docs/security.md")
TESTING = Page(ROOT / "docs/testing.md")
FIRST_WEEK = Page(ROOT / "docs/first-week.md")

KINDS = {"console", "yaml", "text", "mermaid"}
OTHER_PROGRAMS = {".", "export", "install", "openssl", "ssh-keyscan", "ssh-keygen"}
"""Programs of a reader's own machine in commands that no test looks into."""

QUICK = {"check", "render", "schema"}
"""Commands of muster that are run here: they only read and are done in a second."""

NOT_OF_MUSTER = {
    "/var/log/munge/munged.log": "the package munge",
    "/etc/pip.conf": "pip",
    "/data": "folders of the lab",
    "/home": "folders of the lab",
    "/apps": "folders of the lab",
    "/var": "the system",
    "/tmp": "the system",
    "/": "the system",
}
"""Paths on hosts that nothing of Muster writes down, and whose they are."""


def ids(page: Page) -> str:
    return page.name


every_page = pytest.mark.parametrize("page", pages(), ids=ids)


def commands_of(page: Page, program: str) -> list[list[str]]:
    """Return the words of the page's commands that begin with `program`, in blocks and in prose."""
    lines = [command.line for command in page.commands if command.host is None]
    lines += [span for span in page.spans if span.startswith(f"{program} ")]
    words = [shlex.split(line, comments=True) for line in lines]
    return [list(line) for line in dict.fromkeys(map(tuple, words)) if line[0] == program]


def all_commands(program: str) -> list[Any]:
    """Return `commands_of` for all pages, as parameters of a test."""
    parameters = [
        pytest.param(page, words, id=f"{page.name}: {' '.join(words)}")
        for page in pages()
        for words in commands_of(page, program)
    ]
    assert parameters, program
    return parameters


def run(*words: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


# -- blocks ---------------------------------------------------------------------------------------


@every_page
def test_blocks_have_a_kind_and_no_command_hides_outside_of_them(page: Page) -> None:
    assert {block.kind for block in page.blocks()} <= KINDS
    assert [line for line in page.prose.splitlines() if re.match(r" {4}\S", line)] == []
    assert "```" not in page.prose


@every_page
def test_each_command_is_of_a_known_program(page: Page) -> None:
    tested = {
        "make",
        "muster",
        "ansible",
        "ansible-galaxy",
        "ansible-playbook",
        "ansible-vault",
        "molecule",
        "python",
    }
    for command in page.commands:
        if command.host is None:
            assert shlex.split(command.line)[0] in tested | OTHER_PROGRAMS, command.line


@every_page
def test_commands_are_typed_on_hosts_that_the_page_has(page: Page, tmp_path: Path) -> None:
    hosts = definition.load(inventory_of(page, tmp_path)).hosts.groups["all"]
    people = {*definition.load(LAB).cluster.users.people, "root"}
    for command in page.commands:
        assert command.host in {None, *hosts}, command.line
        assert command.user in {None, *people}, command.line


# -- make -----------------------------------------------------------------------------------------


@cache
def makefile() -> str:
    return (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.parametrize(("page", "words"), all_commands("make"))
def test_make_has_the_target_and_takes_the_variable(page: Page, words: list[str]) -> None:
    targets = re.findall(r"^([a-z-]+):.*## ", makefile(), re.MULTILINE)
    values = {
        "CLUSTER": [path.name for path in (ROOT / "inventories").iterdir()],
        "RELEASE": list(base_image.RELEASES),
        "ROLE": ROLES,
        "MARK": ["proof"],
        "LAYER": [layer.name for layer in prove.PROOF],
        "SINCE": ["main", "HEAD"],
        "TESTS": ["tests/unit/test_docs.py"],
    }
    for word in words[1:]:
        name, is_variable, value = word.partition("=")
        if is_variable:
            assert re.search(rf"^of-{words[1]} := .*\b{name}\b", makefile(), re.MULTILINE)
            assert value in values[name]
        else:
            assert word in targets


def test_make_docs_writes_the_reference() -> None:
    recipe = run("make", "--no-print-directory", "--dry-run", "docs").stdout.splitlines()[-1]
    assert recipe == "muster schema --write"


# -- muster ---------------------------------------------------------------------------------------


def parse_muster(words: list[str], *, named_only: bool) -> dict[str, Any]:
    """Return the parameters that Typer makes of a command of muster; it raises on a wrong one.

    `named_only`: arguments may be missing, where prose speaks of a command.
    """
    command: Any = typer.main.get_command(app)
    context, rest = None, words[1:]
    while hasattr(command, "resolve_command"):
        context = command.make_context(command.name, rest, parent=context)
        _, command, rest = command.resolve_command(context, rest)
    return command.make_context(
        command.name, rest, parent=context, resilient_parsing=named_only
    ).params


@pytest.mark.parametrize(("page", "words"), all_commands("muster"))
def test_muster_takes_the_command(page: Page, words: list[str]) -> None:
    named = parse_muster(words, named_only=len(words) == 2).get("cluster")
    assert named is None or (ROOT / "inventories" / named).is_dir()


def test_a_wrong_command_of_muster_is_found() -> None:
    for line in ("muster chek lab", "muster check lab --host", "muster check", "muster demo upp"):
        with pytest.raises(Exception, match=r"No such|Missing"):
            parse_muster(line.split(), named_only=False)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, id=f"{page.name}: {command.line}")
        for page in pages()
        for command in page.commands
        if command.host is None
        and command.line.split()[0] == "muster"
        and command.line.split()[1] in QUICK
        and "--hosts" not in command.line
    ],
)
def test_muster_prints_what_the_page_shows(
    command: Command, capfd: pytest.CaptureFixture[str]
) -> None:
    done = clikit.run(capfd, *shlex.split(command.line)[1:], cwd=ROOT)
    assert done.returncode == 0
    assert all(line.startswith("warning: ") for line in done.stderr.splitlines()), done.stderr
    assert command.prints(done.stdout + done.stderr)


def test_the_comparison_of_outputs_can_fail() -> None:
    shown = Command("x", None, None, ("a  b", "c ... e"))
    assert shown.prints("a b\nc d e\n")
    assert not shown.prints("a b\nc d\n")
    assert not shown.prints("ab\nc d e\n")
    assert not shown.prints("c d e\na b\n")


# -- Ansible and molecule -------------------------------------------------------------------------


PARSE_PLAYBOOK_COMMANDS = """
import json, sys
from ansible.cli.playbook import PlaybookCLI
for words in json.load(sys.stdin):
    command = PlaybookCLI(words)
    command.init_parser()
    try:
        options = vars(command.parser.parse_args(words[1:]))
    except SystemExit:
        options = None
    print(json.dumps(options))
"""


@cache
def playbook_options() -> dict[str, list[dict[str, Any] | None]]:
    """Page -> what ansible-playbook makes of each of its commands; None: it refuses the command.

    One start for all pages.
    """
    by_page = {page.name: commands_of(page, "ansible-playbook") for page in pages()}
    done = subprocess.run(
        [sys.executable, "-c", PARSE_PLAYBOOK_COMMANDS],
        cwd=ROOT,
        input=json.dumps([command for commands in by_page.values() for command in commands]),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    options = map(json.loads, done.stdout.splitlines())
    return {name: [next(options) for _ in commands] for name, commands in by_page.items()}


@pytest.mark.parametrize("page", [page for page in pages() if page.commands], ids=ids)
def test_ansible_playbook_takes_the_commands(page: Page, tmp_path: Path) -> None:
    groups = definition.load(inventory_of(page, tmp_path)).hosts.groups
    for options in playbook_options()[page.name]:
        assert options is not None
        assert options["inventory"] in (["inventories/lab"], ["inventories/cloud"])
        assert options["args"] == ["ansible/site.yml"]
        assert set((options["subset"] or "all").split(",")) <= {*groups, *groups["all"]}
        assert set(",".join(options["tags"]).split(",")) <= {"all", "", *tags()}
        variables = {given.partition("=")[0] for given in options["extra_vars"]}
        assert variables <= role_variables()


@cache
def tags() -> set[str]:
    """Return the tags of site.yml; asking for them checks its syntax."""
    done = run(program("ansible-playbook"), "-i", str(LAB), "ansible/site.yml", "--list-tags")
    assert done.returncode == 0, done.stderr
    lists = re.findall(r"TASK TAGS: \[(.+)\]", done.stdout)
    return {tag for tag_list in lists for tag in tag_list.split(", ")}


@pytest.mark.parametrize(("page", "words"), all_commands("ansible"))
def test_ansible_takes_the_command(page: Page, words: list[str]) -> None:
    # The hosts of a cluster in the cloud come from its Pulumi stack: tests/unit/gcp.
    told = ["localhost," if word == "inventories/cloud" else word for word in words[1:]]
    done = run(program("ansible"), *told, "--list-hosts")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("page", "words"), all_commands("ansible-vault"))
def test_what_is_encrypted_is_the_file_of_secrets(page: Page, words: list[str]) -> None:
    assert words[1:] == ["encrypt", str(secrets.path_of(LAB).relative_to(ROOT))]


@pytest.mark.parametrize(("page", "words"), all_commands("molecule"))
def test_molecule_has_the_scenario_and_the_platform(page: Page, words: list[str]) -> None:
    assert words[1] in {"login", "verify", "converge", "destroy", "test"}
    options = dict(zip(words[2::2], words[3::2], strict=True))
    assert (ROOT / "molecule" / options.pop("-s") / "molecule.yml").is_file()
    assert set(options.values()) <= set(base_image.RELEASES)
    assert set(options) <= {"-h"}


@pytest.mark.parametrize(("page", "words"), all_commands("python"))
def test_a_program_of_the_repository_has_the_options(page: Page, words: list[str]) -> None:
    done = run(sys.executable, words[1], "--help")
    assert done.returncode == 0
    for option in (word for word in words if word.startswith("--")):
        assert option in done.stdout


# -- links, paths, names --------------------------------------------------------------------------


@every_page
def test_links_lead_somewhere(page: Page) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.prose):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        path = page.path.parent / file if file else page.path
        assert path.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", line).lower().replace(" ", "-") for line in headings}
            assert anchor in slugs, target


def top_level() -> set[str]:
    return {name.partition("/")[0] for name in run("git", "ls-files").stdout.splitlines()}


@every_page
def test_paths_of_the_repository_exist(page: Page) -> None:
    made = ("build/", str(secrets.path_of(LAB).relative_to(ROOT)), "pulumi/Pulumi.slurm10.yaml")
    words = [word for span in page.spans for word in span.split()]
    words += [
        word for command in page.commands if not command.host for word in command.line.split()
    ]
    for word in words:
        path = word.partition("::")[0].rstrip(",:")
        if "/" not in path or path.split("/")[0] not in top_level() or path.startswith(made):
            continue
        # A name in angle brackets means any name, braces mean each of a few.
        for one in expanded(re.sub(r"<\w+>", "*", path)):
            # All roles have a meta/ too.
            assert [*ROOT.glob(one), *ROOT.glob(f"roles/*/{one}")], word


def expanded(path: str) -> Iterator[str]:
    match = re.fullmatch(r"(.*)\{(.*)\}(.*)", path)
    if match is None:
        yield path
    else:
        yield from (f"{match[1]}{name}{match[3]}" for name in match[2].split(","))


@cache
def sources() -> str:
    """All that Muster puts on a host or says, in one text with single spaces.

    Texts that Python joins from neighbouring literals are joined here as well.
    """
    texts = []
    for folder in ("muster", "roles", "ansible"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix != ".pyc" and path.name != "README.md":
                text = path.read_text(encoding="utf-8")
                texts.append(re.sub(r"\"\s*\n\s*f?\"", "", text) if path.suffix == ".py" else text)
    return re.sub(r"\s+", " ", "\n".join(texts))


@every_page
def test_paths_on_hosts_are_those_that_muster_knows(page: Page) -> None:
    for span in page.spans:
        if span.startswith("/") and span not in NOT_OF_MUSTER:
            folder, _, name = span.rpartition("/")
            in_sources = span in sources() or (folder in sources() and name in sources())
            assert in_sources or span in releases_of_the_lab(), span


@cache
def releases_of_the_lab() -> list[str]:
    lab = definition.load(LAB)
    made = releases.releases(
        lab.cluster.software,
        lab.cluster.storage.apps.path,
        lab.cluster.os,
        requirements.read(lab, LAB),
    )
    return [release.root for release in made.values()]


@every_page
def test_quoted_messages_are_in_the_code(page: Page) -> None:
    """Each longer piece of a message between what differs from run to run: names and numbers."""
    for message in re.findall(r"^> (.*)$", page.prose, re.MULTILINE):
        varying = r"\.\.\.|\b[a-z]+-[a-z]+-\d\d\b|\b\d+\b|/\w+|\b(?:slurmctld|slurmd)\b"
        pieces = [piece.strip(" `:,;") for piece in re.split(varying, message)]
        pieces = [piece for piece in pieces if len(piece) > 8]
        assert pieces, message
        assert [piece for piece in pieces if piece not in sources()] == [], message


@every_page
def test_variables_of_roles_exist(page: Page) -> None:
    known = role_variables() | set(definition.Cluster.model_fields) | set(secrets.MAKERS)
    known |= {path.stem for path in ROOT.glob("ansible/plugins/modules/*.py")}
    for span in page.spans:
        if re.fullmatch(r"[a-z]+_[a-z0-9_]+", span) and span.split("_")[0] in ROLES:
            assert span in known, span


@cache
def role_variables() -> set[str]:
    return {
        name
        for path in ROOT.glob("roles/*/meta/argument_specs.yml")
        for entry in yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"].values()
        for name in entry.get("options", {})
    }


@every_page
def test_modules_of_tables_exist(page: Page) -> None:
    for span in page.spans:
        if re.fullmatch(r"managed_\w+|\w+_report", span):
            assert (ROOT / "ansible/plugins/modules" / f"{span}.py").is_file(), span


# -- the definition -------------------------------------------------------------------------------


def inventory_of(page: Page, folder: Path) -> Path:
    """Return a copy of the lab with all of the page's changes of it, each checked on its way."""
    copy = folder / "inventories" / "lab"
    shutil.copytree(LAB, copy, ignore=shutil.ignore_patterns("secrets.yml"), dirs_exist_ok=True)
    for block in page.blocks("yaml"):
        if whole_definition_of(block):
            continue
        merge_into(copy, block)
        put_files(copy, yaml.safe_load(block.text))
        definition.load(copy)
    return copy


def whole_definition_of(block: Block) -> str | None:
    """Return the name of the cluster if a block is all of its cluster.yml; the lab has a change."""
    head = re.match(r"# inventories/(\S+)/group_vars/all/cluster\.yml\n", block.text)
    return head[1] if head and head[1] != LAB.name else None


def put_files(copy: Path, block: dict[str, Any]) -> None:
    """Put an empty file where a page says that its reader copies a package or requirements to."""
    cluster = block.get("cluster", {})
    named = [cluster.get("slurmctld_package")]
    for versions in cluster.get("software", {}).get("modules", {}).values():
        named += [data.get("environment", {}).get("requirements") for data in versions.values()]
    for name in filter(None, named):
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).touch()


def merge_into(copy: Path, block: Block) -> None:
    head = re.match(r"# inventories/lab/(\S+)\n", block.text)
    assert head, f"{block}: begin it with the path of its file"
    file = copy / head[1]
    old = yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else {}
    file.write_text(yaml.safe_dump(merged(old, yaml.safe_load(block.text))), encoding="utf-8")


@pytest.mark.parametrize(
    "block", [block for page in pages() for block in page.blocks("yaml")], ids=str
)
def test_a_piece_of_an_inventory_belongs_there(block: Block) -> None:
    file = block.text.partition("\n")[0].rpartition("/")[2]
    if file not in ("cluster.yml", "hosts.yml"):
        # A variable of a group: it must be one that a role reads.
        assert set(yaml.safe_load(block.text)) <= role_variables()


@pytest.mark.parametrize(
    "block",
    [block for page in pages() for block in page.blocks("yaml") if whole_definition_of(block)],
    ids=str,
)
def test_a_whole_definition_passes_the_check_without_a_warning(
    block: Block, tmp_path: Path
) -> None:
    name = str(whole_definition_of(block))
    file = tmp_path / "inventories" / name / "group_vars/all/cluster.yml"
    file.parent.mkdir(parents=True)
    file.write_text(block.text, encoding="utf-8")
    done = run(sys.executable, "-m", "muster", "check", name, cwd=tmp_path)
    assert done.stderr == ""
    assert done.stdout.startswith(f"inventories/{name}: no errors (")


@every_page
def test_a_page_s_changes_pass_the_checks(page: Page, tmp_path: Path) -> None:
    inventory_of(page, tmp_path)


def test_the_readme_shows_the_lab_as_it_is(tmp_path: Path) -> None:
    shown = definition.load(inventory_of(README, tmp_path)).cluster
    assert shown == definition.load(LAB).cluster


def check_of_the_readme(
    folder: Path, text: str, capfd: pytest.CaptureFixture[str]
) -> subprocess.CompletedProcess[str]:
    """Run the check that the README shows on a definition, with the hosts that it names."""
    inventory = folder / "inventories/lab"
    (inventory / "group_vars/all").mkdir(parents=True)
    shutil.copy(LAB / "hosts.yml", inventory)
    (inventory / "group_vars/all/cluster.yml").write_text(text, encoding="utf-8")
    return clikit.run(capfd, "check", "lab", cwd=folder)


def test_the_readme_s_definition_is_a_whole_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    [block] = README.blocks("yaml")
    done = check_of_the_readme(tmp_path, block.text, capfd)
    assert done.stderr == ""
    assert done.stdout == "inventories/lab: no errors (hosts: 5, partitions: 2, people: 1)\n"


def test_the_readme_s_errors_are_those_of_the_check(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    [block] = README.blocks("yaml")
    text = block.text
    for right, wrong in (
        ("threads_per_core: 2, memory_mib: 122880}", "threads_per_core: 2, memory_mb: 122880}"),
        ("nodes: [gpu]", "nodes: [gpus]"),
        ('default_time: "04:00:00"', 'default_time: "8-00:00:00"'),
        ("users: [ada]", "users: [eda]"),
    ):
        assert text.count(right) == 1
        text = text.replace(right, wrong)
    [shown] = [part.text for part in README.blocks("text") if "muster check" in part.text]
    command, *errors = shown.splitlines()
    assert command == "$ muster check lab"
    done = check_of_the_readme(tmp_path, text, capfd)
    assert done.returncode == 2
    assert len(errors) == len(done.stderr.splitlines()) == 4
    assert Command(command, None, None, tuple(errors)).prints(done.stderr), done.stderr


@every_page
def test_keys_of_the_definition_exist(page: Page) -> None:
    for span in page.spans:
        if re.fullmatch(r"[a-z_]+(\.[\w<>-]+)+", span) and not re.search(r"\.(conf|yml)$", span):
            keys = span.split(".")
            if keys[0] in definition.Cluster.model_fields:
                assert has_key(definition.Cluster, keys), span


def has_key(model: Any, keys: list[str]) -> bool:
    """Whether the schema has a key; the last may be any name where names are free."""
    if not keys:
        return True
    if typing.get_origin(model) is dict:
        return has_key(plain_type(typing.get_args(model)[1]), keys[1:])
    if model == plain_type(node_sets.NodeSet):
        return any(has_key(kind, keys) for kind in node_sets.KINDS.values())
    field = getattr(model, "model_fields", {}).get(keys[0])
    return field is not None and has_key(plain_type(field.annotation), keys[1:])


def test_a_key_that_is_not_there_is_found() -> None:
    assert has_key(definition.Cluster, ["nodes", "gpu", "gpus", "count"])
    assert has_key(definition.Cluster, ["nodes", "debug", "machine_type"])
    assert not has_key(definition.Cluster, ["nodes", "gpu", "gpus", "number"])
    assert not has_key(definition.Cluster, ["storage", "homes"])


# -- what must not go stale -----------------------------------------------------------------------


def rows(text: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without its head."""
    section = text.split(f"\n## {heading}\n")[1]
    table = re.search(r"(?:^\|.*\|\n)+", section, re.MULTILINE)
    assert table
    cells = [[cell.strip() for cell in row[1:-1].split("|")] for row in table[0].splitlines()]
    return cells[2:]


def test_systems_and_their_state_are_those_of_the_code() -> None:
    told = {
        system.lower().replace(" ", "-"): (slurm, state.split(":")[0])
        for system, slurm, state in rows(TESTING.text, "What is proven, and what is not")
    }
    proven = set(base_image.RELEASES.values())
    assert told == {
        system: (slurm, "proven" if system in proven else "rendered only")
        for system, slurm in definition.PACKAGED_SLURM.items()
    }
    proven_slurm = " and ".join(definition.PACKAGED_SLURM[system] for system in sorted(proven))
    assert f"daemons have started with those of {proven_slurm}" in " ".join(TESTING.text.split())


@every_page
def test_the_range_of_releases_is_that_of_the_schema(page: Page) -> None:
    field = definition.Cluster.model_fields["slurm_version"]
    releases = typing.get_args(field.annotation)
    for first, last in re.findall(r"\b(\d\d\.\d\d) to (\d\d\.\d\d)\b", page.prose):
        assert (first, last) == (releases[0], releases[-1])


def test_ports_are_those_of_the_code() -> None:
    conf = (ROOT / "roles/slurmctld/defaults/main.yml").read_text(encoding="utf-8")
    assert "slurmctld_port: 6817" in conf
    text = " ".join(FIRST_WEEK.text.split())
    assert f"6819 (slurmdbd), and {slurm_conf.SRUN_PORTS} from" in text


def test_the_picture_has_the_plays_of_site_yml() -> None:
    plays = yaml.safe_load((ROOT / "ansible/site.yml").read_text(encoding="utf-8"))
    wanted = [(hosts_of(play), roles) for play in plays if (roles := roles_of(play))]
    # The hosts of a play, and its roles up to a remark after two spaces.
    [block] = [block for block in DESIGN.blocks("text") if "ansible/site.yml" in block.text]
    picture = re.findall(r"[├└]─ (\S+) +(\S+(?: \S+)*)", block.text)
    assert [(hosts, told.split()) for hosts, told in picture] == wanted


def roles_of(play: dict[str, Any]) -> list[str]:
    """Return the roles of a play."""
    tasks = play.get("tasks", [])
    return [
        task[f"ansible.builtin.{how}_role"]["name"]
        for task in tasks
        for how in ("import", "include")
        if f"ansible.builtin.{how}_role" in task
    ]


def hosts_of(play: dict[str, Any]) -> str:
    """Return the hosts of a play, of those that need a role only its group."""
    role = re.fullmatch(r"\{\{ groups\.(role_\w+) \| default\('!all'\) \}\}", play["hosts"])
    return role[1] if role else str(play["hosts"])


def test_the_packages_of_muster_are_told() -> None:
    told = [cells[0].strip("`") for cells in rows(DESIGN.text, "The packages of muster/")]
    modules = {path.stem for path in (ROOT / "muster").iterdir() if path.suffix == ".py"}
    folders = {path.parent.name for path in (ROOT / "muster").glob("*/__init__.py")}
    assert sorted(told) == sorted((modules | folders) - {"__init__", "__main__"})


def test_the_flow_of_data_names_paths_that_exist() -> None:
    flow, _imports = DESIGN.blocks("mermaid")
    paths = re.findall(r"\b(?:muster|ansible)/[\w./]*\w", flow.text)
    assert len(paths) >= 5
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_picture_is_one_that_muster_timeline_draws() -> None:
    """The cloud demo writes it to build/."""
    path = ROOT / "docs/cloud-demo-timeline.svg"
    text = path.read_text(encoding="utf-8")
    assert f"<style>{timeline.STYLE}</style>" in text
    svg = ElementTree.fromstring(text)  # noqa: S314 (our own)
    names = {element.text for element in svg.iter("{http://www.w3.org/2000/svg}text")}
    assert {f"slurm10-debug-{n}" for n in range(4)} <= names
    hints = " ".join(svg.itertext())
    assert "job 1, 4 nodes: asked" in hints and "queued again" not in hints
    # No path of the machine that it was drawn on.
    assert re.findall(r"(?<![<\w])/\w+", text.replace("http://www.w3.org/2000/svg", "")) == []
    assert len(text) < 20_000
    for page in (README, Page(ROOT / "docs/autoscaler.md")):
        assert re.search(rf"!\[.+\]\((docs/)?{path.name}\)", page.text)


def test_the_readme_is_no_manual() -> None:
    assert len(README.text.splitlines()) <= 90


def test_the_map_has_all_folders() -> None:
    told = set(re.findall(r"^([a-z_]+)/ {2,}\S", CONTRIBUTING.text, re.MULTILINE))
    paths = [ROOT / name for name in top_level() if not name.startswith(".")]
    folders = {path.name for path in paths if path.is_dir() and not path.is_symlink()}
    assert told == folders


def test_the_demo_s_output_has_the_steps_of_the_tour() -> None:
    told = re.findall(r"^(.+) ─{8,}$", DEMO.text, re.MULTILINE)
    steps = [title for title, _ in tour.STEPS]
    assert told == [title for title in steps if title in told]
    assert len(told) >= 4


def test_the_layers_of_tests_are_those_of_make_test() -> None:
    table = re.findall(r"^\| `make (\w+)` \|", TESTING.text, re.MULTILINE)
    assert sorted(table) == sorted(layer.name for layer in prove.TEST)


def test_what_make_proof_alone_runs_is_told_with_its_reason() -> None:
    told = {cells[0].strip("`"): cells[-1] for cells in rows(TESTING.text, "Only in `make proof`")}
    layers = {"cloud-trixie", "isolated", "isolated-slurm", "ceph"}
    assert told == marked_as_proof() | {name: told[name] for name in layers}


def marked_as_proof() -> dict[str, str]:
    """Test files and tests that have the mark `proof`, with the reason that it gives."""
    reasons = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        name = str(path.relative_to(ROOT))
        for node in tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
                reasons |= reason_of(name, node.value)
            elif isinstance(node, ast.FunctionDef):
                for decorator in node.decorator_list:
                    reasons |= reason_of(f"{name}::{node.name}", decorator)
    assert reasons
    return reasons


def reason_of(name: str, mark: ast.expr) -> dict[str, str]:
    if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.proof":
        return {name: ast.literal_eval(mark.args[0])}
    return {}


def test_the_groups_of_hosts_yml_are_told() -> None:
    told = {cells[0].strip("`") for cells in rows(FIRST_WEEK.text, "Adopt the machines")}
    plays = yaml.safe_load((ROOT / "ansible/site.yml").read_text(encoding="utf-8"))
    used = {hosts_of(play).partition(":")[0] for play in plays if roles_of(play)} - {"all"}
    assert told == {name for name in used if not name.startswith("role_")} | {"storage"}


def test_the_changelog_begins_with_the_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (\S+) \((?:unreleased|\d{4}-\d\d-\d\d)\)$", text, re.MULTILINE)
    assert versions[0] == project["version"]


def test_ci_runs_what_every_change_must_pass() -> None:
    assert (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()[-1] == "exec make test"
    assert ["make", "test"] in commands_of(TESTING, "make")


def test_commands_on_hosts_are_typed_by_the_cluster_s_tests() -> None:
    """The blocks that these leave out are of hosts that only the page's own changes bring."""
    path = ROOT / "tests/live/test_documented_commands.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert "pages" in names
    demo = definition.load(ROOT / "inventories/demo").hosts.groups["all"]
    left_out = {
        command.host for page in pages() for command in page.commands if command.host
    } - set(demo)
    assert left_out == {"lab-gpu-03"}


def test_each_test_that_is_said_to_show_a_defence_exists() -> None:
    named = re.findall(r"`(test_\w+\.py)::(\w+)`", SECURITY.text)
    assert len(named) > 20
    there = {
        (file.name, name)
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^ *def (test_\w+)", file.read_text(encoding="utf-8"), re.M)
    }
    assert set(named) - there == set()
