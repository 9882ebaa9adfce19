"""The program that builds the image, as far as no machine is needed: what it fetches and says."""

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from muster.gcp import archive, build_image, builder_vm
from muster.gcp.build_image import BuildError, Report

BUNDLE = archive.pack({"ansible/image.yml": b"[]"})
DIGEST = archive.digest(BUNDLE)
OBJECT = f"image-{DIGEST}.tar.gz"


class Google(ThreadingHTTPServer):
    """A metadata server and a bucket; it keeps the reports that it got."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.content = BUNDLE
        self.refusals: list[int] = []
        """Status of the next answers of the bucket."""
        self.asked: list[str] = []
        self.reports: list[dict] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    server: Google

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        status, content = 200, b""
        if self.path == "/instance/attributes/muster-bundle":
            content = f"gs://b/{OBJECT}".encode()
        elif self.path == "/instance/service-accounts/default/token":
            content = b'{"access_token": "t"}'
        elif self.headers["Authorization"] == "Bearer t" and self.path.startswith("/storage/"):
            status = self.server.refusals.pop(0) if self.server.refusals else 200
            content = self.server.content
        else:
            status = 404
        self.send_response(status)
        self.end_headers()
        self.wfile.write(content)

    def do_PUT(self) -> None:
        assert self.path == "/instance/guest-attributes/muster/report"
        assert self.headers["Metadata-Flavor"] == "Google"
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.reports.append(json.loads(body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def google(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Google]:
    server = Google()
    monkeypatch.setattr(build_image, "METADATA", f"{server.url}/instance")
    monkeypatch.setattr(build_image, "STORAGE", f"{server.url}/storage/v1/")
    monkeypatch.setattr(build_image, "WORK", tmp_path / "work")
    monkeypatch.setattr(build_image, "AGAIN_SECONDS", 0.01)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_startup_script_is_one_standalone_program() -> None:
    text = builder_vm.startup_script()
    assert text.startswith("#!/usr/bin/python3\n")
    # https://cloud.google.com/compute/docs/metadata/setting-custom-metadata#limitations
    assert len(text.encode()) < 256 * 1024
    standard = sys.stdlib_module_names
    imported = [
        line.split()[1] for line in text.splitlines() if line.startswith(("import", "from"))
    ]
    assert {name.partition(".")[0] for name in imported} - standard == set()


class TestFetch:
    def test_the_bundle_is_unpacked(self, google: Google) -> None:
        report = Report()
        build_image.fetch(report)
        assert (build_image.WORK / "ansible/image.yml").read_text() == "[]"
        assert report.bundle == DIGEST
        assert google.asked[-1] == f"/storage/v1/b/b/o/{OBJECT}?alt=media"

    def test_roles_may_need_time(self, google: Google) -> None:
        google.refusals = [403, 503, 403]
        build_image.fetch(Report())
        assert (build_image.WORK / "ansible/image.yml").exists()

    def test_what_was_changed_is_not_unpacked(self, google: Google) -> None:
        google.content = archive.pack({"ansible/image.yml": b"[1]"})
        with pytest.raises(BuildError, match="it was changed"):
            build_image.fetch(Report())
        assert not build_image.WORK.exists()

    def test_what_is_not_there_is_not_waited_for(self, google: Google) -> None:
        google.refusals = [404]
        with pytest.raises(BuildError, match=rf"gs://b/{OBJECT} can't be fetched: .*404"):
            build_image.fetch(Report())

    def test_tries_end(self, google: Google, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(build_image, "FETCH_SECONDS", 0.1)
        google.refusals = [403] * 1000
        with pytest.raises(BuildError, match=r"403.*is not in force after 0\.1 s: run it again"):
            build_image.fetch(Report())


class TestReport:
    def test_steps_are_reported_at_a_bounded_rate_and_the_end_always(self, google: Google) -> None:
        report = Report()
        report.bundle = DIGEST
        for number in range(20):
            report.step(f"step {number}")
        report.end("failed", "step 19", "no disk")
        assert google.reports == [
            {"bundle": DIGEST, "state": "running", "step": "step 0"},
            {"bundle": DIGEST, "state": "failed", "step": "step 19", "message": "no disk"},
        ]

    def test_a_build_continues_where_nobody_listens(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(build_image, "METADATA", "http://127.0.0.1:9/instance")
        Report().step("a step")


class TestCommands:
    def test_a_failure_says_what_apt_or_pip_said(self) -> None:
        script = "echo E: no space; echo more words; exit 100"
        with pytest.raises(BuildError, match=r"^apt-get update: E: no space$"):
            build_image.do(["sh", "-c", script], 10, "apt-get update")

    def test_one_without_words_says_its_exit_status(self) -> None:
        with pytest.raises(BuildError, match=r"^it: exit status 3$"):
            build_image.do(["sh", "-c", "exit 3"], 10, "it")

    def test_one_without_an_end_is_ended(self) -> None:
        with pytest.raises(BuildError, match=r"^it: no end after 1 s$"):
            build_image.do(["sleep", "60"], 1, "it")


PLAYBOOK = """
- name: Image
  hosts: all
  gather_facts: false
  tasks:
    - name: Overcome something
      block:
        - name: Fail in passing
          ansible.builtin.fail: {msg: in passing}
      rescue:
        - name: Go on
          ansible.builtin.debug: {msg: on}
    - name: Install all
      ansible.builtin.fail:
        msg: MESSAGE
"""


class TestPlay:
    @pytest.fixture
    def work(self, google: Google, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: ARG002
        monkeypatch.setattr(build_image, "VENV", Path(sys.prefix))
        folder = build_image.WORK / "ansible"
        folder.mkdir(parents=True)
        return folder / "image.yml"

    @pytest.mark.parametrize(
        ("message", "said"),
        [("no such package", "no such package"), ("[one, 'a \"b\"']", 'one; a "b"')],
    )
    def test_the_failed_task_is_reported(
        self, google: Google, work: Path, message: str, said: str
    ) -> None:
        work.write_text(PLAYBOOK.replace("MESSAGE", message))
        with pytest.raises(BuildError) as caught:
            build_image.play(Report())
        assert str(caught.value) == f"Install all: {said}"
        assert google.reports[0]["step"] == "Image"

    def test_a_playbook_that_can_not_be_read_is_reported(self, work: Path) -> None:
        work.write_text("- hosts: [\n")
        with pytest.raises(BuildError, match=r"^image\.yml: .+"):
            build_image.play(Report())

    def test_a_task_that_was_rescued_is_no_failure(self, work: Path) -> None:
        work.write_text(
            PLAYBOOK.replace(
                "ansible.builtin.fail:\n        msg", "ansible.builtin.debug:\n        msg"
            )
        )
        build_image.play(Report())
