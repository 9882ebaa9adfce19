"""Which TCP ports of a machine another one reaches: those that listen, and answer from there.

fakecloud has no firewall, so what Google's would refuse is computed from the rules.
"""

from collections.abc import Iterable, Mapping
from ipaddress import ip_address, ip_network
from typing import Any

LISTENING = "ss -Hltn"
"""What a machine listens at: the input of `listening`."""
TRY_SECONDS = 3
"""For each port, all at once: what is refused answers, and what is dropped does not."""


def listening(sockets: str) -> set[int]:
    """Return the ports that `ss` lists, those of the loopback device too."""
    return {int(line.split()[3].rpartition(":")[2]) for line in sockets.splitlines()}


def attempts(host: str, ports: Iterable[int]) -> str:
    """Return a command that prints which of these ports of a host answer."""
    numbers = " ".join(map(str, sorted(ports)))
    connect = f'timeout {TRY_SECONDS} bash -c ": </dev/tcp/{host}/$port" 2>/dev/null'
    return f"for port in {numbers}; do {connect} && echo $port & done; wait"


def passes(
    rules: Iterable[Mapping[str, Any]], port: int, source: Mapping[str, Any], target: str
) -> bool:
    """Whether rules of Google's firewall let a connection to a TCP port in.

    `source`: `address` and `account` of the VM that connects; `target`: account of the other one.
    https://cloud.google.com/firewall/docs/firewalls#priority_order_for_firewall_rules
    """
    that_apply = [
        (rule["priority"], "allowed" in rule)
        for rule in rules
        if rule["direction"] == "INGRESS"
        and not rule["disabled"]
        and target in rule.get("targetServiceAccounts", [target])
        and _is_from(rule, source)
        and _names(rule, port)
    ]
    # Of the same priority a rule that denies goes before; without any nothing comes in.
    return min(that_apply, default=(0, False))[1]


def _is_from(rule: Mapping[str, Any], source: Mapping[str, Any]) -> bool:
    ranges = map(ip_network, rule.get("sourceRanges", []))
    address = ip_address(source["address"])
    return source["account"] in rule.get("sourceServiceAccounts", []) or any(
        address in addresses for addresses in ranges
    )


def _names(rule: Mapping[str, Any], port: int) -> bool:
    for one in [*rule.get("allowed", []), *rule.get("denied", [])]:
        if one["IPProtocol"] in ("tcp", "all"):
            spans = [text.split("-") for text in one.get("ports", ["0-65535"])]
            if any(int(span[0]) <= port <= int(span[-1]) for span in spans):
                return True
    return False
