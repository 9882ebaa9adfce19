"""What the definition's software becomes: modulefiles, and what has to be built."""

import re
import subprocess
from pathlib import Path

import pytest

from muster.definition import load
from muster.definition.schema.software import PYTHONS, STANDARD_LIBRARY, Software
from muster.render.lmod import ModuleTree, images, packages, render


def tree(**modules: dict[str, object]) -> ModuleTree:
    """Render modules given as `apps__python={"3.10": {...}}`."""
    named = {name.replace("__", "/"): versions for name, versions in modules.items()}
    software = Software.model_validate({"modules": named})
    return render(software, "/apps", "debian-12", {"software/torch.txt": "torch==2 --hash=..."})


def without_digests(text: str) -> str:
    """Folders of releases without their digest, which test_releases.py tests."""
    return re.sub(r"(/[\w./-]+)/[0-9a-f]{16}\b", r"\1", text)


def builds(rendered: ModuleTree) -> list[str | None]:
    return [entry.build and without_digests(entry.build) for entry in rendered.installations]


def roots(rendered: ModuleTree) -> list[str]:
    return [without_digests(entry.root) for entry in rendered.installations]


def modulefile(data: dict[str, object]) -> str:
    return tree(apps__tool={"1": data}).files["apps/tool/1.lua"]


def lua_texts(source: str) -> list[str]:
    """Read the string literals of `source` as Lua does."""
    escapes = {"n": b"\n", '"': b'"', "\\": b"\\"}

    def value(match: re.Match[str]) -> bytes:
        digits, single = match.groups()
        return bytes([int(digits)]) if digits else escapes[single]

    texts = []
    for literal in re.findall(r'"((?:[^"\\\n]|\\.)*)"', source):
        parts = re.split(r"(\\(?:\d{3}|.))", literal)
        texts.append(
            b"".join(
                value(match)
                if (match := re.fullmatch(r"\\(?:(\d{3})|(.))", part))
                else part.encode()
                for part in parts
            ).decode()
        )
    return texts


def test_a_modulefile_lies_where_its_name_says() -> None:
    files = tree(libs__python__torch={"1.13.1-cuda-11.7-python-3.10": {}}).files
    assert list(files) == ["libs/python/torch/1.13.1-cuda-11.7-python-3.10.lua"]


def test_the_default_is_named_in_full() -> None:
    files = tree(apps__python={"3.9": {"default": True}, "3.10": {}}).files
    assert files["apps/python/.modulerc.lua"] == 'module_version("apps/python/3.9", "default")\n'


def test_a_module_without_default_has_no_modulerc() -> None:
    assert "apps/python/.modulerc.lua" not in tree(apps__python={"3.9": {}}).files


def test_what_a_module_does_is_written_in_lua() -> None:
    text = modulefile(
        {
            "family": "python",
            "depends_on": ["a/b/1", "c/d/2"],
            "conflict": ["x/y"],
            "properties": {"arch": "gpu"},
            "env": {"TOOL_HOME": "{root}"},
            "prepend_path": {"PATH": "bin", "PYTHONPATH": "", "MANPATH": "/usr/share/man"},
        }
    )
    for line in (
        'family("python")',
        'depends_on("a/b/1", "c/d/2")',
        'conflict("x/y")',
        'add_property("arch", "gpu")',
        'setenv("TOOL_HOME", "/apps/software/apps/tool/1")',
        'prepend_path("PATH", "/apps/software/apps/tool/1/bin")',
        'prepend_path("PYTHONPATH", "/apps/software/apps/tool/1")',
        'prepend_path("MANPATH", "/usr/share/man")',
    ):
        assert text.splitlines().count(line) == 1, line


@pytest.mark.parametrize(
    "text",
    [
        'a "quoted" word',
        "C:\\new\\table",
        "two\nlines",
        "]] ]==] --",
        "tab\there",
        "7 after \x017",
        "é €",
    ],
)
def test_any_text_arrives_as_it_is(text: str) -> None:
    assert f"Description: {text}" in lua_texts(modulefile({"whatis": text}))


def test_the_root_of_a_version_can_be_elsewhere() -> None:
    text = modulefile({"root": "/opt/tool", "prepend_path": {"PATH": "bin"}})
    assert 'prepend_path("PATH", "/opt/tool/bin")' in text
    assert 'isDir("' not in text
    assert 'local root = "/opt/tool"' in text


def test_a_module_that_points_nowhere_asks_for_no_folder() -> None:
    rendered = tree(apps__tool={"1": {"env": {"A": "1"}, "prepend_path": {"PATH": "/usr/games"}}})
    assert "isDir" not in rendered.files["apps/tool/1.lua"]
    assert rendered.installations == ()


