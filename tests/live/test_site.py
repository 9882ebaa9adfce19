"""A second run of site.yml changes nothing, a change touches little, a killed run is completed."""

import re
from pathlib import Path

import pytest
from conftest import Lab
from waiting import until

from muster_sandbox.containers.podman import podman


def edit(path: Path, old: str, new: str) -> None:
    """Replace `old` by `new` in the definition; it must be there."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def invocations(lab: Lab) -> dict[str, str]:
    """Return the INVOCATION_ID of each daemon of the lab: each start changes it (systemd.exec(5)).

    Not the process id: from SLURM 23.11 `scontrol reconfigure` replaces the process.
    """
    daemons = {
        "lab-access": ["munge", "mariadb", "slurmdbd", "slurmctld"],
        "lab-cpu-01": ["munge", "slurmd"],
        "lab-gpu-01": ["munge", "slurmd"],
    }
    return {
        f"{host}: {unit}": lab.on(host, f"systemctl show -P InvocationID {unit}").strip()
        for host, units in daemons.items()
        for unit in units
    }


def no_node_completes(lab: Lab) -> bool:
    """Whether no node has a job that it doesn't end."""
    return "comp" not in lab.on("lab-access", "sinfo -hN -o %t")


def test_second_run_repairs_the_one_changed_file_and_nothing_else(lab: Lab) -> None:
    before = invocations(lab)
    lab.on("lab-cpu-02", "echo '# by hand' >>/etc/default/slurmd")
    run = lab.play()
    assert run.code == 0, run.output[-4000:]
    (changed,) = run.changed_tasks
    assert re.fullmatch(r"slurmd : .* \[lab-cpu-02\]", changed)
    assert "by hand" not in lab.on("lab-cpu-02", "cat /etc/default/slurmd")
    assert invocations(lab) == before


def test_change_of_a_partition_is_one_file_and_one_reconfigure(lab: Lab) -> None:
    ada = lab.ada
    job = ada.run(
        "sbatch --parsable -p ml-cpu -A LAB-test -n 1 --mem=50M --time=10 --wrap 'sleep 300'"
    ).strip()
    until(lambda: ada.run(f"squeue -h -j {job} -o %T").strip() == "RUNNING", "the job runs")
    before = invocations(lab)
    edit(lab.definition, 'default_time: "04:00:00"', 'default_time: "02:00:00"')

    # That check mode foresees nothing else on a configured host, each role's scenario shows.
    foreseen = lab.play("--check", "--diff", "--limit", "controller", "--tags", "slurmctld")
    assert foreseen.code == 0, foreseen.output[-4000:]
    run = lab.play("--diff", "--limit", "controller")
    assert run.code == 0, run.output[-4000:]

    assert run.changed_tasks == foreseen.changed_tasks
    assert diffs(run.output) == diffs(foreseen.output)
    assert run.hosts == {"lab-access"}
    assert run.output.count("+++ after: /") == 1
    assert "/etc/slurm/slurm.conf" in run.output
    assert invocations(lab) == before
    assert "DefaultTime=02:00:00" in ada.run("scontrol show partition ml-cpu")
    assert ada.run(f"squeue -h -j {job} -o %T").strip() == "RUNNING"
    ada.run(f"scancel {job}")


def diffs(output: str) -> list[str]:
    """Return the lines of all diffs that a run printed."""
    return [line for line in output.splitlines() if re.match(r"[-+]", line)]


@pytest.mark.proof("kills two runs and repeats them")
@pytest.mark.parametrize(
    "is_written", [True, False], ids=["written-not-reconfigured", "in-the-module"]
)
def test_a_partition_of_a_killed_play_is_there_after_the_next_one(
    lab: Lab, is_written: bool
) -> None:
    now = re.search(r'default_time: "(\S+)"', lab.definition.read_text(encoding="utf-8"))[1]
    new = "03:00:00" if now != "03:00:00" else "02:00:00"
    edit(lab.definition, f'default_time: "{now}"', f'default_time: "{new}"')
    if is_written:
        # The module was killed between its two halves.
        command = f"sed -i s/DefaultTime={now}/DefaultTime={new}/ /etc/slurm/slurm.conf"
        lab.on("lab-access", command)
    else:
        task = "slurmctld : Write the files of slurmctld and run it"
        lab.kill_play_in(task, "--limit", "controller", "--tags", "slurmctld")
    run = lab.play("--limit", "controller", "--tags", "slurmctld")
    assert run.code == 0, run.output[-4000:]
    assert f"DefaultTime={new}" in lab.ada.run("scontrol show partition ml-cpu")


