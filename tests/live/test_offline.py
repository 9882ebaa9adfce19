"""docs/site.md, "No internet", typed: what is carried in is all that a cluster needs.

The cluster's one machine reaches this one alone, its administration host. Its apt knows no archive
but the one that another machine made with internet.
"""

import hashlib
import os
import re
import shlex
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from conftest import Lab, raise_lab
from documentation import ROOT, Page
from waiting import until

from muster_sandbox.containers import machines
from muster_sandbox.containers.machines import Fleet, Machine

pytestmark = pytest.mark.proof("raises its own cluster, whose packages it downloads before")

PAGE = Page(ROOT / "docs/site.md")
BOX = "offline"
INVENTORY = "inventories/lab"
ADMINISTRATION_HOST = "10.214.50.1"
INTERNET = "1.1.1.1"
ARCHIVE_SECONDS = 600
"""Timeout of the archive's commands: some 100 MB are downloaded."""


def text_with(words: str, *replaced: tuple[str, str]) -> str:
    """Return the page's commands that have these words, with names of this test in them."""
    [block] = [block for block in PAGE.blocks("text") if words in block.text]
    text = block.text
    for old, new in replaced:
        assert old in text
        text = text.replace(old, new)
    return text


def run(*words: str | Path, folder: Path = ROOT, timeout: float = 120) -> str:
    """Run a program of this machine or of the virtual environment; return what it printed."""
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        words,
        cwd=folder,
        env=os.environ | {"PATH": programs, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout[-4000:]}"
    return done.stdout


@dataclass(frozen=True)
class Outside:
    """A bare machine of the same release that reaches the internet."""

    fleet: Fleet
    name: str = "outside"

    def type(self, commands: str) -> str:
        ssh = ["ssh", "-F", self.fleet.ssh_config, self.name]
        return run(*ssh, f"bash -ec {shlex.quote(commands)}", timeout=ARCHIVE_SECONDS)

    def copy(self, source: str, target: str) -> None:
        run("scp", "-qrF", self.fleet.ssh_config, source, target, timeout=ARCHIVE_SECONDS)


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    network = "muster-outside"
    machines.down(network)
    bare = Machine(name=Outside.name, address="", release="bookworm")
    folder = tmp_path_factory.mktemp("outside")
    there = Outside(machines.on_free_subnet(network, folder, [bare]))
    try:
        machines.up(there.fleet)
        yield there
    finally:
        machines.down(network)


@pytest.fixture(scope="module")
def bare_box() -> Iterator[Lab]:
    """The machine without internet, as its installation left it; the module's file is in /data."""
    template = ROOT / "tests/live/inventories/offline"
    for lab in raise_lab(template, "muster-offline", "bookworm", "10.214.50.0/24"):
        # Of this machine, if it has one.
        lab.on(BOX, "rm -f /etc/apt/apt.conf.d/*proxy*")
        add_module(lab)
        yield lab


def add_module(lab: Lab) -> None:
    """Put the file of apps/tool into the shared folder, and its digest into the definition."""
    program = lab.fleet.folder / "tool"
    program.write_text("#!/bin/sh\necho this tool was carried in\n", encoding="utf-8")
    program.chmod(0o755)
    packed = lab.fleet.folder / "data/tool-1.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(program, "tool-1/bin/tool")
    digest = hashlib.sha256(packed.read_bytes()).hexdigest()

    def name_it(cluster: Any) -> None:
        cluster["software"]["modules"]["apps/tool"]["1"]["archive"]["sha256"] = digest

    lab.change(name_it)


