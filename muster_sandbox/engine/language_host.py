#!/usr/bin/env python3
"""A `pulumi-language-python`: with it the Pulumi CLI runs programs of `runtime: python`.

Pulumi's own is a Go program that no package index has. This one serves the same gRPC interface,
LanguageRuntime (pulumi/runtime/proto/language_pb2_grpc.py), as far as preview, up, refresh and
destroy need it. Like the official one it runs the program in a new interpreter through
`pulumi-language-python-exec`, which must be beside it. Only the standard library and what the
package `pulumi` brings are imported: it is copied to the CLI's folder and runs alone there.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent import futures
from importlib import metadata
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import empty_pb2, json_format
from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2

RUNNER = Path(__file__).with_name("pulumi-language-python-exec")
SHOWN = 32
"""Exit status of RUNNER when it has shown the error itself."""

MESSAGE_BYTES = 400 << 20
"""The engine's own limit of a gRPC message."""


class Host(language_pb2_grpc.LanguageRuntimeServicer):
    """One per engine process; runs the project's program once per preview or update."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.children: set[subprocess.Popen[bytes]] = set()

    def Handshake(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.engine = request.engine_address or self.engine
        return language_pb2.LanguageHandshakeResponse()

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        return plugin_pb2.PluginInfo(version=metadata.version("pulumi"))

    def GetRequiredPackages(self, request: Any, context: Any) -> Any:  # noqa: N802
        # Empty is allowed: the engine then asks for a provider when a resource needs it.
        return language_pb2.GetRequiredPackagesResponse()

    def GetProgramDependencies(self, request: Any, context: Any) -> Any:  # noqa: N802
        return language_pb2.GetProgramDependenciesResponse(
            dependencies=[
                language_pb2.DependencyInfo(name=name, version=metadata.version(name))
                for name in ("pulumi", "pulumi-gcp")
            ]
        )

    def Cancel(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.end_children(signal.SIGTERM)
        return empty_pb2.Empty()

    def Run(self, request: Any, context: Any) -> Any:  # noqa: N802
        try:
            python, environment = interpreter(request.info)
        except FileNotFoundError as error:
            return language_pb2.RunResponse(error=str(error))
        environment["PULUMI_CONFIG"] = json.dumps(dict(request.config))
        environment["PULUMI_CONFIG_SECRET_KEYS"] = json.dumps(list(request.configSecretKeys))
        with subprocess.Popen(
            [python, "-u", str(RUNNER), *self.arguments(request)],
            env=environment,
            stdin=subprocess.DEVNULL,
        ) as program:
            self.children.add(program)
            # The engine has cancelled this call, or is gone.
            context.add_callback(program.terminate)
            code = program.wait()
            self.children.discard(program)
        if code == SHOWN:
            return language_pb2.RunResponse(bail=True)
        if code != 0:
            return language_pb2.RunResponse(error=f"Program exited with exit code {code}")
        return language_pb2.RunResponse()

    def arguments(self, request: Any) -> list[str]:
        """Return RUNNER's command line for a request to run a program."""
        options = {
            "monitor": request.monitor_address,
            "engine": self.engine,
            "project": request.project,
            "root_directory": request.info.root_directory,
            "stack": request.stack,
            "pwd": request.pwd,
            "dry_run": "true" if request.dryRun else "false",
            "parallel": str(request.parallel),
            "organization": request.organization or "organization",
        }
        program = Path(request.info.program_directory) / request.info.entry_point
        return [
            *(word for name, value in options.items() for word in (f"--{name}", value)),
            str(program),
            *request.args,
        ]

    def end_children(self, sign: int) -> None:
        """Tell the running programs to end."""
        for child in list(self.children):
            child.send_signal(sign)


def interpreter(info: language_pb2.ProgramInfo) -> tuple[str, dict[str, str]]:
    """Return the Python of the project and its environment.

    That is the virtual environment of Pulumi.yaml's `runtime.options.virtualenv`, else the Python
    that runs this.

    Raises:
        FileNotFoundError: Pulumi.yaml names a virtual environment that isn't there.

    """
    environment = dict(os.environ)
    named = json_format.MessageToDict(info.options).get("virtualenv")
    if not named:
        return sys.executable, environment
    folder = Path(info.root_directory) / named
    python = folder / "bin" / "python"
    if not python.exists():
        raise FileNotFoundError(f"virtualenv of Pulumi.yaml: {python} does not exist")
    environment["VIRTUAL_ENV"] = str(folder)
    environment["PATH"] = f"{folder / 'bin'}{os.pathsep}{environment.get('PATH', os.defpath)}"
    environment.pop("PYTHONHOME", None)
    return str(python), environment


def main() -> None:
    """Serve until the engine ends it or is gone."""
    host = Host(sys.argv[-1] if len(sys.argv) > 1 else "")
    server = grpc.server(
        futures.ThreadPoolExecutor(8),
        options=[
            ("grpc.max_receive_message_length", MESSAGE_BYTES),
            ("grpc.max_send_message_length", MESSAGE_BYTES),
        ],
    )
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()

    def end(*_: object) -> None:
        host.end_children(signal.SIGKILL)
        os._exit(0)

    # The engine ends its plugins with SIGINT. A user's Ctrl-C does not arrive here: the engine
    # starts each plugin in its own process group.
    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        end()

    threading.Thread(target=watch, daemon=True).start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    server.wait_for_termination()


if __name__ == "__main__":
    main()
