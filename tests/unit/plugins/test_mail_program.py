"""What the MailProg of the role `mail` writes, to whom, and what it does when a program fails."""

import importlib.util
import json
import pwd
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from email import message_from_bytes
from email.policy import default as mail_policy
from pathlib import Path
from types import SimpleNamespace

import pytest

ROLES = Path(__file__).parents[3] / "roles"
PATH = ROLES / "mail/files/muster_mail.py"
# The whole package, which other tests use in the same process; that the role brings enough of it
# along is tested in roles/jobs/test_shared_jobs.py.
sys.path.insert(0, str(ROLES / "jobs/files/usr/local/lib/muster"))
SPEC = importlib.util.spec_from_file_location("muster_mail", PATH)
assert SPEC is not None and SPEC.loader is not None
muster_mail = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(muster_mail)

SUBJECT = "Slurm Job_id=12 Name=train Ended, Run time 00:10:00, COMPLETED, ExitCode 0"
ENDED = {
    "SLURM_JOB_ID": "12",
    "SLURM_JOB_MAIL_TYPE": "Ended",
    "SLURM_JOB_NAME": "train",
    "SLURM_JOB_USER": "ada",
}
CONFIG = {
    "sender": "slurm@example.org",
    "domain": "example.org",
    "domains": ["X.org"],
    "addresses": {"ada": "a@b.org"},
    "hourly_limit": 3,
}
DONE = (
    b"12|COMPLETED|0:0|600|04:00:00|2400|32:00.000||1||billing=4,cpu=4,gres/gpu=2,mem=8G,node=1"
    b"|||ada|ml|/home/ada|train\n"
    b"12.batch|COMPLETED|0:0|600||2400|32:00.000|1048576K|1|1|cpu=4,mem=8G,node=1||||||batch\n"
)


class Programs:
    """sacct and msmtp that answer as told and keep what they are given."""

    def __init__(self, sacct=DONE, sacct_code=0, msmtp_code=0, msmtp_says=b"", others=None):
        self.sacct = list(sacct) if isinstance(sacct, list) else [sacct]
        self.sacct_code = sacct_code
        self.msmtp = (msmtp_code, msmtp_says)
        self.others = others or {}
        self.runs = b"12|2026-11-01T10:00:00|COMPLETED|600|ada|/home/ada|train\n"
        self.mails = []
        self.asked = []

    def __call__(self, command, timeout, data=None):
        assert timeout > 0
        if "--duplicates" in command:
            return SimpleNamespace(returncode=0, stdout=self.runs, stderr=b"")
        if command[0].endswith("sacct"):
            self.asked.append(command)
            out = self.sacct.pop(0) if len(self.sacct) > 1 else self.sacct[0]
            if isinstance(out, Exception):
                raise out
            return SimpleNamespace(returncode=self.sacct_code, stdout=out, stderr=b"no database")
        if command[0] in self.others:
            self.asked.append(command)
            code, out = self.others[command[0]]
            return SimpleNamespace(returncode=code, stdout=out, stderr=b"slurmctld is away")
        self.wire = data.decode("ascii")
        mail = message_from_bytes(data, policy=mail_policy)
        self.mails.append((command[-1], mail))
        code, said = self.msmtp
        return SimpleNamespace(returncode=code, stdout=b"", stderr=said)


@pytest.fixture
def send(tmp_path):
    def call(programs, subject=SUBJECT, recipients="ada", environment=ENDED, **config):
        (tmp_path / "mail.json").write_text(json.dumps(CONFIG | config))
        (tmp_path / "counts").mkdir(exist_ok=True)
        return muster_mail.main(
            ["-s", subject, recipients],
            environment,
            programs,
            config_path=tmp_path / "mail.json",
            counts=tmp_path / "counts",
            wait_seconds=0,
        )

    return call


def text(programs):
    ((_, mail),) = programs.mails
    return mail.get_content()


