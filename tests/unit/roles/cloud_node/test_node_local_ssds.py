"""How a node makes one device of its local SSDs; block devices and mdadm are simulated."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from node_boot_kit import FOLDER, load

OURS = ("linux_raid_member", "any:muster-cache")
BLKID = """#!/bin/sh
for device; do :; done
test -s "$device" || exit 2
cat "$device"
"""
MDADM = """#!/bin/sh
folder=$(dirname "$0")/..
echo "mdadm $*" >>"$folder/called"
if [ "$1" = --create ]; then : >"$2"; fi
"""
MKFS = """#!/bin/sh
echo "mkfs.ext4 $*" >>"$(dirname "$0")/../called"
"""
MEMBER = "TYPE=linux_raid_member\nLABEL=any:muster-cache\n"

Attach = Callable[..., list[str]]


@pytest.fixture
def ssds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program, with devices and commands in a folder."""
    module = load(FOLDER / "local_ssds.py")
    monkeypatch.setattr(module, "SSDS", f"{tmp_path}/google-local-nvme-ssd-*")
    monkeypatch.setattr(module, "DEVICE", f"{tmp_path}/local-ssds")
    monkeypatch.setattr(module, "ARRAY", f"{tmp_path}/md127")
    monkeypatch.setattr(module, "WAIT_S", 0)
    programs = {"blkid": BLKID, "mdadm": MDADM, "udevadm": "#!/bin/sh\n", "mkfs.ext4": MKFS}
    for name, text in programs.items():
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(text)
        program.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return module


@pytest.fixture
def attach(tmp_path: Path) -> Attach:
    def make(*contents: str) -> list[str]:
        devices = []
        for number, text in enumerate(contents):
            (tmp_path / f"nvme0n{number + 1}").write_text(text)
            link = tmp_path / f"google-local-nvme-ssd-{number}"
            link.symlink_to(f"nvme0n{number + 1}")
            devices.append(str(link))
        return devices

    return make


def called(tmp_path: Path) -> list[str]:
    file = tmp_path / "called"
    return file.read_text().splitlines() if file.exists() else []


def test_one_is_itself(ssds: ModuleType, attach: Attach, tmp_path: Path) -> None:
    attach("")
    for _ in range(2):
        ssds.main(1)
        assert (tmp_path / "local-ssds").readlink() == tmp_path / "nvme0n1"
    assert called(tmp_path) == []


def test_links_to_partitions_are_not_counted(
    ssds: ModuleType, attach: Attach, tmp_path: Path
) -> None:
    attach("")
    (tmp_path / "google-local-nvme-ssd-0-part1").touch()
    ssds.main(1)
    assert (tmp_path / "local-ssds").readlink() == tmp_path / "nvme0n1"


def test_several_become_an_array(ssds: ModuleType, attach: Attach, tmp_path: Path) -> None:
    devices = attach("", "")
    ssds.main(2)
    assert called(tmp_path) == [
        f"mdadm --create {tmp_path}/md127 --level=0 --raid-devices=2 --homehost=any "
        f"--name=muster-cache --run {' '.join(devices)}",
        # Half of the last array's file system may be gone, and what is left looks whole.
        f"mkfs.ext4 -q -F -m 0 -L muster-cache {tmp_path}/md127",
    ]
    assert (tmp_path / "local-ssds").readlink() == tmp_path / "md127"


def test_what_was_our_array_is_recreated(ssds: ModuleType, attach: Attach, tmp_path: Path) -> None:
    attach(MEMBER, "")
    ssds.main(2)
    assert called(tmp_path)[0].startswith("mdadm --create")


def test_a_whole_array_is_kept_and_formatted_if_its_first_format_was_cut_off(
    ssds: ModuleType, attach: Attach, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tmp_path / "md126"
    whole.touch()
    attach(MEMBER, MEMBER)
    monkeypatch.setattr(ssds, "arrays_of", lambda _: {str(whole)})
    ssds.main(2)
    assert called(tmp_path) == [f"mkfs.ext4 -q -F -m 0 -L muster-cache {whole}"]
    whole.write_text("TYPE=ext4\nLABEL=muster-cache\n")
    ssds.main(2)
    assert len(called(tmp_path)) == 1
    assert (tmp_path / "local-ssds").readlink() == whole


@pytest.mark.parametrize("content", ["TYPE=ext4\nLABEL=precious\n", "PTTYPE=gpt\n"])
def test_anything_else_is_refused(
    ssds: ModuleType, attach: Attach, tmp_path: Path, content: str
) -> None:
    devices = attach("", content)
    with pytest.raises(
        ssds.DiskError,
        match=f"^{devices[1]} holds .* wipefs --all {devices[1]} && blkdiscard --zeroout",
    ):
        ssds.main(2)
    assert called(tmp_path) == []
    assert not (tmp_path / "local-ssds").is_symlink()


def test_what_libblkid_does_not_know_is_refused(
    ssds: ModuleType, attach: Attach, tmp_path: Path
) -> None:
    devices = attach(MEMBER, "bytes of somebody")
    (tmp_path / "bin/blkid").write_text(BLKID.replace("test -s", "grep -q TYPE"))
    with pytest.raises(
        ssds.DiskError, match=f"^{devices[1]} holds something .* --zeroout {devices[1]}, and"
    ):
        ssds.main(2)
    assert called(tmp_path) == []


@pytest.mark.parametrize(("there", "wanted"), [(0, 1), (1, 2), (2, 1)])
def test_another_number_is_refused(
    ssds: ModuleType, attach: Attach, there: int, wanted: int
) -> None:
    attach(*[""] * there)
    with pytest.raises(
        ssds.DiskError, match=f"^{there} of {wanted} local SSDs are there .*; power"
    ):
        ssds.main(wanted)


def test_a_command_that_fails_says_why(ssds: ModuleType, attach: Attach, tmp_path: Path) -> None:
    attach("", "")
    (tmp_path / "bin/mdadm").write_text("#!/bin/sh\necho 'mdadm: no raid0' >&2\nexit 1\n")
    with pytest.raises(ssds.DiskError, match=r"^mdadm --create .*: mdadm: no raid0$"):
        ssds.main(2)


PLANS = {
    "blank": ({"a": (set(), None), "b": (set(), None)}, (None, [])),
    "put together by udev": ({"a": ({"md127"}, OURS), "b": ({"md127"}, OURS)}, ("md127", [])),
    "not put together": ({"a": (set(), OURS), "b": (set(), OURS)}, (None, [])),
    "one came back blank": ({"a": ({"md127"}, OURS), "b": (set(), None)}, (None, ["md127"])),
    "of two arrays": ({"a": ({"md126"}, OURS), "b": ({"md127"}, OURS)}, (None, ["md126", "md127"])),
}


@pytest.mark.parametrize("case", PLANS)
def test_the_array_is_kept_where_it_is_whole(case: str, ssds: ModuleType) -> None:
    members, wanted = PLANS[case]
    assert ssds.plan(members) == wanted


def test_an_array_of_somebody_else_is_refused(ssds: ModuleType) -> None:
    theirs = ({"md127"}, ssds.Content("linux_raid_member", "host:data"))
    with pytest.raises(ssds.DiskError, match="holds linux_raid_member labelled host:data"):
        ssds.plan({"a": theirs, "b": theirs})
