"""People of a directory are on the host and get in where they may, as nobody but themselves."""

import re
import time
from collections.abc import Callable, Iterator

import pytest
from testinfra.host import Host

SSH = (
    "ssh -i /root/{key} -o BatchMode=yes -o IdentitiesOnly=yes -o StrictHostKeyChecking=no"
    " -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR {login}@127.0.0.1 {command}"
)
DIRECTORY = "--tags=directory_configure"
USERS = "--tags=users_configure"
BOTH = "--tags=directory_configure,users_configure"
WRONG = {"directory_password": "not-the-word"}
PASSWORD = "hosts' {word} #1"  # noqa: S105 - of the scenario's own directory
ADMIN = "{program} -x -H ldapi:/// -D cn=admin,dc=example,dc=org -w admins-word"
CHANGE = f"{ADMIN.format(program='ldapmodify')} <<'END'\n{{ldif}}\nEND"
ENTER = """\
dn: cn=hpc,dc=example,dc=org
changetype: modify
{change}: memberUid
memberUid: {login}
"""


def ssh(host: Host, login: str, command: str = "true", key: str = "trial"):
    return host.run("sh -c %s", SSH.format(key=key, login=login, command=command))


def change_group(host: Host, change: str, login: str) -> None:
    """Add somebody to the group that may log in, or delete them from it, in the directory."""
    ldif = ENTER.format(change=change, login=login)
    host.check_output("sh -c %s", CHANGE.format(ldif=ldif))


def eventually(answer: Callable[[], bool], seconds: float) -> bool:
    """Whether `answer` is true within some seconds."""
    end = time.monotonic() + seconds
    while not answer():
        if time.monotonic() > end:
            return False
        time.sleep(1)
    return True


def test_a_person_of_the_directory_is_known_with_the_groups(host: Host) -> None:
    assert (
        host.check_output("getent passwd eve") == "eve:*:30001:31000:eve:/srv/homes/eve:/bin/bash"
    )
    assert host.check_output("id -Gn eve").split() == ["staff-of-site", "hpc"]
    assert "eve" in host.check_output("getent group hpc").split(":")[3].split(",")


def test_groups_of_the_directory_with_rights_on_hosts_are_not_there(host: Host) -> None:
    """eve is in them, and sudo would ask for their names."""
    search = f"{ADMIN.format(program='ldapsearch')} -LLL -b dc=example,dc=org '(memberUid=eve)'"
    entries = host.check_output("sh -c %s", f"{search} gidNumber").split("\n\n")
    numbers = {
        name: re.search(r"^gidNumber: (\d+)$", entry, re.MULTILINE)[1]
        for name in ("sudo", "wheel", "docker", "hpc")
        for entry in entries
        if entry.startswith(f"dn: cn={name},")
    }
    assert len(numbers) == 4
    # The search finds what is there.
    assert host.run(f"getent group {numbers.pop('hpc')}").rc == 0
    of_eve = host.check_output("id -Gn eve").split()
    for name, number in numbers.items():
        assert host.run(f"getent group {number}").rc == 2, name
        assert "eve" not in host.run(f"getent group {name}").stdout
        assert name not in of_eve


def test_a_member_of_the_group_logs_in_with_the_key_of_the_directory(host: Host) -> None:
    login = ssh(host, "eve", "'id -un; pwd'")
    assert login.stdout.split() == ["eve", "/srv/homes/eve"], login.stderr


def test_who_is_in_no_such_group_is_refused(host: Host) -> None:
    assert host.run("id mallory").rc == 0
    assert ssh(host, "mallory").rc == 255


def test_who_is_nowhere_is_refused(host: Host) -> None:
    assert host.run("getent passwd stranger").rc == 2
    assert ssh(host, "stranger").rc == 255


def test_another_key_is_refused(host: Host) -> None:
    assert ssh(host, "eve", key="others").rc == 255


def test_a_password_of_the_directory_opens_nothing(host: Host) -> None:
    """The directory takes it, and PAM of this host does not ask there."""
    bind = "ldapwhoami -x -H ldaps://ldap.example.org -D uid=eve,dc=example,dc=org -w Sesame-eve"
    assert host.run(f"LDAPTLS_CACERT=/etc/ldap/site/ca.pem {bind}").rc == 0
    become = "printf 'Sesame-eve\\n' | runuser -u bob -- su --command=true eve"
    refused = host.run("sh -c %s", f"cd /; {become}")
    assert refused.rc != 0
    assert "Authentication failure" in refused.stderr


def test_the_cluster_s_own_people_stay_who_they_are(host: Host) -> None:
    assert host.check_output("id -u ada") == "20001"
    # Not the directory's groups of an ada.
    assert host.check_output("id -Gn ada").split() == ["ada", "ml-users"]
    assert host.check_output("getent group ml-users") == "ml-users:x:20000:ada"
    assert ssh(host, "ada").rc == 0
    assert ssh(host, "ada", key="others").rc == 255


