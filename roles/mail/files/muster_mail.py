#!/usr/bin/python3 -I
# SPDX-License-Identifier: Apache-2.0
"""MailProg of SLURM: mail about a job, with what the job used. Installed by Muster's role `mail`.

    muster-mail -s SUBJECT RECIPIENT[,RECIPIENT...]

slurmctld runs it as user slurm, with the job's variables in the environment (MailProg in
slurm.conf(5)), and ends it after 120 seconds. A recipient is a login, which /etc/muster/mail.json
turns into an address, or an address. Users choose it, so mail.json says too which domains it may
be in, and how many mails about the jobs of one user are sent in an hour. msmtp sends; what becomes
of each mail is in the journal (journalctl -t muster-mail). Exit code: 0, or that of the last mail
that was not sent (sysexits.h).
"""

import fcntl
import json
import os
import re
import subprocess
import sys
import syslog
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from email.message import EmailMessage
from email.policy import default as mail_policy
from email.utils import formatdate, make_msgid
from pathlib import Path
from typing import Any

sys.path.insert(0, "/usr/local/lib/muster")

from muster_jobs import advice, usage, waiting
from muster_jobs.records import JOB, NotKnownError, Record, Run, clean, ended

CONFIG = Path("/etc/muster/mail.json")
COUNTS = Path("/var/lib/muster-mail")
"""A file for each user: when the mails of the last hour were sent, a line each (Unix time)."""
HOUR_S = 3600
WIRE = mail_policy.clone(cte_type="7bit", max_line_length=998)
"""Lines as long as RFC 5322 takes them: with the default of 78 a longer sentence would have the
whole text encoded, and a subject in several lines. People grep for both."""
MSMTP = ["/usr/bin/msmtp", "--file=/etc/msmtprc"]

# slurmdbd gets a job's end about when this program starts, so the record may be late.
RECORD_WAIT_SECONDS = 20
MSMTP_TIMEOUT_SECONDS = 30

