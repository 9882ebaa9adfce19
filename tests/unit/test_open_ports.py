"""What tests of clusters see of open ports: sockets that answer, and rules of Google's firewall."""

import socket
import subprocess

import pytest
from open_ports import attempts, listening, passes

SOCKETS = """\
LISTEN 0      4096         0.0.0.0:6817      0.0.0.0:*
LISTEN 0      80         127.0.0.1:3306      0.0.0.0:*
LISTEN 0      128             [::]:22           [::]:*
LISTEN 0      4096   127.0.0.53%lo:53        0.0.0.0:*
"""


def test_ports_are_read_from_ss() -> None:
    assert listening(SOCKETS) == {6817, 3306, 22, 53}
    assert listening("") == set()


def test_what_answers_is_printed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port, other = one.getsockname()[1], closed.getsockname()[1]
        command = attempts("127.0.0.1", {port, other})
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(port)]
    assert done.stderr == ""


INSIDE = {
    "direction": "INGRESS",
    "priority": 1000,
    "disabled": False,
    "sourceRanges": ["10.0.0.0/20"],
    "allowed": [{"IPProtocol": "tcp"}, {"IPProtocol": "udp"}],
}
NO_SSH = INSIDE | {
    "priority": 900,
    "denied": [{"IPProtocol": "tcp", "ports": ["22"]}],
    "targetServiceAccounts": ["controller"],
}
del NO_SSH["allowed"]
NO_SLURMDBD = NO_SSH | {
    "denied": [{"IPProtocol": "tcp", "ports": ["6800-6810", "6819"]}],
    "sourceServiceAccounts": ["node"],
}
del NO_SLURMDBD["sourceRanges"]
RULES = [INSIDE, NO_SSH, NO_SLURMDBD]
NODE = {"address": "10.0.0.9", "account": "node"}
LOGIN = {"address": "10.0.0.3", "account": "login"}


@pytest.mark.parametrize(
    ("rules", "port", "source", "target", "lets_in"),
    [
        (RULES, 6817, NODE, "controller", True),
        (RULES, 22, NODE, "controller", False),
        (RULES, 22, NODE, "login", True),
        (RULES, 6819, NODE, "controller", False),
        (RULES, 6805, NODE, "controller", False),
        (RULES, 6819, LOGIN, "controller", True),
        (RULES, 6817, NODE | {"address": "192.0.2.1"}, "controller", False),
        ([], 6817, NODE, "controller", False),
        ([INSIDE | {"disabled": True}], 6817, NODE, "controller", False),
        ([INSIDE | {"direction": "EGRESS"}], 6817, NODE, "controller", False),
        # A rule that denies goes before one of the same priority that allows.
        ([INSIDE | {"priority": 900}, NO_SSH], 22, NODE, "controller", False),
        ([INSIDE | {"priority": 899}, NO_SSH], 22, NODE, "controller", True),
        ([INSIDE | {"allowed": [{"IPProtocol": "udp"}]}], 53, NODE, "controller", False),
        ([INSIDE | {"allowed": [{"IPProtocol": "all"}]}], 53, NODE, "controller", True),
    ],
)
def test_rules_of_the_firewall_let_in_or_not(rules, port, source, target, lets_in) -> None:
    assert passes(rules, port, source, target) == lets_in
