"""What is killed is gone with its descendants, those in sessions of their own too."""

import signal
import subprocess

import process_tree
import psutil
from waiting import until


def test_a_descendant_in_its_own_session_is_killed_too():
    # As ansible-playbook and its workers.
    with subprocess.Popen(["sh", "-c", "setsid sh -c 'sleep 300; :' & wait"]) as process:
        root = psutil.Process(process.pid)
        until(lambda: len(root.children(recursive=True)) == 2, "the shell and its sleep", 10)
        family = root.children(recursive=True)
        process_tree.kill(process.pid)
    _, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []


def test_what_has_ended_is_left_alone():
    with subprocess.Popen(["true"]) as process:
        process.wait()
        process_tree.kill(process.pid)


def test_a_descendant_of_another_user_keeps_none_of_the_others(monkeypatch):
    # As podman, which sudo has started as root.
    with subprocess.Popen(["sh", "-c", "sleep 300 & wait"]) as process:
        root = psutil.Process(process.pid)
        until(root.children, "its sleep", 10)
        [other] = root.children()
        for action in ("suspend", "kill"):
            theirs = getattr(psutil.Process, action)

            def refused(self, theirs=theirs):
                if self == other:
                    raise psutil.AccessDenied(self.pid)
                theirs(self)

            monkeypatch.setattr(psutil.Process, action, refused)
        process_tree.kill(process.pid)
        assert process.wait(10) == -signal.SIGKILL
    monkeypatch.undo()
    other.kill()
