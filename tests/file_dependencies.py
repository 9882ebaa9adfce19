"""Which files of the repository use which: read from their text, for `make test SINCE=REF`.

Python uses what it imports, and the modules and files that its strings name; that of tests and
stand-ins also the folders that they name. Docstrings don't count. A folder of unit tests uses the
folder of its name. Any file uses the modules and plugins of the collection that it names in full,
the playbooks that it imports, and what it is a link to.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import pairwise, takewhile
from pathlib import PurePosixPath

COLLECTION = "ansible_collections.muster.slurm.plugins"
PLUGIN = re.compile(r"\bmuster\.slurm\.(\w+)")
FILTER = re.compile(r'^ +"(muster_\w+)": ', re.MULTILINE)
"""A line of a table of filters."""

PLAYBOOK = re.compile(r"import_playbook: (\S+)")
ROLE = re.compile(r"_role:\s+\{*name: (\w+)|- role: (\w+)")
WORD = re.compile(r"[^\s'\"`=:,()<>|]+")
VARIES = re.compile(r"[*?\[{]")
"""Begins what varies in a path."""

MIRRORED = {
    "tests/unit/plugins": "ansible/plugins",
    "tests/unit/pulumi": "pulumi",
    "tests/unit/roles": "roles",
    "tests/unit/sandbox": "muster_sandbox",
    "tests/unit": "muster",
}
"""Folder of unit tests -> the folder of what they test."""

RUN_BY_FOLDER = ("ansible/plugins/", "pulumi/")

READ = {
    "muster/definition/sources.py": r"roles/\w+/meta/argument_specs\.yml",
    "tests/host_python.py": r".+\.py|.+/[^./]+",  # programs
}
"""What a file reads of the checkout, where no string of it says so."""

OF_GOOGLE = re.compile(r"roles/({[^/]*)?")
"""Begins or is the name of one of its roles."""


class FileDependencies:
    """The files of a repository, by what they use.

    `files` has the text of each, `links` what the links among them lead to. A folder ends with a
    slash; who uses it uses all in it.
    """

    def __init__(self, files: Mapping[str, str], links: Mapping[str, str]) -> None:
        self.files = files
        self.links = links
        self.folders = {f"{folder}/" for path in files for folder in ancestors(path)}
        self.top = {path.partition("/")[0] for path in files}

    def reached(self, start: str, *, by_folder: bool = True) -> set[str]:
        """Return a file, what uses it, what uses that, and so on.

        Without `by_folder` who uses a folder of it does not count.
        """
        reached, waiting = {start}, [start]
        while waiting:
            path = waiting.pop()
            keys = [path]
            # What runs a folder runs what its files import; what reads one reads them alone.
            if by_folder and (path == start or path.startswith(RUN_BY_FOLDER)):
                keys += (f"{folder}/" for folder in ancestors(path))
            new = {user for key in keys for user in self.users.get(key, ())} - reached
            reached |= new
            waiting += new
        return reached

    @cached_property
    def users(self) -> dict[str, set[str]]:
        """File or folder -> the files that use it."""
        users: dict[str, set[str]] = defaultdict(set)
        for path in self.files:
            for target in self._of(path):
                users[target].add(path)
        return users

    @cached_property
    def plugins(self) -> dict[str, set[str]]:
        """Name of a module, plugin or filter -> its files."""
        plugins: dict[str, set[str]] = defaultdict(set)
        for path, text in self.files.items():
            if path.startswith("ansible/plugins/"):
                for name in (PurePosixPath(path).stem, *FILTER.findall(text)):
                    plugins[name].add(path)
        return plugins

    @cached_property
    def data(self) -> dict[str, set[str]]:
        """Folder with Python -> the other files in it, and in its folders without Python."""
        with_python = {ancestors(path)[0] for path in self.files if path.endswith(".py")}
        data: dict[str, set[str]] = defaultdict(set)
        for path in self.files:
            if not path.endswith(".py"):
                for folder in [folder for folder in ancestors(path) if folder in with_python][:1]:
                    data[folder].add(path)
        return data

    def _of(self, path: str) -> Iterator[str]:
        text = self.files[path]
        if path in self.links:
            yield self.links[path]
        for name in PLUGIN.findall(text):
            yield from self.plugins.get(name, ())
        for name in PLAYBOOK.findall(text):
            yield f"{ancestors(path)[0]}/{name}"
        if path.startswith(("roles/", "ansible/", "tests/unit/")):
            yield from (f"roles/{''.join(names)}/" for names in ROLE.findall(text))
        if path.startswith("ansible/plugins/action/"):
            # It runs the module of its name.
            yield path.replace("/action/", "/modules/")
        if path.endswith(".py"):
            yield from self._beside(path)
        if path.endswith(".py") or text.startswith("#!/usr/bin/python3"):
            yield from self._of_python(path, ast.parse(text, path))

    def _beside(self, path: str) -> Iterator[str]:
        """Yield what pytest loads with a test, and the data of a folder of Python."""
        folder, *above = ancestors(path)
        yield from self.data.get(folder, ())
        for tests, tested in MIRRORED.items():
            if folder.startswith(f"{tests}/"):
                yield f"{tested}{folder.removeprefix(tests)}/"
                break
        if path.startswith("tests/"):
            yield from {f"{parent}/conftest.py" for parent in (folder, *above)} - {path}

    def _of_python(self, path: str, tree: ast.AST) -> Iterator[str]:
        if path in READ:
            yield from (file for file in self.files if re.fullmatch(READ[path], file))
        for node in nodes(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield from self._module(path, alias.name)
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    yield from self._module(path, f"{node.module}.{alias.name}")
            else:
                yield from self._of_strings(path, node)

    def _of_strings(self, path: str, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.BinOp):
            _, *names = operands(node)
            yield from self._named(path, "/".join(takewhile(bool, map(string, names))))
        elif isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict):
            yield from self._listed(path, node.keys if isinstance(node, ast.Dict) else node.elts)
        elif isinstance(node, ast.JoinedStr):
            yield from self._in_words(path, "".join(string(part) or "{}" for part in node.values))
        elif text := string(node):
            yield from self._in_words(path, text)

    def _listed(self, path: str, elements: list[ast.expr] | list[ast.expr | None]) -> Iterator[str]:
        """Yield the folders of a list of folders, and the module of a command `python -m`."""
        values = [string(element) for element in elements]
        if len(named := self.top.intersection(values)) > 1:
            yield from ({f"{name}/" for name in named} & self.folders) | (named & self.files.keys())
        for before, after in pairwise(values):
            if before == "-m" and after:
                yield from self._module(path, after)
                yield from self._module(path, f"{after}.__main__")

    def _in_words(self, path: str, text: str) -> Iterator[str]:
        for word in WORD.findall(text):
            if "/" in word:
                fixed = VARIES.split(word, maxsplit=1)[0]
                name = word.rstrip("/.") if fixed == word else fixed.rpartition("/")[0]
                if "/" in name or not OF_GOOGLE.fullmatch(word):
                    yield from self._named(path, name)
            elif word.startswith(("muster.", "muster_sandbox.")):
                yield from self._module(path, word)

    def _named(self, path: str, name: str) -> Iterator[str]:
        """Yield what a name means in the root, and in the folders above the file that has it."""
        # The folders that the product names are mostly a host's.
        folders = path.startswith(("tests/", "muster_sandbox/"))
        for parent in ("", *(f"{parent}/" for parent in ancestors(path))):
            if f"{parent}{name}" in self.files:
                yield f"{parent}{name}"
            elif folders and f"{parent}{name}/" in self.folders:
                yield f"{parent}{name}/"

    def _module(self, path: str, name: str) -> Iterator[str]:
        """Yield the file of a module, or of the module that has a name, and its packages' files."""
        below = name.replace(COLLECTION, "ansible.plugins").replace(".", "/")
        stems = (below, below.rpartition("/")[0])
        for folder in ("", "pulumi/", "tests/", *(f"{parent}/" for parent in ancestors(path))):
            for stem in filter(None, stems):
                for file in (f"{folder}{stem}.py", f"{folder}{stem}/__init__.py"):
                    if file in self.files:
                        yield file
                        yield from {f"{package}/__init__.py" for package in ancestors(file)}
                        return


def ancestors(path: str) -> list[str]:
    """Return the folders of a path, the closest first; the root is none."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:length]) for length in range(len(parts), 0, -1)]


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a module; of a path that is put together the whole, and no docstrings."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            waiting += [operand for operand in operands(node) if not string(operand)]
        elif isinstance(node, ast.JoinedStr):
            waiting += [part for part in node.values if not string(part)]
        elif not (isinstance(node, ast.Expr) and string(node.value)):
            waiting += ast.iter_child_nodes(node)


def operands(node: ast.expr) -> list[ast.expr]:
    """Return what a path is put together from by `/`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return [*operands(node.left), node.right]
    return [node]


def string(node: ast.AST | None) -> str:
    """Return the value of a node that is a string; empty: it is none."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
