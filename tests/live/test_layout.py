"""A job's folders on its nodes and the shared ones: scratch, caches, projects."""

from collections.abc import Iterator

import pytest
from conftest import Lab
from waiting import until

SRUN = "srun -p ml-cpu -A LAB-test -n 1 --mem=50M"
SBATCH = "sbatch --parsable -p ml-cpu -A LAB-test --mem=50M --time=5"
NODES = ("lab-cpu-01", "lab-cpu-02")


def environment(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


@pytest.mark.usefixtures("requeued")
def test_a_job_has_scratch_on_each_node_that_nobody_else_reads(lab: Lab) -> None:
    ada = lab.ada
    script = "'srun --overlap touch $TMPDIR/file; sleep 300'"
    job = ada.run(f"{SBATCH} -N 2 --ntasks-per-node=1 -o /dev/null --wrap {script}").strip()
    folder = f"/scratch/{job}"
    try:
        for node in NODES:
            until(
                lambda node=node: lab.on(node, f"ls {folder}", check=False) == "file\n",
                f"a task has written into the scratch of {node}",
            )
            owned = lab.on(node, f"stat -c '%U %a' {folder} $(dirname {folder})")
            assert owned == "ada 700\nroot 755\n"
            refused = lab.on(node, f"runuser -u nobody -- ls {folder}", check=False)
            assert "Permission denied" in refused
    finally:
        ada.run(f"scancel {job}")
    for node in NODES:
        until(
            lambda node=node: "ls: cannot access" in lab.on(node, f"ls {folder}", check=False),
            f"the job's scratch is gone from {node}",
        )
    until(
        lambda: ada.run(f"sinfo -h -n {','.join(NODES)} -o %T").split() == ["idle"],
        "no node is drained by an epilog",
    )


def test_a_job_s_caches_are_its_own_and_what_was_downloaded_stays_in_the_home(lab: Lab) -> None:
    variables = environment(lab.ada.run(f"{SRUN} env"))
    own = f"/scratch/{variables['SLURM_JOB_ID']}"
    wanted = {
        "TMPDIR": own,
        "PIP_CACHE_DIR": f"{own}/.cache/pip",
        "UV_CACHE_DIR": f"{own}/.cache/uv",
        "UV_LINK_MODE": "copy",
        "TRITON_CACHE_DIR": f"{own}/.cache/triton",
        "TORCHINDUCTOR_CACHE_DIR": f"{own}/.cache/torchinductor",
        "HF_XET_CACHE": f"{own}/.cache/xet",
    }
    assert {name: variables.get(name) for name in wanted} == wanted
    of_home = {"HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "TORCH_HOME", "XDG_CACHE_HOME"}
    assert of_home.isdisjoint(variables)


def test_what_a_person_has_set_is_what_the_job_has(lab: Lab) -> None:
    shown = lab.ada.run(f"TMPDIR=/tmp UV_CACHE_DIR=/home/ada/uv {SRUN} env")
    variables = environment(shown)
    assert (variables["TMPDIR"], variables["UV_CACHE_DIR"]) == ("/tmp", "/home/ada/uv")
    assert "UV_LINK_MODE" not in variables


def test_a_job_that_a_job_submits_has_its_own(lab: Lab) -> None:
    ada = lab.ada
    inner = f"{SBATCH} --wait -o inner.out --wrap env"
    outer = environment(ada.run(f'{SRUN} sh -c "env; {inner}"'))
    assert outer["TMPDIR"] == f"/scratch/{outer['SLURM_JOB_ID']}"
    variables = environment(ada.run("cat inner.out"))
    assert variables["SLURM_JOB_ID"] != outer["SLURM_JOB_ID"]
    assert variables["TMPDIR"] == f"/scratch/{variables['SLURM_JOB_ID']}"


@pytest.fixture
def bob(lab: Lab) -> Iterator[str]:
    """Another member of ada's group, on the access node."""
    lab.on("lab-access", "useradd --no-create-home --groups ml-users --uid 29998 bob")
    yield "runuser -u bob --"
    lab.on("lab-access", "userdel bob; rm -rf /data/speech/trial")


def test_members_of_a_project_share_files_whatever_their_umask_is(lab: Lab, bob: str) -> None:
    ada, file = lab.ada, "/data/speech/trial/file"
    ada.run(f"umask 077; mkdir /data/speech/trial; echo ada >{file}")
    lab.on("lab-access", f"{bob} sh -c 'umask 077; echo bob >>{file}; echo bob >{file}-of-bob'")
    # And in a job, on another host.
    shown = ada.run(f"{SRUN} sh -c 'cat {file}; echo ada >>{file}-of-bob; cat {file}-of-bob'")
    assert shown.split() == ["ada", "bob", "bob", "ada"]
    refused = lab.on("lab-access", "runuser -u nobody -- ls /data/speech", check=False)
    assert "Permission denied" in refused
