"""Python environments on hosts that reach no package index: pip takes wheels from a folder."""

import subprocess
from pathlib import Path

import frameworks
from conftest import Lab


def add_requirements(lab: Lab, host: str, name: str, python: str) -> Path:
    """Put examples/software/NAME.txt into the inventory of a cluster; return its path there.

    Args:
        lab: The cluster.
        host: The one that builds: it gets the wheels, and pip looks nowhere else.
        name: Of the file, such as `tensorflow-2.15`.
        python: Version of the Python that the environment is on, such as `3.11`.

    """
    source = frameworks.REQUIREMENTS / f"{name}.txt"
    folder = f"/opt/wheels/{name}"
    packing = ["tar", "-C", str(frameworks.wheels(source, python)), "-cf", "-", "."]
    unpacking = f"mkdir -p {folder} && tar -C {folder} --no-same-owner -xf -"
    with subprocess.Popen(packing, stdout=subprocess.PIPE) as packed:
        subprocess.run(
            ["ssh", "-F", str(lab.fleet.ssh_config), host, unpacking],
            stdin=packed.stdout,
            timeout=300,
            check=True,
        )
    assert packed.returncode == 0
    file = lab.instance.folder / "software" / source.name
    file.parent.mkdir(exist_ok=True)
    file.write_text(frameworks.from_folder(source, folder), encoding="utf-8")
    return file
