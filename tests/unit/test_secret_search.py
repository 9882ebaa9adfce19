"""The search of tests/live and tests/cloud for secrets finds them in each form."""

import base64
import json
import subprocess

import pytest
from secret_search import files_with, found

KEY = bytes(range(256)) + rb"a\new line"
"""With line breaks, NULs, blanks and a backslash before an n."""
PLAIN = b"Tr0ub4dorAndThree"

FORMS = {
    "raw": KEY,
    "in a file": b"ahead " + KEY + b" behind",
    "the journal's lines": b"\n".join(
        line.strip() for part in KEY.split(b"\n") for line in part.split(b"\0")
    ),
    "hexadecimal": KEY.hex().encode(),
    "as xxd -u -p has it": KEY.hex("\n", 30).upper().encode(),
    "as od -tx1 has it": KEY.hex(" ").encode(),
    "with colons": KEY.hex(":").encode(),
    "base64": base64.b64encode(KEY),
    "as base64 has it": base64.encodebytes(KEY),
    "with carriage returns": base64.encodebytes(KEY).replace(b"\n", b"\r\n"),
    "in JSON": json.dumps({"key": base64.encodebytes(KEY).decode()}).encode(),
    "in base64 of more": base64.encodebytes(b"ab" + KEY + b"c"),
    "in base64 of a text that has its base64": base64.encodebytes(
        b"k: " + base64.b64encode(KEY) + b"\n"
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_key_is_found_in_each_form(form):
    values = [KEY, base64.b64encode(KEY)]
    assert found(b"before\n" + FORMS[form] + b"\nafter", values)
    assert not found(b"before\n" + FORMS[form][: len(FORMS[form]) // 2], values)


@pytest.mark.parametrize("ahead", [b"", b"a", b"ab", b"abc"])
def test_a_password_is_found_in_base64_of_any_text(ahead):
    assert found(base64.b64encode(ahead + PLAIN + b"\n"), [PLAIN])
    assert found(b"StoragePass=" + PLAIN, [PLAIN]) == ["as it is"]
    assert not found(b"StoragePass=none", [PLAIN])


def test_files_are_named_with_their_modes(tmp_path):
    (tmp_path / "below").mkdir()
    for name, content, mode in [
        ("key", KEY, 0o400),
        ("below/copy", base64.encodebytes(KEY), 0o644),
        ("below/other", b"nothing", 0o644),
    ]:
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(mode)
    (tmp_path / "link").symlink_to("key")
    subprocess.run(["mkfifo", tmp_path / "fifo"], check=True)
    assert set(files_with([KEY], [str(tmp_path)])) == {
        f"-r-------- {tmp_path}/key",
        f"-rw-r--r-- {tmp_path}/below/copy",
    }
