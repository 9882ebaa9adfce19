# SPDX-License-Identifier: Apache-2.0
"""One systemd unit: enabled, active, and running with the configuration that is on disk.

For the modules managed_service, whose documentation has the options, and managed_files.
"""

import hashlib
import os
import time
from typing import NoReturn, TypedDict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.commands import run
from ansible_collections.muster.slurm.plugins.module_utils.refused_error import RefusedError
from ansible_collections.muster.slurm.plugins.module_utils.text_files import read_text

OPTIONS = {
    "name": {"type": "str", "required": True},
    "config": {"type": "list", "elements": "path", "default": []},
    "reload_config": {"type": "list", "elements": "path", "default": []},
    "reload_command": {"type": "list", "elements": "str"},
    "reload_after_start": {"type": "bool", "default": False},
    "log_file": {"type": "path"},
    "pending": {"type": "dict", "default": {}},
    "port": {"type": "int"},
    "timeout_seconds": {"type": "int", "default": 60},
}

RECORDS = "/run/muster"
TOLD = "/var/lib/muster"
"""On disk: what other hosts have received outlives a boot of this one."""

LOOKS = 6
"""How often a unit must have been seen up; six take 0.6 s on an idle host."""


def sha256(path: str) -> str:
    """Return the SHA-256 of the file at `path`, empty if there is none."""
    try:
        with open(path, "rb") as stream:
            return hashlib.sha256(stream.read()).hexdigest()
    except FileNotFoundError:
        return ""


def record_of(paths: list[str], pending: dict[str, str] | None = None) -> str:
    """Return what `sha256sum PATHS` prints; the digests of `pending` replace those on disk."""
    digests = {path: sha256(path) for path in paths} | {
        path: digest for path, digest in (pending or {}).items() if path in paths
    }
    return "".join(f"{digest}  {path}\n" for path, digest in digests.items() if digest)


class Params(TypedDict):
    """What the module is asked for."""

    name: str
    config: list[str]
    reload_config: list[str]
    reload_command: list[str] | None
    reload_after_start: bool
    log_file: str | None
    pending: dict[str, str]
    port: int | None
    timeout_seconds: int


