"""What fakecloud's memory backend costs with many instances.

Run: .venv/bin/python tests/bench/bench_fakecloud.py [INSTANCES]
Prints counts first, then for each call CPU time (which other work on the machine doesn't change
much) and wall time: inside the process, from the request's bytes to the answer's, and through HTTP
from a client in another process. Goals with 10,000 instances and validation off: insert and get
<= 1 ms, a list page of 500 <= 20 ms.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from muster_sandbox.fakecloud import Cloud, Settings, handle, open_cloud
from muster_sandbox.fakecloud.http import Reply, Request
from muster_sandbox.fakecloud.server import Server

INSTANCES = 10_000
TIMES = 200
PROJECT = "/compute/v1/projects/demo-project"
ZONE = "zones/europe-west4-a"
HEADERS = {"authorization": "Bearer owner"}
Send = Callable[[str, str, Any], Any]


def instance(name: str) -> dict[str, Any]:
    """The body of an insert, about as long as a real node's."""
    image = "projects/debian-cloud/global/images/family/debian-12"
    keys = ("startup-script", "bundle-url", "cluster", "enable-oslogin", "block-project-ssh-keys")
    return {
        "name": name,
        "machineType": f"{ZONE}/machineTypes/n1-standard-2",
        "labels": {"muster-cluster": "bench", "muster-set": "debug"},
        "metadata": {"items": [{"key": key, "value": "value of " + key} for key in keys]},
        "networkInterfaces": [{"subnetwork": "regions/europe-west4/subnetworks/bench"}],
        "disks": [{"boot": True, "autoDelete": True, "initializeParams": {"sourceImage": image}}],
    }


def prepare(send: Send, instances: int) -> float:
    """Make a network and the instances, in bulk; seconds it took."""
    send("POST", "global/networks", {"name": "bench", "autoCreateSubnetworks": False})
    subnet = {"name": "bench", "network": "global/networks/bench", "ipCidrRange": "10.0.0.0/16"}
    send("POST", "regions/europe-west4/subnetworks", subnet)
    begun = time.perf_counter()
    properties = {**instance("x"), "machineType": "n1-standard-2"}
    del properties["name"]
    left = instances
    while left:
        count = min(left, 5000)
        body = {"count": count, "namePattern": "n-#####", "instanceProperties": properties}
        send("POST", f"{ZONE}/instances/bulkInsert", body)
        left -= count
    return time.perf_counter() - begun


def measured(title: str, work: Callable[[], object], times: int) -> str:
    """A line with the mean CPU and the median and 95th percentile of the wall time."""
    walls = []
    cpu = time.process_time()
    for _ in range(times):
        begun = time.perf_counter()
        work()
        walls.append((time.perf_counter() - begun) * 1000)
    mean = (time.process_time() - cpu) * 1000 / times
    walls.sort()
    return (
        f"{title:28} {mean:8.2f} ms CPU   wall: median {statistics.median(walls):8.2f} ms, "
        f"95 % {walls[int(times * 0.95)]:8.2f} ms"
    )


def calls(send: Send, prefix: str, instances: int) -> Iterator[str]:
    """Each call, measured."""
    numbers = iter(range(10**6))
    middle = f"{ZONE}/instances/n-{instances // 2:05}"
    page = f"{ZONE}/instances?maxResults=500"
    mine = f"{page}&filter=labels.muster-cluster%3Dbench&fields=items(name,status),nextPageToken"

    def insert() -> None:
        send("POST", f"{ZONE}/instances", instance(f"{prefix}-{next(numbers)}"))

    yield measured("insert", insert, TIMES)
    yield measured("get", lambda: send("GET", middle, None), TIMES)
    yield measured("list, 500, the first", lambda: send("GET", page, None), 1)
    yield measured("list, 500, again", lambda: send("GET", page, None), TIMES // 4)
    yield measured("list, 500, filter, fields", lambda: send("GET", mine, None), TIMES // 10)
    everywhere = "aggregated/instances?maxResults=500&filter=labels.muster-cluster%3Dbench"
    yield measured("aggregated, 500, filter", lambda: send("GET", everywhere, None), TIMES // 10)
    deleted = iter(range(10**6))
    last = f"{ZONE}/instances/{prefix}-"
    yield measured("delete", lambda: send("DELETE", f"{last}{next(deleted)}", None), TIMES)


def inside(cloud: Cloud) -> Send:
    """Calls of the cloud itself."""

    def send(verb: str, path: str, body: Any) -> None:
        path, _, query = path.partition("?")
        content = b"" if body is None else json.dumps(body).encode()
        reply = handle(cloud, Request(verb, f"{PROJECT}/{path}", query, HEADERS, content))
        if not isinstance(reply, Reply) or reply.status != 200:
            raise SystemExit(f"{verb} {path}: {reply}")

    return send


def over_http(client: httpx.Client) -> Send:
    """Calls through HTTP."""

    def send(verb: str, path: str, body: Any) -> None:
        client.request(verb, f"{PROJECT}/{path}", json=body).raise_for_status()

    return send


def main() -> None:
    """Measure both ways, with the state in a file as with `muster cloud fake --state`."""
    instances = int(sys.argv[1]) if len(sys.argv) > 1 else INSTANCES
    with tempfile.TemporaryDirectory() as folder:
        cloud = open_cloud(Settings(validate=False), Path(folder))
        took = prepare(inside(cloud), instances)
        size = (Path(folder) / "state.sqlite").stat().st_size
        print(f"{instances} instances by bulkInsert in {took:.1f} s; state {size / 2**20:.0f} MiB")
        for validate in (False, True):
            cloud.settings.validate = validate
            print(f"inside the process, validation {'on' if validate else 'off'}:")
            for line in calls(inside(cloud), f"i{int(validate)}", instances):
                print("  " + line)
        cloud.close()
        server = Server(Settings(validate=False), Path(folder)).start()
        title = "through HTTP, validation off (a client in another process; CPU is the client's):"
        print(title, flush=True)
        cpu = time.process_time()
        command = [sys.executable, __file__, str(instances), server.url]
        subprocess.run(command, check=True, timeout=600)
        print(f"  the server's CPU for all of these: {time.process_time() - cpu:.2f} s")
        server.stop()


def client(instances: int, url: str) -> None:
    """Measure the calls to a server."""
    with httpx.Client(base_url=url, headers=HEADERS, trust_env=False, timeout=60) as session:
        for line in calls(over_http(session), "h", instances):
            print("  " + line, flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        client(int(sys.argv[1]), sys.argv[2])
    else:
        main()
