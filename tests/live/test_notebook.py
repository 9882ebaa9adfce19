"""JupyterLab as a job on the lab, reached by the line that `notebook` prints."""

import json
import re
import shlex
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from conftest import Lab
from environments import add_requirements
from waiting import until

pytestmark = pytest.mark.proof("builds JupyterLab")

CONTROLLER, NODE = "lab-access", "lab-cpu-02"
PORT = 28888
OPTIONS = f"-p ml-cpu -A LAB-test -w {NODE} --mem=600M --time=10"
MODULE = {
    "whatis": "JupyterLab 4",
    "environment": {"python": "apps/python/3.11", "requirements": "software/jupyterlab-4.txt"},
}


class Notebook(NamedTuple):
    """What was printed."""

    job: str
    ssh: list[str]
    token: str


@pytest.fixture(scope="module", autouse=True)
def _module(lab: Lab) -> None:
    add_requirements(lab, CONTROLLER, "jupyterlab-4", "3.11")
    lab.change(
        lambda cluster: cluster["software"]["modules"].update({"apps/jupyter": {"4": MODULE}})
    )
    run = lab.play()
    assert run.code == 0, run.output[-6000:]


@pytest.fixture(scope="module")
def notebook(lab: Lab) -> Iterator[Notebook]:
    """A notebook that is up; ada types at a terminal."""
    command = f"bash -lc 'module load apps/jupyter && notebook --port {PORT} {OPTIONS}'"
    done = subprocess.run(
        [*lab.ada.ssh("-tt"), command], capture_output=True, text=True, timeout=420, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout.replace("\r", "")
    (job,) = re.findall(r"until job (\d+) ends", said)
    (line,) = re.findall(r"^  ssh (.*)$", said, re.MULTILINE)
    (token,) = re.findall(rf"http://localhost:{PORT}/lab\?token=(\S+)", said)
    yield Notebook(job, ["ssh", "-F", str(lab.fleet.ssh_config), *shlex.split(line)], token)
    lab.ada.run(f"scancel {job}")


@pytest.fixture
def tunnel(notebook: Notebook) -> Iterator[Notebook]:
    """The line is typed on this machine."""
    with subprocess.Popen(notebook.ssh, stderr=subprocess.PIPE, text=True) as ssh:
        try:
            until(lambda: status("/api") == 200, "the tunnel is open", 30)
            yield notebook
        finally:
            ssh.terminate()


def request(path: str, token: str = "", data: bytes | None = None) -> bytes:
    """Return what JupyterLab answers to a browser of this machine."""
    headers = {"Authorization": f"token {token}"} if token else {}
    wanted = urllib.request.Request(f"http://localhost:{PORT}{path}", data, headers)
    with urllib.request.urlopen(wanted, timeout=30) as answer:  # noqa: S310 (http)
        return bytes(answer.read())


def status(path: str, token: str = "", data: bytes | None = None) -> int:
    """Return the status of the answer; 0: there is none."""
    try:
        request(path, token, data)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0
    return 200


def test_the_browser_gets_jupyterlab_and_a_kernel_by_the_token_alone(tunnel: Notebook) -> None:
    assert b"JupyterLab" in request(f"/lab?token={tunnel.token}")
    assert status("/api/kernels") == 403
    assert status("/api/kernels", "wrong") == 403
    kernel = json.loads(request("/api/kernels", tunnel.token, b'{"name": "python3"}'))
    assert kernel["name"] == "python3"


def test_the_token_is_in_no_argument_and_no_log(lab: Lab, tunnel: Notebook) -> None:
    request(f"/lab?token={tunnel.token}")
    for host in (CONTROLLER, NODE):
        # By a file, so that grep itself has it in no argument.
        searched = (
            "umask 77; cat >/root/token; cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | "
            "grep -cF -f /root/token; grep -rlF -f /root/token /var/log /home/ada/.local; "
            "journalctl -q | grep -cF -f /root/token; rm /root/token"
        )
        done = subprocess.run(
            ["ssh", "-F", str(lab.fleet.ssh_config), host, searched],
            input=f"{tunnel.token}\n",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.stdout.split() == ["0", "0"], done.stderr


def test_nobody_else_reaches_it(lab: Lab, tunnel: Notebook) -> None:
    request("/api/kernels", tunnel.token, b'{"name": "python3"}')
    # Of all her programs: a kernel is called python. Those of root are shown without a number.
    number = lab.on(NODE, "id -u ada").strip()

    def ports() -> list[str]:
        return [
            line.split()[3]
            for line in lab.on(NODE, "ss -Hltne").splitlines()
            if f"uid:{number} " in line
        ]

    def kernels() -> int:
        return int(lab.on(NODE, "pgrep -u ada -c -f ipykernel_launcher", check=False))

    # One of each kernel, for what its own children print: roles/jobs/README.md.
    until(lambda: len(ports()) == kernels() > 0, "each kernel has its port")
    assert all(port.startswith("127.0.0.1:") for port in ports())
    socket = tunnel.ssh[tunnel.ssh.index("-L") + 1].partition(":/")[2]
    for tried in (
        f"cat $(dirname /{socket})/token",
        f"ls $(dirname /{socket})",
        f"python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"/{socket}\")'",
    ):
        said = lab.on(NODE, f"runuser -u nobody -- {tried} 2>&1", check=False)
        assert "ermission denied" in said, said


def test_a_port_in_use_ends_ssh_with_a_word(tunnel: Notebook) -> None:
    second = subprocess.run(
        tunnel.ssh,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert second.returncode != 0
    assert "Address already in use" in second.stderr


def test_with_the_job_all_of_it_ends(lab: Lab, tunnel: Notebook) -> None:
    """Last here: it ends the notebook of this module."""
    request("/api/kernels", tunnel.token, b'{"name": "python3"}')
    assert lab.on(NODE, "pgrep -u ada -f ipykernel") != ""
    socket = tunnel.ssh[tunnel.ssh.index("-L") + 1].partition(":/")[2]
    lab.ada.run(f"scancel {tunnel.job}")
    until(lambda: lab.on(NODE, "pgrep -u ada", check=False) == "", "nothing of ada's runs", 90)
    until(
        lambda: lab.on(NODE, f"ls -d /{socket} 2>&1", check=False).startswith("ls:"), "it is gone"
    )
    assert status("/api") == 0


def test_a_module_that_is_not_loaded_is_told(lab: Lab) -> None:
    said = lab.ada.run(f"notebook {OPTIONS}", check=False)
    assert said.startswith("error: jupyter-lab is not there: load the module that has it")


def test_a_notebook_that_waits_says_why_and_a_job_that_ends_is_told(lab: Lab) -> None:
    ada = lab.ada
    ada.run(f"module load apps/jupyter; (notebook --hold {OPTIONS} >waits.txt 2>&1 &) </dev/null")
    try:
        until(
            lambda: "What you can do: scontrol release" in ada.run("cat waits.txt"), "it says why"
        )
    finally:
        ada.run("scancel --user=ada --name=notebook")
    until(lambda: "ended before its notebook was ready" in ada.run("cat waits.txt"), "it says so")
