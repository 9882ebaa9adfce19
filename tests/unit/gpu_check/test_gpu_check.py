"""`make gpu-check` on machines that are played: a PCI bus, device files, tools on the PATH."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from muster.gpu_check import check
from muster.gpu_check.check import Machine

ROOT = Path(__file__).parents[3]
SMI = r"""#!/bin/sh
case "$*" in
  --query-gpu=name,driver_version*) printf '{names}' ;;
  --query-gpu=*) printf '{gpus}' ;;
  --query-remapped-rows=*) printf '00000000:3B:00.0, No, No\n' ;;
  --list-gpus) ;;
  "nvlink --status") ;;
  *) exit 3 ;;
esac
"""
HEALTHY = r"00000000:3B:00.0, Disabled, 0, No\n"


@pytest.fixture
def machine(tmp_path):
    """Make a machine with an H200."""

    def make(
        name: str = "NVIDIA H200",
        version: str = "580.95.05",
        gpus: str = HEALTHY,
        numbers: tuple[int, ...] = (0,),
        cuda: tuple[str, ...] = ("echo", "GPU 0, NVIDIA H200: read back"),
    ) -> Machine:
        bus = tmp_path / "sys/bus/pci/devices/0000:3b:00.0"
        bus.mkdir(parents=True)
        (bus / "vendor").write_text("0x10de\n")
        (bus / "class").write_text("0x030200\n")
        (tmp_path / "dev").mkdir()
        for number in numbers:
            # A character device that anybody may link to.
            (tmp_path / f"dev/nvidia{number}").symlink_to("/dev/null")
        for file in ("nvidiactl", "nvidia-uvm"):
            (tmp_path / "dev" / file).symlink_to("/dev/null")
        tool = tmp_path / "bin/nvidia-smi"
        tool.parent.mkdir()
        tool.write_text(SMI.replace("{names}", rf"{name}, {version}\n").replace("{gpus}", gpus))
        (tmp_path / "bin/journalctl").write_text("#!/bin/sh\n")
        for file in tool.parent.iterdir():
            file.chmod(0o755)
        return Machine(tmp_path, f"{tmp_path}/bin:/usr/bin:/bin", cuda)

    return make


def lines(capsys) -> dict[str, str]:
    """Return what was said of each thing."""
    rows = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    return {what: " ".join(rest.split()) for what, rest in rows if what != "health:"}


def test_a_sound_gpu_is_seen_by_all_parts(machine, capsys):
    assert check.main(machine()) == 0
    said = capsys.readouterr().out
    assert "1 GPUs and 0 NVSwitches on the PCI bus; /dev/nvidia0; kernel" in said
    assert "NVIDIA H200 is h200 (Hopper), 580.95.05" in said
    assert "Name=gpu Type=h200 File=/dev/nvidia0\n" in said
    assert "health: gpus           healthy    1 of 1\n" in said
    assert "cuda                   healthy    GPU 0, NVIDIA H200: read back\n" in said
    assert "broken" not in said


def test_files_that_do_not_begin_with_0_are_named_in_gres_conf(machine, capsys):
    assert check.main(machine(numbers=(5,))) == 0
    assert lines(capsys)["gres.conf"] == "healthy Name=gpu Type=h200 File=/dev/nvidia5"


def test_a_card_that_is_not_in_the_table_is_unchecked(machine, capsys):
    assert check.main(machine(name="NVIDIA X900")) == 0
    said = lines(capsys)
    assert said["model"] == "unchecked NVIDIA X900 is not in Muster's table (muster/catalog/nvidia)"
    assert said["gres.conf"] == "healthy Name=gpu File=/dev/nvidia0"


def test_a_table_that_denies_what_runs_is_broken(machine, capsys):
    assert check.main(machine(name="Tesla V100-SXM2-16GB", version="590.44.01")) == 1
    assert lines(capsys)["model"].startswith("broken Tesla V100-SXM2-16GB runs with driver 590")


def test_what_the_health_check_finds_counts(machine, capsys):
    assert check.main(machine(gpus=r"00000000:3B:00.0, Disabled, 7, No\n")) == 1
    assert "health: gpu memory     broken" in capsys.readouterr().out


def test_a_job_that_fails_counts(machine, capsys):
    assert check.main(machine(cuda=("sh", "-c", "echo cuInit failed; exit 1"))) == 1
    assert lines(capsys)["cuda"] == "broken cuInit failed"


def test_a_job_that_is_not_there_or_hangs_counts(machine, capsys, monkeypatch):
    monkeypatch.setattr(check, "CUDA_S", 0.1)
    assert check.main(machine(cuda=("sleep", "60"))) == 1
    assert lines(capsys)["cuda"] == "broken sleep does not answer within 0 s"


def test_a_gpu_without_a_driver_is_broken(machine, capsys, tmp_path):
    there = machine(numbers=(), cuda=("false",))
    (tmp_path / "bin/nvidia-smi").unlink()
    assert check.main(there) == 1
    said = lines(capsys)
    assert said["driver"] == "broken it lists no GPU: nvidia-smi is not installed"
    assert said["gres.conf"].startswith("broken")
    assert said["cuda"] == "broken the CUDA job said nothing"


def test_a_machine_without_a_gpu_is_one_sentence(tmp_path, capsys):
    assert check.main(Machine(tmp_path, "", ())) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "gpu-check: no NVIDIA GPU is here; run it on a machine that has one\n"


def test_python_s_standard_library_is_enough(machine, tmp_path):
    """On a machine that reaches nothing: only gres.conf is left out, and that is said."""
    there = machine()
    arguments = f"Path({str(there.root)!r}), {there.path!r}, {there.cuda!r}"
    code = (
        "import sys; from pathlib import Path; from muster.gpu_check import check; "
        f"sys.exit(check.main(check.Machine({arguments})))"
    )
    done = subprocess.run(
        [sys.executable, "-IS", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": os.defpath},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        "gres.conf              unchecked  not rendered, ClusterShell is missing: make setup\n"
        in (done.stdout)
    )
    assert "cuda                   healthy" in done.stdout