@pytest.fixture(scope="module")
def archive(bare_box: Lab, outside: Outside, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the page's commands make elsewhere, carried to this machine."""
    here = tmp_path_factory.mktemp("administration")
    folder = str(bare_box.instance.folder)
    listing = text_with("sed -n", ("packages lab", f"packages {folder}"), (INVENTORY, folder))
    run("bash", "-ec", listing, folder=here)
    pretend_old(here / f"status/{BOX}/var/lib/dpkg/status", "less")
    for carried in ("packages.txt", "status"):
        outside.copy(f"{here}/{carried}", f"{outside.name}:")
    outside.type(text_with("apt-ftparchive"))
    outside.copy(f"{outside.name}:archive", str(here))
    return here / "archive"


def pretend_old(status: Path, package: str) -> None:
    """Give an installed package a slightly older version, so that it has an update."""
    text = status.read_text(encoding="utf-8")
    old = re.sub(rf"^(Package: {package}\n(?:.+\n)*?Version: .+)", r"\1~", text, flags=re.M)
    assert old != text
    status.write_text(old, encoding="utf-8")


@pytest.fixture(scope="module")
def box(bare_box: Lab, archive: Path) -> Iterator[Lab]:
    """The machine, configured with what was carried in."""
    serving = text_with("http.server", ("192.0.2.10", ADMINISTRATION_HOST))
    with subprocess.Popen(
        ["bash", "-ec", f"exec {serving}"], cwd=archive.parent, stderr=subprocess.DEVNULL
    ) as server:
        try:
            until(lambda: answers(ADMINISTRATION_HOST, 8000), "the archive is served")
            adopting = text_with(
                "sources.list",
                (INVENTORY, str(bare_box.instance.folder)),
                ("admin.example.org", ADMINISTRATION_HOST),
            )
            run("bash", "-ec", adopting, folder=archive.parent)
            first = bare_box.play()
            assert first.code == 0, first.output[-6000:]
            yield bare_box
        finally:
            server.terminate()


def answers(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), 10).close()
    except OSError:
        return False
    return True


def test_it_reaches_nothing_but_the_administration_host(box: Lab, outside: Outside) -> None:
    # Without a packet to there: a machine that runs tests may have a proxy alone.
    assert f"{INTERNET} via" in outside.type(f"ip route get {INTERNET}")
    connect = "timeout 10 bash -c '</dev/tcp/{}/{}' && echo reached"
    assert "Network is unreachable" in box.on(BOX, connect.format(INTERNET, 80), check=False)
    # The name of the archive that the other machine's packages come from.
    site = outside.type("apt-get indextargets --format '$(SITE)' | head -n 1")
    name = urlsplit(site.strip()).hostname
    assert name
    assert box.on(BOX, f"getent hosts {name}", check=False) == ""
    assert box.on(BOX, connect.format(ADMINISTRATION_HOST, 8000)) == "reached\n"


def test_all_packages_come_from_the_archive(box: Lab) -> None:
    known = box.on(BOX, "apt-get indextargets --format '$(SITE)' | sort -u")
    assert known == f"http://{ADMINISTRATION_HOST}:8000\n"
    shown = box.on(BOX, "apt-cache policy slurmctld mariadb-server munge lmod")
    assert shown.count(f"http://{ADMINISTRATION_HOST}:8000") == 4
    assert "Installed: (none)" not in shown


def test_updates_of_what_the_host_has_are_in_it(archive: Path) -> None:
    assert [path.name.partition("_")[0] for path in archive.glob("less_*.deb")] == ["less"]


def test_second_run_changes_nothing(box: Lab) -> None:
    again = box.play()
    assert again.code == 0, again.output[-4000:]
    assert again.changed == {}


def test_a_job_runs_with_the_module_and_is_in_accounting(box: Lab) -> None:
    script = "module load apps/tool && srun --mem=50M tool"
    assert box.on(BOX, f"runuser -l ada -c '{script}'") == "this tool was carried in\n"
    records = "sacct -nXP --user ada --format Account,State"
    until(lambda: "team|COMPLETED" in box.on(BOX, records), "slurmdbd has the job")


def test_an_archive_that_was_changed_on_its_way_is_refused(box: Lab, archive: Path) -> None:
    release = archive / "InRelease"
    signed = release.read_text(encoding="utf-8")
    update = "rm -r /var/lib/apt/lists && apt-get update"
    try:
        release.write_text(signed.replace("SHA256:\n", "SHA256:\n\n", 1), encoding="utf-8")
        assert release.read_text(encoding="utf-8") != signed
        assert "is not signed" in box.on(BOX, update, check=False)
    finally:
        release.write_text(signed, encoding="utf-8")
    assert "is not signed" not in box.on(BOX, update)
