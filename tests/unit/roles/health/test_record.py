"""A node as SLURM has it, and what is done to it."""

import pytest
from health.findings import BROKEN, HEALTHY, UNCHECKED, Finding
from health.record import PREFIX, REASON_CHARACTERS, parse, plan, reason

from muster.autoscaler.reconcile import node_reasons
from muster.verify import verdict

# As `scontrol --oneliner show node` of 22.05 and 24.11 has it, shortened.
LINE = (
    "NodeName=lab-gpu-01 Arch=x86_64 CoresPerSocket=12 CPUAlloc=0 CPUTot=48 CPULoad=0.10"
    " AvailableFeatures=rtx4080 ActiveFeatures=rtx4080 Gres={gres} NodeAddr=lab-gpu-01"
    " OS=Linux 6.1.0-50-amd64 #1 SMP Debian RealMemory=122880 State={state} ThreadsPerCore=2"
    " Partitions=ml-gpu BootTime=2026-11-22T01:04:02 CfgTRES=cpu=48,gres/gpu=4{reason}\n"
)
WELL = Finding("gpus", HEALTHY, "4 of 4")
LOST = Finding("gpus", BROKEN, "one is lost")
AWAY = Finding("storage /home", BROKEN, "it does not answer")
UNKNOWN = Finding("gpus", UNCHECKED, "nvidia-smi is not installed")
NO_SYSTEMD = Finding("storage", UNCHECKED, "systemctl does not answer")
OURS = f"{PREFIX}gpus: one is lost"
BACK = ["state=resume", "reason=muster: well again"]


def node(state="IDLE", said="", gres="gpu:rtx4080:4(S:0-1)", by="root"):
    shown = f" Reason={said} [{by}@2026-11-22T01:04:02]" if said else ""
    return parse(LINE.format(gres=gres, state=state, reason=shown))


@pytest.mark.parametrize(
    ("gres", "count"),
    [
        ("(null)", 0),
        ("gpu:4", 4),
        ("gpu:4(S:0-1)", 4),
        ("gpu:rtx4080:4(S:0,1)", 4),
        ("gpu:h100:2(S:0),gpu:a100:1(S:1)", 3),
        ("gpu:1g.5gb:7", 7),
        ("shard:16,gpu:h100:2", 2),
        ("license_gpu:3", 0),
    ],
)
def test_how_many_gpus_slurm_counts_on(gres, count):
    assert node(gres=gres).gpus == count


def test_what_is_no_record_is_none():
    for text in ("", "Node lab-gpu-09 not found\n", "slurm_load_node error: Unable to contact"):
        assert parse(text) is None


def test_a_reason_ends_where_its_author_is_named():
    text = LINE.format(gres="(null)", state="DOWN*+DRAIN", reason=" Reason=fan [3] [ada@2026]")
    record = parse(text.replace("\n", " Comment=Reason=muster: health: x [root@2026]\n"))
    assert (record.reason, record.flags) == ("fan [3]", {"DOWN", "DRAIN"})


@pytest.mark.parametrize(
    ("record", "findings", "words"),
    [
        pytest.param(node(), [WELL], [], id="well"),
        pytest.param(node(), [UNKNOWN], [], id="not checked"),
        pytest.param(node(), [LOST], ["state=drain", f"reason={OURS}"], id="broken"),
        pytest.param(
            node("MIXED"),
            [AWAY, WELL, LOST],
            ["state=drain", f"reason={PREFIX}storage /home: it does not answer; gpus: one is lost"],
            id="broken twice",
        ),
        pytest.param(node("IDLE+DRAIN", OURS), [LOST], [], id="told already"),
        pytest.param(
            node("DOWN+DRAIN", f"{OURS} : Not responding", by="slurm"), [LOST], [], id="added to"
        ),
        pytest.param(
            node("IDLE+DRAIN", OURS),
            [WELL, AWAY],
            ["state=drain", f"reason={PREFIX}storage /home: it does not answer"],
            id="something else by now",
        ),
        pytest.param(node("IDLE+DRAIN", OURS), [WELL], BACK, id="well again"),
        pytest.param(node("MIXED+DRAIN", OURS), [WELL], BACK, id="while jobs run"),
        pytest.param(
            node("DOWN+DRAIN+NOT_RESPONDING", OURS), [WELL], BACK, id="it was switched off and on"
        ),
        pytest.param(
            node("IDLE+DRAIN+REBOOT_REQUESTED", OURS), [WELL], [], id="somebody reboots it"
        ),
        pytest.param(node("IDLE+DRAIN", OURS), [UNKNOWN], [], id="can't be checked any more"),
        pytest.param(
            node("IDLE+DRAIN", f"{PREFIX}storage /home: it does not answer"),
            [UNKNOWN],
            BACK,
            id="what is not checked is not why",
        ),
        pytest.param(
            node("IDLE+DRAIN", f"{PREFIX}gpus: one is lost; storage /home: it does not answer"),
            [WELL, NO_SYSTEMD],
            [],
            id="which storage there is can't be checked",
        ),
        pytest.param(node("IDLE+DRAIN", OURS), [WELL, NO_SYSTEMD], BACK, id="nor was it why"),
        pytest.param(node("IDLE", OURS), [WELL], [], id="a reason that holds nothing"),
        pytest.param(node("IDLE+DRAIN", "fan is loud", by="ada"), [WELL], [], id="a person's"),
        pytest.param(
            node("IDLE+DRAIN", "fan is loud", by="ada"), [LOST], [], id="a person's, broken"
        ),
        pytest.param(node("DOWN", "fan is loud", by="ada"), [LOST], [], id="a person's, down"),
        pytest.param(node("DOWN+DRAIN", "Prolog error", by="slurm"), [WELL], [], id="SLURM's"),
        pytest.param(
            node("DOWN+NOT_RESPONDING", "Not responding", by="slurm"),
            [LOST],
            ["state=drain", f"reason={OURS}"],
            id="silent before, and broken",
        ),
        pytest.param(
            node("IDLE+CLOUD+DRAIN+POWER_DOWN", node_reasons.PREEMPTED),
            [LOST],
            [],
            id="a spot VM leaves",
        ),
        pytest.param(
            node("IDLE+DRAIN", node_reasons.PREEMPTED), [WELL], [], id="Muster's, not ours"
        ),
        pytest.param(node("IDLE+CLOUD+POWERING_DOWN", OURS), [LOST], [], id="it is powered down"),
    ],
)
def test_what_is_done_to_the_node(record, findings, words):
    assert plan(record, findings) == words


def test_nothing_is_sent_twice():
    words = plan(node(), [LOST, AWAY])
    said = words[1].removeprefix("reason=")
    assert plan(node("IDLE+DRAIN", said), [LOST, AWAY]) == []


def test_a_reason_is_one_short_line():
    said = reason([Finding("gpus", BROKEN, "a\tb\x1b[31m\nc " + 300 * "d")])
    assert said.startswith(f"{PREFIX}gpus: a b [31m c dd")
    assert len(said) == REASON_CHARACTERS
    assert said.isprintable()


def test_the_rest_of_muster_knows_these_reasons():
    assert PREFIX == verdict.HEALTH
    assert PREFIX.startswith(node_reasons.OURS)
    assert not node_reasons.PREEMPTED.startswith(PREFIX)
    assert not BACK[1].startswith(f"reason={PREFIX}")
