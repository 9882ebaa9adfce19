"""job_submit.lua, run by a real Lua with a stand-in for what slurmctld gives it.

The stand-in is made after src/lua/slurm_lua.c and src/plugins/job_submit/lua/job_submit_lua.c: the
table `slurm`, and jobs as userdata whose fields are nil where nothing is asked for.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lupa.lua51 import LuaError, LuaRuntime  # Debian links SLURM with Lua 5.1

from muster.catalog.slurm_parameters import RELEASES
from muster.render.slurm import render

REQUESTS = json.loads((Path(__file__).parent / "cases" / "gpu-requests.json").read_text())[
    "requests"
]
TYPED = {"nodes": {"gpu": {"gpus": {"type": "rtx4080"}}}}
TWO_TYPES = {
    "nodes": {
        **TYPED["nodes"],
        "old": {
            "sockets": 1,
            "cores_per_socket": 8,
            "memory_mib": 65536,
            "gpus": {"count": 1, "type": "2080ti"},
        },
    },
    "partitions": {"old": {"nodes": ["old"]}},
}
TWO_TYPES_HOSTS = {"old": ["lab-old-01"]}
SUCCESS, INVALID_GRES = 0, 2072


class Slurmctld:
    """What runs the script: one Lua state, as slurmctld has one."""

    def __init__(self, script: str) -> None:
        self.told: list[str] = []
        self.logged: list[str] = []
        self.lua = LuaRuntime(unpack_returned_tuples=True)
        self._register(self.lua)
        self.loaded = self.lua.execute(script)

    def _register(self, lua: Any) -> None:
        """Make the table `slurm`; its functions are string.format before anything else."""
        lua.globals()["tell"] = self.told.append
        lua.globals()["log"] = self.logged.append
        lua.execute("""
            slurm = {SUCCESS = 0, ERROR = -1, FAILURE = -1}
            slurm.log_user = function(...) tell(string.format(unpack({...}))) end
            slurm.log_error = function(...) log(string.format(unpack({...}))) end
        """)

    def _job(self, fields: dict[str, str]) -> Any:
        """A job as slurmctld has it: an empty table that looks its fields up in C."""
        table = self.lua.table_from(fields)
        return self.lua.eval("function(t) return setmetatable({}, {__index = t}) end")(table)

    def submit(self, fields: dict[str, str]) -> int:
        code: int = self.lua.globals()["slurm_job_submit"](
            self._job(fields), self.lua.table(), 20001
        )
        return code

    def modify(self, fields: dict[str, str]) -> int:
        record = self._job({"tres_per_node": "gres/gpu:nosuch:1"})
        code: int = self.lua.globals()["slurm_job_modify"](
            self._job(fields), record, self.lua.table(), 20001
        )
        return code


@pytest.fixture
def slurmctld(lab) -> Callable[..., Slurmctld]:
    return lambda *changes: Slurmctld(render(lab(*changes)).job_submit_lua)


@pytest.mark.parametrize("ask", ["submit", "modify"])
@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request["name"])
def test_only_a_type_that_is_not_there_is_refused(slurmctld, ask, request_):
    controller = slurmctld(TWO_TYPES, TWO_TYPES_HOSTS)
    code = getattr(controller, ask)(request_["job"])
    if request_["unknown"] is None:
        assert (code, controller.told) == (SUCCESS, [])
    else:
        assert code == INVALID_GRES
        assert controller.told == [
            f'no node has GPUs of type "{request_["unknown"]}"; '
            "ask for one of these: 2080ti, rtx4080"
        ]
    assert controller.logged == []


def test_one_type_is_named_as_the_only_one(slurmctld):
    controller = slurmctld(TYPED)
    controller.submit({"tres_per_job": "gres/gpu:nosuch:1"})
    assert controller.told == ['no node has GPUs of type "nosuch"; ask for rtx4080, the only one']


def test_where_gpus_have_no_types_the_refusal_says_how_to_ask(slurmctld):
    controller = slurmctld()
    assert controller.submit({"tres_per_job": "gres/gpu:rtx4080:1"}) == INVALID_GRES
    assert controller.told == [
        'no node has GPUs of type "rtx4080"; they have no types here, ask for --gpus=1 instead'
    ]
    assert controller.submit({"tres_per_job": "gres/gpu:1"}) == SUCCESS


def test_a_job_is_told_of_one_type_only(slurmctld):
    controller = slurmctld(TYPED)
    controller.submit({"tres_per_job": "gres/gpu:a:1", "tres_per_node": "gres/gpu:b:1"})
    assert len(controller.told) == 1


def test_an_error_of_the_script_refuses_nobody(slurmctld):
    controller = slurmctld(TYPED)
    controller.lua.execute("""
        broken = setmetatable({}, {__index = function() error("no such field") end})
    """)
    broken = controller.lua.globals()["broken"]
    assert (
        controller.lua.globals()["slurm_job_submit"](broken, controller.lua.table(), 0) == SUCCESS
    )
    assert controller.lua.globals()["slurm_job_modify"](broken, broken, {}, 0) == SUCCESS
    # Types of GPUs are looked at in both, limits in the first.
    assert len(controller.logged) == 3
    assert all("no such field" in line for line in controller.logged)


@pytest.mark.parametrize("ask", ["submit", "modify"])
@pytest.mark.parametrize(
    "field", ["tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task"]
)
def test_a_text_that_is_longer_than_slurm_takes_is_left_to_slurm(slurmctld, ask, field):
    """SLURM refuses it after the script, which holds locks of slurmctld until then."""
    controller = slurmctld(TYPED)
    text = "gres/gpu:nosuch:1".ljust(1024, ",")
    assert getattr(controller, ask)({field: text}) == INVALID_GRES
    assert getattr(controller, ask)({field: text + ","}) == SUCCESS
    assert len(controller.told) == 1
    assert controller.logged == []


def test_a_number_where_a_text_belongs_refuses_nobody(slurmctld):
    controller = slurmctld(TYPED)
    assert controller.submit({"tres_per_node": 4}) == SUCCESS


def test_the_stand_in_notices_a_script_that_fails():
    with pytest.raises(LuaError, match="nothing"):
        Slurmctld("error('nothing')")


@pytest.mark.parametrize("version", RELEASES)
def test_the_script_loads_as_slurmctld_wants_it(lab, version):
    controller = Slurmctld(render(lab(TYPED, version=version)).job_submit_lua)
    # Another return value, or one of the two functions missing, and slurmctld does not start.
    assert controller.loaded == SUCCESS
    assert callable(controller.lua.globals()["slurm_job_submit"])
    assert callable(controller.lua.globals()["slurm_job_modify"])


def test_without_gpus_there_is_no_script_and_no_plugin(lab):
    files = render(lab({"nodes": {"gpu": {"gpus": None}}}))
    assert files.job_submit_lua == ""
    assert "JobSubmitPlugins" not in files.slurm_conf


@pytest.mark.parametrize("version", RELEASES)
def test_with_gpus_the_plugin_is_loaded_beside_others(lab, version):
    assert "\nJobSubmitPlugins=lua\n" in render(lab(version=version)).slurm_conf
    others = render(lab({"slurm": {"JobSubmitPlugins": "require_timelimit"}}, version=version))
    assert "\nJobSubmitPlugins=lua,require_timelimit\n" in others.slurm_conf
