"""GPUs in slurm.conf and gres.conf: device files, detection, shards, accounting."""

import pytest

from muster.catalog.slurm_parameters import RELEASES
from muster.render.slurm import render
from muster.render.slurm.conf_syntax import parse

NODES = "lab-gpu-[01-02]"
WITH_SHARDS = [release for release in RELEASES if release >= "22.05"]
WITH_AUTODETECT = [release for release in RELEASES if release >= "24.11"]


def gpus(**keys):
    return {"nodes": {"gpu": {"gpus": keys}}}


def gres_of_gpu_nodes(files) -> str:
    return next(
        line["Gres"] for line in parse(files.slurm_conf) if line.get("NodeName", "") == NODES
    )


def value_of(files, key: str) -> str:
    return next(line[key] for line in parse(files.slurm_conf) if key in line)


@pytest.mark.parametrize("version", RELEASES)
def test_device_files_are_named_unless_the_definition_says_otherwise(lab, version):
    assert parse(render(lab(version=version)).gres_conf) == [
        {"NodeName": NODES, "Name": "gpu", "File": "/dev/nvidia[0-3]"}
    ]


def test_typed_gpus_are_typed_everywhere(lab):
    files = render(lab(gpus(type="rtx4080", devices="/dev/nvidia[0-3]")))
    assert gres_of_gpu_nodes(files) == "gpu:rtx4080:4"
    assert value_of(files, "AccountingStorageTRES") == "gres/gpu,gres/gpu:rtx4080"
    assert parse(files.gres_conf) == [
        {"NodeName": NODES, "Name": "gpu", "Type": "rtx4080", "File": "/dev/nvidia[0-3]"}
    ]


@pytest.mark.parametrize("version", WITH_AUTODETECT)
def test_detected_gpus_have_their_type_and_number_from_slurm_conf_alone(lab, version):
    files = render(lab(gpus(type="h100", autodetect="nvidia"), version=version))
    assert gres_of_gpu_nodes(files) == "gpu:h100:4"
    assert parse(files.gres_conf) == [{"NodeName": NODES, "AutoDetect": "nvidia"}]


@pytest.mark.parametrize("version", WITH_SHARDS)
def test_shards_are_counted_per_node_and_accounted(lab, version):
    files = render(lab(gpus(type="rtx4080", shards=8), version=version))
    assert gres_of_gpu_nodes(files) == "gpu:rtx4080:4,shard:32"
    assert value_of(files, "GresTypes") == "gpu,shard"
    tres = value_of(files, "AccountingStorageTRES")
    assert tres == "gres/gpu,gres/shard,gres/gpu:rtx4080"
    assert parse(files.gres_conf) == [
        {"NodeName": NODES, "Name": "gpu", "Type": "rtx4080", "File": "/dev/nvidia[0-3]"},
        {"NodeName": NODES, "Name": "shard", "Count": "32"},
    ]


def test_detected_gpus_have_shards_too(lab):
    files = render(lab(gpus(autodetect="nvidia", shards=2), version="24.11"))
    assert parse(files.gres_conf) == [
        {"NodeName": NODES, "AutoDetect": "nvidia"},
        {"NodeName": NODES, "Name": "shard", "Count": "8"},
    ]


def test_a_set_without_shards_has_none_beside_one_with(lab):
    other = {"sockets": 1, "cores_per_socket": 8, "memory_mib": 65536, "gpus": {"count": 1}}
    change = gpus(shards=8)
    change["nodes"]["whole"] = other
    files = render(
        lab(change | {"partitions": {"whole": {"nodes": ["whole"]}}}, {"whole": ["lab-whole-01"]})
    )
    assert [line for line in parse(files.gres_conf) if line["NodeName"] == "lab-whole-01"] == [
        {"NodeName": "lab-whole-01", "Name": "gpu", "File": "/dev/nvidia0"}
    ]


def test_an_override_of_accounting_keeps_gpus(lab):
    files = render(lab(gpus(shards=8) | {"slurm": {"AccountingStorageTRES": "license/matlab"}}))
    assert value_of(files, "AccountingStorageTRES") == "gres/gpu,license/matlab"


@pytest.mark.parametrize("version", RELEASES)
def test_each_instance_of_a_gpu_is_one_for_a_job(lab, version):
    change = gpus(count=2, type="h100", mig={"3g.40gb": 1, "1g.10gb": 2}) | {"nvidia": {}}
    files = render(lab(change, version=version))
    assert gres_of_gpu_nodes(files) == "gpu:h100_3g.40gb:2,gpu:h100_1g.10gb:4"
    tres = value_of(files, "AccountingStorageTRES")
    assert tres == "gres/gpu,gres/gpu:h100_1g.10gb,gres/gpu:h100_3g.40gb"
    assert [list(line.values()) for line in parse(files.gres_conf)] == [
        [NODES, "gpu", f"h100_{profile}", f"/dev/{gpu},{link}-gi,{link}-ci"]
        for gpu in ("nvidia0", "nvidia1")
        for profile, n in (("3g.40gb", 0), ("1g.10gb", 0), ("1g.10gb", 1))
        for link in [f"/dev/muster-mig/{gpu}-{profile}-{n}"]
    ]
    assert {*parse(files.gres_conf)[0]} == {"NodeName", "Name", "Type", "MultipleFiles"}


def reboots(files) -> list[tuple[str, str]]:
    lines = [dict(line) for line in parse(files.slurm_conf)]
    keys = ("RebootProgram", "ResumeTimeout")
    return [(key, line[key]) for line in lines for key in keys if key in line]


def test_slurm_can_reboot_nodes_whose_driver_is_muster_s(lab):
    driver = gpus(type="h100") | {"nvidia": {}}
    assert reboots(render(lab(gpus(type="h100")))) == []
    assert reboots(render(lab(driver))) == [
        ("RebootProgram", "/usr/sbin/reboot"),
        ("ResumeTimeout", "1800"),
    ]
    own = {"slurm": {"RebootProgram": "/sbin/kexec-reboot", "ResumeTimeout": 300}}
    assert reboots(render(lab(driver | own))) == [
        ("RebootProgram", "/sbin/kexec-reboot"),
        ("ResumeTimeout", "300"),
    ]


def test_instances_of_gpus_without_a_type_are_called_by_their_profile(lab):
    files = render(lab(gpus(mig={"1g.10gb": 7}) | {"nvidia": {"modules": "open"}}))
    assert gres_of_gpu_nodes(files) == "gpu:1g.10gb:28"


def test_memory_is_shared_by_instances_and_not_by_cards(lab):
    def per_gpu(definition) -> str:
        lines = parse(render(definition).slurm_conf)
        return next(line["DefMemPerGPU"] for line in lines if "DefMemPerGPU" in line)

    whole = int(per_gpu(lab(gpus(type="h100"))))
    cut = lab(gpus(type="h100", mig={"1g.10gb": 7}) | {"nvidia": {}})
    assert int(per_gpu(cut)) == whole // 7
