"""The table of docs/limits.md: what ten people type, and what job_submit.lua says to each.

tests/live/test_priority.py types the same on SLURM's daemons.
"""

import re
import shlex
import shutil
from typing import Any

import pytest
import yaml
from documentation import ROOT, Page, merged
from test_job_submit import SUCCESS
from test_limits_told import UNSET, Limited

from muster.definition import Definition, load, warnings
from muster.definition.checks.limits import allowed
from muster.definition.schema.times import seconds
from muster.render.slurm import render

PAGE = Page(ROOT / "docs/limits.md")
ROWS = PAGE.table("who", "types", "sees")
GIB = {"M": 1, "G": 1024}


@pytest.fixture(scope="module")
def lab_of_ten(tmp_path_factory) -> Definition:
    inventory = tmp_path_factory.mktemp("page") / "lab"
    ignored = shutil.ignore_patterns("secrets.yml")
    shutil.copytree(ROOT / "inventories/lab", inventory, ignore=ignored)
    block = PAGE.blocks("yaml")[0]
    head = re.match(r"# inventories/lab/(\S+)\n", block.text)
    assert head
    file = inventory / head[1]
    changed = merged(yaml.safe_load(file.read_text()), yaml.safe_load(block.text))
    file.write_text(yaml.safe_dump(changed, sort_keys=False))
    return load(inventory)


def options_of(line: str) -> dict[str, str]:
    program, *options, script = shlex.split(line)
    assert (program, script) == ("sbatch", "job.sh")
    return dict(option.removeprefix("--").split("=") for option in options)


def fields(options: dict[str, str]) -> dict[str, Any]:
    """What slurmctld hands to Lua for the options of sbatch."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        match name:
            case "gpus":
                found["tres_per_job"] = f"gres/gpu:{value}"
            case "mem-per-gpu":
                found["mem_per_tres"] = f"gres/gpu:{int(value[:-1]) * GIB[value[-1]]}"
            case "time":
                found["time_limit"] = int(seconds(value) // 60)
            case "array":
                found["array_inx"] = value
            case "partition" | "qos" | "account":
                found[name] = value
            case _:
                raise AssertionError(name)
    return found


def account_of(definition: Definition, login: str, options: dict[str, str]) -> str:
    own = [name for name, one in definition.cluster.accounts.items() if login in one.users]
    assert options.get("account", own[0]) in own
    return options.get("account", own[0])


class Lab(Limited):
    def told_to(self, definition: Definition, login: str, options: dict[str, str]) -> list[str]:
        account = account_of(definition, login, options)
        asked = {
            **UNSET,
            "user_name": login,
            "default_account": account,
            "default_qos": None,
            **fields(options),
        }
        partitions = {
            name: self._job({"name": name, "flag_default": int(one.default), "qos": one.qos or ""})
            for name, one in definition.cluster.partitions.items()
        }
        job = self._job({key: value for key, value in asked.items() if value is not None})
        submit = self.lua.globals()["slurm_job_submit"]
        assert submit(job, self.lua.table_from(partitions), 20001) == SUCCESS
        assert self.logged == []
        return self.told


@pytest.mark.parametrize(("login", "line", "sees"), ROWS, ids=[" ".join(row[:2]) for row in ROWS])
def test_each_line_of_the_page_is_told_what_the_page_says(lab_of_ten, login, line, sees):
    options = options_of(line)
    told = Lab(render(lab_of_ten).job_submit_lua).told_to(lab_of_ten, login, options)
    if runs := re.match(r"it runs, in `?([a-z]+)", sees):
        assert told == []
        names = allowed(lab_of_ten, account_of(lab_of_ten, login, options))
        default = names[0] if len(names) == 1 else "normal"
        assert runs[1] == options.get("qos", default)
        assert runs[1] in names
    else:
        # Some are taken by SLURM, and told what they will wait for.
        sentence = sees.removeprefix("taken, and told: ").strip("`")
        assert [one.startswith(sentence) for one in told] == [True]


def test_the_table_has_what_runs_and_what_is_refused():
    runs = [row for row in ROWS if row[2].startswith("it runs")]
    assert len(ROWS) >= 10
    assert len(runs) >= 3


def test_nothing_is_warned_of(lab_of_ten):
    """Everybody is in two accounts, and the page says which is the default one."""
    assert list(warnings.warnings(lab_of_ten)) == []


def test_the_spare_account_has_no_limit_of_the_students(lab_of_ten):
    accounts = lab_of_ten.cluster.accounts
    assert accounts["spare"].parent == accounts["students"].parent
    assert set(accounts["students"].users) < set(accounts["spare"].users)
    assert allowed(lab_of_ten, "spare") == ["scavenger"]
