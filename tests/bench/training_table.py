#!/usr/bin/env python3
"""The training table: the same training on 1 to n nodes of the lab, beside the original's.

Run: make bench-training, or .venv/bin/python tests/bench/training_table.py [OPTION ...]
As root, with podman, on a machine that does nothing else. It raises the lab of `make demo` with
PyTorch's module of docs/software.md and a CPU node for each core, runs train.py on 1 to n of them,
then on n with what Muster contributes switched off one by one, and prints tables and a picture.
The picture and all that was measured are in build/training. Exit code 1: it could not be measured.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import frameworks  # noqa: E402
from bench.training import lab, plot, table  # noqa: E402

from muster_sandbox.containers import machines  # noqa: E402
from muster_sandbox.containers.podman import MachineError, check_machine  # noqa: E402
from muster_sandbox.demo.instance import Instance  # noqa: E402
from muster_sandbox.demo.tour import Session  # noqa: E402

OUTPUT = ROOT / "build/training"
INSTANCE = Instance(ROOT / "build/muster-training")
TORCH = "libs/python/torch"
TRIAL = ("--images", "6000", "--epochs", "1")


def tell(line: str) -> None:
    """Print how far it is; what is printed last is the tables."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(
        prog="training_table.py", description=(__doc__ or "").partition("\n\n")[0]
    )
    parser.add_argument("--nodes", type=positive, help="the most; default: what cores suffice for")
    parser.add_argument("--cores", type=positive, default=1, help="of each node (default: 1)")
    parser.add_argument(
        "--batch", type=positive, default=128, help="of each node: the original's is not known"
    )
    parser.add_argument(
        "--trial", action="store_true", help="a tenth of the images, one epoch: no figures for docs"
    )
    parser.add_argument("--keep", action="store_true", help="leave the lab up")
    return parser.parse_args()


def positive(text: str) -> int:
    """Return a number of the command line that is 1 or more."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


@contextmanager
def raised(nodes: int, cores: int, *, keep: bool) -> Iterator[lab.Lab]:
    """Raise the lab; remove it at the end.

    Raises:
        MachineError: a machine did not start.
        table.TableError: site.yml failed.

    """
    check_machine()
    network = INSTANCE.folder.name
    INSTANCE.remove(network)
    cpus = nodes * cores
    torch = {
        version: one for version, one in frameworks.modules()[TORCH].items() if "packages" in one
    }
    try:
        tell(f"{nodes} nodes with {cores} cores each: containers")
        INSTANCE.create(ROOT / "inventories/demo", "bookworm", subnet=lab.SUBNET)
        lab.adapt_files(INSTANCE, torch, nodes=nodes, cpus=cpus)
        machines.up(INSTANCE.fleet())
        tell(f"site.yml, with PyTorch: some minutes (all of it is in {INSTANCE.log})")
        if INSTANCE.configure() != 0:
            raise table.TableError(f"site.yml failed; its log is {INSTANCE.log}")
        cluster = lab.Lab(Session(INSTANCE.fleet()), cpus, cores, tell)
        cluster.prepare()
        yield cluster
    finally:
        if not keep:
            INSTANCE.remove(network)


def measure(
    cluster: lab.Lab, nodes: int, options: list[str], batch: int
) -> tuple[list[table.Result], table.Result | None, dict[str, table.Result | str]]:
    """Return the runs by nodes, one with the global batch of the largest, and those without.

    Raises:
        table.TableError: a run with all that Muster contributes has failed.

    """
    results = []
    for size in lab.sizes(nodes):
        tell(f"{size} of {nodes} nodes, {lab.load()}")
        results.append(cluster.train(size, "nothing", *options, "--batch", str(batch)))
    alike, without = None, {}
    if nodes > 1:
        tell(f"one node with the batch of {nodes}")
        alike = cluster.train(1, "nothing", *options, "--batch", str(batch * nodes))
        for off, name in lab.SWITCHES.items():
            tell(f"{nodes} nodes, without {name}")
            try:
                without[name] = cluster.train(nodes, off, *options, "--batch", str(batch))
            except table.TableError as error:
                # That it fails is what the switch shows.
                without[name] = str(error).splitlines()[0][:120]
    return results, alike, {**without, **lab.NOT_HERE}


def main() -> int:
    """Measure and print; return the exit code."""
    options = arguments()
    words = list(TRIAL) if options.trial else []
    begun = time.strftime("%Y-%m-%d %H:%M")
    try:
        nodes = lab.nodes_for(len(os.sched_getaffinity(0)), options.cores, options.nodes)
        before = lab.load()
        with raised(nodes, options.cores, keep=options.keep) as cluster:
            results, alike, without = measure(cluster, nodes, words, options.batch)
        rows = table.rows(results)
    except (table.TableError, MachineError) as error:
        print(f"training_table.py: {error}", file=sys.stderr)
        return 1
    note = f"{begun}, {before}, {options.cores} cores and a batch of {options.batch} on each node"
    if options.trial:
        note += ", a trial"
    OUTPUT.mkdir(parents=True, exist_ok=True)
    picture = OUTPUT / "training.svg"
    picture.write_text(plot.draw(rows, table.ORIGINAL, note), encoding="utf-8")
    record = {
        "note": note,
        "commit": lab.commit(ROOT),
        "results": [asdict(result) for result in results],
        "alike": asdict(alike) if alike else None,
        "without": {
            name: run if isinstance(run, str) else asdict(run) for name, run in without.items()
        },
    }
    (OUTPUT / "training.json").write_text(f"{json.dumps(record, indent=1)}\n", encoding="utf-8")
    print(f"{note}; {lab.commit(ROOT)}\n\n{table.table(rows)}")
    if alike:
        print(table.effects(results[-1], without))
    for sentence in table.verdicts(rows, alike):
        print(sentence)
    print(f"picture: {picture.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
