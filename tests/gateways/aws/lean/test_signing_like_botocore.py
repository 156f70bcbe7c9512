"""Signatures equal botocore's own, on requests that nobody has thought of."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlsplit

import attrs
import pytest
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from hypothesis import given, settings, strategies as st

from gateways._aws.lean.signing import Signable, Signer, SigningKey, canonical_path

from .botocore_signing import sign_by_botocore

TOKENS = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=12)
NAMES = TOKENS.map(lambda token: f"x-amz-meta-{token}")
VALUES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=30)
SECRETS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40)
# What a segment of a path or a query may hold on the wire.
ENCODED = st.text(max_size=15).map(lambda text: quote(text, safe="~"))
PATHS = st.lists(st.one_of(ENCODED, st.sampled_from(["", ".", ".."])), max_size=5).map(
    lambda segments: "/" + "/".join(segments)
)
QUERIES = st.lists(st.one_of(ENCODED, st.builds("{}={}".format, ENCODED, ENCODED)), max_size=4).map(
    "&".join
)


@attrs.frozen(kw_only=True)
class Case:
    """One request, and who signs it when."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes
    key: SigningKey
    region: str
    at: datetime


CASES = st.builds(
    Case,
    method=st.sampled_from(["GET", "PUT", "POST", "DELETE", "HEAD"]),
    path=PATHS,
    query=QUERIES,
    headers=st.dictionaries(NAMES, VALUES, max_size=5),
    body=st.binary(max_size=100),
    key=st.builds(
        SigningKey,
        access_key_id=TOKENS,
        secret_access_key=SECRETS,
        session_token=st.one_of(st.none(), SECRETS),
    ),
    region=TOKENS,
    at=st.datetimes(datetime(2000, 1, 1), datetime(2099, 1, 1), timezones=st.just(UTC)),
)


def _by_botocore(case: Case, auth_kind: type[Any], service: str) -> dict[str, str]:
    key = case.key
    url = f"http://host.example:8080{case.path}" + (f"?{case.query}" if case.query else "")
    request = AWSRequest(case.method, url, headers=dict(case.headers), data=case.body)
    parts = (key.access_key_id, key.secret_access_key, key.session_token)
    sign_by_botocore(request, auth_kind, (service, case.region), parts, at=case.at)
    return {name.lower(): value for name, value in request.headers.items()}


def sign_for_sqs(case: Case) -> None:
    expected = _by_botocore(case, SigV4Auth, "sqs")

    parts = urlsplit(f"http://host.example:8080{case.path}")
    headers = Signer(region=case.region, service="sqs").sign(
        Signable(
            method=case.method,
            path=canonical_path(parts.path),
            query=case.query,
            headers={"host": "host.example:8080", **case.headers},
            payload_hash=sha256(case.body).hexdigest(),
        ),
        case.key,
        at_s=case.at.timestamp(),
    )

    assert headers["authorization"] == expected["authorization"]
    assert headers["x-amz-date"] == expected["x-amz-date"]


def sign_for_s3(case: Case) -> None:
    """S3 takes paths as they are: its keys may have dots and slashes wherever they like."""
    expected = _by_botocore(case, S3SigV4Auth, "s3")
    payload_hash = sha256(case.body).hexdigest()

    headers = Signer(region=case.region, service="s3").sign(
        Signable(
            method=case.method,
            path=urlsplit(f"http://host.example:8080{case.path}").path,
            query=case.query,
            headers={
                "host": "host.example:8080",
                "x-amz-content-sha256": payload_hash,
                **case.headers,
            },
            payload_hash=payload_hash,
        ),
        case.key,
        at_s=case.at.timestamp(),
    )

    assert headers["authorization"] == expected["authorization"]


@pytest.mark.parametrize("sign", [sign_for_sqs, sign_for_s3])
@settings(max_examples=100)
@given(CASES)
def test_when_any_request_is_signed_then_it_is_as_botocore_signs_it(
    sign: Callable[[Case], None], case: Case
) -> None:
    sign(case)


@pytest.mark.slow
@pytest.mark.parametrize("sign", [sign_for_sqs, sign_for_s3])
@settings(max_examples=1_000)
@given(CASES)
def test_when_any_of_a_thousand_is_signed_then_it_is_as_botocore_signs_it(
    sign: Callable[[Case], None], case: Case
) -> None:
    sign(case)
