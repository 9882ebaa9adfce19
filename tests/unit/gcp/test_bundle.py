"""The archives that VMs fetch: the same bytes for the same content, and no secret in them."""

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from muster.definition import load
from muster.definition.schema.node_sets import Disk
from muster.definition.schema.software import STANDARD_LIBRARY
from muster.gcp import builder_vm, bundle, install_halves, inventory
from muster.gcp.archive import pack

ROOT = Path(__file__).resolve().parents[3]
CLUSTER = "group_vars/all/cluster.yml"


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the archives are made of, with the inventory; no test changes it."""
    root = tmp_path_factory.mktemp("unchanged")
    for folder in ("ansible", "roles", "muster", "inventories/cloud"):
        hidden = shutil.ignore_patterns("__pycache__", ".ansible", "secrets.yml")
        shutil.copytree(ROOT / folder, root / folder, symlinks=True, ignore=hidden)
    for name in ("ansible.cfg", "requirements-vm.txt"):
        shutil.copy(ROOT / name, root / name)
    return root


@pytest.fixture
def checkout(unchanged: Path, tmp_path: Path) -> Path:
    """A copy of it for one test."""
    return Path(shutil.copytree(unchanged, tmp_path / "checkout", symlinks=True))


@pytest.fixture(scope="module")
def image(unchanged: Path) -> bytes:
    """The image's archive of what no test has changed."""
    return of_image(unchanged)


def machine(root: Path) -> bytes:
    return bundle.machine_bundle(root, root / "inventories/cloud")


def of_image(root: Path) -> bytes:
    return bundle.image_bundle(root, load(root / "inventories/cloud"))


def of_image_alone(root: Path) -> bytes:
    """With the definition of another folder, so `load` doesn't check the files in this one."""
    return bundle.image_bundle(root, load(ROOT / "inventories/cloud"))


