"""Where credentials come from, when they are renewed, and what is said without them."""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback
from pathlib import Path

import pytest

from gateways._aws.sdk_transport import Reply, Transport
from pump.errors import (
    AccessDenied,
    ConfigurationError,
    ConnectionFailed,
    CredentialsExpired,
    PumpError,
    Throttled,
)

from .conftest import ACCESS_KEY_ID, SECRET, TOKEN, Connect
from .fake_aws import Answer, FakeAws, refusal

# Prints a key of its own each time, that is soon to be renewed.
PROCESS = """
import datetime, json, pathlib, sys
count = pathlib.Path(sys.argv[1])
number = len(count.read_text()) if count.exists() else 0
count.write_text("x" * (number + 1))
soon = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=11)
print(json.dumps({"Version": 1, "AccessKeyId": f"AKIA{number}", "SecretAccessKey": "secret",
                  "SessionToken": "token", "Expiration": soon.isoformat()}))
"""


async def _list(transport: Transport) -> Reply:
    return await transport.call("sqs", "list_queues", {}, target="orders")


def _keys(aws: FakeAws) -> list[str]:
    return [
        seen.headers["authorization"].split("Credential=")[1].split("/")[0] for seen in aws.seen
    ]


async def test_when_credentials_are_given_then_requests_are_signed_with_them(
    aws: FakeAws, connect: Connect
) -> None:
    """R57: hidden, and still at work."""
    await _list(connect())

    [seen] = aws.seen
    assert _keys(aws) == [ACCESS_KEY_ID]
    assert seen.headers["x-amz-security-token"] == TOKEN


async def test_when_the_environment_has_credentials_then_they_are_found(
    aws: FakeAws, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R34: the SDK's own chain, the same over both."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAENVIRONMENT")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")

    await _list(connect(credentials=None, region=None))

    assert _keys(aws) == ["AKIAENVIRONMENT"]
    assert "/eu-central-1/sqs/" in aws.seen[0].headers["authorization"]


@pytest.mark.usefixtures("cold_start")
async def test_when_a_profile_is_named_then_its_files_are_read_off_the_loop(
    aws: FakeAws, connect: Connect, tmp_path: Path
) -> None:
    """R34; a read on the event loop would fail this test."""
    (tmp_path / "credentials").write_text(
        f"[work]\naws_access_key_id = AKIAWORK\naws_secret_access_key = {SECRET}\n"
    )
    (tmp_path / "config").write_text("[profile work]\nregion = ap-south-1\n")

    await _list(connect(credentials=None, region=None, profile="work"))

    assert _keys(aws) == ["AKIAWORK"]
    assert "/ap-south-1/sqs/" in aws.seen[0].headers["authorization"]


async def test_when_credentials_near_their_end_then_they_are_renewed_off_the_loop(
    aws: FakeAws, connect: Connect, tmp_path: Path
) -> None:
    """R34: a long-running pump outlives its first credentials."""
    program, count = tmp_path / "program.py", tmp_path / "count"
    program.write_text(PROCESS)
    (tmp_path / "config").write_text(
        f"[profile work]\ncredential_process = {sys.executable} {program} {count}\n"
    )
    transport = connect(credentials=None, profile="work")

    await _list(transport)
    await _list(transport)

    first, second = _keys(aws)
    assert first != second


async def test_when_there_are_no_credentials_then_each_call_says_so_until_there_are(
    aws: FakeAws, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R31, R56: a failed creation is tried again on the next call, never cached."""
    transport = connect(credentials=None)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="AWS_ACCESS_KEY_ID"):
            await _list(transport)

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    await asyncio.gather(_list(transport), _list(transport))

    assert _keys(aws) == [ACCESS_KEY_ID] * 2


async def test_when_half_a_key_is_found_then_it_says_so(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R56."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY_ID)

    with pytest.raises(ConfigurationError, match="both halves"):
        await _list(connect(credentials=None))


async def test_when_no_region_is_known_then_opening_says_how_to_name_one(connect: Connect) -> None:
    """R56: at the start, not at the first message."""
    with pytest.raises(ConfigurationError, match="AWS_DEFAULT_REGION") as caught:
        await connect(region=None).open()

    assert caught.value.field == "AwsSettings.region"


async def test_when_the_profile_does_not_exist_then_opening_names_it(connect: Connect) -> None:
    """R56."""
    with pytest.raises(ConfigurationError) as caught:
        await connect(credentials=None, profile="nobody").open()

    assert (caught.value.field, caught.value.value) == ("AwsSettings.profile", "nobody")


SIGNED = f"The Canonical String should have been x-amz-security-token:{TOKEN} {ACCESS_KEY_ID}"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (refusal(403, "SignatureDoesNotMatch", SIGNED), CredentialsExpired),
        (refusal(403, "AccessDenied"), AccessDenied),
        (refusal(400, "Throttling"), Throttled),
        (Answer(), None),
    ],
)
async def test_when_anything_happens_then_no_secret_is_printed_or_logged(
    aws: FakeAws,
    connect: Connect,
    caplog: pytest.LogCaptureFixture,
    answer: Answer,
    expected: type[PumpError] | None,
) -> None:
    """R57: in no repr, no message, no traceback, and no log, not even at DEBUG."""
    caplog.set_level(logging.DEBUG)
    aws.always = answer
    transport = connect(max_attempts=1)

    request = {"QueueUrl": aws.url, "MessageBody": "a private body"}
    [result] = await asyncio.gather(
        transport.call("sqs", "send_message", request), return_exceptions=True
    )

    printed = repr(transport)
    if expected is not None:
        assert isinstance(result, expected)
        printed += f"{result!r} {result} {''.join(traceback.format_exception(result))}"
    for secret in (SECRET, TOKEN, ACCESS_KEY_ID, "a private body"):
        assert secret not in printed
        assert secret not in caplog.text


async def test_when_a_proxy_refuses_then_its_password_is_not_told(
    aws: FakeAws, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R57: neither in the error nor in what led to it."""
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, aws.url.replace("//", "//me:hunter2@"))
    aws.always = Answer(status=407, body=b"")

    with pytest.raises(ConnectionFailed, match="proxy") as caught:
        await _list(connect(endpoint_url="https://aws.example", max_attempts=1))

    assert [seen.method for seen in aws.seen] == ["CONNECT"]
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
