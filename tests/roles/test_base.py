"""A host has its name, finds the others, keeps the time and leaves SLURM alone when apt runs."""

ADDRESSES = {"bookworm": "192.0.2.12", "trixie": "192.0.2.13"}


def own_name(host):
    """The hosts of this scenario are named like their release."""
    return host.check_output("sed -n s/^VERSION_CODENAME=//p /etc/os-release")


def test_the_host_has_the_name_of_the_inventory(host):
    assert host.check_output("uname -n") == own_name(host)
    assert host.file("/etc/hostname").content_string.strip() == own_name(host)


def test_all_names_lead_to_the_addresses_of_the_definition(host):
    # ahosts asks as getaddrinfo does, and slurmctld with it.
    for name, address in ADDRESSES.items():
        answer = host.check_output(f"getent ahosts {name}")
        assert {line.split()[0] for line in answer.splitlines()} == {address}


def test_the_own_name_stands_on_no_loopback_line(host):
    lines = host.file("/etc/hosts").content_string.splitlines()
    loopback = [line for line in lines if line.startswith(("127.", "::1"))]
    assert loopback, "localhost is gone"
    assert not [line for line in loopback if own_name(host) in line]


def test_localhost_and_foreign_lines_survive(host):
    assert host.check_output("getent ahostsv4 localhost").startswith("127.0.0.1")
    assert host.check_output("getent hosts printer").split()[0] == "198.51.100.9"
    assert "198.51.100.9 printer # second floor" in host.file("/etc/hosts").content_string


def test_chronyd_asks_the_servers_of_the_definition_and_no_other(host):
    answer = host.run("chronyc -n -c sources")
    assert answer.rc == 0, answer.stderr + answer.stdout
    assert [line.split(",")[2] for line in answer.stdout.splitlines()] == ["192.0.2.1"]


def test_chrony_has_taken_the_place_of_the_installer_s_program(host):
    assert not host.package("systemd-timesyncd").is_installed


def test_chronyd_comes_back_after_a_reboot(host):
    assert host.service("chrony").is_enabled


def test_needrestart_skips_the_daemons_of_the_cluster(host):
    # Read as needrestart reads it, on top of what it has itself.
    program = (
        "our %nrconf = (override_rc => {qr(^dbus) => 0});"
        "do '/etc/needrestart/conf.d/50-muster.conf' or die $@;"
        "foreach my $unit (@ARGV) {"
        "  my $restart = 1;"
        "  foreach my $re (keys %{$nrconf{override_rc}}) {"
        "    $restart = $nrconf{override_rc}->{$re} if $unit =~ /$re/; }"
        "  print $unit, ' ', $restart, qq(\\n); }"
    )
    units = (
        "slurmd.service slurmctld.service munge.service mariadb.service dbus.service cron.service"
    )
    answer = host.run("perl -e %s " + units, program)
    assert answer.rc == 0, answer.stderr
    kept = [line.split()[0] for line in answer.stdout.splitlines() if line.endswith(" 0")]
    assert kept == units.split()[:5]


def test_unattended_upgrades_skips_the_packages_of_the_cluster(host):
    # As unattended-upgrades does it: a list of regular expressions, matched at the start.
    program = (
        "import re, apt_pkg, sys; apt_pkg.init_config(); "
        "bad = apt_pkg.config.value_list('Unattended-Upgrade::Package-Blacklist'); "
        "print(*[p for p in sys.argv[1:] if any(re.match(b, p) for b in bad)])"
    )
    packages = "slurmd slurm-client libslurm38 munge libmunge2 mariadb-server nvidia-driver-libs"
    answer = host.run("python3 -c %s " + packages + " openssl linux-image-amd64", program)
    assert answer.rc == 0, answer.stderr
    assert answer.stdout.split() == packages.split()
    reboot = host.check_output("apt-config dump Unattended-Upgrade::Automatic-Reboot")
    assert '"false"' in reboot