def test_a_login_gets_its_own_address_and_others_that_of_the_domain(send) -> None:
    programs = Programs()
    assert send(programs, recipients="ada,bob,eve@x.org,ada@example.org") == 0
    assert [to for to, _ in programs.mails] == ["a@b.org", "bob@example.org", "eve@x.org"]
    assert programs.mails[0][1]["To"] == "a@b.org"
    assert programs.mails[0][1]["From"] == "SLURM <slurm@example.org>"


@pytest.mark.parametrize(
    "word", ["-oQ/tmp@x", "a b@x.org", "a@x.org\nBcc: e@x.org", "@x", "a@", "a\udcff@x.org"]
)
def test_what_is_no_address_never_reaches_msmtp(send, word) -> None:
    programs = Programs()
    anywhere = CONFIG | {"domains": ["*"]}
    assert muster_mail.addresses(word, anywhere) == ([], {word: "that is no address"})
    assert send(programs, recipients=word) == 65
    assert programs.mails == []


ELSEWHERE = ["eve@evil.org", "eve@sub.example.org", "eve@example.org.evil.org", "eve@b.org"]


@pytest.mark.parametrize("word", ELSEWHERE)
def test_mail_goes_nowhere_but_to_the_domains_of_the_definition(send, capsys, word: str) -> None:
    programs = Programs()
    assert send(programs, recipients=f"{word},bob") == 65
    assert [to for to, _ in programs.mails] == ["bob@example.org"]
    assert f"not sent to '{word}': {word.rpartition('@')[2]} is not in mail.domains" in (
        capsys.readouterr().err
    )


def test_it_goes_to_people_s_addresses_and_further_domains(send) -> None:
    programs = Programs()
    # How a domain is written makes no difference.
    assert send(programs, recipients="A@B.org,eve@x.ORG,bob@EXAMPLE.org") == 0
    assert [to for to, _ in programs.mails] == ["A@B.org", "eve@x.ORG", "bob@EXAMPLE.org"]


def test_it_goes_anywhere_if_the_definition_says_so(send) -> None:
    programs = Programs()
    assert send(programs, recipients=",".join(ELSEWHERE[:3]), domains=["*"]) == 0
    assert [to for to, _ in programs.mails] == ELSEWHERE[:3]


def test_mails_beyond_the_limit_of_an_hour_are_not_sent(send, capsys) -> None:
    programs = Programs()
    assert send(programs, recipients="ada,bob") == 0
    # All that takes time is left out for those that are not sent.
    programs.asked.clear()
    assert send(programs, recipients="ada,bob") == 75
    assert len(programs.asked) == 1
    assert send(programs) == 75
    assert len(programs.asked) == 1
    assert [to for to, _ in programs.mails] == ["a@b.org", "bob@example.org", "a@b.org"]
    limit = "3 mails about jobs of ada in an hour are the limit"
    assert f"mail about job 12 not sent to bob@example.org: {limit}" in capsys.readouterr().err
    told = [limit in mail.get_content() for _, mail in programs.mails]
    assert told == [False, False, True]


def test_the_limit_is_one_of_each_user(send) -> None:
    programs = Programs()
    for user in ["ada", "bob", "", "../../etc/x", "\udcff"]:
        for code in [0, 75] if user in ("ada", "bob", "") else [75]:
            assert send(programs, environment={"SLURM_JOB_USER": user}, hourly_limit=1) == code


def test_an_hour_later_mails_are_sent_again(tmp_path: Path) -> None:
    path, now = tmp_path / "ada", 1e9
    assert muster_mail.take(path, 2, 3, now) == (2, False)
    assert muster_mail.take(path, 2, 3, now + 1800) == (1, True)
    assert muster_mail.take(path, 2, 3, now + 3599) == (0, True)
    assert muster_mail.take(path, 2, 3, now + 3600) == (2, True)
    # A clock that was wrong blocks nobody, and nor does a file that is damaged.
    assert muster_mail.take(path, 1, 3, now - 9999) == (1, False)
    path.write_bytes(b"\xff\n12\n\n-1\n")
    assert muster_mail.take(path, 1, 3, now) == (1, False)