# What `SLURM_JOB_MAIL_TYPE` says of a job that is over (agent.c of slurmctld, _mail_type_str).
OVER = {"END", "FAIL", "ENDED", "FAILED"}
# The same of a job that is back in the queue, or will wait for ever.
WAITS = {"REQUEUED", "INVALID DEPENDENCY"}
ADDRESS = re.compile(
    r"[A-Za-z0-9_][A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]*@[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?"
)
LOGIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def addresses(recipients: str, config: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Return the addresses of `recipients`, and the others with the reason why they get no mail.

    Args:
        recipients: Logins and addresses, between commas.
        config: mail.json.

    """
    known, domain = config["addresses"], config["domain"]
    domains = {name.lower() for name in (domain, *config["domains"])}
    people = {address.lower() for address in known.values()}
    accepted: list[str] = []
    refused: dict[str, str] = {}
    for word in (part.strip() for part in recipients.split(",")):
        if not word:
            continue
        # With MailDomain in slurm.conf, slurmctld has added it already.
        login = word.removesuffix(f"@{domain}")
        address = known.get(login, f"{login}@{domain}") if LOGIN.fullmatch(login) else word
        its_domain = address.rpartition("@")[2].lower()
        if not ADDRESS.fullmatch(address):
            refused[address] = "that is no address"
        elif {"*", its_domain} & domains or address.lower() in people:
            accepted.append(address)
        else:
            refused[address] = f"{its_domain} is not in mail.domains of the definition"
    return list(dict.fromkeys(accepted)), refused


def take(path: Path, wanted: int, limit: int, now: float) -> tuple[int, bool]:
    """Count mails that are about to be sent; return how many may be, and whether that was the last.

    Args:
        path: Where the user's mails are counted.
        wanted: How many there are to send.
        limit: How many may be sent in an hour.
        now: Unix time.

    Raises:
        OSError: they can't be counted.

    """
    with path.open("a+", encoding="ascii", errors="replace") as stream:
        # slurmctld starts many of these programs at a time.
        fcntl.flock(stream, fcntl.LOCK_EX)
        stream.seek(0)
        times = [int(time) for time in re.findall(r"^\d+$", stream.read(), re.MULTILINE)]
        sent = [time for time in times if now - HOUR_S < time <= now]
        taken = min(wanted, max(limit - len(sent), 0))
        stream.truncate(0)
        stream.write("".join(f"{time}\n" for time in [*sent, *[int(now)] * taken]))
    return taken, len(sent) + taken >= limit


def text_of(output: bytes) -> str:
    """Return what a program said, whatever its bytes."""
    return output.decode("utf-8", "replace")


def facts(environment: Mapping[str, str]) -> str:
    """Return the text about the job from slurmctld's environment variables."""
    rows = [
        (label, clean(environment[variable]))
        for label, variable in (
            ("Job", "SLURM_JOB_ID"),
            ("Name", "SLURM_JOB_NAME"),
            ("Cluster", "SLURM_CLUSTER_NAME"),
            ("User", "SLURM_JOB_USER"),
            ("Account", "SLURM_JOB_ACCOUNT"),
            ("Partition", "SLURM_JOB_PARTITION"),
            ("Nodes", "SLURM_JOB_NODELIST"),
            ("Folder", "SLURM_JOB_WORK_DIR"),
            ("Waited", "SLURM_JOB_QUEUED_TIME"),
        )
        if environment.get(variable)
    ]
    return usage.table(rows)


def used(records: Sequence[Record]) -> str:
    """Return what `muster-job` says of a job that has ended."""
    said = "".join(f"\n{sentence}\n" for sentence in advice.sentences(records))
    return usage.table(usage.rows(records)) + said


def waits(job: str, run: Run) -> str:
    """Return what `muster-job` says of a job that waits or is held."""
    try:
        said = waiting.report(job, run, datetime.now())  # noqa: DTZ005 (SLURM writes no zone)
    except NotKnownError as reason:
        return f"\nWhy it waits is not known: {reason}; `muster-job {job}` may say it later\n"
    return f"\n{said}" if said else ""


def body(subject: str, environment: Mapping[str, str], run: Run, wait_seconds: float) -> str:
    """Return the text of the mail."""
    text = f"{clean(subject)}\n\n{facts(environment)}"
    job = environment.get("SLURM_JOB_ID", "")
    array, task = (environment.get(f"SLURM_ARRAY_{name}_ID", "") for name in ("JOB", "TASK"))
    # One mail for a whole array, unless the user asked for ARRAY_TASKS.
    is_whole = subject.startswith("Slurm Array Summary")
    if array and task and not is_whole:
        # SLURM_JOB_ID is that of the whole array for the task that started last.
        job = f"{array}_{task}"
    kind = environment.get("SLURM_JOB_MAIL_TYPE", "").upper()
    if kind in WAITS and JOB.fullmatch(job):
        return text + waits(job, run)
    if kind not in OVER or not JOB.fullmatch(job):
        return text
    if array and is_whole:
        job = array
    try:
        return f"{text}\nWhat it used:\n\n{used(ended(job, run, wait_seconds))}"
    except NotKnownError as reason:
        return f"{text}\nWhat it used is not known: {reason}; `sacct -j {job}` may say it later\n"


def message(subject: str, text: str, sender: str, recipient: str) -> EmailMessage:
    """Return the mail, ready to be sent."""
    mail = EmailMessage(policy=WIRE)
    mail["From"] = f"SLURM <{sender}>"
    mail["To"] = recipient
    mail["Subject"] = clean(subject)
    mail["Date"] = formatdate(localtime=True)
    mail["Message-ID"] = make_msgid(domain=sender.partition("@")[2])
    mail["Auto-Submitted"] = "auto-generated"  # RFC 3834: no answers from people on holiday
    mail.set_content(text)
    return mail


def run_program(
    command: Sequence[str], timeout: float, data: bytes | None = None
) -> "subprocess.CompletedProcess[bytes]":
    """Run `command` with its own environment: slurmctld's may lack even PATH."""
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    if "SLURM_CONF" in os.environ:
        environment["SLURM_CONF"] = os.environ["SLURM_CONF"]
    return subprocess.run(
        command, timeout=timeout, input=data, env=environment, capture_output=True, check=False
    )


def send(mail: EmailMessage, recipient: str, run: Run) -> tuple[int, str]:
    """Pass `mail` to msmtp; return its exit code and output."""
    try:
        done = run([*MSMTP, "--", recipient], timeout=MSMTP_TIMEOUT_SECONDS, data=mail.as_bytes())
    except (OSError, subprocess.TimeoutExpired) as error:
        return os.EX_TEMPFAIL, str(error)
    return done.returncode, clean(text_of(done.stderr), limit=1000)


def report(priority: int, text: str) -> None:
    """Write to the journal, and where slurmctld.log shows it."""
    syslog.syslog(syslog.LOG_MAIL | priority, text)
    sys.stderr.write(text + "\n")


def main(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    run: Run = run_program,
    *,
    config_path: Path = CONFIG,
    counts: Path = COUNTS,
    wait_seconds: float = RECORD_WAIT_SECONDS,
) -> int:
    """Send the mails; return the exit code."""
    # Not an option parser: a recipient, which users choose, may look like an option.
    if len(arguments) != 3 or arguments[0] != "-s":
        sys.stderr.write("usage: muster-mail -s SUBJECT RECIPIENT[,RECIPIENT...]\n")
        return os.EX_USAGE
    _, subject, recipients = arguments
    syslog.openlog("muster-mail")
    about = f"mail about job {clean(environment.get('SLURM_JOB_ID', '?'))}"
    try:
        config = json.loads(config_path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        report(syslog.LOG_ERR, f"{about} not sent: {error}; run the role mail again")
        return os.EX_CONFIG
    accepted, refused = addresses(recipients, config)
    code = 0
    for word, reason in refused.items():
        report(syslog.LOG_ERR, f"{about} not sent to {clean(word)!r}: {reason}")
        code = os.EX_DATAERR
    if not accepted:
        return code
    user, limit = environment.get("SLURM_JOB_USER", ""), config["hourly_limit"]
    if not LOGIN.fullmatch(user):
        user = "unknown"
    try:
        # Before anything that takes time: jobs of a large array may all end at once.
        number, is_last = take(counts / user, len(accepted), limit, time.time())
    except OSError as error:
        report(syslog.LOG_ERR, f"{about} not sent: {error}; run the role mail again")
        return os.EX_CONFIG
    too_many = f"{limit} mails about jobs of {user} in an hour are the limit"
    for recipient in accepted[number:]:
        report(syslog.LOG_WARNING, f"{about} not sent to {recipient}: {too_many}")
        code = os.EX_TEMPFAIL
    text = body(subject, environment, run, wait_seconds) if number else ""
    if is_last:
        text += f"\nThere will be no more mails for some time: {too_many}.\n"
    for recipient in accepted[:number]:
        mail = message(subject, text, config["sender"], recipient)
        failure, said = send(mail, recipient, run)
        if failure:
            report(syslog.LOG_ERR, f"{about} to {recipient} was not taken: {said}")
            code = failure
        else:
            syslog.syslog(syslog.LOG_MAIL | syslog.LOG_INFO, f"{about} sent to {recipient}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], dict(os.environ)))
