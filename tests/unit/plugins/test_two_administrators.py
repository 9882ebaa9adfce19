"""Two administrators change QoS at once: two runs of slurm_accounts, or a run and sacctmgr by hand.

sacctmgr is a program that keeps QoS in a file, so slow that runs without a lock would mix.
"""

from concurrent.futures import ThreadPoolExecutor
from itertools import groupby

import pytest
from sacctmgr_output import NO_LIMITS, QOS

UTILS = "ansible_collections.muster.slurm.plugins.module_utils"
LINE = "$name|$priority|" + QOS.split("|", 2)[2].strip()
SACCTMGR = f"""
cd "$(dirname "$0")"
echo $PPID >>callers
sleep 0.05
name=${{4#name=}} priority=${{5#Priority=}}
case "$*" in
  "-nP show cluster "*) echo lab ;;
  "-nP show tres "*) printf 'cpu|\\nmem|\\n' ;;
  "-nP show qos "*) cat qos ;;
  "-nP show account "*) echo 'root|default root account|root||root' ;;
  "-nP show association "*) echo 'root||||1|normal|{NO_LIMITS}' ;;
  "-nP show user "*) ;;
  "-i add qos "*)
    if grep -q "^$name|" qos; then echo ' Nothing new added.'; exit 1; fi
    echo "{LINE}" >>qos
    ;;
  "-i modify qos where "*)
    name=${{5#name=}} priority=${{7#Priority=}}
    # What somebody does meanwhile, once.
    if [ -e by-hand ]; then . ./by-hand; rm by-hand; fi
    if ! grep -q "^$name|" qos; then echo ' Nothing modified'; exit 1; fi
    grep -v "^$name|" qos >rest
    echo "{LINE}" >>rest
    mv rest qos
    ;;
  *) echo "not expected: $*" >&2; exit 1 ;;
esac
"""


@pytest.fixture
def administrator(run_module, stand_ins, tmp_path):
    """Return what runs the module with QoS and their priorities, in a process of its own."""
    path = stand_ins({"sacctmgr": SACCTMGR})
    (tmp_path / "qos").write_text(QOS)
    before = f"import {UTILS}.one_run as one_run; one_run.FOLDER = {str(tmp_path)!r}"

    def run(**priorities):
        qos = [{"name": name, "limits": {"Priority": n}} for name, n in priorities.items()]
        given = {"cluster": "lab", "qos": qos, "timeout_seconds": 0}
        return run_module(
            "slurm_accounts", given, prefix=["env"], env={"PATH": path}, before=before
        )

    return run


@pytest.fixture
def there(tmp_path):
    """Return the priorities of the QoS that slurmdbd has."""

    def priorities():
        rows = [line.split("|") for line in (tmp_path / "qos").read_text().splitlines()]
        return {row[0]: int(row[1]) for row in rows}

    return priorities


def test_the_second_run_begins_when_the_first_is_done_and_says_what_it_changes_of_it(
    administrator, there, tmp_path
):
    with ThreadPoolExecutor() as pool:
        runs = [
            pool.submit(administrator, day=10, long=10),
            pool.submit(administrator, night=20, long=20),
        ]
    outcomes = [run.result() for run in runs]
    assert [outcome.code for outcome in outcomes] == [0, 0], outcomes

    callers = (tmp_path / "callers").read_text().split()
    assert len(list(groupby(callers))) == 2
    # The QoS that only one of them has are both there, and neither knows less than all.
    first, second = sorted(outcomes, key=lambda outcome: len(outcome.result.get("warnings", [])))
    mine, other = ("day", "night") if "QoS day" in first.printed else ("night", "day")
    numbers = {"day": 10, "night": 20}
    assert there() == {"normal": 0, **numbers, "long": numbers[other]}
    assert set(second["changes"]) == {
        f"QoS long: priority {numbers[mine]} -> {numbers[other]}",
        f"QoS {other}: priority 0 -> {numbers[other]}",
    }
    (warned,) = second["warnings"]
    assert warned["event"]["msg"] == (
        f"lab: not in the definition, and kept: QoS {mine}; accounts_prune: true removes them"
    )


def test_what_is_removed_by_hand_during_a_run_is_there_at_its_end(administrator, there, tmp_path):
    assert administrator(long=10).code == 0
    (tmp_path / "by-hand").write_text("sed -i '/^long|/d' qos\n")
    outcome = administrator(day=5, long=20)
    assert outcome.code == 0, outcome.printed
    assert not (tmp_path / "by-hand").exists()
    assert there() == {"normal": 0, "day": 5, "long": 20}
