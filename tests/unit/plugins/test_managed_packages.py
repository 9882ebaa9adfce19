"""Which packages the module managed_packages finds missing, and what it puts on hold."""

from pathlib import Path

import pytest

STUBS = {
    "dpkg-query": "cat <<END\nlibcuda1 installed 535.261.03-1\nnvidia-smi installed 525.1-1\nEND",
    "apt-mark": '[ "$1" = hold ] && shift && echo "$@" >>"$HELD" || cat "$HELD"',
}


@pytest.fixture
def tools(tmp_path: Path, stand_ins) -> dict[str, str]:
    """Programs in place of dpkg-query and apt-mark; the latter remembers."""
    held = tmp_path / "held"
    held.touch()
    return {"PATH": stand_ins(STUBS), "HELD": str(held)}


def test_another_version_counts_as_missing(tools, run_module) -> None:
    names = ["libcuda1=535.*", "nvidia-smi=535.*", "nvidia-modprobe"]
    result = run_module("managed_packages", {"names": names, "held": True}, env=tools)
    assert result["missing"] == ["nvidia-smi=535.*", "nvidia-modprobe"]
    # They are held once they are there.
    assert result["held"] == []
    assert Path(tools["HELD"]).read_text() == ""


def test_what_has_a_version_is_held_once(tools, run_module) -> None:
    given = {"names": ["libcuda1=535.*", "nvidia-smi"], "held": True}
    first = run_module("managed_packages", given, env=tools)
    assert (first["changed"], first["held"]) == (True, ["libcuda1"])
    assert Path(tools["HELD"]).read_text().split() == ["libcuda1"]
    second = run_module("managed_packages", given, env=tools)
    assert (second["changed"], second["held"]) == (False, [])


def test_in_check_mode_nothing_is_held(tools, run_module) -> None:
    given = {"names": ["libcuda1=535.*"], "held": True}
    assert run_module("managed_packages", given, check=True, env=tools)["changed"]
    assert Path(tools["HELD"]).read_text() == ""


def test_without_the_wish_nothing_is_held(tools, run_module) -> None:
    result = run_module("managed_packages", {"names": ["libcuda1=535.*"]}, env=tools)
    assert (result["changed"], result["held"]) == (False, [])


def test_it_waits_for_another_program_that_uses_dpkg(tools, run_module, stand_ins) -> None:
    locked = """
    if [ "$1" = hold ] && ! [ -e "$HELD.tried" ]; then
        touch "$HELD.tried"
        # It would be said in the language of the host.
        [ "$LC_ALL" = C.UTF-8 ] || exit 100
        echo "dpkg: error: dpkg frontend lock was locked by /usr/bin/apt-get process with pid 5" >&2
        exit 100
    fi
    """
    tools["PATH"] = stand_ins({**STUBS, "apt-mark": locked + STUBS["apt-mark"]})
    result = run_module("managed_packages", {"names": ["libcuda1=535.*"], "held": True}, env=tools)
    assert result["held"] == ["libcuda1"]
    assert Path(tools["HELD"]).read_text().split() == ["libcuda1"]


def test_any_other_refusal_ends_it(tools, run_module, stand_ins) -> None:
    refuses = '[ "$1" != hold ] || { echo "E: no such package" >&2; exit 100; }'
    tools["PATH"] = stand_ins({**STUBS, "apt-mark": refuses})
    result = run_module("managed_packages", {"names": ["libcuda1=535.*"], "held": True}, env=tools)
    assert result["failed"]
    assert result["msg"].startswith("E: no such package; run `apt-mark hold libcuda1`")