class Unit:
    """One systemd unit and the record of what it runs with."""

    def __init__(self, module: AnsibleModule, params: Params) -> None:
        self.module = module
        self.params = params
        self.name = self.params["name"]
        self.config = self.params["config"]
        self.reload_config = self.params["reload_config"]
        self.reload_after_start = self.params["reload_after_start"]
        self.drop_in = f"/etc/systemd/system/{self.name}.service.d/90-muster-record.conf"
        self.state = self.show()

    def systemctl(self, *words: str, check: bool = True) -> str:
        """Run systemctl; refuse with the unit's last log lines if it fails."""
        code, out, err = run(["systemctl", *words])
        if check and code != 0:
            self.fail(f"systemctl {' '.join(words)}: {err.strip() or out.strip()}")
        return out

    def fail(self, message: str) -> NoReturn:
        """Raise RefusedError with the daemon's last log lines."""
        # On a busy host journald may still have to read what the daemon wrote before it died.
        run(["journalctl", "--sync"])
        _, log, _ = run(
            ["journalctl", "--unit", self.name, "--lines=15", "--no-pager", "--output=cat"]
        )
        lines = log.splitlines() + self.log_lines()
        if any("fatal" in line for line in lines):
            lines = [line for line in lines if "fatal" in line or "error" in line]
        # A daemon that retries every few seconds logs the same each time.
        words = "; ".join(dict.fromkeys(line.strip() for line in lines if line.strip()))
        raise RefusedError(
            f"{self.name}: {message}; its last words: {words or '(none)'}; "
            f"fix the cause and run again (journalctl -u {self.name} shows more)"
        )

    def log_lines(self) -> list[str]:
        """Return the last lines of the daemon's own log, without their times."""
        log = self.params["log_file"]
        if not log or not os.path.exists(log):
            return []
        _, lines, _ = run(["tail", "--lines=5", log])
        return [line.split("] ", 1)[-1] for line in lines.splitlines()]

    def show(self) -> dict[str, str]:
        """Return the unit's properties that matter here; none where systemd does not answer."""
        properties = "LoadState,ActiveState,SubState,NRestarts,UnitFileState,NeedDaemonReload"
        code, out, _ = run(["systemctl", "show", self.name, f"--property={properties}"])
        if code != 0:
            return {}
        return dict(line.split("=", 1) for line in out.splitlines() if "=" in line)

    def record_path(self, kind: str) -> str:
        """Return where the unit records the digests of `kind`: config or reload."""
        folder = TOLD if kind == "reload" and self.reload_after_start else RECORDS
        return f"{folder}/{self.name}.{kind}"

    def wanted_drop_in(self) -> str:
        """Return the text of the drop-in that makes the unit record its configuration."""
        lines = ["# Written by Muster: records what this daemon is started with", "[Service]"]
        reload_config = [] if self.reload_after_start else self.reload_config
        for kind, paths in (("config", self.config), ("reload", reload_config)):
            # Only for root: with a file's digest one can guess its secret.
            command = (
                f"umask 077; mkdir -p {RECORDS}; "
                f"sha256sum {' '.join(dict.fromkeys(paths))} >{self.record_path(kind)}"
            )
            if paths:
                # A leading + runs it as root whatever User= says; a missing file is no error here.
                lines.append(f"ExecStartPre=+-/bin/sh -c '{command} 2>/dev/null'")
            if kind == "reload" and paths and not self.params["reload_command"]:
                # A reload by hand counts too; this runs after the unit's own commands.
                lines.append(f"ExecReload=+-/bin/sh -c '{command} 2>/dev/null'")
        return "\n".join(lines) + "\n"

    def differs(self, kind: str, paths: list[str]) -> bool:
        """Whether the daemon runs with another content of `paths` than that on disk."""
        pending = self.params["pending"]
        # A reload by hand through a command leaves no record: what has just been fixed may have
        # been loaded by the daemon while it was wrong.
        if kind == "reload" and self.params["reload_command"] and {*pending} & {*paths}:
            return True
        pending = pending if self.module.check_mode else {}
        return bool(paths) and read_text(self.record_path(kind)) != record_of(paths, pending)

    def write_record(self, kind: str, text: str) -> None:
        """Record that the daemon now runs with `text`."""
        os.makedirs(os.path.dirname(self.record_path(kind)), mode=0o700, exist_ok=True)
        # By rename: a killed run must not leave an empty record.
        temporary = f"{self.record_path(kind)}.new"
        with open(temporary, "w", encoding="utf-8") as stream:
            os.fchmod(stream.fileno(), 0o600)
            stream.write(text)
        os.replace(temporary, self.record_path(kind))

    def action(self) -> str:
        """Return what has to be done to the daemon."""
        state = self.state.get("ActiveState")
        # A unit that is starting for long waits for something with the configuration it has
        # read; starting it would wait too, even where the new configuration is the remedy.
        if state == "activating" and self.differs("config", self.config):
            return "restart"
        if state not in ("active", "reloading"):
            return "start"
        if self.differs("config", self.config):
            return "restart"
        if self.differs("reload", self.reload_config):
            return "reload"
        return "none"

    def install_drop_in(self) -> None:
        """Write the drop-in and let systemd read it."""
        os.makedirs(os.path.dirname(self.drop_in), exist_ok=True)
        with open(self.drop_in, "w", encoding="utf-8") as stream:
            stream.write(self.wanted_drop_in())
        self.systemctl("daemon-reload")

    def act(self, action: str) -> None:
        """Start, restart or reload the daemon and wait until it is up."""
        deadline = time.monotonic() + self.params["timeout_seconds"]
        if action == "reload":
            # Read before the start: what changes meanwhile is handled by the next run.
            text = record_of(self.reload_config)
            command = self.params["reload_command"]
            if command:
                code, out, err = run(command)
                if code != 0:
                    self.fail(f"{' '.join(command)}: {err.strip() or out.strip()}")
            else:
                self.systemctl("reload", self.name)
            self.write_record("reload", text)
        else:
            if self.params["port"]:
                self.refuse_taken_port(self.params["port"])
            self.systemctl("reset-failed", self.name, check=False)
            # A Type=notify daemon that waits for another one keeps systemctl waiting as long.
            seconds = str(self.params["timeout_seconds"])
            command = ["timeout", seconds, "systemctl", action, self.name]
            code, out, err = run(command)
            if code == 124:
                self.fail(f"not up after {seconds} s")
            if code != 0:
                self.fail(f"systemctl {action}: {err.strip() or out.strip()}")
        self.wait(deadline)

    def owns(self, pid: str) -> bool:
        """Whether process `pid` belongs to the unit."""
        return f"/{self.name}.service" in (read_text(f"/proc/{pid}/cgroup") or "")

    def listens(self, port: int) -> bool:
        """Whether the unit itself listens on `port`: another process there does not count."""
        return any(self.owns(pid) for pid in listeners(port))

    def refuse_taken_port(self, port: int) -> None:
        """Raise RefusedError if another process has the port that the daemon needs."""
        others = ", ".join(
            f"{name} (pid {pid})" for pid, name in listeners(port).items() if not self.owns(pid)
        )
        if others:
            raise RefusedError(
                f"{self.name}: port {port} is in use by {others}; stop that, or give one of "
                "the two another port, and run again"
            )

    def wait(self, deadline: float) -> None:
        """Return when the unit is up and listens; refuse at `deadline` (monotonic seconds)."""
        port = self.params["port"]
        # A Type=simple unit is "active" as soon as it was forked: one that dies at once would pass,
        # and so would one that systemd starts again each time. So the state is read several
        # times, which takes longer on a busy host, where a failing start does too.
        up_since, looks, restarts = None, 0, None
        while time.monotonic() < deadline:
            state = self.show()
            # Without these systemd has not answered, which says nothing of the unit.
            if state.keys() >= {"ActiveState", "SubState", "NRestarts"}:
                restarts = restarts or state["NRestarts"]
                ended = state["ActiveState"] == "failed" or state["SubState"] == "auto-restart"
                if ended or state["NRestarts"] != restarts:
                    self.fail("it ended right after its start")
                up = state["ActiveState"] == "active" and (port is None or self.listens(port))
                up_since = (up_since or time.monotonic()) if up else None
                looks = looks + 1 if up else 0
                if up_since is not None and time.monotonic() - up_since >= 0.5 and looks >= LOOKS:
                    return
            time.sleep(0.1)
        seconds = self.params["timeout_seconds"]
        if self.show().get("ActiveState") == "active":
            self.fail(f"it runs, and does not listen on port {port} after {seconds} s")
        self.fail(f"not up after {seconds} s")


