"""What is killed is gone with its descendants, those in sessions of their own too."""

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