@pytest.mark.parametrize(
    "data",
    [
        {"build": "make"},
        {"root": "/opt/tool"},
        {"prepend_path": {"PATH": "bin"}},
        {"env": {"HOME_OF_TOOL": "{root}"}},
    ],
)
def test_a_module_that_points_into_its_folder_asks_for_it(data: dict[str, object]) -> None:
    assert "isDir(root)" in modulefile(data)


def test_the_command_of_one_that_is_not_built_stays_one_line() -> None:
    text = modulefile({"build": "curl -o x https://example.org/x && sh x {root}", "built": False})
    text = without_digests(text)
    root = "/apps/software/apps/tool/1"
    command = f"   muster-build {root} 'curl -o x https://example.org/x && sh x {root}'\n"
    assert command in lua_texts(text)
    assert "LmodError" not in text


def test_one_that_is_not_built_and_has_no_command_only_says_so() -> None:
    note = "apps/tool/1 is declared, but not built: there is no /opt/x."
    assert note in lua_texts(modulefile({"root": "/opt/x", "built": False}))


def test_one_that_has_to_be_there_refuses_to_load_without_its_folder() -> None:
    text = modulefile({"build": "make"})
    assert 'if mode() == "load" then LmodError(' in text
    assert "declared" not in text


def test_a_command_may_name_the_folder_of_another_module() -> None:
    rendered = tree(
        libs__torch={"2": {"build": "{apps/python/3}/bin/pip install -t {root} torch"}},
        apps__python={"3": {"build": "python3 -m venv {root}"}},
    )
    assert builds(rendered) == [
        "python3 -m venv /apps/software/apps/python/3",
        "/apps/software/apps/python/3/bin/pip install -t /apps/software/libs/torch/2 torch",
    ]


def test_braces_of_the_shell_stay() -> None:
    rendered = tree(apps__tool={"1": {"build": "mkdir -p {root}/{a,b} ${HOME}"}})
    assert builds(rendered) == ["mkdir -p /apps/software/apps/tool/1/{a,b} ${HOME}"]


def test_what_others_depend_on_is_built_first() -> None:
    rendered = tree(
        z__last={"1": {"build": "z", "depends_on": ["m/middle/1"]}},
        m__middle={"1": {"build": "m", "depends_on": ["a/first/1"]}},
        a__first={"1": {"build": "a"}},
    )
    assert [entry.build for entry in rendered.installations] == ["a", "m", "z"]


def test_only_what_the_play_builds_has_a_command_and_packages() -> None:
    rendered = tree(
        apps__python={"3": {"build": "b", "build_packages": ["g++"], "packages": ["libgomp1"]}},
        apps__cuda={"11.7": {"build": "c", "build_packages": ["curl"], "built": False}},
    )
    assert [entry.build for entry in rendered.installations] == ["b", None]
    assert rendered.build_packages == ("g++",)


def test_what_modules_need_to_run_is_on_all_hosts_with_the_whole_standard_library() -> None:
    software = Software.model_validate(
        {
            "modules": {
                "libs/torch": {"1": {"packages": ["python3-torch", "libgomp1"]}},
                # Who builds it makes no difference to what it needs to run.
                "apps/cuda": {"11.7": {"packages": ["libxml2"], "build": "c", "built": False}},
            }
        }
    )
    assert packages(software, "debian-13") == [
        *("libgomp1", "libxml2", "python3-gdbm", "python3-torch", "python3-venv")
    ]
    assert {"python3-distutils", "python3-lib2to3"} <= {*packages(Software(), "debian-12")}


def test_each_release_says_what_it_splits_off_the_standard_library() -> None:
    assert STANDARD_LIBRARY.keys() == PYTHONS.keys()
    # Nodes have no screen, and X libraries are a hundred packages.
    assert "python3-tk" not in {name for names in STANDARD_LIBRARY.values() for name in names}


@pytest.mark.parametrize("name", ["lab", "demo"])
def test_examples_write_only_where_a_build_can(name: str) -> None:
    modules = load(Path(__file__).parents[3] / "inventories" / name).cluster.software.modules
    commands = [data.build or "" for versions in modules.values() for data in versions.values()]
    assert any("curl" in command for command in commands)
    outside = r"\{root\}\.|dirname|mktemp|(?<![\w}/])(/var)?/tmp\b"
    assert not [command for command in commands if re.search(outside, command)]


def test_what_a_command_names_is_built_before_it() -> None:
    built = tree(
        a={"1": {"build": "{z/2}/bin/make {root}"}},
        b={"1": {"build": "{a/1}/bin/make {root}", "depends_on": ["z/2"]}},
        z={"2": {"build": "make {root}"}},
    )
    assert roots(built) == ["/apps/software/z/2", "/apps/software/a/1", "/apps/software/b/1"]


def test_a_command_may_name_its_own_folder_by_the_modules_name() -> None:
    built = tree(a={"1": {"build": "make {a/1}"}})
    assert builds(built) == ["make /apps/software/a/1"]


