"""A VM brings itself to what its metadata asks for, and says how far it is."""

import json
import stat
import time
from base64 import b64decode
from pathlib import Path

from configuring_vm import bundle, digest_of, until
from muster_configure import report
from muster_configure.report import FAILED, RUNNING, Report, notice

from muster_sandbox.fakecloud import policies_in_force
from muster_sandbox.fakecloud.api_errors import ApiError

FAILING = [
    {"task": "slurmctld : Write the files of slurmctld and run it"},
    {
        "task": "slurmctld : Write the files of slurmctld and run it",
        "failed": "slurmctld: not up after 60 s; fix it",
    },
]


def test_controller_applies_its_bundle_and_says_so(vm):
    archive = bundle()
    vm.raise_()
    vm.boot()
    vm.set(muster_bundle=vm.upload(archive))
    assert vm.reports(state="done") == {
        "bundle": digest_of(archive),
        "state": "done",
        "step": "",
        "message": "",
    }
    (run,) = vm.runs()
    assert run["argv"][:4] == ["--inventory", "inventory", "--limit", "slurm10-controller"]
    assert run["argv"][-1] == "ansible/site.yml"
    assert Path(run["cwd"]).name == digest_of(archive)
    assert (vm.opt / "current").resolve() == Path(run["cwd"])
    # Code is for all; the definition names people and their addresses.
    assert stat.S_IMODE((vm.opt / "current/inventory").stat().st_mode) == 0o700
    assert not vm.notice.exists()
    assert vm.broadcasts == [
        "Muster: slurm10-controller is set up; SLURM's commands and the folders are there."
    ]
    assert vm.attribute("hostkeys/ssh-ed25519") == "AAAAkey"


def test_inventory_knows_the_cluster_as_the_vm_sees_it(vm):
    vm.raise_("login")
    vm.add_version("munge-key", "a2V5")
    vm.boot(slurmctld_port=vm.listen())
    vm.set(muster_bundle=vm.upload(bundle()))
    vm.reports(state="done")
    hosts = json.loads((vm.opt / "current/inventory/machines.json").read_text())
    assert hosts["all"]["hosts"] == {
        "slurm10-controller": {"ansible_host": "127.0.0.2"},
        "slurm10-login-0": {"ansible_connection": "local", "verify_controller": ""},
    }
    assert list(hosts["database"]["hosts"]) == ["slurm10-controller"]
    assert vm.runs()[0]["variables"] == {"secrets": {"munge_key": "a2V5"}}


def test_controller_makes_the_secrets_once(vm):
    vm.raise_()
    vm.boot()
    vm.set(muster_bundle=vm.upload(bundle()))
    vm.reports(state="done")
    (munge_key,), (password,) = vm.versions("munge-key"), vm.versions("slurmdbd-password")
    assert len(b64decode(munge_key, validate=True)) == 128
    assert len(password) == 40 and password.isalnum()
    secrets = {"munge_key": munge_key, "slurmdbd_password": password}
    assert vm.runs()[0]["variables"] == {"secrets": secrets}
    # With another bundle too: what is there is used.
    vm.add_version("munge-key", "bmV3")
    other = bundle([{"task": "Another"}])
    vm.set(muster_bundle=vm.upload(other))
    vm.reports(bundle=digest_of(other), state="done")
    assert vm.versions("munge-key") == ["bmV3", munge_key]
    assert vm.runs()[1]["variables"]["secrets"]["munge_key"] == "bmV3"


def test_controller_takes_the_relay_s_password_from_who_has_it(vm):
    vm.raise_()
    vm.add_version("mail-password", "sesame")
    vm.boot()
    vm.set(muster_bundle=vm.upload(bundle()))
    vm.reports(state="done")
    secrets = vm.runs()[0]["variables"]["secrets"]
    assert secrets.keys() == {"munge_key", "slurmdbd_password", "mail_password"}
    assert secrets["mail_password"] == "sesame"  # noqa: S105
    assert vm.versions("mail-password") == ["sesame"]


