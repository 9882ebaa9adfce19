"""The driver's libraries and programs are there, of one branch, and stay as they are.

No kernel module is built here, so nothing of this proves that a GPU works: that is for a node.
"""

import re
import time

import pytest

PINNED = ["libcuda1", "libnvidia-ml1", "libnvidia-cfg1", "libnvidia-nvvm4", "nvidia-cuda-mps"]
PINNED += ["nvidia-smi"]
TRIAL = "/var/tmp/trial"
BRANCHES = {"bookworm": "535", "trixie": "550"}


@pytest.fixture
def release(host):
    return host.check_output("sed -n s/^VERSION_CODENAME=//p /etc/os-release")


def versions(host, *packages):
    """Return package -> version of those that are installed."""
    form = r"'${db:Status-Status} ${Package} ${Version}\n'"
    out = host.run(f"dpkg-query --show --showformat={form} {' '.join(packages)}").stdout
    rows = [line.split() for line in out.splitlines()]
    return {row[1]: row[2] for row in rows if row[0] == "installed"}


def test_all_of_the_driver_is_of_one_version_of_the_branch(host, release):
    installed = versions(host, *PINNED)
    assert sorted(installed) == sorted(PINNED)
    assert len({*installed.values()}) == 1, installed
    assert installed["libcuda1"].startswith(f"{BRANCHES[release]}.")


def test_nvidia_smi_runs_and_finds_no_driver(host):
    if host.file("/proc/driver/nvidia/version").exists:
        pytest.skip("the machine below has a GPU, which nvidia-smi sees")
    answer = host.run("nvidia-smi")
    assert answer.rc == 9, answer.stdout + answer.stderr
    assert "couldn't communicate with the NVIDIA driver" in answer.stdout + answer.stderr


@pytest.mark.parametrize("library", ["libcuda.so.1", "libnvidia-ml.so.1"])
def test_programs_find_the_libraries(host, library):
    assert re.search(rf"^\s*{re.escape(library)} ", host.check_output("ldconfig -p"), re.MULTILINE)


def test_no_display_server_came_with_it(host):
    assert versions(host, "nvidia-driver", "xserver-xorg-core", "xserver-xorg-video-nvidia") == {}


def test_no_kernel_module_came_with_it(host):
    assert versions(host, "dkms", "nvidia-kernel-dkms", "nvidia-open-kernel-dkms") == {}


def test_an_upgrade_leaves_the_driver_alone(host):
    assert {*PINNED} <= {*host.check_output("apt-mark showhold").split()}


def test_libraries_of_other_sources_do_not_get_in(host, release):
    policy = host.check_output("apt-cache policy libnvidia-ptxjitcompiler1")
    match = re.search(r"^ [* ]{3} (\S+) (\d+)$", policy, re.MULTILINE)
    assert match, policy
    assert match.group(1).startswith(f"{BRANCHES[release]}.")
    assert match.group(2) == "990"


def test_the_components_are_taken_from_the_host_s_own_archive(host, release):
    source = host.file("/etc/apt/sources.list.d/muster-nvidia-components.sources").content_string
    assert f"Suites: {release}\nComponents: contrib non-free non-free-firmware" in source
    assert "main" not in source
    listed = host.run("apt-get indextargets")
    assert listed.rc == 0
    assert "configured multiple times" not in listed.stderr


def test_a_repository_that_is_there_for_nothing_is_taken_away(host):
    assert not host.file("/etc/apt/sources.list.d/muster-nvidia-dcgm.sources").exists


def test_nouveau_leaves_the_gpus_to_the_driver(host):
    lines = host.file("/etc/modprobe.d/muster-nvidia.conf").content_string.splitlines()
    assert "blacklist nouveau" in lines
    assert "options nouveau modeset=0" in lines


def test_parameters_reach_the_module_by_its_name_on_this_system(host):
    """Debian calls the file nvidia-current; `options nvidia` would be for nobody."""
    text = host.file("/etc/modprobe.d/muster-nvidia.conf").content_string
    assert "options nvidia-current NVreg_RestrictProfilingToAdminUsers=0" in text


def test_slurmd_starts_after_the_device_files_are_made(host):
    host.check_output("systemd-analyze verify /etc/systemd/system/muster-nvidia.service")
    shown = host.check_output("systemctl show --property=Before,After,Wants muster-nvidia.service")
    values = dict(line.split("=", 1) for line in shown.splitlines())
    assert "slurmd.service" in values["Before"].split()
    assert "nvidia-persistenced.service" in values["After"].split()
    assert "nvidia-persistenced.service" in values["Wants"].split()


def test_gpus_are_cut_before_slurmd_looks_for_them(host):
    shown = host.check_output("systemctl show --property=ExecStart muster-nvidia.service")
    order = ["/usr/bin/nvidia-modprobe", "/usr/bin/nvidia-smi", "/usr/local/sbin/muster-mig"]
    assert re.findall(r"path=(\S+)", shown) == order
    assert host.file("/etc/muster/mig.json").content_string == '{"1g.10gb": 7}\n'


def test_without_a_driver_the_program_that_cuts_gpus_is_one_sentence(host):
    if host.file("/proc/driver/nvidia/version").exists:
        pytest.skip("the machine below has a GPU, which would be cut")
    answer = host.run("muster-mig")
    assert answer.rc == 1
    assert re.fullmatch(r"muster-mig: nvidia-smi lists no GPUs \(.*\): fix .*\n", answer.stderr)


