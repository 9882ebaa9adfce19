"""docs/limits.md, "A lab for ten people", typed: its commands bring it to the hosts of a lab.

What its people see then, test_priority.py shows on both releases with emulated nodes.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT, RUN_SECONDS, Lab, Run
from documentation import Page, merged

PAGE = Page(ROOT / "docs/limits.md")
BLOCK = PAGE.blocks("yaml")[0]
GPUS_OF_A_USER = "sacctmgr -nP show qos format=name,maxtresperuser"


def typed(lab: Lab, line: str) -> Run:
    """Type a command of the page, for this lab."""
    line, _ = re.subn(r"(inventories/)?\blab\b", str(lab.instance.folder), line, count=1)
    done = subprocess.run(
        ["bash", "-ec", line],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
        env=os.environ
        | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "ANSIBLE_NOCOLOR": "1"},
    )
    return Run(done.returncode, done.stdout + done.stderr)


@contextmanager
def definition_of_ten(lab: Lab) -> Iterator[None]:
    """Write what the page copies into the definition; at the end all of it is gone again."""
    text = lab.definition.read_text(encoding="utf-8")
    before = yaml.safe_load(text)
    page = yaml.safe_load(BLOCK.text)

    def write(definition: Any) -> None:
        # In their order: the first account that lists somebody is the default one.
        shown = yaml.safe_dump(definition, sort_keys=False)
        lab.definition.write_text(shown, encoding="utf-8")

    write(merged(before, page))
    try:
        yield
    finally:
        there = before["cluster"]["users"]["people"]
        gone = {
            login: {"uid": person["uid"], "state": "absent"}
            for login, person in page["cluster"]["users"]["people"].items()
            if login not in there
        }
        write(merged(before, {"cluster": {"users": {"people": gone}}}))
        pruned = lab.play("-e", "accounts_prune=true")
        lab.definition.write_text(text, encoding="utf-8")
    assert pruned.code == 0, pruned.output[-4000:]
    # SLURM's own stays, without the limits that the page gives it.
    assert lab.on("lab-access", GPUS_OF_A_USER) == "normal|\n"


@pytest.mark.proof("three runs on all hosts of the lab")
def test_the_commands_of_the_page_bring_its_lab_to_the_hosts(lab: Lab) -> None:
    check, foresee, run = (command.line for command in PAGE.blocks("console")[0].commands)
    with definition_of_ten(lab):
        checked = typed(lab, check)
        assert checked.code == 0, checked.output

        foreseen = typed(lab, foresee)
        assert foreseen.code == 0, foreseen.output[-4000:]
        for line in PAGE.blocks("text")[0].text.splitlines():
            assert line in foreseen.output
        assert lab.on("lab-access", GPUS_OF_A_USER) == "normal|\n"

        done = typed(lab, run)
        assert done.code == 0, done.output[-4000:]
        limits = set(lab.on("lab-access", GPUS_OF_A_USER).split())
        assert limits >= {"normal|gres/gpu=4", "interactive|gres/gpu=1", "scavenger|"}
        again = lab.play("--limit", "database", "--tags", "accounts")
        assert (again.code, again.changed) == (0, {}), again.output[-4000:]

        # The first lines of what bob types: he is on the nodes, too.
        (_, four, _), (_, five, refusal), *_ = PAGE.table("who", "types", "sees")
        bob = "runuser -l bob -c "
        lab.on("lab-access", bob + r"""'printf "#!/bin/sh\nid -un\n" >job.sh'""")
        waiting = four.replace("sbatch ", "sbatch --wait --output=who ")
        assert lab.on("lab-access", f"{bob}'{waiting} >/dev/null && cat who'") == "bob\n"
        assert refusal in lab.on("lab-access", f"{bob}'{five}'", check=False)
