"""A mail about a job leaves the host as user slurm, to the right address, or its loss is logged."""

import re
import time
from email import message_from_string
from email.policy import default as mail_policy

import pytest

BOX = "/var/lib/mail-sink/box/new"
ENDED = "SLURM_JOB_ID=12 SLURM_JOB_MAIL_TYPE=Ended SLURM_JOB_USER=ada SLURM_CLUSTER_NAME=lab"


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
    host.run(f"find {BOX} /var/lib/muster-mail -type f -delete")


def wait_for_relay(host):
    for _ in range(50):
        if host.run("bash -c '</dev/tcp/127.0.0.1/2525'").rc == 0:
            return
        time.sleep(0.1)
    raise TimeoutError("no relay on port 2525")


@pytest.fixture
def plain_relay(host):
    """In the place of the relay one that takes everything, and encrypts nothing."""
    host.check_output("systemctl stop mail-sink")
    host.check_output(
        "systemd-run --unit=plain python3 -m aiosmtpd -n -l 127.0.0.1:2525 "
        "-c aiosmtpd.handlers.Mailbox /var/lib/mail-sink/box"
    )
    wait_for_relay(host)
    yield
    host.check_output("systemctl stop plain")
    host.check_output("systemctl start mail-sink")
    wait_for_relay(host)


@pytest.fixture
def false_relay(host):
    """In the place of the relay one with a certificate that nobody has signed."""
    host.check_output("cp -a /etc/relay /etc/relay.true")
    host.check_output(
        "openssl req -x509 -newkey rsa:2048 -nodes -days 9 -subj /CN=localhost "
        "-addext subjectAltName=DNS:localhost -keyout /etc/relay/key.pem -out /etc/relay/cert.pem"
    )
    host.check_output("systemctl restart mail-sink")
    wait_for_relay(host)
    yield
    host.check_output("rm -r /etc/relay && mv /etc/relay.true /etc/relay")
    host.check_output("systemctl restart mail-sink")
    wait_for_relay(host)


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


def logged(host, since):
    return host.check_output(f"journalctl -t muster-mail --since '{since}' -o cat")


@pytest.fixture
def since(host):
    return host.check_output("date '+%Y-%m-%d %H:%M:%S'")


def test_a_refused_mail_is_logged_with_the_relay_s_words(host, since):
    sent = as_slurm(host, "Slurm Job_id=4711 Began", "nobody", "SLURM_JOB_ID=4711")
    assert sent.rc != 0
    assert "550 nobody of that name here" in sent.stderr
    log = logged(host, since)
    assert "mail about job 4711 to nobody@example.org was not taken" in log
    assert "550 nobody of that name here" in log


def test_mail_goes_to_no_domain_that_the_definition_does_not_name(host, since):
    assert as_slurm(host, "Began", "eve@evil.org,bob").rc == 65
    assert [mail["X-RcptTo"] for mail in mails(host)] == ["bob@example.org"]
    assert "not sent to 'eve@evil.org': evil.org is not in mail.domains" in logged(host, since)


def test_a_user_s_jobs_send_no_more_mails_than_the_limit_of_an_hour(host, since):
    codes = [as_slurm(host, f"Began {n}", "ada", "SLURM_JOB_USER=ada").rc for n in range(5)]
    assert codes == [0, 0, 0, 75, 75]
    assert as_slurm(host, "Began", "bob", "SLURM_JOB_USER=bob").rc == 0
    assert len(mails(host)) == 4
    limit = "3 mails about jobs of ada in an hour are the limit"
    assert logged(host, since).count(f"not sent to ada.lovelace@example.net: {limit}") == 2


def test_a_relay_without_encryption_gets_neither_mail_nor_password(host, plain_relay):
    sent = as_slurm(host, "Began", "ada")
    assert sent.rc != 0
    assert "STARTTLS" in sent.stderr
    assert mails(host) == []


def test_nor_does_one_whose_certificate_is_not_trusted(host, false_relay):
    sent = as_slurm(host, "Began", "ada")
    assert sent.rc != 0
    assert "certificate" in sent.stderr
    assert mails(host) == []


def test_a_wrong_password_is_logged_and_not_shown(host, since):
    host.check_output("cp -a /etc/muster/mail-password /root/mail-password")
    host.check_output("sh -c 'echo wrong-word >/etc/muster/mail-password'")
    sent = as_slurm(host, "Began", "ada")
    host.check_output("mv /root/mail-password /etc/muster/mail-password")
    assert sent.rc != 0
    assert "authentication failed" in sent.stderr
    assert "wrong-word" not in sent.stderr + logged(host, since)


def test_the_password_is_in_no_file_but_its_own(host):
    assert host.run("grep -r Sesame /etc/msmtprc /etc/muster/mail.json").rc == 1
    assert "Sesame" in host.file("/etc/muster/mail-password").content_string


def test_addresses_and_the_password_are_read_by_slurm_alone(host):
    for path in ("/etc/muster/mail.json", "/etc/msmtprc", "/etc/muster/mail-password"):
        state = host.file(path)
        assert (state.user, state.group, oct(state.mode)) == ("root", "slurm", "0o640")
    counts = host.file("/var/lib/muster-mail")
    assert (counts.user, oct(counts.mode)) == ("slurm", "0o700")
