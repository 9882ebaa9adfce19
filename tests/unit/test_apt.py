"""Two `make` at once install packages one after the other: apt refuses a second one."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
APT = """#!/bin/sh
echo "$*" >>"$CALLS"
mkdir "$CALLS.lock" || { echo "E: Could not get lock" >&2; exit 100; }
sleep 0.3
rmdir "$CALLS.lock"
"""
PROGRAMS = {"apt-get": APT, "dpkg-query": "#!/bin/sh\nexit 1\n", "sudo": '#!/bin/sh\nexec "$@"\n'}


def test_both_install(tmp_path: Path) -> None:
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    calls = tmp_path / "calls"
    command = ["make", "machine-packages", "MACHINE_PACKAGES=one"]
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "CALLS": str(calls)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    makes = [subprocess.Popen(command, cwd=ROOT, env=environment, **pipes) for _ in range(2)]
    for make in makes:
        said, _ = make.communicate(timeout=60)
        assert make.returncode == 0, said
    lines = calls.read_text().splitlines()
    assert sorted(line.split()[2] for line in lines) == ["install"] * 2 + ["update"] * 2
    # It waits for others that install, too.
    assert all(line.startswith("-o DPkg::Lock::Timeout=600 ") for line in lines)