def test_the_shells_own_braces_are_no_module_that_comes_before() -> None:
    built = tree(a={"1": {"build": "make ${z/2} {root}"}}, z={"2": {"build": "make {root}"}})
    assert roots(built) == ["/apps/software/a/1", "/apps/software/z/2"]


def test_an_environment_brings_its_programs_and_is_seen_by_a_user_s_own() -> None:
    on = {"python": "apps/python/3", "requirements": "software/torch.txt"}
    rendered = tree(
        apps__python={"3": {"build": "python3 -m venv {root}"}},
        libs__torch={"2": {"environment": on}},
    )
    text = without_digests(rendered.files["libs/torch/2.lua"])
    root = "/apps/software/libs/torch/2"
    assert [line for line in text.splitlines() if line.startswith("prepend_path")] == [
        f'prepend_path("PATH", "{root}/bin")',
        f'prepend_path("MUSTER_ENVIRONMENTS", "{root}")',
        # Of the role software: a folder with packages would hide those of the user.
        'prepend_path("PYTHONPATH", "/apps/.muster/python")',
    ]


def test_a_module_of_the_distribution_s_packages_alone_has_no_folder() -> None:
    rendered = tree(libs__torch={"1": {"packages": ["python3-torch"]}})
    assert rendered.installations == ()
    assert "isDir" not in rendered.files["libs/torch/1.lua"]


def test_a_release_is_verified_as_if_its_module_was_loaded() -> None:
    rendered = tree(
        apps__cuda={
            "12": {
                "build": "sh cuda.run {root}",
                "env": {"CUDA_HOME": "{root}"},
                "prepend_path": {"LD_LIBRARY_PATH": "lib64"},
            }
        },
        libs__torch={
            "2": {
                "depends_on": ["apps/cuda/12"],
                "build": "pip install --target {root} torch",
                "prepend_path": {"PYTHONPATH": ""},
                "imports": ["torch", "torch.cuda"],
            }
        },
    )
    [_, torch] = rendered.installations
    assert torch.verify is not None
    words = without_digests(torch.verify).split(" && ")
    assert words == [
        "export CUDA_HOME=/apps/software/apps/cuda/12",
        "export LD_LIBRARY_PATH=/apps/software/apps/cuda/12/lib64"
        '"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"',
        'export PYTHONPATH=/apps/software/libs/torch/2"${PYTHONPATH:+:$PYTHONPATH}"',
        "/usr/local/sbin/muster-check-release --import torch --import torch.cuda "
        "--beside /apps/software/apps/cuda/12 /apps/software/libs/torch/2",
    ]


def test_the_variables_of_a_verification_arrive_as_they_are(tmp_path: Path) -> None:
    text = "a 'b' \"c\" $HOME `id`"
    [entry] = tree(
        apps__tool={"1": {"build": "x {root}", "env": {"A": text}, "prepend_path": {"PATH": "bin"}}}
    ).installations
    assert entry.verify is not None
    shown = entry.verify.rpartition(" && ")[0] + ' && printf "%s\\n" "$A" "$PATH"'
    done = subprocess.run(
        ["/bin/sh", "-ec", shown], env={"PATH": "/bin"}, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [text, f"{entry.root}/bin:/bin"]


def test_modules_that_need_a_folder_of_others_are_not_tried() -> None:
    rendered = tree(
        apps__mine={"1": {"build": "make {root}"}},
        apps__site={"1": {"root": "/opt/site"}},
        apps__later={"1": {"build": "make {root}", "built": False}},
        libs__on_site={"1": {"env": {"A": "1"}, "depends_on": ["apps/site/1"]}},
        libs__on_mine={"1": {"env": {"A": "1"}, "depends_on": ["apps/mine/1", "apps/later/1"]}},
    )
    assert {*rendered.loads} == {"apps/mine/1", "apps/later/1", "libs/on_mine/1"}


def test_a_packed_release_is_looked_at_when_its_module_is_loaded_and_not_before() -> None:
    # A look mounts it, and Lmod evaluates all modulefiles for its cache.
    data = {"build": "make {root}", "form": "squashfs"}
    [condition] = [line for line in modulefile(data).splitlines() if "isDir" in line]
    assert condition == (
        'if mode() == "load" and (not isDir(root) or isFile(root .. ".building")) then'
    )
    [entry] = tree(apps__tool={"1": data}).installations
    assert entry.image == f"/apps/.muster/images/{entry.root.rpartition('/')[2]}.squashfs"


@pytest.mark.parametrize("form", ["folder", "squashfs"])
def test_hosts_get_what_mounts_packed_releases_where_there_are_some(form: str) -> None:
    tool = {"1": {"build": "make {root}", "form": form}}
    software = Software.model_validate({"modules": {"apps/tool": tool}})
    assert ("autofs" in packages(software, "debian-12")) == (form == "squashfs")
    assert images(software, "/sw") == ("/sw/.muster/images" if form == "squashfs" else "")