def test_programs_that_start_together_count_together(tmp_path: Path) -> None:
    path = tmp_path / "ada"
    with ThreadPoolExecutor(16) as pool:
        counted = list(pool.map(lambda _: muster_mail.take(path, 1, 9, 1e9), range(64)))
    assert sum(taken for taken, _ in counted) == 9


def test_mails_that_can_not_be_counted_are_not_sent(send, tmp_path: Path, capsys) -> None:
    (tmp_path / "counts").write_text("")
    (tmp_path / "mail.json").write_text(json.dumps(CONFIG))
    programs = Programs()
    code = muster_mail.main(
        ["-s", SUBJECT, "ada"],
        ENDED,
        programs,
        config_path=tmp_path / "mail.json",
        counts=tmp_path / "counts",
    )
    assert (code, programs.mails) == (78, [])
    assert "run the role mail again" in capsys.readouterr().err


def test_a_job_name_with_line_breaks_makes_no_header_and_no_line(send) -> None:
    programs = Programs()
    name = "x\r\nBcc: eve@example.org\n\nforged\x1b[31m"
    send(
        programs, subject=f"Slurm Job_id=12 Name={name} Began", environment={"SLURM_JOB_NAME": name}
    )
    mail = programs.mails[0][1]
    assert mail["Bcc"] is None
    assert mail["Subject"] == "Slurm Job_id=12 Name=x Bcc: eve@example.org forged [31m Began"
    assert not any(line.startswith(("Bcc", "forged")) for line in text(programs).splitlines())


def test_a_long_subject_stays_in_one_line(send) -> None:
    programs = Programs()
    send(programs)
    assert f"\nSubject: {SUBJECT}\n" in programs.wire


def test_long_sentences_leave_the_text_as_people_read_it(send) -> None:
    programs = Programs()
    send(programs)
    assert max(map(len, text(programs).splitlines())) > 78
    assert f"\n\n{SUBJECT}\n" in programs.wire


def test_bytes_that_are_no_utf8_are_no_failure(send) -> None:
    programs = Programs()
    assert send(programs, subject="Name=\udcff\u00e9 Began", environment={}) == 0
    assert programs.mails[0][1]["Subject"] == "Name=\ufffd\u00e9 Began"


def test_the_mail_about_the_end_says_what_was_used(send) -> None:
    programs = Programs()
    assert send(programs) == 0
    said = text(programs)
    assert "State        COMPLETED\n" in said
    assert "Elapsed      00:10:00 of 04:00:00\n" in said
    assert "CPU          80 % of 4 allotted\n" in said
    assert "Memory       1.00 GiB at most in one task: 12 % of 8.00 GiB allotted\n" in said
    assert "GPUs         2 allotted, their use is not measured\n" in said
    assert "--mem=1300M would have been enough memory on each node\n" in said
    assert "--time=00:15:00 would have been enough" in said


def test_the_mail_about_a_job_that_was_queued_again_says_so_and_gives_no_advice(send) -> None:
    programs = Programs()
    programs.runs = b"12|2026-10-31T10:00:00|NODE_FAIL|3000|ada|/home/ada|train\n" + programs.runs
    assert send(programs) == 0
    said = text(programs)
    assert (
        "Run          2 of 2: the lines below are of this run, all runs together took 01:00:00\n"
        in said
    )
    assert "would have been enough" not in said


HELD = b"12|PENDING|N/A|0|ml|1|ada|launch failed requeued held\n"
REQUEUED = {**ENDED, "SLURM_JOB_MAIL_TYPE": "Requeued"}


def test_the_mail_about_a_job_that_is_held_says_what_muster_job_says(send) -> None:
    programs = Programs(others={"/usr/bin/squeue": (0, HELD)})
    assert send(programs, environment=REQUEUED) == 0
    said = text(programs)
    assert "It waits: it could not be started, and is held (launch failed requeued held)" in said
    assert "What you can do: send its number to an administrator" in said
    assert "What it used" not in said