def contents(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return {name: opened.extractfile(name).read() for name in opened.getnames()}


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


BUNDLES = pytest.mark.parametrize("make_bundle", [machine, of_image])


class TestArchive:
    def test_it_is_an_ordinary_one(self, tmp_path: Path) -> None:
        # Over the length of a stored block, and exactly it.
        files = {"a/ä": b"\x00" * 200_000, "b": b"", "c" * 120: b"#!/bin/sh\n"}
        (tmp_path / "it.tar.gz").write_bytes(pack(files))
        subprocess.run(
            ["tar", "-xzf", "it.tar.gz"],
            cwd=tmp_path,
            check=True,
            timeout=60,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
        assert {name: (tmp_path / name).read_bytes() for name in files} == files

    def test_only_programs_are_executable(self) -> None:
        with tarfile.open(fileobj=io.BytesIO(pack({"a": b"#!/bin/sh", "b": b"b"}))) as opened:
            assert [(m.name, m.mode) for m in opened] == [("a", 0o755), ("b", 0o644)]

    def test_its_bytes_are_these_whatever_compressor_python_has(self) -> None:
        """They are written out by hand: a change of them means a new image for everybody."""
        known = "535b894dc8079386"
        assert hashlib.sha256(pack({"a": b"a", "b": b"b"})).hexdigest()[:16] == known


@BUNDLES
class TestSameBytes:
    def test_whatever_time_permission_or_owner_files_have(
        self, checkout: Path, make_bundle: Callable[[Path], bytes]
    ) -> None:
        before = make_bundle(checkout)
        for path in checkout.rglob("*"):
            if path.is_file() and not path.is_symlink():
                os.utime(path, (1, 1))
                path.chmod(0o600)
        assert make_bundle(checkout) == before

    def test_whatever_umask_and_order_a_copy_was_made_with(
        self, checkout: Path, tmp_path: Path, make_bundle: Callable[[Path], bytes]
    ) -> None:
        copy = tmp_path / "copy"
        old = os.umask(0o077)
        try:
            for path in sorted(checkout.rglob("*"), reverse=True):
                target = copy / path.relative_to(checkout)
                target.parent.mkdir(parents=True, exist_ok=True)
                if path.is_file():
                    target.write_bytes(path.read_bytes())
                elif path.is_symlink():
                    target.symlink_to(path.readlink())
        finally:
            os.umask(old)
        assert make_bundle(copy) == make_bundle(checkout)

    @pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
    def test_in_each_process_and_locale(
        self, checkout: Path, make_bundle: Callable[[Path], bytes], locale: str
    ) -> None:
        (checkout / "roles/munge/tasks/über.yml").write_text("[]\n", encoding="utf-8")
        program = (
            "import sys; from pathlib import Path; from muster.gcp import bundle\n"
            "from muster.definition import load\n"
            "root = Path(sys.argv[1]); inventory = root / 'inventories/cloud'\n"
            "print(bundle.digest(bundle.machine_bundle(root, inventory)))\n"
            "print(bundle.digest(bundle.image_bundle(root, load(inventory))))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, str(checkout)],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            # PYTHONHASHSEED: the order of sets differs between processes.
            env={**os.environ, "LC_ALL": locale, "PYTHONHASHSEED": "7", "PYTHONUTF8": "0"},
        )
        assert bundle.digest(make_bundle(checkout)) in done.stdout.split()


class TestMachineBundle:
    def test_it_has_what_a_vm_configures_itself_with(self, checkout: Path) -> None:
        names = set(contents(machine(checkout)))
        wanted = {
            "ansible.cfg",
            "ansible/site.yml",
            "ansible/group_vars/all/secret_variables.yml",
            f"{install_halves.PLUGINS}/action/hardware_report.py",  # a link
            "inventory/group_vars/all/cluster.yml",
            "muster/catalog/slurm_parameters.conf",
            "muster/secrets.py",
            "roles/munge/templates/etc/default/munge.j2",
            "roles/fscache/files/disks.py",  # a link
            "roles/mail/files/muster_mail.py",
            "roles/mail/files/usr/local/lib/muster/muster_jobs/usage.py",  # a link
            "roles/munge/meta/argument_specs.yml",
        }
        assert wanted - names == set()
        assert {name.split("/")[0] for name in names} == {
            "ansible.cfg",
            "ansible",
            "inventory",
            "muster",
            "roles",
        }

    def test_it_has_the_package_that_the_definition_names(self, checkout: Path) -> None:
        inventory = checkout / "inventories/cloud"
        package = "packages/slurmctld_22.05.8-4+0muster1_amd64.deb"
        (inventory / "packages").mkdir()
        (inventory / package).write_bytes(b"!<arch>")
        (inventory / "packages/slurmctld_22.05.8-3+0muster1_amd64.deb").write_bytes(b"an old one")
        files = contents(bundle.machine_bundle(checkout, inventory, [package]))
        assert files[f"inventory/{package}"] == b"!<arch>"
        assert files.keys() - contents(machine(checkout)).keys() == {f"inventory/{package}"}

    def test_all_data_of_the_package_are_in_it(self, checkout: Path) -> None:
        """What pyproject.toml calls package data is needed where the package runs."""
        there = {
            path.relative_to(checkout).as_posix()
            for path in (checkout / "muster").rglob("*")
            if path.is_file()
        }
        assert there - contents(machine(checkout)).keys() == set()

    def test_it_has_nothing_of_the_stand_ins(self, checkout: Path) -> None:
        assert [name for name in contents(machine(checkout)) if "sandbox" in name] == []

    def test_its_modules_import_each_other_alone(self, checkout: Path, tmp_path: Path) -> None:
        """Of the package: whether a VM has what they import from others, tests/cloud shows."""
        files = contents(machine(checkout))
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(content)
        modules = [
            name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            for name in files
            if name.startswith("muster/") and name.endswith(".py") and "__main__" not in name
        ]
        # Without what finds the checkout that is installed, and the commands of its stand-ins.
        alone = (
            "import importlib.metadata, sys\n"
            "sys.meta_path = [f for f in sys.meta_path if 'Editable' not in repr(f)]\n"
            "importlib.metadata.entry_points = lambda **_: []"
        )
        for work in (f"import {', '.join(modules)}", "from muster.cli.main import app; app()"):
            program = f"{alone}\n{work}"
            done = subprocess.run(
                [sys.executable, "-c", program, "--help"],
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": str(tmp_path)},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, done.stderr
        assert "check" in done.stdout
        assert "demo" not in done.stdout

    def test_people_are_in_it(self, checkout: Path) -> None:
        before = machine(checkout)
        edit(checkout / "inventories/cloud" / CLUSTER, "ada:", "bob:")
        assert machine(checkout) != before


def play(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ansible-playbook in a folder, as a VM does."""
    return subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), *words],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if "ANSIBLE" not in name},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def unpacked(tmp_path: Path) -> Callable[[bytes], Path]:
    """Return what unpacks an archive, as a VM does; it returns the folder."""

    def unpack(archive: bytes) -> Path:
        for name, content in contents(archive).items():
            (tmp_path / "vm" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "vm" / name).write_bytes(content)
        return tmp_path / "vm"

    return unpack


@BUNDLES
def test_ansible_finds_the_collection_beside_the_playbooks(
    checkout: Path, unpacked: Callable[[bytes], Path], make_bundle: Callable[[Path], bytes]
) -> None:
    vm = unpacked(make_bundle(checkout))
    task = {"muster.slurm.managed_packages": {"names": ["base-files"]}}
    trial = {"hosts": "localhost", "gather_facts": False, "tasks": [task]}
    (vm / "ansible/trial.yml").write_text(json.dumps([trial]))
    python = f"ansible_python_interpreter={sys.executable}"
    words = ("--connection=local", "-i", "localhost,", "--check", "-e", python)
    done = play(vm, *words, "ansible/trial.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_variables_of_roles_are_made_and_checked_on_a_vm(
    checkout: Path, unpacked: Callable[[bytes], Path]
) -> None:
    vm = unpacked(machine(checkout))
    controller = {"hosts": {"slurm10-controller": {}}}
    login = {"hosts": {"slurm10-login-0": {}}}
    groups = {"controller": controller, "database": controller, "storage": controller}
    groups["login"] = login
    (vm / "inventory/here.yml").write_text(json.dumps({"all": {"children": groups}}))
    done = play(vm, "-i", "inventory", "ansible/definition.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    done = play(vm, "-i", "inventory", "-e", "munge_threads=many", "ansible/definition.yml")
    assert "role munge: " in done.stdout + done.stderr


SECRET = b"planted: 5e1f"

PLACES = [
    "inventories/cloud/group_vars/all/secrets.yml",
    "inventories/cloud/group_vars/all/.secrets.yml.a1b2",
    "inventories/cloud/group_vars/all/secrets/munge.yml",
    "inventories/cloud/group_vars/all/cluster.yml~",
    "inventories/cloud/group_vars/login/.hidden.yml",
    "inventories/cloud/host_vars/x/secrets.json",
    "inventories/cloud/slurm10.pulumi_stack.yml",
    "inventories/cloud/.machines/key.yml",
    "inventories/cloud/.env",
    "inventories/cloud/hosts.yml",
    "ansible/group_vars/all/secrets.yml",
    "ansible/munge.key",
    "roles/munge/files/munge.key",
    "roles/munge/files/.env",
    "roles/munge/files/id_ed25519",
    "roles/munge/tasks/secrets.yml",
    "roles/munge/munge.key",
    "muster/token.key",
    "muster/.env",
    "muster/gcp/credentials.txt.bak",
    ".env",
    "secrets.yml",
]


@pytest.mark.parametrize("make_bundle", [machine, of_image_alone])
class TestSecretsStayBehind:
    def test_files_that_hold_them(
        self, checkout: Path, make_bundle: Callable[[Path], bytes]
    ) -> None:
        before = make_bundle(checkout)
        for place in PLACES:
            path = checkout / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(SECRET)
        after = make_bundle(checkout)
        assert contents(after).keys() - contents(before).keys() == set()
        assert after == before

    def test_one_that_is_planted_where_files_are_taken_is_seen(
        self, checkout: Path, make_bundle: Callable[[Path], bytes]
    ) -> None:
        """The test before could fail: in this place a file gets in."""
        path = checkout / "roles/munge/tasks/install.yml"
        path.write_bytes(path.read_bytes() + b"# " + SECRET)
        assert any(SECRET in content for content in contents(make_bundle(checkout)).values())

    def test_private_keys_end_it(
        self, checkout: Path, make_bundle: Callable[[Path], bytes]
    ) -> None:
        key = "-----BEGIN OPENSSH " + "PRIVATE KEY-----"
        path = checkout / "roles/munge/tasks/install.yml"
        path.write_text(path.read_text() + f"# {key}\n")
        with pytest.raises(bundle.BundleError, match=r"munge/tasks/install.yml holds a private"):
            make_bundle(checkout)


class TestLinks:
    def test_one_that_leads_out_of_the_checkout_ends_it(self, checkout: Path) -> None:
        (checkout / "roles/munge/files").mkdir(exist_ok=True)
        (checkout / "roles/munge/files/more").symlink_to("/etc/hostname")
        with pytest.raises(bundle.BundleError, match="leads out of"):
            machine(checkout)

    def test_one_to_secrets_ends_it(self, checkout: Path) -> None:
        folder = checkout / "inventories/cloud/group_vars/all"
        (folder / "secrets.yml").write_bytes(SECRET)
        (folder / "more.yml").symlink_to("secrets.yml")
        with pytest.raises(bundle.BundleError, match=r"a link to secrets.yml"):
            machine(checkout)

    @pytest.mark.parametrize("text", ["$ANSIBLE_VAULT;1.1;AES256\n1234\n", "x: !vault |\n  12\n"])
    def test_what_is_encrypted_ends_it(self, checkout: Path, text: str) -> None:
        path = checkout / "inventories/cloud/group_vars/all/more.yml"
        path.write_text(text)
        with pytest.raises(bundle.BundleError, match=r"more.yml is encrypted"):
            machine(checkout)


class TestImageBundle:
    def test_it_has_facts_of_the_cluster_and_what_it_is_built_on(self, checkout: Path) -> None:
        facts = json.loads(contents(of_image(checkout))["image.json"])
        assert not any(facts.pop("nvidia").values())
        assert facts == {
            "os": "debian-12",
            "slurm_version": "22.05",
            "module_packages": [*STANDARD_LIBRARY["debian-12"]],
            "base": "projects/debian-cloud/global/images/family/debian-12",
            "disk_gib": 10,
        }

    @pytest.mark.parametrize(
        ("name", "value"),
        [("DISK", Disk(size_gib=20)), ("BASE", {"debian-12": "projects/p/global/images/mine"})],
    )
    def test_it_changes_with_what_it_is_built_on(
        self,
        checkout: Path,
        image: bytes,
        monkeypatch: pytest.MonkeyPatch,
        name: str,
        value: object,
    ) -> None:
        monkeypatch.setattr(builder_vm, name, value)
        assert of_image(checkout) != image

    def test_it_has_the_install_halves_alone(self, checkout: Path) -> None:
        names = contents(of_image(checkout)).keys()
        assert "roles/slurm/tasks/install.yml" in names
        assert f"{install_halves.PLUGINS}/action/managed_packages.py" in names
        assert [n for n in names if n.endswith("configure.yml") or "managed_service" in n] == []

    def test_it_has_what_its_modules_import(self, checkout: Path) -> None:
        utilities = checkout / "ansible/plugins/module_utils"
        own = "from ansible_collections.muster.slurm.plugins.module_utils.{} import x\n"
        (utilities / "first.py").write_text(own.format("second"))
        (utilities / "second.py").write_text("x = 1\n")
        module = checkout / "ansible/plugins/modules/managed_packages.py"
        module.write_text(own.format("first") + module.read_text())
        before = of_image(checkout)
        names = {name.rpartition("module_utils/")[2] for name in contents(before)}
        assert names >= {"first.py", "second.py"}
        (utilities / "second.py").write_text("x = 2\n")
        assert of_image(checkout) != before

    @pytest.mark.parametrize(
        ("path", "old", "new"),
        [
            ("roles/munge/tasks/install.yml", "names: [munge]", "names: [munge, libmunge2]"),
            ("roles/slurmdbd/vars/main.yml", "slurm-client]", "slurm-client, slurm-wlm]"),
            # fscache and cloud_node install it, by links.
            ("roles/file_systems/files/disks.py", "PROBE_S = 60.0", "PROBE_S = 90.0"),
            ("ansible/image.yml", "enabled: false", "enabled: true"),
            ("ansible/plugins/module_utils/installed_packages.py", "dpkg-query", "dpkg-queries"),
            ("ansible/plugins/plugin_utils/package_readings.py", "muster-packages", "muster-apt"),
            ("requirements-vm.txt", "pydantic==", "pydantic==9"),
            (f"inventories/cloud/{CLUSTER}", "os: debian-12", "os: debian-13"),
            (
                f"inventories/cloud/{CLUSTER}",
                "nodes:\n    debug:\n      machine_type: n1-standard-2",
                "nvidia: {}\n  nodes:\n    debug:\n      machine_type: g2-standard-4",
            ),
        ],
    )
    def test_it_changes_with_what_is_installed(
        self, checkout: Path, image: bytes, path: str, old: str, new: str
    ) -> None:
        edit(checkout / path, old, new)
        assert of_image(checkout) != image

    @pytest.mark.parametrize(
        ("path", "old", "new"),
        [
            (f"inventories/cloud/{CLUSTER}", "max_nodes: 10", "max_nodes: 9"),
            (f"inventories/cloud/{CLUSTER}", "idle_seconds", "features: [new]\n      idle_seconds"),
            (f"inventories/cloud/{CLUSTER}", "name: slurm10", "name: other"),
            (
                f"inventories/cloud/{CLUSTER}",
                "default: true",
                "max_time: '1:00'\n      default: true",
            ),
            ("roles/munge/tasks/configure.yml", "Run munged", "Run the daemon"),
            ("roles/base/defaults/main.yml", "minimum_free_mib: 512", "minimum_free_mib: 900"),
            ("roles/base/vars/main.yml", "libmunge", "libother"),
            ("roles/slurmd/defaults/main.yml", "slurmd_port: 6818", "slurmd_port: 6918"),
            ("roles/munge/README.md", "munge", "Munge"),
            ("ansible/group_vars/all/secret_variables.yml", "munge_key_b64", "munge_other"),
            ("ansible/plugins/modules/people.py", "import", "import  "),
        ],
    )
    def test_it_does_not_change_with_what_is_configured(
        self, checkout: Path, image: bytes, path: str, old: str, new: str
    ) -> None:
        edit(checkout / path, old, new)
        assert of_image(checkout) == image

    def test_it_has_the_clock_of_nodes_that_no_play_configures(
        self, checkout: Path, image: bytes
    ) -> None:
        play = yaml.safe_load((checkout / "ansible/image.yml").read_text())[0]
        assert play["vars"]["base_ntp_servers"] == inventory.TIME_SERVERS
        edit(checkout / "roles/base/templates/etc/chrony/chrony.conf.j2", "makestep 1 3", "rtcsync")
        assert of_image(checkout) != image

    def test_it_does_not_change_with_people(self, checkout: Path, image: bytes) -> None:
        edit(checkout / "inventories/cloud" / CLUSTER, "ada", "bob")
        assert of_image(checkout) == image

    def test_files_and_templates_of_an_install_half_are_in_it(self, checkout: Path) -> None:
        role = checkout / "roles/munge"
        for name, text in {
            "files/usr/lib/muster/program": "#!/bin/sh\n",
            "files/other": "",
            "templates/etc/a.j2": "{{ munge_first }}",
            "templates/etc/b.j2": "",
        }.items():
            (role / name).parent.mkdir(parents=True, exist_ok=True)
            (role / name).write_text(text)
        path = role / "tasks/install.yml"
        path.write_text(
            path.read_text() + "- name: Write files\n  muster.slurm.managed_files:\n    files:\n"
            "      - {dest: /etc/a, template: etc/a.j2}\n"
            '      - {dest: /usr/lib/muster/program, content: "{{ __munge_program }}"}\n'
        )
        with (role / "vars/main.yml").open("a") as file:
            file.write("__munge_program: \"{{ lookup('file', 'usr/lib/muster/program') }}\"\n")
            file.write('munge_first: "{{ munge_second }}"\n')
        with (role / "defaults/main.yml").open("a") as file:
            file.write("munge_second: 2\nmunge_third: 3\n")
        files = contents(of_image(checkout))
        here = {name.removeprefix("roles/munge/") for name in files if "roles/munge/" in name}
        assert here == {
            "defaults/main.yml",
            "files/usr/lib/muster/program",
            "tasks/install.yml",
            "templates/etc/a.j2",
            "vars/main.yml",
        }
        assert yaml.safe_load(files["roles/munge/defaults/main.yml"]) == {"munge_second": 2}
        assert f"{install_halves.PLUGINS}/modules/managed_files.py" in files
        assert f"{install_halves.PLUGINS}/action/managed_files.py" in files

    def test_files_that_tasks_are_included_from_are_in_it(self, checkout: Path) -> None:
        tasks = checkout / "roles/munge/tasks"
        (tasks / "more.yml").write_text("- name: More\n  ansible.builtin.import_tasks: most.yml\n")
        (tasks / "most.yml").write_text("[]\n")
        with (tasks / "install.yml").open("a") as file:
            file.write("- name: Include\n  ansible.builtin.include_tasks: {file: more.yml}\n")
        assert "roles/munge/tasks/most.yml" in contents(of_image(checkout))
        edit(tasks / "more.yml", "most.yml", '"{{ which }}.yml"')
        with pytest.raises(bundle.BundleError, match="write the name out"):
            of_image(checkout)


def test_each_role_with_an_install_half_is_in_the_image() -> None:
    halves = {path.parents[1].name for path in (ROOT / "roles").glob("*/tasks/install.yml")}
    # Refused in the cloud, or no VM of the autoscaler has it; Ceph is 250 MB of packages.
    elsewhere = {"ceph_client", "ceph_cluster", "cephadm", "containers", "directory"}
    assert sorted(install_halves.roles(ROOT)) == sorted(halves - elsewhere)
