"""A host has its name, finds the others, keeps the time and leaves SLURM alone when apt runs."""

import json

import pytest

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
        "slurmd.service slurmctld.service munge.service muster-munge.service mariadb.service"
        " dbus.service cron.service"
    )
    answer = host.run("perl -e %s " + units, program)
    assert answer.rc == 0, answer.stderr
    kept = [line.split()[0] for line in answer.stdout.splitlines() if line.endswith(" 0")]
    assert kept == units.split()[:6]


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


TRIAL = r"""
set -e
mkdir -p /srv/trial/munge-trial/DEBIAN /srv/trial/lists/partial
cd /srv/trial
printf 'Package: munge-trial\nVersion: 1\nArchitecture: all\nMaintainer: Muster\nDescription: x\n' \
    >munge-trial/DEBIAN/control
dpkg-deb --build munge-trial
dpkg --install munge-trial.deb
architecture=$(dpkg --print-architecture)
for suite in stable:2 stable-security:3; do
    folder=dists/${suite%:*}/main/binary-$architecture
    mkdir -p $folder
    printf 'Package: munge-trial\nVersion: %s\nArchitecture: all\n' ${suite#*:} >$folder/Packages
    printf 'Filename: x\nSize: 1\nSHA256: %064d\n' 0 >>$folder/Packages
done
cat >/etc/apt/apt.conf.d/99trial <<END
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::sourcelist "/srv/trial/sources.list";
Dir::State::lists "/srv/trial/lists";
END
"""
"""An installed package, version 1; version 2 of it in an archive, and 3 in its security archive."""
METRICS = "/var/lib/prometheus/node-exporter"
STAMP = "/var/lib/muster/apt-updated"


@pytest.fixture
def publish(host):
    """What makes an archive one of apt's; at first it has none, and lists of unknown age."""
    host.check_output("sh -c %s", TRIAL)
    host.check_output(f"rm -f {STAMP}")

    def publish(suite):
        line = f"deb [trusted=yes] file:/srv/trial {suite} main"
        host.check_output("sh -c %s", f"echo '{line}' >>/srv/trial/sources.list")

    yield publish
    host.check_output("dpkg --purge munge-trial")
    host.check_output("rm -r /srv/trial /etc/apt/apt.conf.d/99trial")


def pending(host):
    """What the program says of the trial's package, and of the age of apt's lists."""
    said = json.loads(host.check_output("muster-updates --json"))
    return [row for row in said["updates"] if row["package"] == "munge-trial"], said["lists_days"]


def test_a_newer_version_of_a_kept_package_is_told(host, publish):
    assert pending(host) == ([], None)
    publish("stable")
    host.check_output("apt-get update")
    update = {
        "package": "munge-trial",
        "installed": "1",
        "version": "2",
        "archive": "stable/main",
        "security": False,
    }
    assert pending(host) == ([update], 0)
    publish("stable-security")
    host.check_output("apt-get update")
    archive = {"version": "3", "archive": "stable-security/main", "security": True}
    assert pending(host) == ([update | archive], 0)


def test_apt_asks_for_newer_versions_each_day(host, publish):
    publish("stable")
    assert host.service("apt-daily.timer").is_enabled
    # What the timer's unit runs, without its wait for the network.
    host.check_output("rm -f /var/lib/apt/periodic/update-stamp")
    host.check_output("/usr/lib/apt/apt.systemd.daily update")
    updates, days = pending(host)
    assert ([update["version"] for update in updates], days) == (["2"], 0)


@pytest.fixture
def exporter_folder(host):
    """The folder of Debian's prometheus-node-exporter, which is not installed."""
    host.check_output(f"mkdir -p {METRICS}")
    yield
    host.check_output("rm -r /var/lib/prometheus")


def metrics(host):
    lines = host.file(f"{METRICS}/muster_updates.prom").content_string.splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_the_node_exporter_s_numbers_follow_apt(host, publish, exporter_folder):
    publish("stable-security")
    host.check_output("apt-get update")
    numbers = metrics(host)
    assert numbers['muster_pending_updates{security="true"}'] == "1"
    now = float(host.check_output("date +%s"))
    assert 0 <= now - float(numbers["muster_package_lists_updated_seconds"]) < 60
    # Other packages of the host have no newer version: apt has the trial's archive alone.
    host.check_output("apt-get --yes purge munge-trial")
    assert metrics(host)['muster_pending_updates{security="true"}'] == "0"


def test_a_host_without_the_node_exporter_gets_no_file(host, publish):
    publish("stable")
    host.check_output("apt-get update")
    assert not host.file("/var/lib/prometheus").exists