@pytest.mark.parametrize("release", ["22.05", "24.11"])
def test_the_mail_about_a_job_that_a_limit_holds_names_the_limit(
    send, release: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pwd, "getpwnam", lambda _: SimpleNamespace(pw_uid=20005))
    recorded = Path(__file__).parents[1] / f"roles/jobs/assoc_mgr/{release}.assoc-eve.txt"
    line = b"12|PENDING|N/A|0|ml-gpu|1|eve|AssocGrpGRES\n"
    asked = f"{'students':<256}{'normal':<256}{'NOT_SET':<32}{'N/A':<1024}\n".encode()
    answers = {
        "--Format": (0, asked),
        "squeue": (0, line),
        "partition": (0, b"PartitionName=ml-gpu AllowQos=ALL QoS=N/A State=UP\n"),
        "assoc_mgr": (0, recorded.read_bytes()),
        "sacctmgr": (0, b"normal|DenyOnLimit\n"),
    }

    class Slurm(Programs):
        def __call__(self, command, timeout, data=None):
            words = " ".join(command)
            answer = next((said for word, said in answers.items() if word in words), None)
            self.others = {command[0]: answer} if answer else {}
            return super().__call__(command, timeout, data)

    programs = Slurm()
    eve = {**REQUEUED, "SLURM_JOB_USER": "eve"}
    assert send(programs, recipients="eve", environment=eve) == 0
    said = " ".join(text(programs).split())
    assert "account students allows all of its jobs together at most 6 GPUs, in use: 6" in said
    assert "What you can do: wait until others end (squeue --account=students lists them)" in said


def test_the_mail_about_a_dependency_that_never_comes_says_what_to_do(send) -> None:
    line = b"12|PENDING|N/A|0|ml|1|ada|DependencyNeverSatisfied\n"
    programs = Programs(others={"/usr/bin/squeue": (0, line)})
    send(programs, environment={**ENDED, "SLURM_JOB_MAIL_TYPE": "Invalid dependency"})
    assert "What you can do: scancel it, and submit both again" in text(programs)


def test_the_mail_about_a_job_that_is_queued_again_goes_without_squeue(send) -> None:
    programs = Programs(others={"/usr/bin/squeue": (1, b"")})
    assert send(programs, environment=REQUEUED) == 0
    assert (
        "Why it waits is not known: squeue failed: slurmctld is away; `muster-job 12` may say it "
        "later"
    ) in text(programs)


def test_the_mail_about_the_begin_asks_nobody(send) -> None:
    programs = Programs()
    assert send(programs, environment={**ENDED, "SLURM_JOB_MAIL_TYPE": "Began"}) == 0
    assert programs.asked == []
    assert "used" not in text(programs)


def test_an_array_is_summed_up(send) -> None:
    lines = (
        b"7_1|COMPLETED|0:0|100|01:00:00|100|01:40.000||1||cpu=1,mem=1G|||ada|ml|/|a\n"
        b"7_1.batch|COMPLETED|0:0|100||100|01:40.000|10240K|1|1|cpu=1,mem=1G||||||batch\n"
        b"7_2|FAILED|1:0|300|01:00:00|300|00:20.000||1||cpu=1,mem=1G|||ada|ml|/|a\n"
    )
    programs = Programs(sacct=lines)
    environment = {**ENDED, "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2"}
    send(
        programs,
        subject="Slurm Array Summary Job_id=7_* (12) Name=a Ended",
        environment=environment,
    )
    assert programs.asked[0][-1] == "--jobs=7"
    assert "State        COMPLETED 1, FAILED 1\n" in text(programs)
    assert "Longest      00:05:00 of 01:00:00\n" in text(programs)
    assert "CPU          30 % of 1 allotted\n" in text(programs)


TASK = {"SLURM_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"}
"""Of an array the task that started last has the array's own number."""


def test_of_a_task_of_an_array_that_task_alone_is_asked_for(send) -> None:
    programs = Programs()
    subject = "Slurm Array Task Job_id=7_3 (7) Name=a Ended"
    assert send(programs, subject=subject, environment={**ENDED, **TASK}) == 0
    assert programs.asked[0][-1] == "--jobs=7_3"
    programs = Programs(sacct_code=1)
    assert send(programs, subject=subject, environment={**ENDED, **TASK}) == 0
    assert "`sacct -j 7_3` may say it later" in text(programs)


