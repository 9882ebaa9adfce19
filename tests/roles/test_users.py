"""People are who the definition says: they get in, or they don't, and foreign things stay."""

SSH = (
    "ssh -i /root/trial -o BatchMode=yes -o IdentitiesOnly=yes -o StrictHostKeyChecking=no"
    " -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
)


def test_ada_logs_in_with_her_key_and_has_her_groups(host):
    login = host.run(f"{SSH} ada@127.0.0.1 id")
    assert login.rc == 0, login.stderr
    assert "uid=20001(ada) gid=20001(ada)" in login.stdout
    assert "20000(ml-users)" in login.stdout


def test_who_may_be_root_is_root_without_a_password_and_nobody_else(host):
    become = (
        "setpriv --reuid={0} --regid={0} --init-groups --reset-env sudo --non-interactive id -u"
    )
    assert host.run(become.format("ada")).stdout.strip() == "0"
    refused = host.run(become.format("dan"))
    assert refused.rc != 0
    assert "password is required" in refused.stderr


def test_a_membership_that_is_not_the_definition_s_survives(host):
    assert "ada" in host.group("docker").members
    assert "carol" in host.group("docker").members


def test_shell_is_set_on_an_account_that_was_there(host):
    assert host.user("ada").shell == "/bin/bash"


def test_bob_is_gone_and_his_files_are_not(host):
    assert not host.user("bob").exists
    assert not host.group("bob").exists
    home = host.file("/home/bob")
    assert home.is_directory
    assert (home.uid, home.gid) == (20002, 20002)


def test_carol_can_not_log_in_but_her_program_goes_on(host):
    login = host.run(f"{SSH} carol@127.0.0.1 true")
    assert login.rc == 255
    assert "Permission denied" in login.stderr
    assert host.service("carols-program").is_running
    # Not by password either: the account is expired.
    assert host.check_output("getent shadow carol").split(":")[7] == "1"
    assert "carol" not in host.group("ml-users").members


def test_dan_has_a_home_of_his_own(host):
    home = host.file("/home/dan")
    assert (home.user, home.group, oct(home.mode)) == ("dan", "dan", "0o700")
    profile = host.file("/home/dan/.profile")
    assert (profile.user, profile.content) == ("dan", host.file("/etc/skel/.profile").content)


def test_dan_has_no_password_and_is_not_locked(host):
    assert host.check_output("getent shadow dan").split(":")[1] == "*"


def test_dan_without_a_key_does_not_get_in(host):
    login = host.run(f"{SSH} dan@127.0.0.1 true")
    assert login.rc == 255
    assert "Permission denied" in login.stderr


def test_erin_has_a_key_and_is_refused(host):
    login = host.run(f"{SSH} erin@127.0.0.1 true")
    assert login.rc == 255
    assert "Permission denied" in login.stderr


def test_keys_can_be_changed_by_root_alone(host):
    assert host.file("/etc/ssh/muster_keys.d").listdir() == ["ada", "erin"]
    keys = host.file("/etc/ssh/muster_keys.d/ada")
    assert (keys.user, oct(keys.mode)) == ("root", "0o644")


def test_a_group_without_members_exists(host):
    assert host.group("visitors").gid == 20100


def test_people_may_have_keys_of_their_own(host):
    settings = host.check_output("sshd -T -C user=ada,host=localhost,addr=127.0.0.1")
    assert (
        "authorizedkeysfile /etc/ssh/muster_keys.d/%u .ssh/authorized_keys" in settings.splitlines()
    )
