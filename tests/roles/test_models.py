"""The model store, tried by a member of the group that may add models, and by somebody else."""

import json

import pytest

STORE = "/srv/models"
ADD = "muster-models add /home/lea/trained --name lab/bert --licence mit"


@pytest.fixture
def as_person(host):
    """Return what runs a command in a login shell of somebody."""
    return lambda login, command: host.run(f"runuser -l {login} -c %s", command)


def added(as_person):
    """Have lea add a model, unless it is there, and return its folder."""
    done = as_person("lea", ADD)
    assert done.rc == 0, done.stderr
    return done.stdout.splitlines()[-1]


def of_server(folder, command):
    """Return a command that runs while the files of a folder are served on port 18765."""
    return (
        f"cd {folder} && {{ python3 -m http.server 18765 --bind 127.0.0.1 & }}; "
        "sum=$(sha256sum config.json | cut -d ' ' -f 1); "
        f"{command}; rc=$?; kill $!; exit $rc"
    )


def test_a_member_adds_what_only_they_can_read(host, as_person):
    model = added(as_person)
    assert host.file(f"{model}/config.json").content_string == '{"model_type": "bert"}'
    blob = host.check_output(f"realpath {model}/config.json")
    assert (host.file(blob).user, host.file(blob).mode) == ("muster-models", 0o444)
    [provenance] = host.check_output(f"ls {STORE}/hub/models--lab--bert/provenance").split()
    told = json.loads(
        host.file(f"{STORE}/hub/models--lab--bert/provenance/{provenance}").content_string
    )
    assert (told["added_by"], told["origin"]) == ("lea", "/home/lea/trained")


def test_all_read_it_and_nobody_writes(as_person):
    model = added(as_person)
    assert as_person("tom", f"cat {model}/config.json").rc == 0
    assert "lab/bert" in as_person("tom", "muster-models list").stdout
    assert as_person("tom", "muster-models verify").rc == 0
    for login in ("tom", "lea"):
        assert as_person(login, f"touch {STORE}/hub/mine").rc != 0
        assert as_person(login, f"rm -rf {model}").rc != 0


def test_who_is_no_member_may_not_add_and_is_told_so(as_person):
    done = as_person("tom", "muster-models add /etc/ssl --name lab/x --licence mit")
    assert done.rc == 1
    assert "tom may not add models; an administrator adds you to the group" in done.stderr


def test_a_member_is_the_account_for_this_program_alone(as_person):
    assert as_person("lea", "sudo -n -u muster-models id").rc != 0
    assert as_person("lea", "sudo -n muster-models gc").rc != 0


def test_the_account_reads_no_folder_for_a_member_and_gets_no_token_as_a_variable(host, as_person):
    """Else a member would read /proc/PID/environ of another one's addition."""
    as_account = "sudo -n -u muster-models muster-models add"
    done = as_person("lea", f"{as_account} /etc/muster --name lab/x --licence mit")
    assert done.rc == 1
    assert "is read by your own process and not by the account" in done.stderr
    assert not host.file(f"{STORE}/hub/models--lab--x").exists
    kept = as_person("lea", "sudo -n --list").stdout
    assert "https_proxy" in kept
    assert "TOKEN" not in kept
    assert "HF_ENDPOINT" not in kept


def test_who_adds_does_not_choose_the_hub(as_person):
    said = "HF_ENDPOINT=https://hub.example.org muster-models add hf:lab/bert"
    done = as_person("lea", said)
    assert done.rc == 1
    assert "models of the hub come from https://huggingface.co; unset HF_ENDPOINT" in done.stderr


def test_a_link_of_somebody_else_is_not_followed(host, as_person):
    host.check_output("rm -rf /tmp/of-tom")
    made = "mkdir /tmp/of-tom && ln -s /home/lea/trained/config.json /tmp/of-tom/model.bin"
    assert as_person("tom", made).rc == 0
    for login in ("lea", "root"):
        done = as_person(login, "muster-models add /tmp/of-tom --name lab/x --licence mit")
        assert done.rc == 1
        assert "/tmp/of-tom/model.bin is a link of tom, which is not followed" in done.stderr
    assert not host.file(f"{STORE}/hub/models--lab--x").exists


def test_a_model_comes_from_an_address_is_damaged_and_is_removed(host, as_person):
    address = "http://127.0.0.1:18765/config.json"
    add = f"muster-models add {address} --name lab/file --licence mit"
    refused = as_person("lea", of_server("/home/lea/fetched", f"{add} --sha256 {'0' * 64}"))
    assert refused.rc == 1
    assert not host.file(f"{STORE}/hub/models--lab--file").exists
    done = as_person("lea", of_server("/home/lea/fetched", f"{add} --sha256 $sum"))
    assert done.rc == 0, done.stderr
    shown = as_person("tom", "muster-models list lab/file").stdout
    blob = host.check_output(f"realpath {done.stdout.splitlines()[-1]}/config.json")
    assert {address, "mit", blob.rpartition("/")[2]} <= set(shown.split())

    host.check_output(f"sh -c 'echo another > {blob}'")
    found = as_person("tom", "muster-models verify lab/file")
    assert found.rc == 2
    assert "config.json differs: its SHA-256 is" in found.stderr
    assert f"remove {blob} and add {address} again" in found.stderr

    host.check_output(f"sudo -u muster-models rm -r {STORE}/hub/models--lab--file")
    assert f"removed {blob}" in as_person("lea", "muster-models gc").stdout
    assert not host.file(blob).exists


def test_gc_is_for_members(as_person):
    assert as_person("lea", "muster-models gc").rc == 0
    assert as_person("tom", "muster-models gc").rc == 1


def test_programs_find_the_store(as_person):
    shown = as_person("tom", "echo $HF_HUB_CACHE $HF_HUB_OFFLINE $HF_TOKEN_PATH").stdout
    assert shown.split() == [f"{STORE}/hub", "1", "/home/tom/.cache/huggingface/token"]


def test_who_has_a_cache_of_their_own_keeps_it(as_person):
    own = "env -u HF_HUB_OFFLINE HF_HUB_CACHE=/home/tom/hub"
    shown = as_person("tom", f"{own} bash -lc 'echo $HF_HUB_CACHE $HF_HUB_OFFLINE'")
    assert shown.stdout.split() == ["/home/tom/hub"]


def test_the_hub_s_client_is_missed_with_a_remedy(as_person):
    done = as_person("lea", "muster-models add hf:lab/bert")
    assert done.rc == 1
    assert "huggingface_hub, the client of the hub, is not installed here" in done.stderr


def test_a_person_brings_a_data_set_with_their_own_rights(host, as_person):
    stage = "muster-data stage http://127.0.0.1:18765/config.json /home/lea/set --sha256 $sum"
    done = as_person("lea", of_server("/home/lea/trained", stage))
    assert done.rc == 0, done.stderr
    brought = host.file("/home/lea/set/config.json")
    assert (brought.user, brought.content_string) == ("lea", '{"model_type": "bert"}')
