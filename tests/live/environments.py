"""Python environments on hosts that reach no package index: wheels come from a folder."""

import subprocess
from pathlib import Path

import frameworks
from conftest import Lab


def add_requirements(lab: Lab, host: str, name: str, python: str) -> Path:
    """Put examples/software/NAME.txt into the inventory of a cluster; return its path there.

    Args:
        lab: The cluster.
        host: The one that builds: it gets the wheels, those of uv too, and asks no index.
        name: Of the file, such as `tensorflow-2.15`.
        python: Version of the Python that the environment is on, such as `3.11`.

    """
    source = frameworks.REQUIREMENTS / f"{name}.txt"
    folder = f"/opt/wheels/{name}"
    _send(lab, host, frameworks.wheels(source, python), folder)
    _send(lab, host, frameworks.wheels(frameworks.UV, python), "/opt/wheels/uv")
    variables = lab.instance.folder / "group_vars/all/uv.yml"
    variables.write_text("software_uv_wheels: /opt/wheels/uv\n", encoding="utf-8")
    file = lab.instance.folder / "software" / source.name
    file.parent.mkdir(exist_ok=True)
    file.write_text(frameworks.from_folder(source, folder), encoding="utf-8")
    return file


def _send(lab: Lab, host: str, wheels: Path, folder: str) -> None:
    """Copy the files of a folder of this machine into one of a host."""
    packing = ["tar", "-C", str(wheels), "-cf", "-", "."]
    unpacking = f"mkdir -p {folder} && tar -C {folder} --no-same-owner -xf -"
    with subprocess.Popen(packing, stdout=subprocess.PIPE) as packed:
        subprocess.run(
            ["ssh", "-F", str(lab.fleet.ssh_config), host, unpacking],
            stdin=packed.stdout,
            timeout=300,
            check=True,
        )
    assert packed.returncode == 0
