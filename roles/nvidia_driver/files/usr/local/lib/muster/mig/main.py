# SPDX-License-Identifier: Apache-2.0
"""The program: partitions the GPUs that differ from what is wanted, and names the instances."""

import itertools
import json
import os
import sys
from collections import Counter
from collections.abc import Mapping

from .cards import Card, Driver, MigError

USAGE = """\
usage: muster-mig

Cuts each GPU of this node into the MIG instances of /etc/muster/mig.json, unless it has them, and
links their device files below /dev/muster-mig. GPUs are not changed while jobs run here.
"""

CONFIG = "etc/muster/mig.json"
LINKS = "dev/muster-mig"
"""The same folder as in muster/render/slurm/node_lines.py."""


Layout = Mapping[str, int]
"""Profile -> number of instances; empty: MIG is off."""


def arrange(driver: Driver, layout: Layout) -> list[Card]:
    """Bring all GPUs to `layout`; return which were not."""
    others = [card for card in driver.cards() if not _is_as(driver, card, layout)]
    if others and driver.jobs():
        raise MigError(
            f"{_names(others)} must be partitioned again (MIG), and jobs run here: drain the "
            "node, and when they have ended run `systemctl restart muster-nvidia slurmd`"
        )
    for card in others:
        _partition(driver, card, layout)
    if others:
        # The driver may give a GPU another number when it resets it (nvmlDeviceSetMigMode).
        left = [card for card in driver.cards() if not _is_as(driver, card, layout)]
        if left:
            raise MigError(
                f"{_names(left)} took the instances and does not have them: reboot the node"
            )
    link(driver)
    return others


def _names(cards: list[Card]) -> str:
    return ", ".join(card.bus for card in cards)


def _is_as(driver: Driver, card: Card, layout: Layout) -> bool:
    there = Counter(instance.profile for instance in card.instances)
    complete = all(driver.whole(card, instance) for instance in card.instances)
    return card.cut == bool(layout) and there == Counter(layout) and complete


def _partition(driver: Driver, card: Card, layout: Layout) -> None:
    if card.instances:
        _clear(driver, card.bus)
    if card.cut != bool(layout):
        _switch(driver, card.bus, bool(layout))
    if layout:
        _create(driver, card.bus, layout)


def _switch(driver: Driver, bus: str, on: bool) -> None:
    driver.tell(["nvidia-smi", "-i", bus, "-mig", "1" if on else "0"])
    if any(card.bus == bus and card.cut != on for card in driver.cards()):
        # nvidia-smi says so, and ends with 0.
        raise MigError(
            f"{bus} switches MIG {'on' if on else 'off'} at a reset only, and something uses it: "
            "reboot the node (scontrol reboot ASAP nextstate=RESUME NODE)"
        )


def _clear(driver: Driver, bus: str) -> None:
    # The list of compute instances is empty if a run was ended between the two.
    driver.command(["nvidia-smi", "mig", "-i", bus, "-dci"])
    driver.tell(["nvidia-smi", "mig", "-i", bus, "-dgi"])


def _create(driver: Driver, bus: str, layout: Layout) -> None:
    """Make the instances in the first order in which the driver finds a place for all of them.

    It places one after the other, and large ones only at some places ("Supported MIG Profiles").
    """
    said = ""
    for order in itertools.permutations(layout):
        wanted = ",".join(profile for profile in order for _ in range(layout[profile]))
        status, said = driver.command(["nvidia-smi", "mig", "-i", bus, "-cgi", wanted, "-C"])
        if status == 0:
            return
        if any(card.bus == bus and card.instances for card in driver.cards()):
            _clear(driver, bus)
    raise MigError(
        f"{bus} can't be partitioned into {wanted} ({' '.join(said.split())[-200:]}): fix mig "
        "in the definition, `nvidia-smi mig -lgip` lists the profiles that the GPU has"
    )


def link(driver: Driver) -> None:
    """Give the instances' device files the names of gres.conf, and take away those of others."""
    wanted: dict[str, str] = {}
    for card in driver.cards():
        seen: Counter[str] = Counter()
        for instance in card.instances:
            name = f"nvidia{card.minor}-{instance.profile}-{seen[instance.profile]}"
            seen[instance.profile] += 1
            access = driver.capabilities(card, instance)
            wanted.update(zip((f"{name}-gi", f"{name}-ci"), access, strict=True))
    folder = os.path.join(driver.root, LINKS)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    for name in {*os.listdir(folder)} - {*wanted}:
        os.unlink(os.path.join(folder, name))
    for name, target in wanted.items():
        path = os.path.join(folder, name)
        if not os.path.islink(path) or os.readlink(path) != target:
            # At once: a job that starts now finds one of the two.
            os.symlink(target, f"{path}.new")
            os.replace(f"{path}.new", path)


def main(arguments: list[str], driver: Driver | None = None) -> int:
    """Run the program; return its exit status."""
    if arguments:
        print(USAGE, end="")
        return 0 if arguments == ["--help"] else 2
    driver = driver or Driver()
    try:
        changed = arrange(driver, json.loads(driver.read(CONFIG) or "{}"))
    except MigError as error:
        print(f"muster-mig: {error}", file=sys.stderr)
        return 1
    for card in changed:
        print(f"{card.bus} is partitioned as /{CONFIG} says")
    return 0