def test_no_secret_is_left_anywhere_but_where_it_belongs(vm, capfd):
    vm.raise_()
    vm.boot()
    vm.set(muster_bundle=vm.upload(bundle(FAILING, 2)))
    vm.reports(state="failed")
    secrets = vm.versions("munge-key") + vm.versions("slurmdbd-password")
    (run, *_) = vm.runs()
    assert run["mode"] == "0o600"
    assert stat.S_IMODE((vm.folder / "private").stat().st_mode) == 0o700
    assert not (vm.folder / "private/secrets.json").exists()
    del run["variables"]
    places = {
        "arguments and environment": json.dumps(run),
        "report": json.dumps(vm.report()),
        "notice": vm.notice.read_text(),
        "log": "\n".join(vm.log) + "".join(capfd.readouterr()),
        "broadcasts": "\n".join(vm.broadcasts),
        **{str(file): file.read_text() for file in vm.opt.rglob("*") if file.is_file()},
    }
    assert len(secrets) == 2
    leaks = [
        (place, secret) for place, text in places.items() for secret in secrets if secret in text
    ]
    assert leaks == []


def test_login_waits_for_the_first_version_and_says_so(vm):
    vm.raise_("login")
    vm.boot(slurmctld_port=vm.listen())
    vm.set(muster_bundle=vm.upload(bundle()))
    report = vm.reports(state="failed")
    assert report["step"] == "Read the secrets"
    assert report["message"] == (
        "the secret slurm10-munge-key has no version yet; the controller's first boot adds it"
    )
    assert vm.runs() == []
    assert vm.versions("munge-key") == []
    vm.add_version("munge-key", "a2V5")
    vm.reports(state="done")


def test_login_waits_for_slurmctld(vm):
    vm.raise_("login")
    vm.add_version("munge-key", "a2V5")
    port = vm.listen()
    vm.deaf()
    vm.boot(slurmctld_port=port)
    vm.set(muster_bundle=vm.upload(bundle()))
    report = vm.reports(state="failed")
    assert report["step"] == "Wait for the controller"
    assert f"slurmctld at 127.0.0.2:{port} does not answer" in report["message"]
    assert vm.runs() == []
    vm.listen(port)
    vm.reports(state="done")


def test_secret_manager_that_is_down_at_boot_is_waited_for(vm, server):
    vm.raise_()
    down = ApiError(503, "backendError", "The service is currently unavailable.")
    server.do(lambda cloud: cloud.faults.add("secretmanager.*", times=10**6, error=down))
    vm.boot()
    vm.set(muster_bundle=vm.upload(bundle()))
    report = vm.reports(state="failed")
    assert report["step"] == "Read the secrets"
    assert "Secret Manager answers 503: The service is currently unavailable." in report["message"]
    assert vm.runs() == []
    server.do(lambda cloud: cloud.faults.waiting.clear())
    vm.reports(state="done")


def test_secrets_that_are_not_there_at_all_are_named(vm):
    vm.raise_(secrets=False)
    vm.boot()
    vm.set(muster_bundle=vm.upload(bundle()))
    report = vm.reports(state="failed")
    assert "slurm10-munge-key" in report["message"]


def test_rights_that_are_in_force_late_are_waited_for(vm, server):
    server.do(lambda cloud: setattr(cloud.settings, "grant_seconds", 3600))
    vm.raise_()
    vm.boot()
    vm.set(muster_bundle=vm.upload(bundle()))
    report = vm.reports(message="they are in force some minutes later: this is tried again")
    assert report["step"] == "Fetch the bundle"
    assert report["message"].startswith("Cloud Storage answers 403: ")
    server.do(lambda cloud: policies_in_force.forget(cloud, "projects/demo-project"))
    vm.reports(state="done")


def test_bundle_with_another_digest_is_refused(vm):
    vm.raise_()
    vm.boot()
    vm.set(muster_bundle=vm.upload(bundle(), digest="ab" * 32))
    report = vm.reports(state="failed")
    assert report["step"] == "Fetch the bundle"
    assert "its name says abababababab...: it is refused" in report["message"]
    assert vm.runs() == []
    assert not (vm.opt / "current").exists()


def test_bundle_that_is_missing_is_said_and_waited_for(vm):
    archive = bundle()
    vm.raise_()
    vm.boot()
    vm.set(muster_bundle=f"gs://slurm10-bundles/bundle-{digest_of(archive)}.tar.gz")
    report = vm.reports(state="failed")
    assert report["step"] == "Fetch the bundle"
    assert "Cloud Storage answers 404" in report["message"]
    vm.upload(archive)
    vm.reports(state="done")


