"""The role `munge` refuses a key that munged would refuse, before it touches the host."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PLAY = """
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: munge, tasks_from: configure.yml}
"""


@pytest.mark.parametrize(
    ("key", "length"),
    [
        ("YSBrZXkgb2YgMzEgYnl0ZXMsIG9uZSB0b28gZmV3Lg==", 31),
        ("", 0),
        ("not base64 at all, but long enough to be a key", 0),
    ],
)
def test_a_key_that_munged_refuses_is_refused_first(tmp_path, key, length):
    (tmp_path / "play.yml").write_text(PLAY)
    done = subprocess.run(
        [
            *(Path(sys.executable).with_name("ansible-playbook"), "--check", "-i", "localhost,"),
            *("-e", f'{{"munge_key_b64": "{key}"}}', tmp_path / "play.yml"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said = " ".join(done.stdout.split())
    assert done.returncode == 2, said + done.stderr
    assert f"munge_key_b64 holds {length} bytes in base64, munged needs at least 32" in said
    assert "Write the key" not in said
