"""How modules run programs: what these print is never lost."""

import os
import selectors
import signal

import pytest
from ansible_collections.muster.slurm.plugins.module_utils import commands
from ansible_collections.muster.slurm.plugins.module_utils.refused_error import RefusedError


def shell(script, **more):
    return commands.run(["sh", "-c", script], **more)


def test_what_a_program_prints_while_this_process_waits_for_a_cpu_is_not_lost(monkeypatch):
    look = selectors.DefaultSelector.select

    def late(self, timeout=None):
        ready = look(self, timeout)
        if not ready:
            # It ends after this look and before what follows.
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        return ready

    monkeypatch.setattr(selectors.DefaultSelector, "select", late)
    monkeypatch.setattr(commands, "LOOK_SECONDS", 0)
    assert shell("sleep 0.1; echo hello; echo why >&2; exit 3") == (3, "hello\n", "why\n")


def test_what_is_left_running_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(commands, "LOOK_SECONDS", 0.01)
    code, out, _ = shell("sleep 600 & echo $!")
    os.kill(int(out), signal.SIGTERM)
    assert code == 0


def test_what_fills_both_pipes_is_read():
    code, out, err = shell("head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2")
    assert (code, len(out), len(err)) == (0, 300000, 300000)


def test_a_program_that_ends_by_a_signal_has_not_ended_well():
    assert shell("echo begun; kill -9 $$") == (-9, "begun\n", "")


def test_it_gets_a_line_or_nothing():
    assert commands.run(["cat"], data="secret") == (0, "secret\n", "")
    assert commands.run(["cat"]) == (0, "", "")
    # One that does not read it.
    assert commands.run(["true"], data="x" * 9000) == (0, "", "")


def test_arguments_arrive_as_they_are():
    words = ["printf", "%s|", "~", "$HOME", "ü", "\udcff"]
    # Ansible refuses a module's whole answer for a byte that is no UTF-8.
    assert commands.run(words) == (0, r"~|$HOME|ü|\xff|", "")


def test_it_has_the_environment_of_the_module_and_more(monkeypatch):
    monkeypatch.setenv("GIVEN", "one")
    assert shell("echo $GIVEN$MORE", environ={"MORE": "two"})[1] == "onetwo\n"


def test_a_program_that_can_not_start_is_told(tmp_path):
    assert commands.run(["no-such"]) == (127, "", "no-such: No such file or directory")
    (tmp_path / "text").write_text("")
    assert commands.run([f"{tmp_path}/text"])[:2] == (127, "")
    assert commands.run(["echo", "a\0b"]) == (127, "", "echo: embedded null byte")


def test_one_that_must_end_well_is_refused_with_its_words():
    assert commands.output(["echo", "hello"]) == "hello\n"
    with pytest.raises(RefusedError) as said:
        commands.output(["sh", "-c", "echo broken; exit 3"])
    assert str(said.value) == "`sh -c echo broken; exit 3` ended with 3; fix what it says: broken"
