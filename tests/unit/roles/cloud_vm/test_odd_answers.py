"""What a VM asks may answer anything: it is one sentence, and may be over at the next try."""

import io
import urllib.request
from email.message import Message
from types import TracebackType
from typing import Any, Self

import pytest
from configuring_vm import guest

GRANTED = '{"access_token": "t"}'


class Answer(io.BytesIO):
    """An answer with status 200."""

    headers = Message()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()


def cloud(**answers: str) -> Any:
    """A VM's cloud; `token`, `secret` and `attributes` are what it answers."""

    def open_(request: urllib.request.Request, timeout: float) -> Answer:
        kind = next(
            name
            for name, part in (("token", "/token"), ("secret", "/secrets/"), ("attributes", ""))
            if part in request.full_url
        )
        return Answer(answers[kind].encode())

    return guest.Cloud(opener=open_)


@pytest.mark.parametrize(
    ("token", "sentence"),
    [
        ("", "the metadata server: no JSON"),
        ("{}", "the metadata server's answer has no access_token"),
        ("[]", "the metadata server's answer has no access_token"),
    ],
)
def test_an_odd_token(token: str, sentence: str):
    with pytest.raises(guest.TroubleError, match=sentence):
        cloud(token=token).download("bucket", "bundle")


@pytest.mark.parametrize("secret", ["{}", '{"payload": {}}', '{"payload": {"data": "%%"}}', "[]"])
def test_an_odd_secret(secret: str):
    with pytest.raises(guest.TroubleError, match="the secret lab-munge-key is no text"):
        cloud(token=GRANTED, secret=secret).secret("p", "lab-munge-key")


def test_an_empty_answer_of_secret_manager():
    with pytest.raises(guest.TroubleError, match="Secret Manager: no JSON"):
        cloud(token=GRANTED, secret="").secret("p", "lab-munge-key")


def test_empty_attributes():
    with pytest.raises(guest.TroubleError, match="the metadata server: no JSON"):
        cloud(attributes="").attributes()
