"""Files of requirements: what is fixed by a hash, and what is not."""

from pathlib import Path

import pytest

from muster.definition import validate
from muster.definition.requirements import RequirementsError, faults, has_index, read

HASH = f"--hash=sha256:{'a' * 64}"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("numpy==1.26.4", "numpy==1.26.4 has no hash"),
        ("numpy", "numpy has no hash"),
        (f"numpy=={HASH[:40]}", f"numpy=={HASH[:40]} has no hash"),
        ("numpy==1 --hash=md5:1234", "numpy==1 has no hash"),
        (f"numpy==1 # {HASH}", "numpy==1 has no hash"),
        ("-r more.txt", "`-r` does not fix what is installed"),
        ("--requirement=more.txt", "`--requirement=more.txt` does not fix what is installed"),
        ("-e ./tool", "`-e` does not fix what is installed"),
        ("-c more.txt", "`-c` does not fix what is installed"),
        (
            "--trusted-host example.org",
            "`--trusted-host` is no option that uv reads in a file; remove it",
        ),
        ("--timeout=60", "`--timeout=60` is no option that uv reads in a file; remove it"),
        (
            "--only-binary numpy,torch",
            "uv takes one package in each `--only-binary`; write a line for each",
        ),
        ("--no-binary=a,b", "uv takes one package in each `--no-binary`; write a line for each"),
        (
            f"numpy==1 {HASH} --global-option=build_ext",
            "`--global-option` is no option of a package that uv knows; remove it",
        ),
        (
            f"numpy==1 --config-settings a=b {HASH}",
            "`--config-settings` is no option of a package that uv knows; remove it",
        ),
        (f"numpy==1 -C a=b {HASH}", "`-C` is no option of a package that uv knows; remove it"),
        (f"numpy {HASH}", "numpy is not one version; write it with =="),
        (f"numpy>=1.26 {HASH}", "numpy>=1.26 is not one version; write it with =="),
        (f"numpy[a] == 1.* ; x>'1' {HASH}", "numpy[a] == 1.* is not one version; write it with =="),
        (f"numpy==1,<2 {HASH}", "numpy==1,<2 is not one version; write it with =="),
    ],
)
def test_what_leaves_open_what_is_installed_is_named_with_its_line(line: str, said: str) -> None:
    text = f"# By uv.\n\ntorch==2.4 \\\n    {HASH}\n{line}\n"
    assert list(faults(text)) == [(5, said)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        f"a==1 {HASH}",
        f"a==1 \\\n  {HASH} \\\n  {HASH}\n  # via b\n",
        f"a @ https://example.org/a-1.whl {HASH}\n",
        f'a==1 ; python_version < "3.12" {HASH}\n',
        "-i https://example.org/simple\n--extra-index-url https://example.org/more\n",
        f"a[b,c] === 1.0+cpu {HASH}\na.b_c (==1!2.0rc1) {HASH}\n",
        f"https://example.org/a-1.whl {HASH}\n",
        "--only-binary :all:\n--no-binary=a\n--pre\n--require-hashes\n",
    ],
)
def test_what_is_fixed_is_accepted(text: str) -> None:
    assert list(faults(text)) == []


@pytest.mark.parametrize(
    ("line", "has"),
    [
        ("-i https://a", True),
        ("  --index-url=https://a", True),
        ("--no-index --index-url https://a", True),
        ("--extra-index-url https://a", False),
        ("--find-links /data/a-i x", False),
        ("# -i https://a", False),
    ],
)
def test_an_index_of_its_own_is_seen_wherever_uv_reads_it(line: str, has: bool) -> None:
    assert has_index(f"a==1 --hash=sha256:00\n{line}\n") is has


def test_a_second_index_is_named_with_its_line() -> None:
    text = "--index-url https://a.example/simple\n\n-i https://b.example/simple\n"
    assert list(faults(text)) == [(3, "a second index beside line 1; write `--extra-index-url`")]


def test_a_line_that_goes_on_at_the_end_of_the_file_is_looked_at() -> None:
    assert list(faults("a==1 \\")) == [(1, "a==1 has no hash")]


MODULES = {
    "apps/python": {"3": {"root": "/opt/python"}},
    "libs/a": {
        "1": {"environment": {"python": "apps/python/3", "requirements": "software/a.txt"}},
        "2": {"environment": {"python": "apps/python/3", "requirements": "software/a.txt"}},
    },
}
CLUSTER = {
    "name": "lab",
    "os": "debian-12",
    "nodes": {"cpu": {"sockets": 1, "cores_per_socket": 1, "memory_mib": 1024}},
    "partitions": {"all": {"nodes": ["cpu"], "default": True}},
    "software": {"modules": MODULES},
}
GROUPS = {"controller": ["a"], "database": ["a"], "login": ["a"], "compute": ["a"], "cpu": ["a"]}


def test_each_file_is_read_once_and_one_that_is_missing_is_named(tmp_path: Path) -> None:
    definition = validate(CLUSTER, GROUPS)
    assert definition.files() == definition.requirement_files() == ["software/a.txt"]
    with pytest.raises(RequirementsError, match=r"software/a.txt: no such file or directory; "):
        read(definition, tmp_path)
    (tmp_path / "software").mkdir()
    (tmp_path / "software/a.txt").write_text("a")
    assert read(definition, tmp_path) == {"software/a.txt": "a"}
    (tmp_path / "software/a.txt").write_bytes(b"\xff")
    with pytest.raises(RequirementsError, match="is not UTF-8 text"):
        read(definition, tmp_path)
