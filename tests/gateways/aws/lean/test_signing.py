"""Signatures equal those that AWS has published."""

from __future__ import annotations

from hashlib import sha256
from urllib.parse import urlsplit

import attrs
import pytest

from gateways._aws.lean.signing import (
    EMPTY_HASH,
    Signable,
    Signer,
    SigningKey,
    canonical_path,
    canonical_query,
)

# AWS's test suite of Signature Version 4: one key, one moment, one service.
KEY = SigningKey(
    access_key_id="AKIDEXAMPLE", secret_access_key="wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
)
NOON_S = 1440938160.0  # 2015-08-30T12:36:00Z
VANILLA = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
UNRESERVED = "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
FORM = {"content-type": "application/x-www-form-urlencoded"}
TOKEN = (
    "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPf"
    "IeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7W"
    "Z0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8F"
    "DrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA=="
)


@attrs.frozen
class Vector:
    """A request of the suite and the signature it has to have."""

    name: str
    signature: str
    url: str = "/"
    method: str = "GET"
    headers: dict[str, str] = attrs.field(factory=dict)
    body: bytes = b""


SUITE = [
    Vector("get-vanilla", VANILLA),
    Vector(
        "get-vanilla-query-order-key-case",
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        url="/?Param2=value2&Param1=value1",
    ),
    Vector(
        "get-vanilla-query-order-value",
        "eedbc4e291e521cf13422ffca22be7d2eb8146eecf653089df300a15b2382bd1",
        url="/?Param1=value2&Param1=Value1",
    ),
    Vector(
        "get-vanilla-empty-query-key",
        "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb",
        url="/?Param1=value1",
    ),
    Vector(
        "get-vanilla-query-unreserved",
        "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197",
        url=f"/?{UNRESERVED}={UNRESERVED}",
    ),
    Vector(
        "get-vanilla-utf8-query",
        "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04",
        url="/?%E1%88%B4=bar",
    ),
    Vector(
        "get-unreserved",
        "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f",
        url=f"/{UNRESERVED}",
    ),
    Vector(
        "get-utf8",
        "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85",
        url="/ሴ",
    ),
    Vector(
        "get-space",
        "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741",
        url="/example space/",
    ),
    Vector("get-relative", VANILLA, url="/example/.."),
    Vector("get-relative-relative", VANILLA, url="/example1/example2/../.."),
    Vector("get-slash", VANILLA, url="//"),
    Vector("get-slash-dot-slash", VANILLA, url="/./"),
    Vector(
        "get-slash-pointless-dot",
        "ef75d96142cf21edca26f06005da7988e4f8dc83a165a80865db7089db637ec5",
        url="/./example",
    ),
    Vector(
        "get-slashes",
        "9a624bd73a37c9a373b5312afbebe7a714a789de108f0bdfe846570885f57e84",
        url="//example//",
    ),
    Vector(
        "get-header-value-trim",
        "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
        headers={"my-header1": " value1", "my-header2": ' "a   b   c"'},
    ),
    Vector(
        "get-header-key-duplicate",
        "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea",
        headers={"my-header1": "value2,value2,value1"},
    ),
    Vector(
        "post-vanilla",
        "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
        method="POST",
    ),
    Vector(
        "post-header-key-sort",
        "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c",
        method="POST",
        headers={"my-header1": "value1"},
    ),
    Vector(
        "post-header-value-case",
        "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d",
        method="POST",
        headers={"my-header1": "VALUE1"},
    ),
    Vector(
        "post-x-www-form-urlencoded",
        "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
        method="POST",
        headers=FORM,
        body=b"Param1=value1",
    ),
]


@pytest.mark.parametrize("vector", SUITE, ids=[vector.name for vector in SUITE])
def test_when_a_request_of_the_suite_is_signed_then_it_has_the_published_signature(
    vector: Vector,
) -> None:
    parts = urlsplit(f"https://example.amazonaws.com{vector.url}")
    request = Signable(
        method=vector.method,
        path=canonical_path(parts.path),
        query=parts.query,
        headers={"host": "example.amazonaws.com", **vector.headers},
        payload_hash=sha256(vector.body).hexdigest(),
    )

    headers = Signer(region="us-east-1", service="service").sign(request, KEY, at_s=NOON_S)

    names = ";".join(sorted([*request.headers, "x-amz-date"]))
    assert headers["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        f"SignedHeaders={names}, Signature={vector.signature}"
    )
    assert headers["x-amz-date"] == "20150830T123600Z"