@pytest.mark.proof("kills a run and repeats it")
def test_an_account_of_a_killed_play_is_there_after_the_next_one(lab: Lab) -> None:
    shown = "sacctmgr -nP show assoc user=ada account=lab-test format=account,user"
    assert lab.on("lab-access", shown).strip() == "lab-test|ada"
    lab.on("lab-access", "sacctmgr -i delete user ada account=lab-test")
    lab.kill_play_in("accounts : Keep the accounts", "--limit", "database", "--tags", "accounts")
    run = lab.play("--limit", "database", "--tags", "accounts")
    assert run.code == 0, run.output[-4000:]
    assert lab.on("lab-access", shown).strip() == "lab-test|ada"


def test_unreachable_host_is_named_and_the_others_finish(lab: Lab) -> None:
    podman("stop", "--time", "2", lab.container("lab-cpu-01"))
    lab.on("lab-gpu-01", "echo '# by hand' >>/etc/default/slurmd")
    try:
        run = lab.play("--tags", "slurmd,verify")
    finally:
        podman("start", lab.container("lab-cpu-01"))
        until(
            lambda: lab.on("lab-cpu-01", "systemctl is-active slurmd", check=False) == "active\n",
            "the host is back",
        )
    assert run.code != 0
    assert "lab-cpu-01: not configured in this run" in run.output
    # No job runs there: slurmctld would wait for that node for minutes.
    assert "test job" not in run.output
    until(lambda: no_node_completes(lab), "no node waits for the end of a job", 10)
    assert "by hand" not in lab.on("lab-gpu-01", "cat /etc/default/slurmd")
    again = lab.play("--limit", "lab-cpu-01", "--tags", "slurmd,verify")
    assert again.code == 0, again.output[-4000:]


def test_wrong_definition_touches_nothing(lab: Lab) -> None:
    edit(lab.definition, "nodes: [gpu]", "nodes: [gpus]")
    try:
        # Tags leave out other plays, and not the one that checks.
        run = lab.play("--tags", "base")
    finally:
        edit(lab.definition, "nodes: [gpus]", "nodes: [gpu]")
    assert run.code != 0
    assert 'did you mean "gpu"?' in run.output
    assert run.changed == {}
    assert "TASK [base" not in run.output


def test_host_with_another_system_is_refused_first_of_all(lab: Lab) -> None:
    run = lab.play("--limit", "lab-cpu-01", "--extra-vars", "base_os=debian-13")
    assert run.code != 0
    assert "lab-cpu-01 runs debian-12, the definition says debian-13; set os" in run.output
    assert run.changed == {}


@pytest.mark.proof("two runs; tests/unit/verify has the sentence")
def test_wrong_munge_key_is_named_by_verify(lab: Lab) -> None:
    key = "/etc/munge/munge.key"
    lab.on("lab-cpu-02", f"head -c 128 /dev/urandom >{key}; systemctl restart munge")
    run = lab.play("--tags", "verify")
    assert run.code != 0
    assert "lab-cpu-02: the controller can't decode its munge credential" in run.output
    assert "test job" not in run.output
    until(lambda: no_node_completes(lab), "no node waits for the end of a job", 10)

    repaired = lab.play("--limit", "lab-cpu-02", "--tags", "munge,verify")
    assert repaired.code == 0, repaired.output[-4000:]
    assert repaired.changed_tasks[0] == "munge : Write the key and the options [lab-cpu-02]"


@pytest.mark.proof("runs three roles again, for a change that is rare")
def test_changed_database_password_keeps_the_accounts(lab: Lab) -> None:
    before = lab.on("lab-access", "sacctmgr -nP show assoc format=account,user")
    secrets = lab.instance.folder / "group_vars/all/secrets.yml"
    text = secrets.read_text(encoding="utf-8")
    new = re.sub(r"slurmdbd_password: (.{3})", r"slurmdbd_password: new", text)
    secrets.write_text(new, encoding="utf-8")
    run = lab.play("--limit", "database", "--tags", "mariadb,slurmdbd,accounts")
    assert run.code == 0, run.output[-4000:]
    assert lab.on("lab-access", "sacctmgr -nP show assoc format=account,user") == before


@pytest.mark.proof("two runs; the role `users` removes a person in `make molecule`")
def test_removed_person_can_no_longer_log_in(lab: Lab) -> None:
    person = "      bob: {uid: 20002, groups: [ml-users], email: bob@example.org}\n"
    text = lab.definition.read_text(encoding="utf-8")
    edit(lab.definition, "    people:\n", f"    people:\n{person}")
    run = lab.play("--limit", "lab-access,lab-cpu-01", "--tags", "users")
    assert run.code == 0, run.output[-4000:]
    assert lab.on("lab-cpu-01", "id -un 20002").strip() == "bob"
    edit(lab.definition, "email: bob@example.org}", "state: absent}")
    run = lab.play("--limit", "lab-access,lab-cpu-01", "--tags", "users")
    assert run.code == 0, run.output[-4000:]
    assert "no such user" in lab.on("lab-cpu-01", "id bob", check=False)
    assert lab.on("lab-access", "stat -c %u /home/bob").strip() == "20002"
    lab.definition.write_text(text, encoding="utf-8")
