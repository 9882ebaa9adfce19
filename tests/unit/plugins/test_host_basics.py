"""What becomes of /etc/hosts, and when a disk counts as full."""

import importlib.util
from pathlib import Path

PATH = Path(__file__).parents[3] / "ansible/plugins/modules/host_basics.py"
SPEC = importlib.util.spec_from_file_location("host_basics", PATH)
assert SPEC is not None and SPEC.loader is not None
host_basics = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(host_basics)

CLUSTER = [("lab-access", "192.0.2.10"), ("lab-gpu-01", "192.0.2.21")]
BLOCK = (
    "# BEGIN Muster: the hosts of the cluster\n"
    "192.0.2.10\tlab-access\n192.0.2.21\tlab-gpu-01\n# END Muster\n"
)


def test_own_name_leaves_the_loopback_address_and_the_rest_stays() -> None:
    text = (
        "127.0.0.1\tlocalhost\n127.0.1.1\tlab-access.example.org\tlab-access\n\n"
        "# the printer\n198.51.100.9  printer   printer.example.org # second floor\n"
        "::1 localhost ip6-localhost\n"
    )
    assert host_basics.wanted_hosts(text, "lab-access", CLUSTER) == (
        "127.0.0.1\tlocalhost\n\n"
        "# the printer\n198.51.100.9  printer   printer.example.org # second floor\n"
        "::1 localhost ip6-localhost\n" + BLOCK
    )


def test_other_names_on_the_line_of_the_own_name_stay() -> None:
    text = "127.0.0.1 localhost lab-access # ours\n"
    assert host_basics.wanted_hosts(text, "lab-access", []) == "127.0.0.1\tlocalhost # ours\n"


def test_a_name_that_only_begins_like_the_own_one_stays() -> None:
    text = "127.0.1.1 lab-access2\n"
    assert host_basics.wanted_hosts(text, "lab-access", []) == text


def test_a_name_of_the_cluster_loses_its_old_address() -> None:
    text = "127.0.0.1 localhost\n198.51.100.7 lab-gpu-01 gpu\n"
    assert host_basics.wanted_hosts(text, "lab-access", CLUSTER) == (
        "127.0.0.1 localhost\n198.51.100.7\tgpu\n" + BLOCK
    )


def test_the_second_time_changes_nothing() -> None:
    once = host_basics.wanted_hosts("127.0.0.1 localhost\n", "lab-access", CLUSTER)
    assert host_basics.wanted_hosts(once, "lab-access", CLUSTER) == once


def test_a_changed_address_replaces_the_block() -> None:
    once = host_basics.wanted_hosts("127.0.0.1 localhost\n", "lab-access", CLUSTER)
    moved = host_basics.wanted_hosts(once, "lab-access", [("lab-access", "192.0.2.99")])
    assert "192.0.2.99\tlab-access" in moved
    assert "192.0.2.10" not in moved
    assert moved.count("BEGIN Muster") == 1


def test_without_hosts_the_block_vanishes() -> None:
    once = host_basics.wanted_hosts("127.0.0.1 localhost\n", "lab-access", CLUSTER)
    assert host_basics.wanted_hosts(once, "lab-access", []) == "127.0.0.1 localhost\n"


def test_a_missing_file_gets_localhost() -> None:
    text = host_basics.wanted_hosts("", "lab-access", CLUSTER)
    assert text.startswith("127.0.0.1\tlocalhost\n")
    assert text.endswith(BLOCK)


def test_a_full_disk_is_named_with_the_remedy() -> None:
    said = host_basics.crowded({"/": 9000, "/var": 12, "/tmp": 9000}, 512)
    assert "/var has 12 MiB free, wanted are 512 MiB; make room" in said
    assert "/tmp" not in said


def test_enough_room_is_no_problem() -> None:
    assert host_basics.crowded({"/": 512, "/var": 513, "/tmp": 512}, 512) is None
