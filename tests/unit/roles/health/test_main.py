"""The check of a machine that is a folder, with simulated commands."""

import time
from pathlib import Path

import pytest
from health import commands
from health import main as program
from health.commands import Commands
from health.main import Check
from health.record import PREFIX

ROW = "00000000:3B:00.0, Disabled, 0, No"
RECORD = (
    "NodeName=n1 Arch=x86_64 Gres={gres} OS=Linux RealMemory=1 State={state} ThreadsPerCore=1"
    "{reason}"
)
HANG = "trap '' TERM; while :; do sleep 60; done"
MOUNT = "35 24 0:30 / /home rw - nfs4 storage1:/home rw\n"


class Machine:
    """A node: what is on it, and what it says of itself."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bin = root / "bin"
        self.bin.mkdir()
        (root / "proc/self").mkdir(parents=True)
        self.mounted("24 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
        self.command("systemctl", "echo Requires=-.mount; echo RequiresMountsFor=/home")
        self.command("journalctl", "case $* in *--lines=1*) echo boot;; *) exit 1;; esac")
        self.record()

    def command(self, name: str, script: str) -> None:
        # Notes its arguments, and is not mistaken for another by them.
        noted = f'echo "{name} $*" >>{self.root}/called\n'
        (self.bin / name).write_text(f"#!/bin/sh\n{noted}{script}\n")
        (self.bin / name).chmod(0o755)

    def record(self, gres: str = "(null)", state: str = "IDLE", reason: str = "") -> None:
        shown = f" Reason={reason} [root@2026-11-22T01:04:02]" if reason else ""
        text = RECORD.format(gres=gres, state=state, reason=shown)
        self.command("scontrol", f'[ "$1" = update ] || echo "{text}"')

    def mounted(self, text: str) -> None:
        (self.root / "proc/self/mountinfo").write_text(text)

    def gpus(self, *rows: str) -> None:
        lines = "\n".join(rows)
        self.command("nvidia-smi", f"case $* in *--query-gpu*) echo '{lines}';; esac")

    def check(self, *, prolog: bool = False, total_s: float = 30, ask_s: float = 5) -> int:
        (self.root / "called").unlink(missing_ok=True)
        run = Commands(str(self.root / "run/muster-health"), f"{self.bin}:/usr/bin:/bin")
        check = Check(run, root=str(self.root), node="n1", total_s=total_s, ask_s=ask_s)
        return check.run(prolog=prolog)

    def told(self) -> list[str]:
        """What slurmctld was asked and told."""
        lines = (self.root / "called").read_text().splitlines()
        return [line.removeprefix("scontrol ") for line in lines if line.startswith("scontrol ")]


ASKED = "--oneliner show node n1"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_healthy_node_costs_one_question(machine, capsys):
    machine.record("gpu:1")
    machine.gpus(ROW)
    assert machine.check() == 0
    assert machine.told() == [ASKED]
    assert "gpus                 healthy    1 of 1\n" in capsys.readouterr().out


def test_a_broken_node_is_drained_once(machine):
    machine.record("gpu:2")
    machine.gpus(ROW)
    assert machine.check() == 1
    asked, told = machine.told()
    reason = f"{PREFIX}gpus: SLURM counts on 2, the driver has 1; reboot the node, then reseat"
    assert (asked, told) == (ASKED, f"update nodename=n1 state=drain reason={reason}")
    machine.record("gpu:2", "IDLE+DRAIN", reason)
    assert (machine.check(), machine.told()) == (1, [ASKED])


def test_a_node_that_is_well_again_comes_back(machine):
    machine.record("gpu:1", "IDLE+DRAIN", f"{PREFIX}gpus: it was lost")
    machine.gpus(ROW)
    assert machine.check() == 0
    assert machine.told() == [ASKED, "update nodename=n1 state=resume reason=muster: well again"]


def test_a_mount_with_a_strange_name_is_no_fault_of_the_node(machine, capsys):
    row = b"36 24 0:31 / /tmp/.\r\xff\xc2\x85\x1f rw - fuse.x\r  rw,user_id=20077\n"
    (machine.root / "proc/self/mountinfo").write_bytes(row + MOUNT.encode())
    machine.command("stat", "echo nfs")
    assert machine.check() == 0
    assert "storage /home        healthy    nfs4, answers\n" in capsys.readouterr().out


def test_storage_that_does_not_answer_drains_the_node(machine):
    machine.mounted(MOUNT)
    machine.command("stat", HANG)
    assert machine.check(total_s=6, ask_s=2) == 1
    why = "storage /home: it does not answer; is its server up?"
    assert machine.told()[1:] == [f"update nodename=n1 state=drain reason={PREFIX}{why}"]


def test_where_systemd_does_not_answer_no_drain_of_storage_is_lifted(machine, capsys):
    why = "storage /home: it does not answer; is its server up?"
    machine.record(state="IDLE+DRAIN", reason=f"{PREFIX}{why}")
    machine.command("systemctl", HANG)
    assert (machine.check(ask_s=1), machine.told()) == (0, [ASKED])
    assert "storage              unchecked  systemctl does not answer" in capsys.readouterr().out


def test_a_node_without_gpus_is_asked_nothing_of_them(machine, capsys):
    machine.command("nvidia-smi", "exit 9")
    assert machine.check() == 0
    assert capsys.readouterr().out == "nothing to look at: no shared folder, no scratch, no GPU\n"
    assert "nvidia-smi" not in (machine.root / "called").read_text()


@pytest.mark.parametrize("prolog", [False, True])
def test_whatever_hangs_the_check_ends_in_time(machine, prolog, capsys):
    machine.record("gpu:1")
    machine.gpus(ROW)
    machine.check()
    machine.mounted(MOUNT)
    for name in ("scontrol", "systemctl", "journalctl", "nvidia-smi", "stat"):
        machine.command(name, HANG)
    begin = time.monotonic()
    assert machine.check(prolog=prolog, total_s=4, ask_s=0.5) == 1
    # What was killed is waited for a moment each time, and the machine may be busy.
    assert time.monotonic() - begin < 10
    assert "slurmctld says nothing of n1: no answer" in capsys.readouterr().err


def test_all_limits_together_are_less_than_20_s():
    assert program.TOTAL_S + 4 * commands.DEATH_S < 20.5
    assert program.TOTAL_S > 4 * program.ASK_S


def test_nothing_installed_is_no_fault_of_the_node(machine, capsys):
    machine.record("gpu:4")
    assert machine.check() == 0
    assert machine.told() == [ASKED]
    out = capsys.readouterr().out
    assert "gpus                 unchecked  nvidia-smi is not installed\n" in out
    assert machine.check(prolog=True) == 0


def test_slurmctld_that_does_not_answer_is_said(machine, capsys):
    machine.command("scontrol", "echo 'Unable to contact slurm controller' >&2; exit 1")
    assert machine.check() == 1
    said = "slurmctld says nothing of n1: Unable to contact slurm controller"
    assert said in capsys.readouterr().err


def test_slurmctld_that_takes_no_change_is_said(machine, capsys):
    machine.record("gpu:2")
    machine.gpus(ROW)
    asks = (machine.bin / "scontrol").read_text()
    refuses = "if [ $1 = update ]; then echo 'Access denied' >&2; exit 1; fi"
    (machine.bin / "scontrol").write_text(f"{asks}{refuses}\n")
    assert machine.check() == 1
    assert "slurmctld does not take it: Access denied" in capsys.readouterr().err


OPEN = "echo 'users reach the metadata server (169.254.169.254 port 80), ...'; exit 1"


class TestGuard:
    @pytest.fixture
    def vm(self, machine):
        (machine.root / "etc/muster").mkdir(parents=True)
        (machine.root / "etc/muster/guard.nft").write_text("table inet muster_guard\n")
        machine.command("muster-guard", "echo users are refused")
        return machine

    def test_of_a_vm_it_is_looked_at(self, vm, capsys):
        assert vm.check() == 0
        assert "metadata server      healthy    users are refused\n" in capsys.readouterr().out

    @pytest.mark.parametrize("prolog", [False, True])
    def test_a_vm_whose_token_users_can_read_takes_no_job(self, vm, prolog):
        vm.command("muster-guard", OPEN)
        assert vm.check(prolog=prolog) == 1
        why = "metadata server: it gives users this VM's token; see muster-guard check"
        assert vm.told()[-1] == f"update nodename=n1 state=drain reason={PREFIX}{why}"

    def test_it_comes_back_when_the_rules_are_loaded_again(self, vm):
        vm.record("gpu:0", "IDLE+DRAIN", f"{PREFIX}metadata server: it gives users this VM's token")
        assert vm.check() == 0
        assert vm.told()[-1] == "update nodename=n1 state=resume reason=muster: well again"

    def test_a_check_that_hangs_lifts_no_drain(self, vm, capsys):
        vm.record("gpu:0", "IDLE+DRAIN", f"{PREFIX}metadata server: it gives users this VM's token")
        vm.command("muster-guard", HANG)
        vm.check(total_s=3, ask_s=0.5)
        assert vm.told() == [ASKED]
        assert "muster-guard does not answer" in capsys.readouterr().out

    def test_a_machine_has_none(self, machine):
        machine.command("muster-guard", OPEN)
        assert machine.check() == 0
        assert "muster-guard" not in (machine.root / "called").read_text()


class TestProlog:
    def test_of_a_healthy_node_it_asks_slurmctld_nothing(self, machine):
        machine.record("gpu:1")
        machine.gpus(ROW)
        machine.check()
        assert (machine.check(prolog=True), machine.told()) == (0, [])

    def test_of_a_broken_node_it_fails_when_slurm_has_the_reason(self, machine):
        machine.record("gpu:1")
        machine.gpus(ROW)
        machine.check()
        machine.command("nvidia-smi", "echo 'GPU is lost'; exit 15")
        assert machine.check(prolog=True) == 1
        why = "gpus: a GPU has fallen off the bus; reboot the node"
        assert machine.told() == [ASKED, f"update nodename=n1 state=drain reason={PREFIX}{why}"]

    def test_before_the_first_check_gpus_are_not_looked_at(self, machine, capsys):
        machine.record("gpu:2")
        machine.gpus(ROW)
        assert (machine.check(prolog=True), machine.told()) == (0, [])
        assert "what SLURM counts on is not known" in capsys.readouterr().out

    def test_a_fault_of_the_program_costs_no_job(self, monkeypatch, capsys):
        def fail(*_: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(program, "Check", fail)
        monkeypatch.setattr(program.os, "geteuid", lambda: 0)
        assert (program.main(["prolog"]), program.main([])) == (0, 1)
        assert "ZeroDivisionError" in capsys.readouterr().err


def test_fabric_manager_is_asked_for_where_switches_are(machine, capsys):
    machine.record("gpu:1")
    machine.gpus(ROW)
    for name, vendor, kind in (
        ("0000:3b:00.0", "0x10de", "0x030200"),
        ("0000:c1:00.0", "0x10de", "0x068000"),
        ("0000:00:1f.0", "0x8086", "0x068000"),
    ):
        device = machine.root / "sys/bus/pci/devices" / name
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
        (device / "class").write_text(f"{kind}\n")
    machine.command("systemctl", "[ $1 = show ] || { echo inactive; exit 3; }")
    assert machine.check() == 1
    assert "fabric manager       broken" in capsys.readouterr().out
    (machine.root / "sys/bus/pci/devices/0000:c1:00.0/vendor").write_text("0x1000\n")
    machine.record("gpu:1")
    assert machine.check() == 0


def test_the_node_s_name(monkeypatch):
    monkeypatch.delenv("SLURMD_NODENAME", raising=False)
    monkeypatch.setattr(program.socket, "gethostname", lambda: "lab-gpu-0.c.demo.internal")
    assert Check(Commands("/nowhere")).node == "lab-gpu-0"
    monkeypatch.setenv("SLURMD_NODENAME", "gpu-7")
    assert Check(Commands("/nowhere")).node == "gpu-7"


def test_it_is_root_s(monkeypatch, capsys):
    monkeypatch.setattr(program.os, "geteuid", lambda: 1000)
    assert program.main([]) == 2
    assert "use sudo" in capsys.readouterr().err


def test_how_it_is_called(capsys):
    assert program.main(["--help"]) == 0
    assert "muster-health [prolog]" in capsys.readouterr().out
    assert program.main(["diagnose"]) == 2
    assert "muster-health [prolog]" in capsys.readouterr().err


# Where nothing is mounted, stat sees the file system below, which always answers.
STALE = """
if ! grep -q ' /home ' {root}/proc/self/mountinfo; then echo ext2/ext3
elif [ -e {root}/fresh ]; then echo nfs
else echo "stat: cannot read file system information for '/home/.': Stale file handle" >&2; exit 1
fi
"""
UNMOUNT = "sed -i '/ .home /d' {root}/proc/self/mountinfo"
MOUNTS = f"echo '{MOUNT.strip()}' >>{{root}}/proc/self/mountinfo; touch {{root}}/fresh"
UNITS = "echo Requires=home.mount; echo RequiresMountsFor=/home"


@pytest.fixture
def stale(machine: Machine) -> Machine:
    """A node whose server was recreated: what is mounted then is another folder."""
    machine.mounted(MOUNT)
    machine.command("stat", STALE.format(root=machine.root))
    machine.command("umount", UNMOUNT.format(root=machine.root))
    return machine


def starts(machine: Machine, script: str) -> None:
    """Let systemd have a unit for /home, whose start is `script`."""
    script = script.format(root=machine.root)
    machine.command("systemctl", f'[ "$1" = show ] && {{ {UNITS}; exit; }}; {script}')


def vm(machine: Machine, script: str) -> Machine:
    """Make a machine a VM, without units for its mounts; `script` is what mount does."""
    (machine.root / "run/muster-node").mkdir(parents=True)
    (machine.root / "run/muster-node/mounts.json").write_text(
        '[{"source": "c:/home", "path": "/home", "type": "nfs4", "options": "rw,hard"}]'
    )
    machine.command("mount", script.format(root=machine.root))
    return machine


def called(machine: Machine) -> list[str]:
    return (machine.root / "called").read_text().splitlines()


def test_a_stale_folder_is_mounted_again_and_the_node_stays(stale, capsys):
    starts(stale, MOUNTS)
    assert stale.check() == 0
    lines = called(stale)
    assert lines.index("umount --lazy /home") < lines.index("systemctl start /home")
    out = capsys.readouterr().out
    assert "muster-health: mounted again because it was stale: /home\n" in out
    assert "storage /home        healthy    nfs4, answers\n" in out
    assert stale.told() == [ASKED]


def test_a_vm_mounts_it_as_at_its_boot(stale):
    assert vm(stale, MOUNTS).check() == 0
    assert "mount -t nfs4 -o rw,hard c:/home /home" in called(stale)


@pytest.mark.parametrize("start", ["echo 'Job for home.mount failed.' >&2; exit 1", HANG])
def test_a_stale_folder_that_can_t_be_mounted_again_drains_the_node(stale, start, capsys):
    starts(stale, start)
    assert stale.check(total_s=8, ask_s=2) == 1
    why = "storage /home: it is not mounted; its mount unit says why"
    assert stale.told()[1:] == [f"update nodename=n1 state=drain reason={PREFIX}{why}"]
    assert "mounted again" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("mount", "said"),
    [
        (
            "echo 'mount.nfs4: Connection refused' >&2; exit 32",
            "mount: mount.nfs4: Connection refused",
        ),
        (HANG, "mount does not answer"),
    ],
)
def test_of_a_vm_the_drain_says_what_mount_says(stale, mount, said):
    vm(stale, mount)
    assert stale.check(total_s=8, ask_s=2) == 1
    why = f"storage /home: it is not mounted; {said}"
    assert stale.told()[1:] == [f"update nodename=n1 state=drain reason={PREFIX}{why}"]
    # Another check finds nothing mounted, and does not forget it.
    stale.record(state="IDLE+DRAIN", reason=f"{PREFIX}{why}")
    assert (stale.check(total_s=8, ask_s=2), stale.told()) == (1, [ASKED])


def test_a_vm_mounts_what_is_missing_and_comes_back(stale, capsys):
    stale.mounted("")
    reason = f"{PREFIX}storage /home: it is not mounted; mount: mount.nfs4: Connection refused"
    stale.record(state="IDLE+DRAIN", reason=reason)
    assert vm(stale, MOUNTS).check() == 0
    assert "storage /home        healthy    nfs4, answers\n" in capsys.readouterr().out
    assert stale.told()[1:] == ["update nodename=n1 state=resume reason=muster: well again"]
    assert not any(line.startswith("umount") for line in called(stale))


def test_a_stale_folder_that_nothing_would_mount_again_stays_and_drains_the_node(stale):
    assert stale.check() == 1
    assert any("its file handle is stale" in told for told in stale.told())
    assert not any(line.startswith("umount") for line in called(stale))


def test_a_folder_that_is_away_is_not_unmounted(stale):
    stale.command("stat", HANG)
    assert stale.check(total_s=3, ask_s=0.5) == 1
    assert not any(line.startswith("umount") for line in called(stale))


FULL = "no folder can be made in /scratch: No space left on device; job 7 of ada has most files"


def scratch(machine: Machine, script: str) -> None:
    program = machine.root / "usr/local/lib/muster/scratch.py"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.mark.parametrize("prolog", [False, True])
def test_a_full_scratch_drains_the_node_and_an_empty_one_takes_it_back(machine, prolog):
    scratch(machine, f"echo '{FULL}'; exit 3")
    reason = f"{PREFIX}scratch: {FULL}"
    assert machine.check(prolog=prolog) == 1
    assert f"update nodename=n1 state=drain reason={reason}" in machine.told()
    machine.record(state="IDLE+DRAIN", reason=reason)
    # What can't be looked at is not well yet.
    scratch(machine, "echo there is no slurm.conf; exit 1")
    assert (machine.check(), machine.told()) == (0, [ASKED])
    scratch(machine, "echo /scratch takes folders")
    assert machine.check() == 0
    assert "update nodename=n1 state=resume reason=muster: well again" in machine.told()


def test_a_disk_that_does_not_answer_is_broken_and_no_scratch_is_nothing(machine, capsys):
    scratch(machine, "exit 0")
    assert machine.check() == 0
    assert "scratch" not in capsys.readouterr().out.replace("no scratch", "")
    scratch(machine, HANG)
    assert machine.check(total_s=6, ask_s=2) == 1
    assert "scratch              broken     its disk does not answer\n" in capsys.readouterr().out
