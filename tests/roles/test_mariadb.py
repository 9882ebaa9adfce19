"""MariaDB lets slurmdbd's user in, to its database only, and nobody else."""

PASSWORD = "of the trial, #1"  # noqa: S105 (molecule/cluster/group_vars)


def ask(host, sql, user="slurm", password=PASSWORD):
    """Run SQL as `user`; the password goes by a file, as for a person it should."""
    # Quoted: a # begins a comment.
    options = f'[client]\\nuser={user}\\npassword="{password}"\\n'
    return host.run(
        f"printf '{options}' | mariadb --defaults-file=/dev/stdin --batch --skip-column-names "
        f'-e "{sql}"'
    )


def test_the_user_logs_in_and_owns_its_database(host):
    done = ask(
        host,
        "CREATE TABLE slurm_acct_db.muster_trial (x INT); DROP TABLE slurm_acct_db.muster_trial;"
        "SELECT 'owned'",
    )
    assert done.rc == 0, done.stderr
    assert done.stdout == "owned\n"


def test_a_wrong_password_is_refused(host):
    done = ask(host, "SELECT 1", password="guess")  # noqa: S106
    assert done.rc != 0
    assert "Access denied" in done.stderr


def test_a_stranger_is_refused(host):
    # Without a password, over the socket: what a login on this host could try.
    for user in ("nobody", "slurm", "root"):
        done = host.run(f"runuser -u nobody -- mariadb --user={user} -e 'SELECT 1'")
        assert done.rc != 0, user
        assert "Access denied" in done.stderr, user


def test_the_user_reaches_no_other_database(host):
    # `_` stands for any character in a GRANT unless it is escaped.
    for name in ("mysql", "slurmXacct_db"):
        done = ask(host, f"CREATE TABLE {name}.muster_trial (x INT)")
        assert done.rc != 0, name
        assert "denied" in done.stderr, name
    assert "ALL PRIVILEGES ON *.*" not in ask(host, "SHOW GRANTS").stdout


def test_the_server_listens_on_the_loopback_alone(host):
    assert host.socket("tcp://127.0.0.1:3306").is_listening
    assert not host.socket("tcp://0.0.0.0:3306").is_listening
    assert not host.socket("tcp://:::3306").is_listening


def test_the_server_runs_with_slurm_s_values(host):
    rows = ask(
        host,
        "SELECT @@innodb_buffer_pool_size DIV 1048576, @@innodb_log_file_size DIV 1048576, "
        "@@innodb_lock_wait_timeout, @@max_allowed_packet DIV 1048576",
    )
    assert rows.stdout.split() == ["2560", "64", "900", "16"], rows.stderr


def test_sorts_on_disk_take_no_room_where_people_write(host):
    assert ask(host, "SELECT @@tmpdir").stdout == "/var/lib/mysql/muster-tmp\n"
    shown = host.check_output("mariadb --batch --skip-column-names -e 'SHOW DATABASES'")
    assert "slurm_acct_db" in shown
    assert "muster-tmp" not in shown


def test_the_server_comes_back_after_a_boot(host):
    assert host.service("mariadb").is_enabled


def test_the_password_is_in_no_log_and_no_process(host):
    logs = host.run(
        f"grep -rlF -- '{PASSWORD}' /var/log /root/.ansible /root/.mariadb_history; "
        f"journalctl --no-pager | grep -cF -- '{PASSWORD}'"
    )
    assert logs.stdout == "0\n"
    running = host.run("cat /proc/[0-9]*/cmdline | tr '\\0' '\\n'")
    assert "mariadbd" in running.stdout
    # The shell that asks holds no password in its own arguments.
    assert PASSWORD not in running.stdout
