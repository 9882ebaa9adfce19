"""`muster secrets`: made once, for their owner alone, and never where git would take them."""

import base64
import multiprocessing
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import clikit
import pytest
import yaml

from muster import secrets
from muster.definition import load, secret_names

ROOT = Path(__file__).parents[2]
NAMES = ["munge_key", "slurmdbd_password"]


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    folder = tmp_path / "lab"
    shutil.copytree(ROOT / "inventories/lab", folder, ignore=shutil.ignore_patterns("secrets.yml*"))
    return folder


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Return `run(the words after muster secrets)`."""
    return lambda *words: clikit.run(capfd, "secrets", *map(str, words), cwd=ROOT)


def run_alone(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """In a process of its own, where Ansible reads its settings again."""
    return subprocess.run(
        [sys.executable, "-m", "muster", "secrets", *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, timeout=60)


def test_a_cluster_in_the_cloud_needs_none_from_here(run: Run) -> None:
    done = run("cloud")
    assert (done.returncode, done.stderr) == (0, "")
    assert "makes its secrets itself" in done.stdout
    assert not secrets.path_of(ROOT / "inventories/cloud").exists()


def values(inventory: Path) -> dict[str, str]:
    document = yaml.safe_load(secrets.path_of(inventory).read_text())
    assert list(document) == ["secrets"]
    return dict(document["secrets"])


def test_a_key_and_a_password_that_munged_and_every_file_format_take(inventory: Path) -> None:
    assert secrets.make(inventory) == NAMES
    made = values(inventory)
    assert len(base64.b64decode(made["munge_key"], validate=True)) == 128
    assert re.fullmatch(r"[A-Za-z0-9]{40}", made["slurmdbd_password"])


def test_what_is_said_about_encryption_works_with_all_commands(run: Run, inventory: Path) -> None:
    # `muster check --hosts` runs ansible-playbook itself, where no option of it can be given.
    done = run(inventory)
    assert "ANSIBLE_VAULT_PASSWORD_FILE" in done.stdout
    assert "--ask-vault-pass" not in done.stdout


def test_muster_check_accepts_what_was_made(inventory: Path) -> None:
    secrets.make(inventory)
    load(inventory)


def test_two_clusters_share_nothing(inventory: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(inventory, other)
    secrets.make(inventory)
    secrets.make(other)
    assert all(values(inventory)[name] != values(other)[name] for name in NAMES)


def test_a_second_run_changes_nothing(inventory: Path) -> None:
    secrets.make(inventory)
    before = secrets.path_of(inventory).read_bytes()
    assert secrets.make(inventory) == []
    assert secrets.path_of(inventory).read_bytes() == before


def test_a_secret_that_is_missing_is_added_and_the_rest_stays(inventory: Path) -> None:
    path = secrets.path_of(inventory)
    path.write_text(
        "# ours\nsecrets:  # of the lab\n\n    slurmdbd_password: hunter2hunter2  # old\n"
    )
    assert secrets.make(inventory) == ["munge_key"]
    lines = path.read_text().splitlines()
    assert lines[:2] == ["# ours", "secrets:  # of the lab"]
    assert lines[-1] == "    slurmdbd_password: hunter2hunter2  # old"
    assert values(inventory)["slurmdbd_password"] == "hunter2hunter2"  # noqa: S105
    assert len(base64.b64decode(values(inventory)["munge_key"])) == 128
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_value_that_ansible_vault_encrypted_counts_as_there(inventory: Path) -> None:
    path = secrets.path_of(inventory)
    text = (
        "secrets:\n  munge_key: !vault |\n    $ANSIBLE_VAULT;1.1;AES256\n    6162\n"
        "  slurmdbd_password: !vault |\n    $ANSIBLE_VAULT;1.1;AES256\n    6162\n"
    )
    path.write_text(text)
    assert secrets.make(inventory) == []
    assert path.read_text() == text


def test_a_file_that_ansible_vault_encrypted_is_left_alone(
    run: Run, inventory: Path, tmp_path: Path
) -> None:
    secrets.make(inventory)
    path = secrets.path_of(inventory)
    password = tmp_path / "password"
    password.write_text("vault")
    vault = str(Path(sys.executable).with_name("ansible-vault"))
    command = [vault, "encrypt", "--vault-password-file", str(password), str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    encrypted = path.read_bytes()
    assert encrypted.startswith(b"$ANSIBLE_VAULT;")

    done = run(inventory)
    assert (done.returncode, path.read_bytes()) == (0, encrypted)
    assert "nothing was changed" in done.stdout


@pytest.mark.parametrize(
    "text", ["secrets: {munge_key: abc}\n", "secrets:  # ours\n\n  {munge_key: abc}\n"]
)
def test_a_file_of_another_shape_is_not_touched(inventory: Path, text: str) -> None:
    path = secrets.path_of(inventory)
    path.write_text(text)
    with pytest.raises(secrets.SecretsError, match="has no line `secrets:`"):
        secrets.make(inventory)
    assert path.read_text() == text


@pytest.mark.parametrize("below", ["- munge_key: abc", "abc"])
def test_secrets_that_are_no_mapping_are_not_touched(inventory: Path, below: str) -> None:
    path = secrets.path_of(inventory)
    text = f"secrets:\n  {below}\n"
    path.write_text(text)
    with pytest.raises(secrets.SecretsError, match=r"`secrets` .* no mapping; move it away"):
        secrets.make(inventory)
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "secrets:\n  munge_keys: abc\n",
            "`munge_keys` .* no meaning; if you mean munge_key, rename",
        ),
        ("munge_key: abc\nsecrets:\n", "`munge_key` .* is beside `secrets:`; indent it below"),
        ("munge_key: abc\n", "`munge_key` .* is beside `secrets:`"),
    ],
)
def test_no_secret_is_made_beside_one_that_is_not_where_it_is_read(
    inventory: Path, text: str, said: str
) -> None:
    path = secrets.path_of(inventory)
    path.write_text(text)
    with pytest.raises(secrets.SecretsError, match=said):
        secrets.make(inventory)
    assert path.read_text() == text


def test_secrets_of_the_site_s_own_stay(inventory: Path) -> None:
    path = secrets.path_of(inventory)
    path.write_text("secrets:\n  deploy_key: abc\n")
    assert secrets.make(inventory) == ["munge_key", "slurmdbd_password"]
    assert "  deploy_key: abc\n" in path.read_text()


def test_a_file_that_is_no_yaml_is_not_touched(inventory: Path) -> None:
    path = secrets.path_of(inventory)
    text = 'secrets:\n  munge_key: "abc\n'
    path.write_text(text)
    with pytest.raises(secrets.SecretsError, match=r"secrets.yml:\d is no YAML.*; correct that"):
        secrets.make(inventory)
    assert path.read_text() == text


@pytest.mark.parametrize("text", ["secrets:\n", "secrets:  # none yet\n# more\n"])
def test_secrets_that_are_empty_are_completed(inventory: Path, text: str) -> None:
    secrets.path_of(inventory).write_text(text)
    assert secrets.make(inventory) == NAMES
    assert list(values(inventory)) == NAMES


def test_a_link_to_a_safer_place_stays_one(inventory: Path, tmp_path: Path) -> None:
    path, safe = secrets.path_of(inventory), tmp_path / "safe.yml"
    path.symlink_to(safe)
    assert secrets.make(inventory) == NAMES
    assert path.is_symlink()
    assert safe.stat().st_mode & 0o777 == 0o600


def test_no_other_user_can_read_it_from_the_first_byte_on(
    inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = secrets.path_of(inventory).parent
    seen: list[tuple[str, int]] = []

    def note(event: str, arguments: tuple[object, ...]) -> None:
        # Each open, link, rename and write's fsync: the moments at which the folder changes.
        if watching and event in ("open", "os.rename", "os.link", "os.remove"):
            for name in os.listdir(folder):  # noqa: PTH208 (pathlib raises events of its own)
                if "secrets.yml" in name:
                    seen.append((name, (folder / name).lstat().st_mode & 0o777))

    watching = False
    sys.addaudithook(note)
    old = os.umask(0)
    try:
        watching = True
        secrets.make(inventory)
    finally:
        watching = False
        os.umask(old)
    assert seen
    assert {mode for _, mode in seen} == {0o600}
    assert stat.S_IMODE(secrets.path_of(inventory).stat().st_mode) == 0o600


def _make(folder: str, start: "multiprocessing.synchronize.Barrier") -> list[str]:
    start.wait()
    return secrets.make(Path(folder))


def test_of_many_runs_at_once_one_makes_them(inventory: Path) -> None:
    context = multiprocessing.get_context("fork")
    with context.Manager() as manager, context.Pool(4) as pool:
        start = manager.Barrier(4)
        results = pool.starmap(_make, [(str(inventory), start)] * 4)
    assert sorted(results) == [[], [], [], NAMES]
    assert set(values(inventory)) == set(NAMES)
    left = {path.name for path in secrets.path_of(inventory).parent.iterdir()}
    assert left == {"cluster.yml", "secrets.yml"}


def test_the_command_says_what_it_made_and_not_the_secret(run: Run, inventory: Path) -> None:
    first = run(inventory)
    path = secrets.path_of(inventory)
    assert first.returncode == 0
    assert f"made munge_key, slurmdbd_password in {path} (mode 0600)" in first.stdout
    assert f"ansible-vault encrypt {path}" in first.stdout
    assert not any(value in first.stdout + first.stderr for value in values(inventory).values())
    second = run(inventory)
    assert second.returncode == 0
    assert second.stdout == f"{path} has all secrets already; nothing was changed\n"


def test_a_folder_that_is_no_cluster_is_refused(run: Run, tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"{tmp_path}: no cluster is here: it would have group_vars/all/")
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_that_is_not_there_is_refused(run: Run) -> None:
    done = run("no-such-cluster")
    assert done.returncode == 2
    assert "no such folder" in done.stderr


def test_a_file_that_git_would_take_is_refused(run: Run, inventory: Path) -> None:
    git(inventory, "init", "--quiet")
    done = run(inventory)
    assert done.returncode == 2
    assert "add secrets.yml to .gitignore" in done.stderr
    assert not secrets.path_of(inventory).exists()

    (inventory / ".gitignore").write_text("secrets.yml\n")
    assert run(inventory).returncode == 0


def test_a_file_that_git_has_is_refused_although_it_is_ignored(run: Run, inventory: Path) -> None:
    secrets.make(inventory)
    git(inventory, "init", "--quiet")
    git(inventory, "add", "--all")
    (inventory / ".gitignore").write_text("secrets.yml\n")
    done = run(inventory)
    assert done.returncode == 2
    assert "git rm --cached" in done.stderr


def test_git_takes_no_secrets_of_this_checkout() -> None:
    # The file itself, and what a run leaves that was killed before it had its name.
    folder = "inventories/lab/group_vars/all"
    for name in ("secrets.yml", ".secrets.yml.abc123"):
        command = ["git", "check-ignore", "--quiet", f"{folder}/{name}"]
        done = subprocess.run(command, cwd=ROOT, timeout=60, check=False)
        assert done.returncode == 0, name


def test_a_folder_that_can_not_be_written_is_said_in_a_sentence(inventory: Path) -> None:
    folder = secrets.path_of(inventory).parent
    done = subprocess.run(
        # Root may write everywhere, but not on a file system that is mounted read-only.
        [
            *("unshare", "--map-root-user", "--mount", "sh", "-c"),
            f"mount --bind {folder} {folder} && mount -o remount,ro,bind {folder} && exec $*",
            *("sh", sys.executable, "-m", "muster", "secrets", str(inventory)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    path = secrets.path_of(inventory)
    assert done.stderr == f"error: {path}: read-only file system; fix that and run again\n"


VAULT = Path(sys.executable).with_name("ansible-vault")


def encrypt(path: Path, password: Path, *options: str) -> None:
    command = [str(VAULT), "encrypt", *options, "--vault-password-file", str(password), str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)


def decrypted(path: Path, password: Path) -> dict[str, str]:
    command = [str(VAULT), "view", "--vault-password-file", str(password), str(path)]
    shown = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    return dict(yaml.safe_load(shown.stdout)["secrets"])


@pytest.fixture
def password(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_text("vault\n")
    return file


def test_a_secret_is_rotated_and_all_else_stays(inventory: Path) -> None:
    path = secrets.path_of(inventory)
    path.write_text(
        "# ours\nsecrets:\n  # old\n  munge_key: abc\n  slurmdbd_password: 'd e'\n  own: 1\n"
    )
    path.chmod(0o600)
    secrets.rotate(inventory, "munge_key")
    key = values(inventory)["munge_key"]
    assert len(base64.b64decode(key)) == 128
    assert path.read_text() == (
        f"# ours\nsecrets:\n  # old\n  munge_key: {key}\n  slurmdbd_password: 'd e'\n  own: 1\n"
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_secret_in_an_encrypted_file_is_rotated_there(
    inventory: Path, password: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets.make(inventory)
    path, before = secrets.path_of(inventory), values(inventory)
    encrypt(path, password)
    done = run_alone(inventory, "--rotate", "slurmdbd_password", "--vault-password-file", password)
    assert (done.returncode, done.stderr) == (0, "")
    assert "made a new slurmdbd_password" in done.stdout
    assert path.read_text().startswith("$ANSIBLE_VAULT;1.1;AES256\n")
    after = decrypted(path, password)
    assert after["munge_key"] == before["munge_key"]
    assert re.fullmatch(r"[A-Za-z0-9]{40}", after["slurmdbd_password"])
    assert after["slurmdbd_password"] != before["slurmdbd_password"]
    assert after["slurmdbd_password"] not in done.stdout


def test_the_password_is_found_as_ansible_finds_it_and_the_label_stays(
    inventory: Path, password: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets.make(inventory)
    path, before = secrets.path_of(inventory), values(inventory)
    encrypt(path, password, "--encrypt-vault-id", "default")
    text = path.read_text().replace("$ANSIBLE_VAULT;1.1;AES256", "$ANSIBLE_VAULT;1.2;AES256;lab")
    path.write_text(text)
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(password))
    done = run_alone(inventory, "--rotate", "munge_key")
    assert (done.returncode, done.stderr) == (0, "")
    assert path.read_text().startswith("$ANSIBLE_VAULT;1.2;AES256;lab\n")
    assert decrypted(path, password)["munge_key"] != before["munge_key"]


def test_a_wrong_password_or_none_is_a_sentence_and_the_file_stays(
    inventory: Path, password: Path, tmp_path: Path
) -> None:
    secrets.make(inventory)
    path = secrets.path_of(inventory)
    encrypt(path, password)
    encrypted = path.read_bytes()
    wrong = tmp_path / "wrong"
    wrong.write_text("another\n")
    for options in (
        [],
        ["--vault-password-file", wrong],
        ["--vault-password-file", "no-such-file"],
    ):
        done = run_alone(inventory, "--rotate", "munge_key", *options)
        assert done.returncode == 2
        assert f"error: {path} can't be decrypted: " in done.stderr
        assert "Traceback" not in done.stderr
        assert path.read_bytes() == encrypted


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("secrets:\n  slurmdbd_password: a\n", "run muster secrets without --rotate"),
        ("secrets:\n  munge_key: >-\n    a\n    b\n", "is not in a line of its own"),
        ("secrets: {munge_key: a}\n", "is not in a line of its own"),
        ("secrets:\n  munge_key: !vault |\n    $ANSIBLE_VAULT;1.1;AES256\n    61\n", "by itself"),
        ("secrets: [\n", "is no YAML"),
    ],
)
def test_what_can_t_be_rotated_is_refused_and_the_file_stays(
    inventory: Path, text: str, says: str
) -> None:
    path = secrets.path_of(inventory)
    path.write_text(text)
    with pytest.raises(secrets.SecretsError, match=says):
        secrets.rotate(inventory, "munge_key")
    assert path.read_text() == text


def test_only_what_muster_makes_can_be_rotated(inventory: Path) -> None:
    with pytest.raises(secrets.SecretsError, match="Muster can't make `mail_password`"):
        secrets.rotate(inventory, "mail_password")
    with pytest.raises(secrets.SecretsError, match="is not there; run: muster secrets lab"):
        secrets.rotate(inventory, "munge_key")


def test_an_encrypted_file_has_no_secret_in_plain_text(inventory: Path, password: Path) -> None:
    secrets.make(inventory)
    path = secrets.path_of(inventory)
    made = values(inventory)
    assert all(value in path.read_text() for value in made.values())
    encrypt(path, password)
    assert not any(value in path.read_text() for value in made.values())
    assert decrypted(path, password) == made


def test_an_encrypted_file_is_told_as_one(run: Run, inventory: Path, password: Path) -> None:
    secrets.make(inventory)
    encrypt(secrets.path_of(inventory), password)
    done = run(inventory)
    assert done.returncode == 0
    assert "is encrypted, so which secrets it has is not known; nothing was changed" in done.stdout


def test_the_variables_of_roles_are_those_of_the_checkout() -> None:
    text = (ROOT / "ansible/group_vars/all/secret_variables.yml").read_text()
    names = {
        variable: re.search(r"secrets\.(\w+)", template)[1]  # type: ignore[index]
        for variable, template in yaml.safe_load(text).items()
    }
    # Their own names are those of the secrets.
    for name in ("mail_password", "directory_password"):
        assert names.pop(name) == name
    assert names == secret_names.OF_ROLES
