"""slurmctld can start its programs, with nothing but their settings."""

import json

import pytest

SLURM = "setpriv --reuid=slurm --regid=slurm --clear-groups --reset-env"
LOG = "/var/log/muster/autoscaler.log"


@pytest.mark.parametrize("program", ["resume", "suspend", "resume-failed"])
def test_a_program_runs_with_an_empty_environment(host, program):
    call = f"{SLURM} env -i PATH=/bin:/usr/bin /usr/local/sbin/muster-{program} lab-debug-[0-3]"
    assert host.run(call).rc == 7
    # slurmctld throws away what a program prints.
    host.check_output("journalctl --sync")
    said = host.check_output(f"journalctl --identifier=muster-{program} --output=cat --no-pager")
    module = program.replace("-", "_")
    wanted = f"slurm: PYTHONPATH=/opt/muster/current -m muster.cloud.{module} lab-debug-[0-3]"
    assert said.splitlines()[-1] == wanted


def test_the_settings_are_what_the_programs_read(host):
    found = json.loads(host.check_output(f"{SLURM} cat /etc/muster/autoscaler.json"))
    assert found == {
        "cluster": "lab",
        "compute_endpoint": "http://192.0.2.1/compute/v1/",
        "log_file": LOG,
        "resume_timeout_s": 60,
        "suspend_timeout_s": 120,
    }


def test_the_log_can_be_written_and_is_rotated(host):
    host.check_output(f"{SLURM} sh -c 'echo one >>{LOG}'")
    host.check_output("logrotate --force /etc/logrotate.d/muster-autoscaler")
    assert host.file(f"{LOG}.1").content_string.endswith("one\n")
    host.check_output(f"{SLURM} sh -c 'echo two >>{LOG}'")
    assert host.file(LOG).content_string == "two\n"
    host.check_output(f"rm {LOG} {LOG}.1")


def test_nobody_else_reads_the_log(host):
    folder = host.file("/var/log/muster")
    assert (folder.user, oct(folder.mode)) == ("slurm", "0o750")