def test_the_daemon_that_keeps_the_driver_initialised_is_there(host):
    assert host.exists("nvidia-persistenced")
    assert host.exists("nvidia-modprobe")


@pytest.mark.proof("two runs of the role, half a minute")
def test_headers_that_the_archive_has_no_more_are_one_sentence(converge):
    said = converge("nvidia_driver", nvidia_driver_kernel_packages=["linux-headers-{kernel}-gone"])
    assert "whose headers the archive has no more" in said
    assert "boot the newest kernel" in said


@pytest.fixture
def ready(host):
    """Let muster-nvidia.service run without GPUs, and note whether the exporter runs beside it."""
    folder, note = "/run/systemd/system/muster-nvidia.service.d", "/run/beside"
    # systemctl fails for what is not active; what it says is noted, and that is what tests look at.
    command = f"/bin/sh -c 'systemctl is-active nvidia-dcgm-exporter >{note} || true'"
    lines = f"[Service]\\nExecStart=\\nExecStart={command}\\n"
    host.check_output(f'mkdir -p {folder} && printf "{lines}" >{folder}/stand-in.conf')
    host.check_output("systemctl daemon-reload && systemctl start muster-nvidia")
    yield note
    host.check_output(f"systemctl stop muster-nvidia && rm -r {folder} {note}")
    host.check_output("systemctl daemon-reload")


def test_metrics_are_for_this_host_alone(host, ready):
    host.check_output("systemctl start nvidia-dcgm-exporter")
    assert awaited(lambda: host.socket("tcp://127.0.0.1:9400").is_listening)
    assert not host.socket("tcp://0.0.0.0:9400").is_listening
    assert not host.socket("tcp://:::9400").is_listening


def test_nobody_watches_a_gpu_that_is_cut(host, ready):
    """GPUs of some kinds are reset for it, which they refuse while somebody uses them."""
    host.check_output("systemctl start nvidia-dcgm-exporter")
    host.check_output(f"rm {ready} && systemctl restart muster-nvidia")
    assert host.file(ready).content_string.strip() == "inactive"
    assert awaited(lambda: host.service("nvidia-dcgm-exporter").is_running)


def test_there_are_no_metrics_of_gpus_that_are_not_ready(host, ready):
    host.check_output("systemctl start nvidia-dcgm-exporter")
    host.check_output("systemctl stop muster-nvidia")
    assert not host.service("nvidia-dcgm-exporter").is_running


def test_the_cdi_specification_is_written_when_gpus_are_ready(host, ready):
    file = host.file("/run/cdi/nvidia.yaml")
    assert awaited(lambda: file.exists)
    # And again when they were partitioned differently.
    host.check_output("rm /run/cdi/nvidia.yaml && systemctl restart muster-nvidia")
    assert awaited(lambda: file.exists)


def awaited(condition):
    """Whether it comes true within ten seconds."""
    return any(condition() or time.sleep(0.5) for _ in range(20))


@pytest.fixture
def broken_driver(host):
    """A driver that DKMS could not build: the distribution's DKMS, unpacked beside the system."""
    kernel = host.check_output("uname -r")
    script = f"""
        set -e
        mkdir -p {TRIAL} /usr/src/nvidia-broken-1.0 /var/lib/dkms
        mkdir -p /lib/modules/{kernel}/build/include
        cd {TRIAL}
        apt-get download --quiet dkms make
        for package in *.deb; do dpkg-deb --extract $package .; done
        printf '#!/bin/sh\\nPATH={TRIAL}/usr/bin:$PATH exec {TRIAL}/usr/sbin/dkms "$@"\\n' >dkms
        install -m 755 dkms /usr/local/sbin/dkms
        printf 'all:\\n\\t@echo nvidia.c: error: no such thing; false\\n' \\
            >/usr/src/nvidia-broken-1.0/Makefile
        printf '%s\\n' PACKAGE_NAME=nvidia-broken PACKAGE_VERSION=1.0 MAKE=make \\
            BUILT_MODULE_NAME=nvidia DEST_MODULE_LOCATION=/updates/dkms \\
            >/usr/src/nvidia-broken-1.0/dkms.conf
        dkms add nvidia-broken/1.0
        ! dkms build nvidia-broken/1.0 -k {kernel}
    """
    try:
        host.check_output("bash -c %s", script)
        yield kernel
    finally:
        host.check_output(
            "rm -rf %s /usr/local/sbin/dkms /usr/src/nvidia-broken-1.0 /lib/modules/%s "
            "/var/lib/dkms",
            TRIAL,
            kernel,
        )


@pytest.mark.proof("downloads DKMS and runs the role")
def test_a_driver_that_can_not_be_built_is_told_with_the_end_of_its_log(broken_driver, converge):
    said = converge(
        "nvidia_driver", "--tags=nvidia_driver_configure", nvidia_driver_kernel_packages=["dkms"]
    )
    assert f"kernel {broken_driver} has no NVIDIA module (DKMS has not built it)" in said
    assert "nvidia.c: error: no such thing | make: *** [Makefile:2: all] Error 1" in said