def test_when_there_is_a_session_token_then_it_is_signed_too() -> None:
    """The suite's post-sts-header-before."""
    request = Signable(method="POST", path="/", headers={"host": "example.amazonaws.com"})
    key = attrs.evolve(KEY, session_token=TOKEN)

    headers = Signer(region="us-east-1", service="service").sign(request, key, at_s=NOON_S)

    assert headers["x-amz-security-token"] == TOKEN
    assert headers["authorization"].endswith(
        "SignedHeaders=host;x-amz-date;x-amz-security-token, "
        "Signature=85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead"
    )


# The examples of the S3 API reference.
S3_KEY = SigningKey(
    access_key_id="AKIAIOSFODNN7EXAMPLE",
    secret_access_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
)
S3_NIGHT_S = 1369353600.0  # 2013-05-24T00:00:00Z
WELCOME = sha256(b"Welcome to Amazon S3.").hexdigest()


@pytest.mark.parametrize(
    ("request_", "signature"),
    [
        (
            Signable(method="GET", path="/test.txt", headers={"range": "bytes=0-9"}),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            Signable(
                method="PUT",
                path="/test%24file.text",
                headers={
                    "date": "Fri, 24 May 2013 00:00:00 GMT",
                    "x-amz-storage-class": "REDUCED_REDUNDANCY",
                },
                payload_hash=WELCOME,
            ),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        (
            Signable(method="GET", path="/", query="lifecycle"),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        ),
        (
            Signable(method="GET", path="/", query="max-keys=2&prefix=J"),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ],
    ids=["get-object", "put-object", "get-lifecycle", "list-objects"],
)
def test_when_a_request_to_s3_is_signed_then_it_has_the_documented_signature(
    request_: Signable, signature: str
) -> None:
    signable = attrs.evolve(
        request_,
        headers={
            "host": "examplebucket.s3.amazonaws.com",
            "x-amz-content-sha256": request_.payload_hash,
            **request_.headers,
        },
    )

    headers = Signer(region="us-east-1", service="s3").sign(signable, S3_KEY, at_s=S3_NIGHT_S)

    assert headers["authorization"].endswith(f"Signature={signature}")


def test_when_the_day_or_the_secret_changes_then_so_does_the_signing_key() -> None:
    """The key is kept for a day; one of another day, or of other credentials, would be refused."""
    request = Signable(method="GET", path="/", headers={"host": "example.amazonaws.com"})
    other = attrs.evolve(KEY, secret_access_key="another")
    moments = [(KEY, NOON_S), (KEY, NOON_S + 86_400), (other, NOON_S + 86_400), (KEY, NOON_S)]
    kept = Signer(region="us-east-1", service="service")

    signed = [kept.sign(request, key, at_s=at_s) for key, at_s in moments]

    anew = [
        Signer(region="us-east-1", service="service").sign(request, key, at_s=at_s)
        for key, at_s in moments
    ]
    assert signed == anew
    assert len({headers["authorization"] for headers in signed}) == 3


def test_when_a_request_is_signed_then_it_stays_as_it_was() -> None:
    """It may have to be signed again, at another moment."""
    request = Signable(method="GET", path="/", headers={"host": "example.amazonaws.com"})

    Signer(region="us-east-1", service="service").sign(request, KEY, at_s=NOON_S)

    assert request.headers == {"host": "example.amazonaws.com"}
    assert request.payload_hash == EMPTY_HASH


def test_when_a_key_is_printed_then_nothing_of_it_is() -> None:
    """R57."""
    printed = repr(attrs.evolve(KEY, session_token=TOKEN))

    assert not any(part in printed for part in ("AKID", "wJal", "AQoD"))


@pytest.mark.parametrize(
    ("query", "expected"),
    [("", ""), ("delete", "delete="), ("b=1&a", "a=&b=1"), ("a=2&a=1", "a=1&a=2")],
)
def test_when_a_query_is_signed_then_it_is_sorted_and_each_name_has_a_value(
    query: str, expected: str
) -> None:
    assert canonical_query(query) == expected