def test_bundle_that_leads_out_of_its_folder_is_refused(vm):
    vm.raise_()
    vm.boot()
    vm.set(muster_bundle=vm.upload(bundle(**{"../../outside": "x"})))
    report = vm.reports(state="failed")
    assert "the bundle holds ../../outside" in report["message"]
    assert not (vm.folder / "outside").exists()


def test_failed_task_is_reported_after_three_tries(vm):
    vm.raise_()
    vm.boot()
    vm.set(muster_bundle=vm.upload(bundle(FAILING, 2)))
    report = vm.reports(state="failed")
    assert report["step"] == "slurmctld : Write the files of slurmctld and run it"
    assert report["message"] == "slurmctld: not up after 60 s; fix it"
    assert len(vm.runs()) == 3
    assert "slurmctld: not up after 60 s; fix it" in vm.notice.read_text()
    assert vm.broadcasts == [
        "Muster: slurm10-controller could not be set up; the next login says why."
    ]


def test_a_message_of_any_length_is_told(vm):
    """Else nobody hears of the failure: a guest attribute has its limits."""
    long = [{"task": "Install", "failed": f"first {'x' * 50_000} last"}]
    vm.raise_()
    vm.boot()
    vm.set(muster_bundle=vm.upload(bundle(long, 2)))
    message = vm.reports(state="failed")["message"]
    assert message.startswith("first x")
    assert message.endswith("x last")
    assert len(message) < 2100


def test_run_that_fails_once_goes_on_as_running(vm):
    """A program that waits for the report must not give up while another try is to come."""
    vm.raise_()
    program = vm.boot()
    program.pauses_s = (1.0, 0.1)
    vm.set(muster_bundle=vm.upload(bundle(FAILING, 2)))
    report = vm.reports(message="tried again in 1.0 s")
    assert report["state"] == "running"
    assert report["step"] == "slurmctld : Write the files of slurmctld and run it"


def test_new_bundle_mends_a_failed_run(vm):
    vm.raise_()
    vm.boot()
    vm.set(muster_bundle=vm.upload(bundle(FAILING, 2)))
    vm.reports(state="failed")
    good = bundle()
    vm.set(muster_bundle=vm.upload(good))
    vm.reports(bundle=digest_of(good), state="done")
    assert not vm.notice.exists()


def test_old_bundle_after_one_that_failed_is_applied_again(vm):
    good = bundle()
    vm.raise_()
    vm.boot()
    vm.set(muster_bundle=vm.upload(good))
    vm.reports(bundle=digest_of(good), state="done")
    vm.set(muster_bundle=vm.upload(bundle(FAILING, 2)))
    vm.reports(state="failed")
    vm.set(muster_bundle=vm.upload(good))
    vm.reports(bundle=digest_of(good), state="done")
    assert Path(vm.runs()[-1]["cwd"]).name == digest_of(good)
    assert (vm.opt / "current").resolve().name == digest_of(good)


def test_wrong_definition_is_reported_with_its_sentence(vm):
    wrong = "cluster:\n  name: slurm10\n  os: debian-12\n  nodez: {}\n"
    vm.raise_()
    vm.boot()
    vm.set(muster_bundle=vm.upload(bundle(**{"inventory/group_vars/all/cluster.yml": wrong})))
    report = vm.reports(state="failed")
    assert report["step"] == "Read the definition"
    assert "nodez" in report["message"]
    assert "did you mean" in report["message"]


def test_step_and_notice_say_what_is_going_on(vm):
    go = vm.folder / "go"
    vm.raise_()
    vm.boot()
    vm.set(muster_bundle=vm.upload(bundle([{"task": "Install all"}, {"until": str(go)}])))
    report = vm.reports(step="Install all")
    assert report["state"] == "running"
    assert "Install all" in vm.notice.read_text()
    assert [file.name for file in vm.notice.parent.iterdir()] == ["muster"]
    go.touch()
    vm.reports(state="done")
    assert not vm.notice.exists()


def test_bundle_that_changes_during_a_run_is_applied_next(vm):
    go = vm.folder / "go"
    first = bundle([{"task": "First"}, {"until": str(go)}])
    vm.raise_()
    vm.boot()
    vm.set(muster_bundle=vm.upload(first))
    vm.reports(step="First")
    second = bundle([{"task": "Second"}])
    vm.set(muster_bundle=vm.upload(second))
    assert vm.report()["bundle"] == digest_of(first)
    go.touch()
    vm.reports(bundle=digest_of(second), state="done")
    assert [Path(run["cwd"]).name for run in vm.runs()] == [digest_of(first), digest_of(second)]


