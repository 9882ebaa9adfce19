"""A play that takes too long: real Ansible here, with a task that listens to nothing."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from configuring_vm import playbook
from muster_configure import processes
from waiting import until

BOUND_S = 1
START_S = 120
"""Within which Ansible is at its task, also on a busy machine."""
SITE = """
- hosts: all
  connection: local
  gather_facts: false
  tasks:
    - name: Hang
      ansible.builtin.shell: |
        trap '' TERM
        sleep 600 & echo "$$ $!" >{noted}
        wait
        sleep 600
"""


def runs(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A bundle whose site.yml hangs, for the Ansible that is installed here."""
    (tmp_path / "ansible").mkdir()
    (tmp_path / "ansible.cfg").write_text("[defaults]\n")
    (tmp_path / "ansible/site.yml").write_text(SITE.format(noted=tmp_path / "noted"))
    (tmp_path / "inventory").mkdir()
    (tmp_path / "inventory/hosts").write_text(f"vm ansible_python_interpreter={sys.executable}\n")
    (tmp_path / "private").mkdir()
    return tmp_path


def test_a_run_that_takes_too_long_leaves_no_process(site: Path, monkeypatch: pytest.MonkeyPatch):
    noted = site / "noted"

    class AtItsTask(subprocess.Popen[bytes]):
        """Ansible, whose limit counts from when it is at its task."""

        def wait(self, timeout: float | None = None) -> int:
            until(lambda: noted.exists() and noted.read_text().endswith("\n"), "it hangs", START_S)
            return super().wait(timeout)

    monkeypatch.setattr(playbook, "RUN_S", BOUND_S)
    monkeypatch.setattr(playbook.subprocess, "Popen", AtItsTask)
    monkeypatch.setattr(processes, "GRACE_S", 1.0)
    run = playbook.Playbook(Path(sys.executable).parents[1], site / "private")
    with pytest.raises(playbook.RunError, match="no end after"):
        run.run(site, "vm", {}, lambda _: None)
    assert time.time() - noted.stat().st_mtime < BOUND_S + 10
    shell, asleep = map(int, noted.read_text().split())
    assert not runs(shell)
    assert not runs(asleep)
