"""A mail about a job leaves the host as user slurm, to the right address, or its loss is logged."""

import re
import time
from email import message_from_string
from email.policy import default as mail_policy

import pytest

BOX = "/var/lib/mail-sink/box/new"
ENDED = "SLURM_JOB_ID=12 SLURM_JOB_MAIL_TYPE=Ended SLURM_JOB_USER=ada SLURM_CLUSTER_NAME=lab"

REFUSE = """
class Refuse:
    async def handle_RCPT(self, server, session, envelope, address, options):
        return "550 nobody of that name here"
"""


def as_slurm(host, subject, recipient, environment=ENDED):
    """Call the program as slurmctld does: user slurm, a bare environment."""
    return host.run(
        "setpriv --reuid=slurm --regid=slurm --clear-groups env -i "
        + environment
        + " /usr/local/sbin/muster-mail -s %s %s",
        subject,
        recipient,
    )


def mails(host):
    """Empty the relay's box and return what was in it."""
    texts = host.check_output(
        f"sh -c 'cd {BOX} && for f in *; do cat $f; printf \"\\\\000\"; done'"
    )
    host.check_output(f"find {BOX} -type f -delete")
    return [message_from_string(text, policy=mail_policy) for text in texts.split("\0") if text]


@pytest.fixture(autouse=True)
def empty_box(host):
    host.run(f"find {BOX} -type f -delete")


@pytest.fixture
def refusing_relay(host):
    """In the place of the relay one that knows nobody."""
    host.check_output("systemctl stop mail-sink")
    host.check_output("mkdir -p /run/refuse")
    host.check_output("printf %%s %s >/run/refuse/refuse.py", REFUSE)
    host.check_output(
        "systemd-run --unit=refuse --setenv=PYTHONPATH=/run/refuse "
        "python3 -m aiosmtpd -n -l 127.0.0.1:2525 -c refuse.Refuse"
    )
    wait_for_relay(host)
    yield
    host.check_output("systemctl stop refuse")
    host.check_output("systemctl start mail-sink")
    wait_for_relay(host)


def wait_for_relay(host):
    for _ in range(50):
        if host.run("bash -c '</dev/tcp/127.0.0.1/2525'").rc == 0:
            return
        time.sleep(0.1)
    raise TimeoutError("no relay on port 2525")


def test_a_mail_arrives_at_the_address_of_the_definition(host):
    sent = as_slurm(host, "Slurm Job_id=12 Name=train Ended", "ada")
    assert sent.rc == 0, sent.stderr
    (mail,) = mails(host)
    assert mail["To"] == "ada.lovelace@example.net"
    assert mail["From"] == "SLURM <slurm@example.org>"
    assert mail["Subject"] == "Slurm Job_id=12 Name=train Ended"
    assert mail["X-MailFrom"] == "slurm@example.org"
    assert mail["X-RcptTo"] == "ada.lovelace@example.net"


def test_people_without_an_own_address_get_mail_in_the_domain(host):
    assert as_slurm(host, "Began", "bob,eve@example.com").rc == 0
    assert {mail["To"] for mail in mails(host)} == {"bob@example.org", "eve@example.com"}


def test_a_mail_without_accounting_goes_and_says_so(host):
    assert as_slurm(host, "Slurm Job_id=12 Ended", "ada").rc == 0
    (mail,) = mails(host)
    # This host has no sacct, or nothing that answers it.
    said = mail.get_content()
    assert re.search("What it used is not known: sacct (did not answer|failed): ", said), said


def test_the_name_of_a_job_adds_no_header(host):
    assert as_slurm(host, "Name=x\r\nBcc: eve@example.com\n\nforged", "ada").rc == 0
    (mail,) = mails(host)
    assert mail["Bcc"] is None
    assert mail["X-RcptTo"] == "ada.lovelace@example.net"
    assert mail["Subject"] == "Name=x Bcc: eve@example.com forged"


def test_a_recipient_that_looks_like_an_option_reaches_nobody(host):
    assert as_slurm(host, "Began", "--file=/etc/passwd").rc == 65
    assert mails(host) == []


def test_a_refused_mail_is_logged_with_the_relay_s_words(host, refusing_relay):
    since = host.check_output("date '+%Y-%m-%d %H:%M:%S'")
    sent = as_slurm(host, "Slurm Job_id=4711 Began", "ada", "SLURM_JOB_ID=4711")
    assert sent.rc != 0
    assert "550 nobody of that name here" in sent.stderr
    log = host.check_output(f"journalctl -t muster-mail --since '{since}' -o cat")
    assert "mail about job 4711 to ada.lovelace@example.net was not taken" in log
    assert "550 nobody of that name here" in log


def test_addresses_are_read_by_slurm_alone(host):
    for path in ("/etc/muster/mail.json", "/etc/msmtprc"):
        state = host.file(path)
        assert (state.user, state.group, oct(state.mode)) == ("root", "slurm", "0o640")
