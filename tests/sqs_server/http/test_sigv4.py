"""Signature Version 4, with botocore as the signer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any
from urllib.parse import urlsplit

import attrs
import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given, strategies as st

from gateways.sqs_server.errors import SqsError
from gateways.sqs_server.http.sigv4 import SignedRequest, verify

KEY, SECRET = "AKIAEXAMPLE", "s3cret/with+signs="
SECRETS = {KEY: SECRET, "AKIAOTHER": "another"}
URL = "http://127.0.0.1:9324/"


def sign(
    *,
    method: str = "POST",
    url: str = URL,
    body: bytes = b'{"QueueUrl": "q"}',
    headers: dict[str, str] | None = None,
    secret: str = SECRET,
    key: str = KEY,
    token: str | None = None,
    signer: Callable[[Any], Any] = lambda who: SigV4Auth(who, "sqs", "eu-west-1"),
) -> tuple[SignedRequest, float]:
    """A signed request as the server gets it, and when it was signed."""
    request = AWSRequest(
        method,
        url,
        headers={"X-Amz-Target": "AmazonSQS.SendMessage"} if headers is None else headers,
        data=body,
    )
    signer(Credentials(key, secret, token)).add_auth(request)
    prepared = request.prepare()
    split = urlsplit(prepared.url)
    pairs = [(name, str(value)) for name, value in prepared.headers.items()]
    if "Host" not in prepared.headers:
        pairs.append(("Host", split.netloc))
    signed_at = datetime.strptime(request.context["timestamp"], "%Y%m%dT%H%M%SZ")
    signed = SignedRequest(
        method=method, path=split.path, query=split.query, headers=pairs, body=body
    )
    return signed, signed_at.replace(tzinfo=UTC).timestamp()


def presign(**options: Any) -> tuple[SignedRequest, float]:
    return sign(
        method="GET",
        url=URL + "000000000000/orders?Action=SendMessage&MessageBody=a%20b%2Bc%26%C3%A9",
        body=b"",
        headers={},
        signer=lambda who: SigV4QueryAuth(who, "sqs", "eu-west-1", expires=60),
        **options,
    )


def with_header(request: SignedRequest, name: str, value: str | None) -> SignedRequest:
    others = [pair for pair in request.headers if pair[0].lower() != name.lower()]
    return attrs.evolve(request, headers=[*others, *([(name, value)] if value is not None else [])])


def code_of(request: SignedRequest, now_s: float) -> str:
    with pytest.raises(SqsError) as refused:
        verify(request, SECRETS, now_s)
    return refused.value.query_code


def test_when_botocore_signs_then_the_key_is_known() -> None:
    request, now_s = sign()

    assert verify(request, SECRETS, now_s) == KEY


def test_when_there_is_a_session_token_then_it_is_allowed() -> None:
    request, now_s = sign(token="token")

    assert verify(request, SECRETS, now_s) == KEY


@given(
    body=st.binary(max_size=50),
    value=st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20),
    query=st.dictionaries(st.sampled_from("abcXYZ"), st.sampled_from(["", "1", "a%20b", "%C3%A9"])),
)
def test_when_a_request_has_any_body_header_and_query_then_its_signature_matches(
    body: bytes, value: str, query: dict[str, str]
) -> None:
    tail = "&".join(f"{name}={text}" for name, text in query.items())

    request, now_s = sign(
        url=f"{URL}000000000000/a%20queue?{tail}", body=body, headers={"X-Amz-Extra": value}
    )

    assert verify(request, SECRETS, now_s) == KEY


def test_when_a_url_is_presigned_then_the_key_is_known() -> None:
    request, now_s = presign()

    assert verify(request, SECRETS, now_s) == KEY


def test_when_the_secret_is_another_then_the_signature_does_not_match() -> None:
    assert code_of(*sign(secret="wrong")) == "SignatureDoesNotMatch"
    assert code_of(*presign(secret="wrong")) == "SignatureDoesNotMatch"


def test_when_the_key_is_unknown_then_it_is_said_so() -> None:
    assert code_of(*sign(key="AKIANOBODY")) == "InvalidClientTokenId"
    assert code_of(*presign(key="AKIANOBODY")) == "InvalidClientTokenId"


def test_when_there_is_no_signature_then_it_is_said_so() -> None:
    request, now_s = sign()

    assert code_of(with_header(request, "Authorization", None), now_s) == (
        "MissingAuthenticationToken"
    )


@pytest.mark.parametrize(
    "tamper",
    [
        lambda request: attrs.evolve(request, body=b'{"QueueUrl": "p"}'),
        lambda request: attrs.evolve(request, method="GET"),
        lambda request: attrs.evolve(request, path="/other"),
        lambda request: attrs.evolve(request, query="Action=DeleteQueue"),
        lambda request: with_header(request, "X-Amz-Target", "AmazonSQS.DeleteQueue"),
        lambda request: with_header(request, "X-Amz-Target", None),
        lambda request: with_header(request, "X-Amz-Date", "20000101T000000Z"),
        lambda request: with_header(request, "Host", "elsewhere"),
        lambda request: with_header(request, "X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD"),
    ],
)
def test_when_a_signed_request_is_changed_then_the_signature_does_not_match(
    tamper: Callable[[SignedRequest], SignedRequest],
) -> None:
    request, now_s = sign()

    assert code_of(tamper(request), now_s) == "SignatureDoesNotMatch"


def test_when_a_target_is_added_to_a_signed_form_then_it_is_not_obeyed() -> None:
    request, now_s = sign(headers={}, body=b"Action=ListQueues")

    added = with_header(request, "X-Amz-Target", "AmazonSQS.DeleteQueue")

    assert code_of(added, now_s) == "SignatureDoesNotMatch"


@pytest.mark.parametrize(
    ("before", "after"),
    [("MessageBody=a", "MessageBody=z"), ("Expires=60", "Expires=600"), ("SendMessage", "Dance")],
)
def test_when_a_presigned_url_is_changed_then_the_signature_does_not_match(
    before: str, after: str
) -> None:
    request, now_s = presign()
    assert before in request.query

    changed = attrs.evolve(request, query=request.query.replace(before, after))

    assert code_of(changed, now_s) == "SignatureDoesNotMatch"


def test_when_the_payload_hash_is_stated_and_true_then_it_is_accepted() -> None:
    digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    request, now_s = sign(body=b"", headers={"X-Amz-Content-SHA256": digest})

    assert verify(request, SECRETS, now_s) == KEY


def test_when_the_clock_is_fifteen_minutes_off_then_it_still_passes() -> None:
    request, now_s = sign()

    assert verify(request, SECRETS, now_s + 900) == KEY
    assert verify(request, SECRETS, now_s - 900) == KEY


def test_when_the_signature_is_too_old_then_it_has_expired() -> None:
    request, now_s = sign()

    with pytest.raises(SqsError, match=r"Signature expired: \w+ is now earlier than") as refused:
        verify(request, SECRETS, now_s + 901)

    assert refused.value.code == "InvalidSignatureException"


def test_when_the_signature_is_from_the_future_then_it_is_not_current() -> None:
    request, now_s = sign()

    with pytest.raises(SqsError, match="Signature not yet current"):
        verify(request, SECRETS, now_s - 901)


def test_when_a_presigned_url_is_past_its_time_then_the_request_has_expired() -> None:
    request, now_s = presign()

    assert verify(request, SECRETS, now_s + 60) == KEY
    assert code_of(request, now_s + 61) == "RequestExpired"


def test_when_the_signature_is_for_another_service_then_it_does_not_match() -> None:
    request, now_s = sign(signer=lambda who: SigV4Auth(who, "s3", "eu-west-1"))

    with pytest.raises(SqsError, match="scoped to correct service"):
        verify(request, SECRETS, now_s)


@pytest.mark.parametrize(
    "authorization",
    [
        "Basic dXNlcjpwYXNz",
        "AWS4-HMAC-SHA256",
        "AWS4-HMAC-SHA256 Credential=a, SignedHeaders=host, Signature=0",
        "AWS4-HMAC-SHA256 Credential=a/b/c/sqs/aws4_request, SignedHeaders=host",
    ],
)
def test_when_the_authorization_lacks_a_part_then_it_is_incomplete(authorization: str) -> None:
    request, now_s = sign()

    assert code_of(with_header(request, "Authorization", authorization), now_s) == (
        "IncompleteSignature"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("X-Amz-Algorithm=AWS4-HMAC-SHA256", "X-Amz-Algorithm=none"),
        ("X-Amz-SignedHeaders", "X-Amz-Headers"),
        ("X-Amz-Expires=60", "X-Amz-Expires=604801"),
        ("X-Amz-Expires=60", "X-Amz-Expires=soon"),
        ("X-Amz-Date=2", "X-Amz-Date=x"),
    ],
)
def test_when_a_presigned_url_lacks_a_part_then_it_is_incomplete(before: str, after: str) -> None:
    request, now_s = presign()
    assert before in request.query

    changed = attrs.evolve(request, query=request.query.replace(before, after))

    assert code_of(changed, now_s) == "IncompleteSignature"


def test_when_the_host_is_not_signed_then_the_signature_does_not_count() -> None:
    request, now_s = presign()
    query = request.query.replace("SignedHeaders=host", "SignedHeaders=date")

    assert code_of(attrs.evolve(request, query=query), now_s) == "SignatureDoesNotMatch"


def test_when_only_a_plain_date_header_comes_then_it_is_read() -> None:
    request, now_s = sign()
    plain = format_datetime(datetime.fromtimestamp(now_s, UTC), usegmt=True)
    dated = with_header(with_header(request, "X-Amz-Date", None), "Date", plain)

    # Understood, but it is not what was signed.
    assert code_of(dated, now_s) == "SignatureDoesNotMatch"


@pytest.mark.parametrize("date", [None, "yesterday", "20259999T999999Z"])
def test_when_there_is_no_date_then_the_signature_is_incomplete(date: str | None) -> None:
    request, now_s = sign()

    assert code_of(with_header(request, "X-Amz-Date", date), now_s) in (
        "IncompleteSignature",
        "SignatureDoesNotMatch",
    )


def test_when_somebody_signs_as_one_and_names_another_then_it_is_refused() -> None:
    request, now_s = sign()
    [authorization] = [value for name, value in request.headers if name == "Authorization"]
    scope = "Credential=111111111111/20250615/us-east-1/sqs/aws4_request"
    named = authorization.replace(" ", f" {scope}, ", 1)

    assert code_of(with_header(request, "Authorization", named), now_s) == "IncompleteSignature"


def test_when_a_presigned_url_names_two_signers_then_it_is_refused() -> None:
    request, now_s = presign()
    query = f"X-Amz-Credential=111111111111%2F20250615%2Fx%2Fsqs%2Faws4_request&{request.query}"

    assert code_of(attrs.evolve(request, query=query), now_s) == "IncompleteSignature"


@given(
    authorization=st.text(),
    date=st.text(max_size=20),
    query=st.text().map(lambda tail: f"X-Amz-Signature=0&X-Amz-Algorithm=AWS4-HMAC-SHA256&{tail}"),
    is_presigned=st.booleans(),
)
def test_when_the_claim_is_noise_then_it_is_refused_and_nothing_else(
    authorization: str, date: str, query: str, is_presigned: bool
) -> None:
    headers = [("Host", "x"), ("X-Amz-Date", date)]
    if not is_presigned:
        headers.append(("Authorization", f"AWS4-HMAC-SHA256 {authorization}"))
    request = SignedRequest(method="GET", path="/", query=query, headers=headers, body=b"")

    with pytest.raises(SqsError):
        verify(request, SECRETS, 0.0)


def test_when_a_request_is_shown_then_headers_and_body_are_not() -> None:
    request, _ = sign()

    assert "Authorization" not in repr(request)
    assert "QueueUrl" not in repr(request)


@pytest.mark.parametrize(
    ("name", "value"),
    [("Authorization", None), ("X-Amz-Content-SHA256", "\udcff")],
    ids=["signature", "payload hash"],
)
def test_when_a_header_has_a_byte_that_is_not_utf_8_then_it_does_not_match(
    name: str, value: str | None
) -> None:
    """As aiohttp hands it over, with a surrogate for the byte."""
    headers = {"X-Amz-Content-SHA256": "x"} if value else {}
    request, now_s = sign(headers=headers)
    signed = dict(request.headers)["Authorization"]

    spoilt = with_header(request, name, value or f"{signed}\udcff")

    assert code_of(spoilt, now_s) == "SignatureDoesNotMatch"


def test_when_a_path_has_a_byte_that_is_not_utf_8_then_it_does_not_match() -> None:
    request, now_s = sign()

    assert code_of(attrs.evolve(request, path="/\udcff"), now_s) == "SignatureDoesNotMatch"
