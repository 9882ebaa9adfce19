"""The driver of each system for each GPU: packages, components, modules."""

import itertools

import pytest

from muster.catalog.nvidia import Driver, branches, choose, fitting, gpus, modules_of

SYSTEMS = ["debian-12", "debian-13", "ubuntu-22.04", "ubuntu-24.04"]
HEADERS = ["linux-headers-{kernel}", "linux-headers-{flavour}"]
FULL_PACKAGES = {
    "debian-12 distribution 535 open": (
        [*HEADERS, "nvidia-open-kernel-dkms=535.*"],
        [
            "nvidia-smi=535.*",
            "libcuda1=535.*",
            "libnvidia-ml1=535.*",
            "libnvidia-cfg1=535.*",
            "libnvidia-nvvm4=535.*",
            "nvidia-cuda-mps=535.*",
            "nvidia-persistenced",
            "nvidia-modprobe",
        ],
        "nvidia-current-open",
    ),
    "debian-12 distribution 470 proprietary": (
        [*HEADERS, "nvidia-tesla-470-kernel-dkms=470.*"],
        [
            "nvidia-tesla-470-smi=470.*",
            "libnvidia-tesla-470-cuda1=470.*",
            "libnvidia-tesla-470-ml1=470.*",
            "libnvidia-tesla-470-cfg1=470.*",
            "libnvidia-tesla-470-nvvm4=470.*",
            "nvidia-persistenced",
            "nvidia-modprobe",
        ],
        "nvidia-tesla-470",
    ),
    "debian-13 nvidia 580 open": (
        [*HEADERS, "nvidia-kernel-open-dkms=580.*"],
        ["nvidia-driver-cuda=580.*", "nvidia-persistenced=580.*", "nvidia-modprobe=580.*"],
        "nvidia",
    ),
    # Built and signed by Ubuntu: no headers, no DKMS.
    "ubuntu-24.04 distribution 580 open": (
        [
            "nvidia-headless-no-dkms-580-server-open=580.*",
            "linux-modules-nvidia-580-server-open-{flavour}",
        ],
        ["nvidia-utils-580-server=580.*", "nvidia-modprobe"],
        "nvidia",
    ),
}
# What a definition that says nothing but the GPU's type gets; a dash: it must say more.
DEFAULTS = """
                k80            p100           v100           t4             a100           rtx4080        h100           b200       rtx5090
debian-12       -              535-current    535-current    535-current    535-current    535-current    535-current    -          -
debian-13       -              550-current    550-current    550-current    550-current    550-current    550-current    -          -
ubuntu-22.04    -              580-nvidia     580-nvidia     580-open       580-open       580-open       580-open       580-open   580-open
ubuntu-24.04    -              580-nvidia     580-nvidia     580-open       580-open       580-open       580-open       580-open   580-open
"""  # noqa: E501 - a table
# The first driver that a remedy names.
FIRST = {
    ("debian-12", "k80"): ("distribution", 470, "proprietary"),
    ("debian-12", "b200"): ("nvidia", 580, "open"),
    ("debian-13", "b200"): ("nvidia", 580, "open"),
    ("debian-13", "b300"): ("nvidia", 580, "open"),
    ("debian-13", "h100"): ("distribution", 550, "proprietary"),
    ("debian-13", "v100"): ("distribution", 550, "proprietary"),
    ("ubuntu-24.04", "b300"): ("distribution", 580, "open"),
}


def table(text: str) -> list[tuple[str, str, str]]:
    head, *rows = (line.split() for line in text.strip().splitlines())
    return [(row[0], name, cell) for row in rows for name, cell in zip(head, row[1:], strict=True)]


def shown(driver: Driver | None) -> str:
    if driver is None:
        return "-"
    if driver.module.startswith("nvidia-current"):
        return f"{driver.branch}-{driver.module.removeprefix('nvidia-')}"
    return f"{driver.branch}-{'open' if driver.modules == 'open' else 'nvidia'}"


@pytest.mark.parametrize("name", FULL_PACKAGES)
def test_packages_of_a_driver(name):
    system, source, branch, modules = name.split()
    driver = choose(system, source, int(branch), modules, None)
    assert driver
    kernel, rest, module = FULL_PACKAGES[name]
    assert [*driver.kernel_packages] == kernel
    assert [*driver.packages] == rest
    assert driver.module == module


@pytest.mark.parametrize(("system", "name", "wanted"), table(DEFAULTS))
def test_driver_of_a_gpu_where_nothing_else_is_said(system, name, wanted):
    branch = branches(system, "distribution")[0]
    assert shown(choose(system, "distribution", branch, None, gpus()[name])) == wanted


@pytest.mark.parametrize(("system", "name"), FIRST)
def test_first_driver_that_fits_a_gpu(system, name):
    source, driver = fitting(system, gpus()[name])[0]
    assert (source, driver.branch, driver.modules) == FIRST[system, name]


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("source", ["distribution", "nvidia"])
def test_each_gpu_has_a_driver_in_each_branch_that_knows_it(system, source):
    """Otherwise the definition passes its checks and there is nothing to install."""
    for branch, gpu in itertools.product(branches(system, source), gpus().values()):
        driver = choose(system, source, branch, None, gpu)
        assert (driver is not None) == gpu.known_to(branch), (branch, gpu.name)


@pytest.mark.parametrize("system", SYSTEMS)
def test_no_driver_pulls_a_display_server(system):
    for source in ("distribution", "nvidia"):
        for branch in branches(system, source):
            for modules in modules_of(system, source, branch):
                driver = choose(system, source, branch, modules, None)
                names = [name.partition("=")[0] for name in driver.packages]
                metapackages = {"nvidia-driver", f"nvidia-driver-{branch}", "cuda-drivers"}
                assert not metapackages & {*names}


def test_a_driver_comes_from_one_place():
    debian = choose("debian-12", "distribution", 535, "open", None)
    assert debian.components == ("contrib", "non-free", "non-free-firmware")
    assert debian.repository == ""
    own = choose("debian-12", "nvidia", 580, "open", None)
    assert own.components == ()
    assert own.repository.endswith("/debian12/x86_64/")


def test_fabric_manager_where_the_source_has_one():
    assert choose("debian-13", "distribution", 550, "open", None).fabric_packages == ()
    new = choose("debian-13", "nvidia", 580, "open", None)
    assert new.fabric_packages == ("nvidia-fabricmanager=580.*",)
    old = choose("debian-12", "nvidia", 570, "open", None)
    assert old.fabric_packages == ("nvidia-fabricmanager-570=570.*",)


@pytest.mark.parametrize(
    ("source", "branch", "modules", "gpu"),
    [
        ("distribution", 550, None, "b200"),
        ("distribution", 550, "open", "v100"),
        ("distribution", 535, "open", "h100"),
        ("distribution", 570, None, "h100"),
        ("nvidia", 590, None, "v100"),
        ("nvidia", 580, "proprietary", "b200"),
    ],
)
def test_what_does_not_go_together_is_no_driver(source, branch, modules, gpu):
    assert choose("debian-13", source, branch, modules, gpus()[gpu]) is None
