"""What `ansible-doc` shows of the modules and plugins can be read."""

import ast
from pathlib import Path

import pytest
import yaml

PLUGINS = Path(__file__).parents[3] / "ansible/plugins"


def documentation(path: Path, name: str = "DOCUMENTATION") -> str | None:
    """The text that a file assigns to `name`."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return str(ast.literal_eval(node.value))
    return None


@pytest.mark.parametrize("path", sorted(PLUGINS.glob("modules/*.py")), ids=lambda path: path.stem)
def test_a_module_s_documentation_is_yaml_and_names_it(path: Path):
    text = documentation(path)
    assert text is not None
    assert yaml.safe_load(text)["module"] == path.stem


@pytest.mark.parametrize(
    "path", sorted(PLUGINS.glob("[cil]*/*.py")), ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_a_plugin_s_documentation_is_yaml(path: Path):
    text = documentation(path)
    assert text is not None
    assert yaml.safe_load(text)["short_description"]


@pytest.mark.parametrize(
    "path",
    sorted(PLUGINS.glob("[cilm]*/*.py")),
    ids=lambda path: f"{path.parent.name}/{path.stem}",
)
def test_examples_and_results_are_yaml(path: Path):
    for name in ("EXAMPLES", "RETURN"):
        assert yaml.safe_load(documentation(path, name) or "[]") is not None, name