@pytest.mark.proof("waits up to a minute for the sentence")
def test_nobody_comes_in_with_the_number_of_another(host: Host) -> None:
    """In the directory is somebody with the number that ada has here already."""
    sentence = "twin of the directory gets no home and can't log in: 20001 is the number of ada"
    begin = host.check_output("date +%s")
    host.check_output(f"{ADMIN.format(program='ldapadd')} -f /etc/ldap/site/twin.ldif")
    change_group(host, "add", "twin")
    try:
        assert eventually(lambda: host.run("id -u twin").stdout == "20001\n", 60)
        assert ssh(host, "twin").rc == 255
        log = f"journalctl -u muster-directory-homes -o cat --since=@{begin}"
        assert eventually(lambda: sentence in host.check_output(log), 120)
        assert not host.file("/srv/homes/twin").exists
    finally:
        change_group(host, "delete", "twin")
        host.check_output(f"{ADMIN.format(program='ldapdelete')} uid=twin,dc=example,dc=org")


def test_a_number_of_the_directory_is_given_to_nobody_else(
    host: Host, converge: Callable[..., str]
) -> None:
    said = converge("directory", USERS, users_people=[{"name": "carl", "uid": 30001}])
    assert "nothing was touched: uid 30001 is taken by eve: give carl another number" in " ".join(
        said.split()
    )
    assert host.run("getent passwd carl").rc == 2


def test_who_has_a_number_of_the_system_is_not_there(host: Host) -> None:
    assert host.run("getent passwd low").rc == 2


def test_a_member_has_a_home_of_their_own(host: Host) -> None:
    home = host.file("/srv/homes/eve")
    assert (home.uid, home.gid, oct(home.mode)) == (30001, 31000, "0o700")
    profile = host.file("/srv/homes/eve/.profile")
    assert (profile.user, profile.content) == ("eve", host.file("/etc/skel/.profile").content)
    assert not host.file("/srv/homes/mallory").exists


@pytest.mark.proof("waits up to a minute for a home")
def test_a_new_member_soon_has_a_home_and_gets_in(host: Host) -> None:
    assert ssh(host, "frank").rc == 255
    try:
        change_group(host, "add", "frank")
        assert eventually(lambda: host.file("/srv/homes/frank").exists, 120)
        # What sssd said of them last counts for five seconds (pam_id_timeout).
        assert eventually(lambda: ssh(host, "frank").rc == 0, 20)
        # A shell that the host does not have is replaced.
        login = ssh(host, "frank", "'pwd; echo $SHELL'")
        assert login.stdout.split() == ["/srv/homes/frank", "/bin/bash"], login.stderr
    finally:
        change_group(host, "delete", "frank")
    assert eventually(lambda: ssh(host, "frank").rc == 255, 60)


def test_the_password_is_in_files_of_root_alone(host: Host) -> None:
    for path in ("/etc/muster/directory-password", "/etc/sssd/conf.d/50-muster-password.conf"):
        file = host.file(path)
        assert PASSWORD in file.content_string
        assert (file.user, file.group, file.mode & 0o037) == ("root", "root", 0)
    others = "/etc/sssd/sssd.conf /etc/muster/directory.json /etc/systemd /var/log/sssd"
    assert host.run(f"grep --recursive --fixed-strings '{{word}}' {others}").rc == 1


def test_no_unit_has_failed(host: Host) -> None:
    assert "sss" not in host.check_output("systemctl list-units --failed --plain --no-legend")


@pytest.fixture
def without_directory(host: Host) -> Iterator[None]:
    host.check_output("systemctl stop slapd")
    yield
    host.check_output("systemctl start slapd")
    assert eventually(lambda: host.run("muster-directory ask").rc == 0, 30)


@pytest.mark.proof("waits half a minute for sssd")
def test_while_the_directory_is_away_who_was_known_stays_known(
    host: Host, without_directory: None
) -> None:
    host.check_output("systemctl restart sssd")
    assert host.check_output("id -u eve") == "30001"
    assert ssh(host, "eve").rc == 0
    begin = time.monotonic()
    assert ssh(host, "root").rc == 0
    assert ssh(host, "ada").rc == 0
    assert time.monotonic() - begin < 10
    asked = host.run("muster-directory ask")
    assert asked.rc == 1
    assert (
        "the directory did not answer within 30 s: no connection to ldaps://ldap.example.org:6360"
        in asked.stderr
    )


def test_while_sssd_is_away_root_and_the_cluster_s_own_people_get_in(host: Host) -> None:
    host.check_output("systemctl stop sssd")
    try:
        assert ssh(host, "root").rc == 0
        assert ssh(host, "ada").rc == 0
        assert ssh(host, "eve").rc == 255
    finally:
        host.check_output("systemctl start sssd")
    assert eventually(lambda: ssh(host, "eve").rc == 0, 60)


