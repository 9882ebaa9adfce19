"""`muster nodes`, `why` and `timeline` away from the controller: they run there, by ssh."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import clikit
import pytest
from odd_answers import CLIPBOARD

ROOT = Path(__file__).parents[3]
STACK = {
    "cluster": "slurm10",
    "project": "my-project",
    "zone": "europe-west4-a",
    "controller": "slurm10-controller",
    "logins": ["slurm10-login-0"],
    "addresses": {"slurm10-controller": "10.10.0.2"},
}
ASKING = "inventories/cloud: asking Pulumi where its controller is\nasking slurm10-controller\n"

# Stand-ins for the programs pulumi and ssh. ssh writes down its arguments, and runs the command in
# a shell as sshd does, where `muster` and `sudo` are the ones beside it.
PULUMI = f"#!/bin/sh\ncat <<'END'\n{json.dumps(STACK)}\nEND\n"
SSH = """#!{python}
import json, os, subprocess, sys
open({log!r}, "w").write(json.dumps(sys.argv[1:]))
said = {said!r}
if said:
    sys.stderr.write(said)
    sys.exit(255)
sys.exit(subprocess.run(["sh", "-c", sys.argv[-1]], stdin=subprocess.DEVNULL).returncode)
"""
MUSTER = """#!{python}
import json, sys
open({log!r}, "w").write(json.dumps(sys.argv[1:]))
sys.stdout.write({out!r})
sys.stderr.write({err!r})
sys.exit({code})
"""
SUDO = '#!/bin/sh\nexec "$@"\n'

Answer = subprocess.CompletedProcess[str]


def program(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o755)


class Laptop:
    """A checkout's folder with one cluster in the cloud, and the programs on its PATH."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.capfd = capfd
        self.bin = folder / "bin"
        self.bin.mkdir()
        (folder / "inventories").mkdir()
        self.add("cloud")
        program(self.bin / "pulumi", PULUMI)
        program(self.bin / "sudo", SUDO)
        self.ssh()
        self.muster()

    def add(self, name: str, source: str = "cloud") -> None:
        shutil.copytree(ROOT / "inventories" / source, self.folder / "inventories" / name)

    def ssh(self, said: str = "") -> None:
        """`said`: what ssh says when it fails."""
        log = str(self.folder / "ssh.json")
        program(self.bin / "ssh", SSH.format(python=sys.executable, log=log, said=said))

    def muster(self, out: str = "", err: str = "", code: int = 0) -> None:
        """What the controller's `muster` does."""
        log = str(self.folder / "muster.json")
        text = MUSTER.format(python=sys.executable, log=log, out=out, err=err, code=code)
        program(self.bin / "muster", text)

    def __call__(self, *words: str) -> Answer:
        return clikit.run(self.capfd, *words, cwd=self.folder)

    def asked_ssh(self) -> list[str]:
        return json.loads((self.folder / "ssh.json").read_text())

    def asked_muster(self) -> list[str]:
        return json.loads((self.folder / "muster.json").read_text())


