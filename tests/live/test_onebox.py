"""One GPU machine without accounting, Debian 13, configured by a user who may use sudo."""

from collections.abc import Iterator

import pytest
from conftest import ROOT, Lab, raise_lab

pytestmark = pytest.mark.proof("raises its own cluster")

BOX = "onebox"


@pytest.fixture(scope="module")
def box() -> Iterator[Lab]:
    """The machine, configured."""
    template = ROOT / "tests/live/inventories/onebox"
    for lab in raise_lab(template, "muster-onebox", "trixie", "10.214.45.0/24"):
        lab.on(
            BOX,
            "apt-get -qq install -y --no-install-recommends sudo >/dev/null 2>&1"
            " && useradd --create-home --shell /bin/bash admin"
            " && echo 'admin ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/admin"
            " && install -d -m 700 -o admin -g admin ~admin/.ssh"
            " && install -m 600 -o admin -g admin ~/.ssh/authorized_keys ~admin/.ssh/",
            timeout=120,
        )
        run = lab.play()
        assert run.code == 0, run.output[-6000:]
        yield lab


def test_second_run_changes_nothing(box: Lab) -> None:
    run = box.play()
    assert run.code == 0, run.output[-4000:]
    assert run.changed == {}


def test_job_gets_the_gpu_it_asked_for(box: Lab) -> None:
    seen = box.on(
        BOX,
        "runuser -l ada -c 'srun --gpus=1 --mem=50M"
        ' sh -c "echo device \\$CUDA_VISIBLE_DEVICES; cat /dev/nvidia0 /dev/nvidia1"\'',
        check=False,
    )
    assert "device 0\n" in seen
    assert "/dev/nvidia0: No such device" in seen  # no driver behind it, but it may be opened
    assert "/dev/nvidia1: Operation not permitted" in seen


def test_stranger_is_refused_by_the_partition(box: Lab) -> None:
    box.on(BOX, "useradd --create-home eve")
    said = box.on(BOX, "runuser -l eve -c 'srun --mem=50M true'", check=False)
    assert "User's group not permitted to use this partition" in said


def test_no_database_is_installed(box: Lab) -> None:
    shown = box.on(BOX, "dpkg-query -W -f '${Package}\\n' 'mariadb*' 'slurmdbd' 2>&1", check=False)
    assert "no packages found matching slurmdbd" in shown
    assert "mariadb-server" not in shown


def test_partition_change_costs_no_daemon_its_life(box: Lab) -> None:
    # From 23.11 on `scontrol reconfigure` replaces the process of slurmctld.
    def started() -> str:
        return box.on(BOX, "systemctl show -P InvocationID slurmctld slurmd munge")

    box.on(
        BOX, "runuser -l ada -c 'sbatch -n 1 --mem=50M --time=10 -o /dev/null --wrap \"sleep 300\"'"
    )
    before = started()
    text = box.definition.read_text(encoding="utf-8")
    box.definition.write_text(text.replace('"01:00:00"', '"02:00:00"'), encoding="utf-8")
    run = box.play()
    assert run.code == 0, run.output[-4000:]
    assert run.changed_tasks == [f"slurmctld : Write the files of slurmctld and run it [{BOX}]"]
    assert "MaxTime=02:00:00" in box.on(BOX, "scontrol show partition gpu")
    assert started() == before
    assert box.on(BOX, "squeue -h -o %T").strip() == "RUNNING"
