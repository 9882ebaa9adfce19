"""Images are pulled into the store by members of its group, and podman is ready to run them.

Jobs with a container are in tests/vm/test_containers.py: these hosts are containers themselves.
"""

import base64
import gzip
import io
import shlex
import tarfile

import oci_images
import pytest


@pytest.fixture
def as_person(host):
    """Return what runs a command in a login shell of somebody."""
    return lambda login, command: host.run(f"runuser -l {login} -c %s", command)


@pytest.fixture
def image(host, tmp_path):
    """Return the folder of an image on the host."""
    folder, packed = oci_images.layout(tmp_path / "image", b"no tar"), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(folder, "image")
    # A tar archive is mostly zeros, and a command is no longer than 128 KiB.
    text = base64.b64encode(gzip.compress(packed.getvalue())).decode()
    done = host.run(
        f"cd /srv && echo {shlex.quote(text)} | base64 -d | tar -xz && chmod -R a+rX image"
    )
    assert done.rc == 0, done.stderr
    return "/srv/image"


def test_each_person_has_a_range_of_numbers(host):
    of_lea = "lea:1248395264:65536\n"
    # What somebody gave to a system user stays.
    for name, text in {"subuid": f"games:300000:1000\n{of_lea}", "subgid": of_lea}.items():
        file = host.file(f"/etc/{name}")
        assert file.content_string == text
        assert (file.user, file.mode) == ("root", 0o644)


def test_a_member_pulls_once_and_others_read(host, as_person, image):
    done = as_person("lea", f"muster-container pull --again oci:{image} tool:1")
    assert done.rc == 0, done.stderr
    assert "tool:1 is in /srv/images" in done.stdout
    again = as_person("lea", f"muster-container pull oci:{image} tool:1")
    assert "tool:1 was already in /srv/images" in again.stdout
    listed = as_person("tom", "muster-container list").stdout
    assert listed.startswith(f"tool:1\tamd64\t0.00 GiB\toci:{image}\tsha256:")
    assert listed.endswith("\tlea\n")
    assert host.file("/srv/images/tool/=1").is_symlink
    assert host.file("/srv/images/tool/=1").group == "librarians"


def test_who_is_no_member_pulls_nothing(as_person, image):
    done = as_person("tom", f"muster-container pull oci:{image} other:1")
    assert done.rc == 1
    assert "images are pulled on login nodes by members of the group" in done.stderr


def test_a_registry_without_an_answer_is_a_sentence(as_person):
    done = as_person("lea", "muster-container pull localhost:1/tool:2")
    assert done.rc == 1
    assert "the registry of docker://localhost:1/tool:2 does not answer" in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_image_that_is_not_there_is_a_sentence(as_person):
    done = as_person("lea", "muster-container pull oci:/srv/nowhere tool:3")
    assert done.rc == 1
    assert "there is no image oci:/srv/nowhere" in done.stderr


def test_podman_has_what_a_job_needs(host):
    for name in ("podman", "crun", "newuidmap", "newgidmap", "catatonit", "skopeo"):
        assert host.exists(name), name
    conf = host.file("/etc/muster/containers/containers.conf").content_string
    assert 'cgroups = "disabled"' in conf
    assert host.file("/etc/muster/containers/storage.conf").contains('driver = "overlay"')
    assert (
        host.run("CONTAINERS_CONF=/etc/muster/containers/containers.conf podman --version").rc == 0
    )


def test_nothing_serves_containers_of_root(host):
    for name in ("podman.socket", "podman-auto-update.timer", "podman-restart.service"):
        assert not host.service(name).is_enabled, name
        assert not host.service(name).is_running, name


def test_outside_of_a_job_nothing_runs(as_person):
    done = as_person("tom", "muster-container run tool:1 true")
    assert done.rc == 1
