"""Names and clocks that a cluster of cephadm does not bear."""

import importlib.util
from pathlib import Path

import pytest

FILE = Path(__file__).parents[3] / "ansible/plugins/modules/cephadm_host.py"
SPEC = importlib.util.spec_from_file_location("cephadm_host", FILE)
assert SPEC is not None and SPEC.loader is not None
cephadm_host = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(cephadm_host)

ADDRESSES = {"s1": "192.0.2.41", "s2": "192.0.2.42"}
# chronyc 4.3.
FOLLOWS = (
    "C0000235,192.0.2.53,3,1795375052.1,0.000012,0.000003,0.00002,-3.1,0.0,0.01,0.02,0.001,64.5"
)


def tracking(state):
    return f"echo '{FOLLOWS},{state}'"


@pytest.fixture
def names(monkeypatch):
    """Names of this host, and what they lead to."""
    known = {"s1": "192.0.2.41", "s2": "192.0.2.42"}

    def look_up(name, port):
        if name not in known:
            raise OSError("Name or service not known")
        return [(2, 1, 6, "", (address, 0)) for address in known[name].split()]

    monkeypatch.setattr(cephadm_host.socket, "gethostname", lambda: "s1")
    monkeypatch.setattr(cephadm_host.socket, "getaddrinfo", look_up)
    return known


def test_names_that_lead_to_their_addresses_are_fine(names) -> None:
    assert list(cephadm_host.refusals_of_names("s1", ADDRESSES)) == []


def test_a_host_with_another_name_is_refused(names) -> None:
    (said,) = cephadm_host.refusals_of_names("s2", ADDRESSES)
    assert said == "this host calls itself s1; set its name to s2, as the inventory does"


@pytest.mark.parametrize("there", ["127.0.1.1", "192.0.2.41 127.0.1.1"])
def test_a_name_that_leads_elsewhere_is_refused(names, there) -> None:
    names["s1"] = there
    (said,) = cephadm_host.refusals_of_names("s1", ADDRESSES)
    assert said.startswith("s1 leads to 127.0.1.1 here, and the inventory says 192.0.2.41")


def test_a_name_without_an_address_is_refused(names) -> None:
    del names["s2"]
    (said,) = cephadm_host.refusals_of_names("s1", ADDRESSES)
    assert said.startswith("s2 has no address here (Name or service not known)")


def ask(run_module, stand_ins, script, **options):
    """Run the module on this machine, whose name and address are right."""
    own = cephadm_host.socket.gethostname()
    address = cephadm_host.socket.getaddrinfo(own, None)[0][4][0]
    given = {"name": own, "addresses": {own: address}, "clock_seconds": 0}
    env = {"PATH": stand_ins({"chronyc": f'[ "$*" = "-c tracking" ] || exit 9\n{script}'})}
    return run_module("cephadm_host", given, env=env, **options)


def test_a_clock_that_follows_another_is_fine(run_module, stand_ins) -> None:
    assert ask(run_module, stand_ins, tracking("Normal"))["changed"] is False


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (tracking("Not synchronised"), "it follows no clock"),
        ("echo '506 Cannot talk to daemon'; exit 1", "506 Cannot talk to daemon"),
    ],
)
def test_a_clock_that_follows_none_is_refused(run_module, stand_ins, script, why) -> None:
    said = ask(run_module, stand_ins, script)["msg"]
    assert said.startswith(f"chrony is not in time after 0 s ({why}); name a server")


def test_both_are_said_at_once(run_module, stand_ins) -> None:
    env = {"PATH": stand_ins({"chronyc": tracking("Not synchronised")})}
    given = {"name": "nobody", "addresses": {}, "clock_seconds": 0}
    said = run_module("cephadm_host", given, env=env)["msg"]
    assert "set its name to nobody" in said
    assert "; chrony is not in time" in said
