"""The image that is pulled and the program that is taken from it; podman is a script."""

import pytest

IMAGE = "quay.io/ceph/ceph:v19.2.3"

# Knows what the module says to it and nothing else. The image is a folder.
PODMAN = """
[ -e {folder}/away ] && [ "$1" = pull ] && {{ echo "dial tcp: i/o timeout" >&2; exit 125; }}
case "$*" in
"image exists {image}") test -d {folder}/image ;;
"pull --quiet {image}") mkdir {folder}/image; echo release 19 >{folder}/image/cephadm ;;
"create --replace --name muster-cephadm {image} true") touch {folder}/container ;;
"cp muster-cephadm:/usr/sbin/cephadm "*) cp {folder}/image/cephadm "$3" ;;
"rm --force muster-cephadm") rm {folder}/container ;;
*) echo "unknown: $*" >&2; exit 9 ;;
esac"""


@pytest.fixture
def provide(run_module, stand_ins, tmp_path):
    """Run the module; as root, since it gives the program to root."""
    env = {"PATH": stand_ins({"podman": PODMAN.format(folder=tmp_path, image=IMAGE)})}
    given = {"image": IMAGE, "path": str(tmp_path / "sbin/cephadm")}
    (tmp_path / "sbin").mkdir()
    prefix = ["unshare", "--user", "--map-root-user"]

    def run(**options):
        return run_module("cephadm_program", given, env=env, prefix=prefix, **options)

    return run


def test_the_program_comes_from_the_image(provide, tmp_path) -> None:
    path = tmp_path / "sbin/cephadm"
    assert provide()["changed"] is True
    assert path.read_text() == "release 19\n"
    assert path.stat().st_mode & 0o777 == 0o755
    assert not (tmp_path / "container").exists()
    assert [file.name for file in path.parent.iterdir()] == ["cephadm"]
    assert provide()["changed"] is False


def test_one_of_another_release_is_replaced(provide, tmp_path) -> None:
    provide()
    (tmp_path / "sbin/cephadm").write_text("release 16\n")
    done = provide()
    assert done["diff"]["after"] == f"{tmp_path}/sbin/cephadm: take it from {IMAGE}\n"
    assert (tmp_path / "sbin/cephadm").read_text() == "release 19\n"


def test_a_check_pulls_and_takes_nothing(provide, tmp_path) -> None:
    done = provide(check=True)
    assert f"{IMAGE}: pull it\n" in done["diff"]["after"]
    assert not (tmp_path / "image").exists()
    provide()
    (tmp_path / "sbin/cephadm").unlink()
    assert provide(check=True)["changed"] is True
    assert not (tmp_path / "sbin/cephadm").exists()


def test_a_registry_that_is_away_is_told_with_what_to_do(provide, tmp_path) -> None:
    (tmp_path / "away").touch()
    said = provide()["msg"]
    assert said.startswith(f"podman pull {IMAGE}: dial tcp: i/o timeout; this host must reach")
    assert "`podman load`" in said


def test_an_image_without_cephadm_is_told(provide, tmp_path) -> None:
    provide()
    (tmp_path / "image/cephadm").unlink()
    said = provide()["msg"]
    assert said.startswith(f"podman cp {IMAGE}: ")
    assert not (tmp_path / "container").exists()
