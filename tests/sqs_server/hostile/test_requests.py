"""What no SDK sends: refused, in time, and nobody else notices."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode

import pytest

from .conftest import Host, json_request

DEEP = b"[" * 100_000
ARN = "arn:aws:sqs:us-east-1:000000000000:q"


def send(rest: bytes) -> bytes:
    return json_request("SendMessage", b'{"QueueUrl": "q", "MessageBody": ' + rest + b"}")


def attributes(**values: str) -> bytes:
    body = {"QueueUrl": "q", "Attributes": values}
    return json_request("SetQueueAttributes", json.dumps(body).encode())


def get(target: bytes, *headers: bytes) -> bytes:
    return b"\r\n".join([b"GET " + target + b" HTTP/1.1", *headers]) + b"\r\n\r\n"


LOCAL = b"Host: localhost"
REFUSED = {
    "JSON nested deep": send(DEEP),
    "JSON nested deep in a member nobody knows": send(b'"x", "Foo": ' + DEEP),
    "a null, and nested deep": send(b'null, "Foo": ' + b"[" * 900 + b"]" * 900),
    "a number beyond floats": send(b'"x", "DelaySeconds": 1e400'),
    "no number": send(b'"x", "DelaySeconds": NaN'),
    "a number of 5,000 digits": send(b'"x", "DelaySeconds": ' + b"9" * 5_000),
    "a truth value for a number": send(b'"x", "DelaySeconds": true'),
    "half a surrogate pair": send(b'"\\ud800"'),
    "bytes that are not UTF-8": send(b'"\xff\xfe"'),
    "a list for a body": json_request("SendMessage", b"[]"),
    "a compressed body": json_request(
        "ListQueues", gzip.compress(b"{}"), b"Content-Encoding: gzip"
    ),
    "a redrive policy nested deep": attributes(RedrivePolicy=DEEP.decode()),
    "a receive count of 5,000 digits": attributes(
        RedrivePolicy=json.dumps({"deadLetterTargetArn": ARN, "maxReceiveCount": "9" * 5_000})
    ),
    "an allow policy of odd types": attributes(
        RedriveAllowPolicy=json.dumps({"redrivePermission": [], "sourceQueueArns": {}})
    ),
    "a policy nested deep": attributes(Policy='{"a":' * 5_000 + "1" + "}" * 5_000),
    "digits of another script": attributes(VisibilityTimeout="\u0663"),
    "digits as Python writes them": attributes(VisibilityTimeout="1_0"),
    "a task handle nested deep": json_request(
        "CancelMessageMoveTask", json.dumps({"TaskHandle": b64encode(DEEP).decode()}).encode()
    ),
    "a token that is not ASCII": json_request("ListQueues", b'{"NextToken": "\\u00e9"}'),
    "a receipt of a megabyte": json_request(
        "DeleteMessage", b'{"QueueUrl": "q", "ReceiptHandle": "' + b"." * 1_000_000 + b'"}'
    ),
    "a queue name with a path": json_request("CreateQueue", b'{"QueueName": "../../q"}'),
    "a queue name with an accent": json_request("CreateQueue", b'{"QueueName": "qu\\u00e9"}'),
    "a target that is not text": get(b"/", LOCAL, b"X-Amz-Target: AmazonSQS.\xff"),
    "no Host": get(b"/?Action=ListQueues"),
    "two Hosts": get(b"/?Action=ListQueues", LOCAL, b"Host: evil.example"),
    "the Host of another site": get(b"/?Action=ListQueues", b"Host: evil.example"),
    "the Origin of another site": get(
        b"/?Action=ListQueues", LOCAL, b"Origin: http://evil.example"
    ),
    "the Origin null": get(b"/?Action=ListQueues", LOCAL, b"Origin: null"),
    "a form that is not UTF-8": get(b"/?Action=%ff%fe", LOCAL),
    "an action at a folder's": get(b"/../../etc/passwd?Action=ListQueues", LOCAL),
    "two lengths": get(b"/", LOCAL, b"Content-Length: 1", b"Content-Length: 2"),
    "a length and chunks": get(b"/", LOCAL, b"Content-Length: 1", b"Transfer-Encoding: chunked"),
    "a negative length": get(b"/", LOCAL, b"Content-Length: -1"),
    "a length beyond all numbers": get(b"/", LOCAL, b"Content-Length: " + b"9" * 30),
    "a body that is too long": json_request("SendMessage", b"x" * 10)[:-10].replace(
        b"Content-Length: 10", b"Content-Length: 10000000"
    ),
    "a chunk of no size": get(b"/", LOCAL, b"Transfer-Encoding: chunked") + b"ZZ\r\n",
    "a header that is too long": get(b"/", LOCAL, b"X: " + b"a" * 100_000),
    "too many headers": get(b"/", LOCAL, *[b"X-%d: a" % n for n in range(5_000)]),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": bytes.fromhex("1603010200010001fc0303") + bytes(200),
    "noise": b"\x00\xff" * 2_000 + b"\r\n\r\n",
}


@pytest.mark.parametrize("request_", REFUSED.values(), ids=REFUSED.keys())
async def test_when_a_request_makes_no_sense_then_it_is_refused_and_the_next_one_served(
    request_: bytes, host: Host
) -> None:
    """A refusal is the client's fault: neither a success nor a fault of ours."""
    status = await host.ask(request_)

    assert 400 <= status < 500
    assert "QueueUrls" in await host.call("ListQueues")