def test_of_a_task_that_waits_that_task_alone_is_asked_for(send) -> None:
    programs = Programs(others={"/usr/bin/squeue": (0, HELD.replace(b"12|", b"7_3|"))})
    subject = "Slurm Array Task Job_id=7_3 (7) Name=a Requeued"
    assert send(programs, subject=subject, environment={**REQUEUED, **TASK}) == 0
    assert programs.asked[0][-1] == "--jobs=7_3"
    assert "It waits: it could not be started, and is held" in text(programs)


def test_a_job_that_ran_out_of_memory_gets_a_hint(send) -> None:
    programs = Programs(sacct=DONE.replace(b"COMPLETED", b"OUT_OF_MEMORY"))
    send(programs)
    assert "It needed more memory than the 8.00 GiB that it had" in text(programs)
    assert "ask for --mem=12G" in text(programs)


def test_a_job_that_never_ran_has_a_summary_too(send) -> None:
    programs = Programs(sacct=b"12|CANCELLED by 0|0:0|0|04:00:00|0|00:00:00||1||||||||\n")
    send(programs)
    assert "State        CANCELLED\n" in text(programs)
    assert "no time used" in text(programs)
    assert "It was cancelled by an administrator" in text(programs)


@pytest.mark.parametrize(
    ("programs", "reason"),
    [
        (Programs(sacct_code=1), "sacct failed: no database"),
        (Programs(sacct=subprocess.TimeoutExpired("sacct", 10)), "sacct did not answer"),
        (Programs(sacct=FileNotFoundError(2, "No such file")), "sacct did not answer"),
        (Programs(sacct=b""), "the accounting has not heard of the end"),
        (
            Programs(sacct=DONE.replace(b"COMPLETED", b"RUNNING")),
            "the accounting has not heard of the end",
        ),
    ],
)
def test_the_mail_goes_without_a_summary_and_says_why(send, programs, reason) -> None:
    assert send(programs) == 0
    assert f"What it used is not known: {reason}" in text(programs)


def test_a_late_record_is_waited_for() -> None:
    running = DONE.replace(b"COMPLETED", b"COMPLETING")
    programs = Programs(sacct=[b"", running, DONE])
    records = muster_mail.ended("12", programs, 20, clock=lambda: 0, sleep=lambda _: None)
    assert len(programs.asked) == 3
    assert records[0]["State"] == "COMPLETED"


def test_a_record_without_its_time_limit_is_not_complete_yet() -> None:
    programs = Programs(sacct=[DONE.replace(b"04:00:00", b""), DONE])
    records = muster_mail.ended("12", programs, 20, clock=lambda: 0, sleep=lambda _: None)
    assert len(programs.asked) == 2
    assert records[0]["Timelimit"] == "04:00:00"


def test_a_time_limit_that_stays_away_is_left_out(send) -> None:
    programs = Programs(sacct=DONE.replace(b"04:00:00", b""))
    assert send(programs) == 0
    assert "Elapsed      00:10:00\n" in text(programs)


def test_a_mail_that_is_not_taken_is_reported_and_the_others_go(send, capsys) -> None:
    programs = Programs(msmtp_code=69, msmtp_says=b"msmtp: server message: 550 no such user\n")
    assert send(programs, recipients="ada,bob") == 69
    assert len(programs.mails) == 2
    assert (
        "mail about job 12 to a@b.org was not taken: msmtp: server message: 550 no such user"
        in (capsys.readouterr().err)
    )


def test_missing_settings_are_said(tmp_path, capsys) -> None:
    none = tmp_path / "none.json"
    assert muster_mail.main(["-s", "x", "ada"], {}, Programs(), config_path=none) == 78
    assert "run the role mail again" in capsys.readouterr().err


def test_a_wrong_call_is_said(capsys) -> None:
    assert muster_mail.main(["ada"], {}) == 64
    assert "usage" in capsys.readouterr().err
