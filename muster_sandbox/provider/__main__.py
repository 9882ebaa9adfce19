"""The plugin `pulumi-resource-gcp` in place of Google's: `python -m muster_sandbox.provider`.

It prints its port and serves until the engine ends it or is gone: a killed engine ends nothing.
"""

import os
import signal
import sys
import threading
import time
from concurrent import futures

import grpc
from pulumi.runtime.proto import provider_pb2_grpc

from muster_sandbox.provider.provider import Provider

MESSAGE_BYTES = 400 << 20
"""The engine's own limit of a gRPC message."""


def main() -> None:
    """Serve one engine."""
    server = grpc.server(
        futures.ThreadPoolExecutor(64),
        options=[
            ("grpc.max_receive_message_length", MESSAGE_BYTES),
            ("grpc.max_send_message_length", MESSAGE_BYTES),
        ],
    )
    provider = Provider(os.environ["MUSTER_PROVIDER_VERSION"])
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()

    def end(*_: object) -> None:
        os._exit(0)

    signal.signal(signal.SIGINT, end)  # how the engine ends its plugins
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
