"""Many calls in one HTTP request, as Google answers them."""

import pytest

from muster.autoscaler.compute import http_batch

# As in https://cloud.google.com/compute/docs/api/how-tos/batch#example: in another order.
ANSWER = """--batch_foobarbaz\r
Content-Type: application/http\r
Content-ID: <response-1>\r
\r
HTTP/1.1 404 Not Found\r
Content-Type: application/json\r
\r
{"error": {"code": 404, "message": "gone", "errors": [{"reason": "notFound"}]}}\r
--batch_foobarbaz\r
Content-Type: application/http\r
Content-ID: <response-0>\r
\r
HTTP/1.1 200 OK\r
ETag: "etag/pony"\r
\r
{"name": "operation-1"}\r
--batch_foobarbaz--\r
"""


@pytest.mark.parametrize("boundary", ["batch_foobarbaz", '"batch_foobarbaz"'])
def test_answers_are_matched_to_their_calls(boundary: str):
    answers = http_batch.answers(f"multipart/mixed; boundary={boundary}", ANSWER.encode())
    assert answers[0] == (200, b'{"name": "operation-1"}\r\n')
    assert answers[1][0] == 404
    assert set(answers) == {0, 1}


def test_a_proxys_page_is_not_an_answer():
    with pytest.raises(ValueError, match="text/html"):
        http_batch.answers("text/html", b"<h1>Bad gateway</h1>")