def listening_sockets(port: int) -> set[str]:
    """Return the inodes of the sockets that listen on TCP `port` of this host, as text."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for row in (read_text(table) or "").splitlines()[1:]:
            words = row.split()
            # proc_net_tcp(5): local address, state (0A: LISTEN) and inode.
            if words[3] == "0A" and int(words[1].rsplit(":", 1)[1], 16) == port:
                inodes.add(words[9])
    return inodes


def listeners(port: int) -> dict[str, str]:
    """Return the processes that listen on TCP `port`, as {pid: name}."""
    wanted = {f"socket:[{inode}]" for inode in listening_sockets(port)}
    processes = {}
    for pid in [name for name in os.listdir("/proc") if name.isdigit()] if wanted else []:
        try:
            links = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
        except OSError:  # it ended, or closed a file, meanwhile
            continue
        if links & wanted:
            processes[pid] = (read_text(f"/proc/{pid}/comm") or "").strip()
    return processes


class Outcome(TypedDict):
    """What was done to a unit, or would be in check mode."""

    changed: bool
    action: str
    diff: list[dict[str, str]]


def keep_running(module: AnsibleModule, params: Params) -> Outcome:
    """Bring the unit to its wanted state. Raises RefusedError."""
    unit = Unit(module, params)
    if unit.state.get("LoadState") != "loaded":
        if not module.check_mode:
            raise RefusedError(
                f"{unit.name}.service is {unit.state.get('LoadState')}; "
                "was its package installed, or is the unit masked?"
            )
        return {"changed": True, "action": "start", "diff": []}

    old_drop_in, new_drop_in = read_text(unit.drop_in) or "", unit.wanted_drop_in()
    disabled = unit.state.get("UnitFileState") not in ("enabled", "static", "indirect", "generated")
    action = unit.action()
    state = unit.state.get("ActiveState", "unknown")
    before, after = [state], [state]
    if disabled:
        before.append("disabled")
        after.append("enabled")
    if action != "none":
        after[0] = action
    if not module.check_mode:
        if old_drop_in != new_drop_in:
            unit.install_drop_in()
        elif unit.state.get("NeedDaemonReload") == "yes":
            unit.systemctl("daemon-reload")
        if disabled:
            unit.systemctl("enable", unit.name)
        if action != "none":
            unit.act(action)
        started = action in ("start", "restart")
        if unit.reload_after_start and started and unit.differs("reload", unit.reload_config):
            unit.act("reload")

    differences = [
        {"before_header": header, "after_header": header, "before": old, "after": new}
        for header, old, new in (
            (unit.drop_in, old_drop_in, new_drop_in),
            (f"{unit.name}.service", f"{' '.join(before)}\n", f"{' '.join(after)}\n"),
        )
        if old != new
    ]
    return {
        "changed": old_drop_in != new_drop_in or disabled or action != "none",
        "action": action,
        "diff": differences,
    }