@pytest.mark.proof("two runs of the role, half a minute")
def test_a_wrong_password_ends_the_run_with_one_sentence(
    host: Host, converge: Callable[..., str]
) -> None:
    try:
        said = converge("directory", DIRECTORY, **WRONG)
        assert (
            "ldaps://ldap.example.org does not take the password of cn=hosts,dc=example,dc=org; "
            "correct `directory_password` among the secrets" in " ".join(said.split())
        )
        assert "not-the-word" not in said
        # sssd goes on with the one that it has.
        assert ssh(host, "eve").rc == 0
    finally:
        assert "failed=0" in converge("directory", DIRECTORY)


@pytest.mark.proof("waits half a minute for a server that it trusts")
def test_a_server_with_a_certificate_of_somebody_else_gets_no_password(
    host: Host, converge: Callable[..., str]
) -> None:
    try:
        others = host.check_output(
            "openssl req -x509 -newkey rsa:2048 -nodes -days 9 -subj /CN=Others -keyout /dev/null"
        )
        said = " ".join(converge("directory", DIRECTORY, directory_ca=others).split())
        assert "no encryption that this host trusts" in said
        assert "/etc/muster/directory-ca.pem" in said
    finally:
        assert "failed=0" in converge("directory", DIRECTORY)


@pytest.mark.proof("two runs of the role, half a minute")
def test_without_tls_from_the_first_byte_starttls_is_used(
    host: Host, converge: Callable[..., str]
) -> None:
    """The directory refuses a login without encryption: `security simple_bind`."""
    try:
        assert "failed=0" in converge(
            "directory", DIRECTORY, directory_servers=["ldap://ldap.example.org"]
        )
        assert host.check_output("id -u eve") == "30001"
    finally:
        assert "failed=0" in converge("directory", DIRECTORY)


ENTRIES = {"directory_groups": ["entries"]}
BIS = ENTRIES | {"directory_ldap_schema": "rfc2307bis"}


@pytest.mark.proof("three runs of the role, a minute")
def test_members_that_a_group_names_by_their_entries_get_in(
    host: Host, converge: Callable[..., str]
) -> None:
    try:
        said = " ".join(converge("directory", DIRECTORY, **ENTRIES).split())
        assert "names the members of group entries by member, so with ldap_schema rfc2307" in said
        assert ssh(host, "eve").rc == 0, "nothing was changed"
        assert "failed=0" in converge("directory", DIRECTORY, **BIS)
        assert host.check_output("getent group entries").endswith(":mallory")
        assert ssh(host, "mallory").rc == 0
        assert ssh(host, "eve").rc == 255
    finally:
        assert "failed=0" in converge("directory", DIRECTORY)
    assert ssh(host, "mallory").rc == 255
    assert ssh(host, "eve").rc == 0


NODE = {"directory_login": False, "users_keys_command": "", "users_no_login_directory": True}


@pytest.mark.proof("two runs of the role, half a minute")
def test_a_host_without_logins_knows_people_and_lets_nobody_in(
    host: Host, converge: Callable[..., str]
) -> None:
    try:
        assert "failed=0" in converge("directory", BOTH, **NODE)
        assert host.check_output("runuser -u eve -- id -un") == "eve"
        assert ssh(host, "eve").rc == 255
        assert ssh(host, "ada").rc == 0
        host.run("systemctl start user@30001")
        assert not host.service("user@30001").is_running
        # It says so to what removes what jobs left (role scratch).
        assert host.file("/etc/security/muster-no-login-directory").exists
    finally:
        host.run("systemctl stop user@30001; systemctl reset-failed user@30001")
        assert "failed=0" in converge("directory", BOTH)
    assert not host.file("/etc/security/muster-no-login-directory").exists


@pytest.mark.proof("two runs of the role, half a minute")
def test_on_a_node_people_come_in_with_a_job_alone(
    host: Host, converge: Callable[..., str]
) -> None:
    """There is no slurmd here, so no job: who is asked for one is refused."""
    node = NODE | {"directory_login": True, "users_job_login": True, "users_no_login": ["bob"]}
    node["users_keys_command"] = "/usr/local/sbin/muster-directory-keys"
    try:
        assert "failed=0" in converge("directory", BOTH, **node)
        assert ssh(host, "eve").rc == 255
        assert ssh(host, "ada").rc == 0
    finally:
        host.check_output(
            "sed --in-place 's/^@include muster-sshd-/@include common-/' /etc/pam.d/sshd"
        )
        assert "failed=0" in converge("directory", BOTH)
    assert ssh(host, "eve").rc == 0
