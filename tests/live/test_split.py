"""Controller, database, storage and login on machines of their own, Debian 13: the same play."""

import pytest
from conftest import Lab
from waiting import until

pytestmark = pytest.mark.proof("raises its own cluster")


def test_user_submits_on_the_login_node(split: Lab) -> None:
    shown = split.on("split-login", "runuser -l ada -c 'srun -n 1 --mem=50M hostname'")
    assert shown.strip() == "split-cpu-01"


def test_a_job_s_gpus_are_in_accounting_by_their_type(split: Lab) -> None:
    batch = "sbatch --parsable --wait -n 1 --mem=50M --gres=gpu:l4:1 -o /dev/null --wrap true"
    job = split.on("split-login", f"runuser -l ada -c '{batch}'").strip()
    shown = f"sacct -nXP -j {job} -o AllocTRES"
    until(lambda: "gres/gpu:l4=1" in split.on("split-login", shown), "slurmdbd has the job", 60)
    said = split.on("split-login", "runuser -l ada -c 'srun --gpus=h100:1 true'", check=False)
    assert 'no node has GPUs of type "h100"; ask for l4' in said


def test_second_run_changes_nothing(split: Lab) -> None:
    run = split.play()
    assert run.code == 0, run.output[-4000:]
    assert run.changed == {}


def test_each_machine_runs_its_own_daemons_only(split: Lab) -> None:
    daemons = {
        "split-ctl": {"munge", "muster-munge", "slurmctld"},
        "split-db": {"mariadb", "munge", "muster-munge", "slurmdbd"},
        "split-storage": {"munge"},
        "split-login": {"munge", "sackd"},
        "split-cpu-01": {"munge", "slurmd"},
    }
    names = "munge muster-munge mariadb slurmdbd slurmctld sackd slurmd slurmrestd"
    for host, wanted in daemons.items():
        states = split.on(host, f"systemctl is-active {names}", check=False).split()
        active = {
            name for name, state in zip(names.split(), states, strict=True) if state == "active"
        }
        assert active == wanted, host


def test_database_is_not_open_to_the_network(split: Lab) -> None:
    listening = split.on("split-db", "ss -Hltn 'sport = :3306'")
    assert "127.0.0.1:3306" in listening
    assert "0.0.0.0:3306" not in listening
    assert "*:3306" not in listening