def test_new_bundle_ends_the_waiting_for_the_old_one(vm):
    vm.raise_()
    vm.boot()
    vm.set(muster_bundle=f"gs://slurm10-bundles/bundle-{'cd' * 32}.tar.gz")
    vm.reports(step="Fetch the bundle")
    archive = bundle()
    vm.set(muster_bundle=vm.upload(archive))
    vm.reports(bundle=digest_of(archive), state="done")


def test_two_bundles_are_kept(vm):
    vm.raise_()
    vm.boot()
    archives = [bundle([{"task": f"Number {number}"}]) for number in range(4)]
    for archive in archives:
        vm.set(muster_bundle=vm.upload(archive))
        vm.reports(bundle=digest_of(archive), state="done")
    kept = {path.name for path in (vm.opt / "bundles").iterdir()}
    assert kept == {digest_of(archive) for archive in archives[2:]}
    assert (vm.opt / "current").resolve().name == digest_of(archives[3])


def test_reboot_runs_nothing_and_reports(vm):
    archive = bundle()
    vm.raise_()
    vm.boot()
    vm.set(muster_bundle=vm.upload(archive))
    vm.reports(state="done")
    vm.forget_report()
    vm.boot()
    assert vm.reports(state="done")["bundle"] == digest_of(archive)
    assert len(vm.runs()) == 1


def test_changed_address_of_a_host_needs_a_run(vm):
    vm.raise_()
    vm.boot()
    vm.set(muster_bundle=vm.upload(bundle()))
    vm.reports(state="done")
    vm.set(muster_hosts='{"slurm10-controller": "127.0.0.9"}')
    until(lambda: len(vm.runs()) == 2, "a second run")


def test_attribute_of_others_needs_no_run(vm):
    vm.raise_()
    vm.boot()
    vm.set(muster_bundle=vm.upload(bundle()))
    vm.reports(state="done")
    vm.set(muster_templates='{"debug": {}}')
    # What comes later is seen, so this was too.
    other = bundle([{"task": "Another"}])
    vm.set(muster_bundle=vm.upload(other))
    vm.reports(bundle=digest_of(other), state="done")
    assert len(vm.runs()) == 2


def test_malformed_metadata_are_said_in_the_log(vm):
    vm.raise_()
    vm.boot()
    until(lambda: any("the metadata has no muster-bundle" in line for line in vm.log), "missing")
    vm.set(muster_bundle="gs://x/y.tar.gz")
    until(lambda: any("not gs://BUCKET/bundle-SHA256" in line for line in vm.log), "malformed")
    vm.set(muster_bundle=vm.upload(bundle()))
    vm.reports(state="done")


def test_metadata_server_that_is_away_does_not_end_it(vm):
    vm.raise_()
    vm.set(muster_bundle=vm.upload(bundle()))
    vm.unreachable = True
    vm.boot()
    until(lambda: any("metadata server does not answer" in line for line in vm.log), "said")
    vm.unreachable = False
    vm.reports(state="done")


def test_notice_is_written_before_the_report_is_sent(tmp_path, monkeypatch):
    file = tmp_path / "motd.d/muster"
    seen: list[str] = []

    class Cloud:
        def tell(self, _name: str, _value: str) -> None:
            seen.append(file.read_text() if file.exists() else "")

    def slow_notice(it: Report) -> str:
        time.sleep(0.1)
        return notice(it)

    monkeypatch.setattr(report, "notice", slow_notice)
    reporter = report.Reporter(Cloud(), file)
    reporter.start()
    reporter.running("ab", "Install all")
    assert reporter.flush(5)
    assert "Install all" in seen[0]


def test_notice_names_what_failed_and_where_to_look():
    text = notice(Report("ab", FAILED, "Write the files of slurmctld and run it", "not up"))
    assert "Write the files of slurmctld and run it: not up" in text
    assert "journalctl -u muster-configure" in text
    text = notice(Report("ab", RUNNING, "Install MariaDB"))
    assert "Install MariaDB" in text
    assert "running jobs go on" in text
