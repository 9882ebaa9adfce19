"""What is left of the project's quotas for the capacity pools of the node sets."""

from controllerkit import ZONE, Cloud
from driverkit import MACHINE_TYPE, DriverHarness, names

from muster.autoscaler.compute.fleet import Fleet
from muster.autoscaler.compute.vm_list import attached_gpus
from muster.autoscaler.reconcile.model import CapacityPool, Choice, NodeSet

OTHER_ZONE = "europe-west4-b"
HERE = CapacityPool(ZONE, MACHINE_TYPE, spot=False)
THERE = CapacityPool(OTHER_ZONE, MACHINE_TYPE, spot=False)
SPOT = CapacityPool(ZONE, MACHINE_TYPE, spot=True)
NEW = CapacityPool(ZONE, "z9-standard-4", spot=False)
SETS = [
    NodeSet(name, tuple(Choice("T", pool.zone, pool.machine_type, pool.spot) for pool in pools))
    for name, pools in (("debug", (HERE, THERE)), ("spot", (SPOT, NEW)))
]


def test_zones_of_a_region_share_its_quotas(cloud: Cloud, harness: DriverHarness):
    """c2-standard-4 has 4 CPUs."""
    cloud.server.cloud.settings.quotas = {"europe-west4": {"C2_CPUS": 14, "PREEMPTIBLE_CPUS": 8}}
    harness.insert(*names(1))
    before = harness.clock.monotonic()
    quotas = Fleet(harness.google, clock=harness.clock).quotas(SETS)
    assert before <= quotas.at <= harness.clock.monotonic()
    assert quotas.zones == {f"europe-west4-{letter}" for letter in "abc"}
    assert quotas.room(HERE) == quotas.room(THERE) == 2
    less = quotas.less(HERE, 2)
    assert less.room(HERE) == less.room(THERE) == 0
    assert less.room(SPOT) == 2


def test_all_regions_share_one_quota(cloud: Cloud, harness: DriverHarness):
    cloud.server.cloud.settings.quotas = {"global": {"CPUS_ALL_REGIONS": 9}}
    quotas = Fleet(harness.google).quotas(SETS)
    assert quotas.left["CPUS_ALL_REGIONS"] == 9
    assert quotas.uses[HERE]["CPUS_ALL_REGIONS"] == 4
    assert quotas.less(SPOT, 1).room(HERE) == 1


def test_gpus_have_quotas(cloud: Cloud, harness: DriverHarness):
    cloud.server.cloud.settings.quotas = {
        "global": {"GPUS_ALL_REGIONS": 3},
        "europe-west4": {"NVIDIA_L4_GPUS": 4},
    }
    gpu = CapacityPool(ZONE, "g2-standard-24", spot=False)
    quotas = Fleet(harness.google).quotas([NodeSet("gpu", (Choice("T", ZONE, "g2-standard-24"),))])
    assert quotas.left["GPUS_ALL_REGIONS"] == 3
    assert quotas.uses[gpu]["NVIDIA_L4_GPUS in europe-west4"] == 2
    assert quotas.room(gpu) == 1


def test_attached_gpus_count_only_for_their_vms(cloud: Cloud, harness: DriverHarness):
    cloud.server.cloud.settings.quotas = {"europe-west4": {"NVIDIA_T4_GPUS": 5, "CPUS": 40}}
    plain, gpu = (Choice("T", ZONE, "n1-standard-8", gpus=gpus) for gpus in ("", "t4:2"))
    body = {
        "machineType": f"zones/{ZONE}/machineTypes/n1-standard-8",
        "guestAccelerators": [
            {
                "acceleratorType": f"zones/{ZONE}/acceleratorTypes/nvidia-tesla-t4",
                "acceleratorCount": 2,
            }
        ],
        "resourcePolicies": [],
    }
    harness.make("lab-gpu-0", **body)
    (vm,) = harness.google.vms()
    assert vm.pool == gpu.pool
    assert str(vm.pool) == f"n1-standard-8 t4:2 in {ZONE}"
    quotas = Fleet(harness.google).quotas([NodeSet("gpu", (plain, gpu))])
    assert (
        quotas.uses[gpu.pool].items()
        >= {
            "NVIDIA_T4_GPUS in europe-west4": 2,
            "GPUS_ALL_REGIONS": 2,
            "CPUS in europe-west4": 8,
        }.items()
    )
    assert (quotas.room(plain.pool), quotas.room(gpu.pool)) == (4, 1)
    assert quotas.less(plain.pool, 4).room(gpu.pool) == 0


def test_gpus_of_a_machine_type_do_not_count_as_attached():
    """Google also lists them in the VM."""
    listed = [{"acceleratorType": "projects/p/acceleratorTypes/nvidia-l4", "acceleratorCount": 1}]
    assert attached_gpus("g2-standard-8", listed) == ""
    assert attached_gpus("z9-standard-8", listed) == ""


def test_a_quota_that_google_does_not_list_limits_nothing(harness: DriverHarness):
    quotas = Fleet(harness.google).quotas(SETS)
    assert not [quota for quota in quotas.uses[NEW] if "Z9" in quota]
    assert quotas.room(CapacityPool(ZONE, "c2-standard-8", spot=False)) is None
