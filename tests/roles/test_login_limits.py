"""People have limits on a login node: what systemd has read, and that sessions are in these slices.

It takes a kernel of its own to show that the limits hold: systemd in a container has no cgroups
with limits where the machine mounts those of cgroup v1.
"""

import pytest

PERCENT = 100


def limits(host, unit, *names):
    shown = host.check_output(f"systemctl show {unit} --property={','.join(names)}")
    return dict(line.split("=") for line in shown.splitlines())


def share_of_memory(host, unit):
    """Percent of the machine's memory that the unit may have."""
    memory = int(host.check_output("awk '/^MemTotal:/ {print $2}' /proc/meminfo")) * 1024
    return round(int(limits(host, unit, "MemoryMax")["MemoryMax"]) / memory * PERCENT)


def test_a_person_has_limits(host):
    assert limits(host, "user-20001.slice", "TasksMax", "MemorySwapMax") == {
        "TasksMax": "2000",
        "MemorySwapMax": "0",
    }
    assert share_of_memory(host, "user-20001.slice") == 30


def test_all_people_together_leave_room_for_daemons(host):
    assert share_of_memory(host, "user.slice") == 70
    assert limits(host, "user.slice", "CPUWeight") == {"CPUWeight": "20"}
    assert limits(host, "user.slice", "NeedDaemonReload") == {"NeedDaemonReload": "no"}


def test_root_has_none(host):
    assert limits(host, "user-0.slice", "TasksMax", "MemoryMax", "CPUWeight") == {
        "TasksMax": "infinity",
        "MemoryMax": "infinity",
        "CPUWeight": "1000",
    }


def test_what_a_person_starts_is_in_their_slice(host):
    host.run("useradd --system --uid 20777 limited")
    session = "systemd-run --quiet --pipe --wait --property=PAMName=sshd --property=User=limited"
    assert "/user.slice/user-20777.slice/" in host.check_output(f"{session} cat /proc/self/cgroup")


@pytest.mark.parametrize("service", ["cron", "atd"])
def test_what_starts_programs_without_a_session_has_limits_too(host, service):
    written = host.file(f"/etc/systemd/system/{service}.service.d/50-muster.conf").content_string
    assert {"TasksMax=2000", "MemoryMax=30%"} <= set(written.splitlines())


@pytest.mark.parametrize("service", ["cron", "atd"])
def test_a_program_that_takes_too_much_memory_does_not_end_the_service(host, service):
    written = host.file(f"/etc/systemd/system/{service}.service.d/50-muster.conf").content_string
    assert "OOMPolicy=continue" in written.splitlines()
