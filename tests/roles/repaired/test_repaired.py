"""What noticed that a host was broken passes once the role has repaired it. Run by molecule."""

import re
import subprocess
import sys


def test_what_noticed_it_passes_now(noticed):
    tests = noticed.read_text(encoding="utf-8").splitlines()
    assert tests
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v", *tests],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"\b{len(tests)} passed\b", done.stdout), done.stdout