@pytest.fixture
def laptop(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Laptop:
    made = Laptop(tmp_path, capfd)
    monkeypatch.setenv("PATH", f"{made.bin}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    return made


def options(words: list[str]) -> dict[str, str]:
    pairs = [words[at + 1] for at, word in enumerate(words) if word == "-o"]
    return dict(pair.split("=", 1) for pair in pairs)


def test_nodes_are_shown_by_the_controller_through_iap(laptop: Laptop) -> None:
    laptop.muster(out="node  state\n", err="a warning\n", code=1)
    shown = laptop("nodes")
    assert (shown.returncode, shown.stdout) == (1, "node  state\n")
    assert shown.stderr == f"{ASKING}a warning\n"
    assert laptop.asked_muster() == ["nodes"]
    words = laptop.asked_ssh()
    assert words[-2:] == ["slurm10-controller", "muster nodes"]
    assert "-l" not in words
    asked = options(words)
    assert "start-iap-tunnel slurm10-controller 22" in asked["ProxyCommand"]
    assert asked["HostKeyAlias"] == "slurm10-controller.europe-west4-a.my-project"
    assert "ForwardAgent" not in asked


def test_what_a_controller_says_does_not_control_the_terminal(laptop: Laptop) -> None:
    laptop.muster(out=f"node{CLIPBOARD}\nstate\n", err=f"a{CLIPBOARD}\n", code=1)
    for shown in (laptop("nodes"), laptop("why", "41"), laptop("timeline", "out.svg")):
        lines = [*shown.stdout.splitlines(), *shown.stderr.splitlines()]
        assert "a ]52;c;cm0gLXJmIH4K " in lines
        assert all(line.isprintable() for line in lines)
    laptop.ssh(said=f"{CLIPBOARD}Permission denied\n")
    [*_, said] = laptop("nodes").stderr.splitlines()
    assert "Permission denied" in said
    assert said.isprintable()


def test_the_login_there_may_be_named(laptop: Laptop) -> None:
    assert laptop("nodes", "--cluster", "cloud", "--user", "ada").returncode == 0
    words = laptop.asked_ssh()
    assert words[words.index("-l") + 1] == "ada"
    refused = laptop("nodes", "--user", "-oProxyCommand=touch x")
    assert refused.returncode == 2
    assert "nobody in inventories/cloud has the login -oProxyCommand" in refused.stderr


@pytest.mark.parametrize("what", ["41", "slurm10-debug-1", "a b; touch broken $(touch broken) '\""])
def test_what_is_asked_arrives_as_it_was_typed(laptop: Laptop, what: str) -> None:
    laptop.muster(out="it waits\n", code=0)
    shown = laptop("why", what)
    assert (shown.returncode, shown.stdout) == (0, "it waits\n")
    assert laptop.asked_muster() == ["why", "--", what]
    assert not (laptop.folder / "broken").exists()


@pytest.mark.parametrize("code", [0, 1, 2])
def test_the_exit_code_is_the_controller_s(laptop: Laptop, code: int) -> None:
    laptop.muster(err="error: no such job\n", code=code)
    assert laptop("why", "41").returncode == code


def test_a_timeline_is_drawn_there_as_root_and_written_here(laptop: Laptop) -> None:
    laptop.muster(out="<svg>\n</svg>\n", err="3 nodes, 1 jobs\n")
    shown = laptop("timeline", "--since", "90m", "out.svg")
    assert (shown.returncode, shown.stdout) == (0, "wrote out.svg: 3 nodes, 1 jobs\n")
    assert (laptop.folder / "out.svg").read_text() == "<svg>\n</svg>\n"
    assert laptop.asked_muster() == ["timeline", "--since", "5400s", "-"]
    words = laptop.asked_ssh()
    assert words[-1].startswith("sudo muster timeline ")
    assert options(words)["ForwardAgent"] == "yes"


def test_a_timeline_that_could_not_be_drawn_writes_nothing(laptop: Laptop) -> None:
    laptop.muster(err="error: there is no log\n", code=2)
    shown = laptop("timeline", "out.svg")
    assert shown.returncode == 2
    assert shown.stderr.endswith("error: there is no log\n")
    assert not (laptop.folder / "out.svg").exists()


def test_a_controller_whose_muster_is_older_is_said(laptop: Laptop) -> None:
    laptop.muster(out="wrote -: 3 nodes, 1 jobs\n")
    shown = laptop("timeline", "out.svg")
    assert shown.returncode == 4
    assert "its Muster is older than this one; `pulumi up` brings this one there" in shown.stderr
    assert not (laptop.folder / "out.svg").exists()


def test_sudo_that_refuses_is_one_sentence(laptop: Laptop) -> None:
    text = "#!/bin/sh\necho 'sudo: a password is required' >&2; exit 1\n"
    program(laptop.bin / "sudo", text)
    shown = laptop("timeline", "out.svg")
    assert shown.returncode == 4
    assert shown.stderr == (
        f"{ASKING}error: sudo on slurm10-controller refuses you: a password is required; the "
        "person needs `admin: true`, and `ssh-add` the key that is in `ssh_keys`\n"
    )


CLOSED = "Connection closed by UNKNOWN port 65535\r\n"
IAP = "ERROR: (gcloud.compute.start-iap-tunnel) Error while connecting "
REFUSALS = {
    "no right in IAP": (f"{IAP}[4033: 'not authorized'].\n{CLOSED}", "add your Google account to"),
    "the VM is off": (
        f"{IAP}[4003: 'failed to connect to backend']. (Failed to connect to port 22)\n{CLOSED}",
        "see whether the VM runs: gcloud compute instances list --project my-project",
    ),
    "no gcloud": (f"/bin/sh: 1: exec: gcloud: not found\n{CLOSED}", "install gcloud"),
    "no login at Google": (
        "ERROR: (gcloud.compute.start-iap-tunnel) You do not currently have an active account "
        f"selected.\nPlease run:\n\n  $ gcloud auth login\n{CLOSED}",
        "run `gcloud auth login`",
    ),
    "no key": (
        "ada@slurm10-controller: Permission denied (publickey).\r\n",
        "it lets in people with `admin: true`",
    ),
    "another host key": (
        "@@@@\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n@@@@\n"
        "Host key verification failed.\n",
        "ssh-keygen -R slurm10-controller.europe-west4-a.my-project -f "
        "~/.ssh/known_hosts.muster-slurm10",
    ),
    "anything else": ("ssh: the line is dead\n", "docs/cloud-access.md says what it needs"),
    "nothing": ("\n", "ssh said nothing; try `ssh -v slurm10-controller`"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_an_error_of_ssh_is_one_sentence_with_a_remedy(laptop: Laptop, case: str) -> None:
    said, remedy = REFUSALS[case]
    laptop.ssh(said)
    shown = laptop("nodes")
    assert (shown.returncode, shown.stdout) == (4, "")
    assert shown.stderr.startswith(f"{ASKING}error: slurm10-controller can't be reached: ")
    sentence = shown.stderr.removeprefix(ASKING)
    assert remedy in sentence
    assert sentence.count("\n") == 1


def test_a_controller_without_muster_is_said(laptop: Laptop) -> None:
    (laptop.bin / "muster").unlink()
    shown = laptop("nodes")
    assert shown.returncode == 4
    assert "slurm10-controller has no program muster yet: `pulumi up` waits" in shown.stderr


def test_a_stack_that_is_not_there_is_said(laptop: Laptop) -> None:
    program(
        laptop.bin / "pulumi",
        "#!/bin/sh\necho \"error: no stack named 'slurm10' found\" >&2\nexit 6\n",
    )
    shown = laptop("nodes")
    assert shown.returncode == 4
    assert "there is no stack slurm10 here" in shown.stderr


Prepare = Callable[[Laptop], None]
NOT_KNOWN: dict[str, tuple[Prepare, list[str], str]] = {
    "two clusters": (
        lambda laptop: laptop.add("other"),
        ["nodes"],
        "which cluster? There are cloud, other in the cloud; name one with --cluster",
    ),
    "none in the cloud": (
        lambda laptop: shutil.rmtree(laptop.folder / "inventories/cloud"),
        ["nodes"],
        "it is on the cluster's controller while",
    ),
    "own machines": (
        lambda laptop: laptop.add("lab", "lab"),
        ["why", "lab-gpu-01", "--cluster", "lab"],
        "on lab-access `sinfo -R` says why nodes are out of service; `muster why JOB` says",
    ),
    "a file and a cluster": (
        lambda _: None,
        ["nodes", "--status", "status.json", "--cluster", "cloud"],
        "leave out one of them",
    ),
}


@pytest.mark.parametrize("case", NOT_KNOWN)
def test_who_is_asked_must_be_known(laptop: Laptop, case: str) -> None:
    prepare, words, says = NOT_KNOWN[case]
    prepare(laptop)
    shown = laptop(*words)
    assert (shown.returncode, shown.stdout) == (2, "")
    assert says in shown.stderr
    assert shown.stderr.count("\n") == 1
    assert not (laptop.folder / "ssh.json").exists()
