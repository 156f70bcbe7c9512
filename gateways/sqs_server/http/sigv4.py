"""AWS Signature Version 4, from the server's side: is this request from who it says it is?

The steps are those of AWS's «Create a signed AWS API request»: canonical request, string to
sign, derived key. Both ways of signing are known: the Authorization header, and the query string
of a presigned URL.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from hashlib import sha256
from typing import Final
from urllib.parse import quote, unquote

import attrs

from ..errors import SqsError

MAX_SKEW_S: Final = 15 * 60
_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_SERVICE: Final = "sqs"
_MAX_EXPIRES_S: Final = 7 * 24 * 3600
_ISO: Final = "%Y%m%dT%H%M%SZ"
_PART: Final = re.compile(r"(Credential|SignedHeaders|Signature)=([^,\s]*)")
_ISO_FORM: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z")


@attrs.frozen(kw_only=True)
class SignedRequest:
    """What a signature covers, as it came over the wire."""

    method: str
    path: str
    query: str
    headers: Sequence[tuple[str, str]] = attrs.field(repr=False)
    body: bytes = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class _Claim:
    """What the request says about its own signature."""

    credential: str
    signed_headers: str
    signature: str = attrs.field(repr=False)
    date: str
    expires_s: int | None = None

    @property
    def access_key(self) -> str:
        return self.credential.partition("/")[0]

    @property
    def scope(self) -> str:
        return self.credential.partition("/")[2]


def verify(request: SignedRequest, secrets: Mapping[str, str], now_s: float) -> str:
    """Return the access key id that signed the request.

    Session tokens are allowed and mean nothing here: a secret is looked up by its key alone.

    Raises:
        SqsError: not signed, not by a secret of ours, not this request, or not now.
    """
    headers = _joined(request.headers)
    claim, secret = _check_claim(headers, request.query, secrets)
    _check_payload_hash(headers, request.body)
    _check_signature(claim, request, headers, secret)
    # Last, so that a clock is only discussed with a client that knows the secret.
    _check_time(claim, now_s)
    return claim.access_key


def check_claim(headers: Sequence[tuple[str, str]], query: str, secrets: Mapping[str, str]) -> None:
    """Raise `SqsError` for what `verify` would refuse whatever the body is: no signature, or one
    of a key that is not ours. So no other client has a body read.
    """
    _check_claim(_joined(headers), query, secrets)


def _check_claim(
    headers: Mapping[str, str], query: str, secrets: Mapping[str, str]
) -> tuple[_Claim, str]:
    claim = _claim_in_header(headers) or _claim_in_query(query)
    if claim is None:
        raise missing_authentication_token()
    _check_scope(claim)
    secret = secrets.get(claim.access_key)
    if secret is None:
        raise invalid_client_token_id()
    _check_signed_headers(claim, headers)
    return claim, secret


def _joined(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    joined: dict[str, str] = {}
    for name, value in pairs:
        lower, trimmed = name.lower(), " ".join(value.split())
        joined[lower] = f"{joined[lower]},{trimmed}" if lower in joined else trimmed
    return joined


def _claim_in_header(headers: Mapping[str, str]) -> _Claim | None:
    authorization = headers.get("authorization")
    if authorization is None:
        return None
    if not authorization.startswith(_ALGORITHM):
        raise incomplete_signature(f"Authorization header requires the algorithm {_ALGORITHM}.")
    found = _PART.findall(authorization)
    parts = dict(found)
    # All readers of the header must read the same: no client may sign as one and act as another.
    if len(parts) != len(found):
        raise incomplete_signature("Authorization header has a parameter twice.")
    for name in ("Credential", "Signature", "SignedHeaders"):
        if not parts.get(name):
            raise incomplete_signature(f"Authorization header requires '{name}' parameter.")
    return _Claim(
        credential=parts["Credential"],
        signed_headers=parts["SignedHeaders"],
        signature=parts["Signature"],
        date=_date_of(headers),
    )


def _date_of(headers: Mapping[str, str]) -> str:
    date = headers.get("x-amz-date") or headers.get("date")
    if date is None:
        raise incomplete_signature(
            "Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header."
        )
    if _ISO_FORM.fullmatch(date):
        return date
    try:
        return parsedate_to_datetime(date).astimezone(UTC).strftime(_ISO)
    except (ValueError, OverflowError):
        raise incomplete_signature("Date must be in ISO-8601 'basic format'.") from None


def _claim_in_query(query: str) -> _Claim | None:
    if "X-Amz-Signature=" not in query:
        return None
    signing = [pair for pair in _pairs(query) if pair[0].startswith("X-Amz-")]
    fields = {name: unquote(value) for name, value in signing}
    if len(fields) != len(signing):
        raise incomplete_signature("AWS query-string parameters must not be repeated.")
    if fields.get("X-Amz-Algorithm") != _ALGORITHM:
        raise incomplete_signature("AWS query-string parameters must include 'X-Amz-Algorithm'.")
    for name in ("X-Amz-Credential", "X-Amz-SignedHeaders", "X-Amz-Date", "X-Amz-Expires"):
        if not fields.get(name):
            raise incomplete_signature(f"AWS query-string parameters must include '{name}'.")
    expires = fields["X-Amz-Expires"]
    if not re.fullmatch(r"[0-9]{1,6}", expires) or not 1 <= int(expires) <= _MAX_EXPIRES_S:
        raise incomplete_signature("X-Amz-Expires must be a number from 1 to 604800.")
    if not _ISO_FORM.fullmatch(fields["X-Amz-Date"]):
        raise incomplete_signature("Date must be in ISO-8601 'basic format'.")
    return _Claim(
        credential=fields["X-Amz-Credential"],
        signed_headers=fields["X-Amz-SignedHeaders"],
        signature=fields.get("X-Amz-Signature", ""),
        date=fields["X-Amz-Date"],
        expires_s=int(expires),
    )


def _check_scope(claim: _Claim) -> None:
    parts = claim.scope.split("/")
    if len(parts) != 4 or not claim.access_key:
        raise incomplete_signature(
            "Credential must have exactly 5 slash-delimited elements, e.g. "
            f"keyid/date/region/service/term, got '{claim.credential[:200]}'"
        )
    day, _, service, terminator = parts
    if service != _SERVICE or terminator != "aws4_request":
        raise signature_does_not_match(
            f"Credential should be scoped to correct service: '{_SERVICE}'."
        )
    if day != claim.date[:8]:
        raise signature_does_not_match(
            "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date "
            f"from HTTP: '{day[:20]}' != '{claim.date[:8]}', from '{claim.date}'."
        )


def _check_signed_headers(claim: _Claim, headers: Mapping[str, str]) -> None:
    signed = set(claim.signed_headers.split(";"))
    if "host" not in signed:
        raise signature_does_not_match(
            "'Host' or ':authority' must be a 'SignedHeader' in the AWS Authorization."
        )
    # Without this, a client that sees a signed query request could add a target to it.
    unsigned = sorted(name for name in headers if name.startswith("x-amz-") and name not in signed)
    if unsigned:
        raise signature_does_not_match(
            "There were headers present in the request which were not signed: "
            + ", ".join(unsigned)
        )


def _check_payload_hash(headers: Mapping[str, str], body: bytes) -> None:
    stated = headers.get("x-amz-content-sha256")
    # SQS takes no unsigned payloads, so what is stated has to be the hash of what came.
    if stated is not None and not hmac.compare_digest(_bytes(stated), _hash_of(body).encode()):
        raise signature_does_not_match()


def _check_signature(
    claim: _Claim, request: SignedRequest, headers: Mapping[str, str], secret: str
) -> None:
    day, region, service, _ = claim.scope.split("/")
    key = _signing_key(secret, day, region, service)
    payload = _hash_of(request.body)
    given = _bytes(claim.signature)
    for query in _canonical_queries(request.query):
        canonical = "\n".join(
            (
                request.method,
                quote(request.path, safe="/~", errors="surrogateescape"),
                query,
                *(f"{name}:{headers.get(name, '')}" for name in claim.signed_headers.split(";")),
                "",
                claim.signed_headers,
                payload,
            )
        )
        to_sign = "\n".join((_ALGORITHM, claim.date, claim.scope, _hash_of(_bytes(canonical))))
        expected = hmac.new(key, _bytes(to_sign), sha256).hexdigest()
        if hmac.compare_digest(expected.encode(), given):
            return
    raise signature_does_not_match()


def _canonical_queries(query: str) -> set[str]:
    """Sorted without the signature: as it came, and with every value encoded AWS's way.

    Signers differ in whether they re-encode what they are given. Either form binds all of it.
    """
    pairs = [pair for pair in _pairs(query) if pair[0] != "X-Amz-Signature"]
    encoded = [(_encoded(name), _encoded(value)) for name, value in pairs]
    return {"&".join(f"{name}={value}" for name, value in sorted(way)) for way in (pairs, encoded)}


def _pairs(query: str) -> list[tuple[str, str]]:
    split = (field.partition("=") for field in query.split("&") if field)
    return [(name, value) for name, _, value in split]


def _encoded(text: str) -> str:
    return quote(unquote(text, errors="surrogateescape"), safe="-_.~", errors="surrogateescape")


def _check_time(claim: _Claim, now_s: float) -> None:
    try:
        signed_s = datetime.strptime(claim.date, _ISO).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise incomplete_signature("Date must be in ISO-8601 'basic format'.") from None
    now, minutes = _iso(now_s), MAX_SKEW_S // 60
    if signed_s > now_s + MAX_SKEW_S:
        raise signature_does_not_match(
            f"Signature not yet current: {claim.date} is still later than "
            f"{_iso(now_s + MAX_SKEW_S)} ({now} + {minutes} min.)"
        )
    if claim.expires_s is not None:
        if now_s > signed_s + claim.expires_s:
            raise request_expired()
    elif signed_s < now_s - MAX_SKEW_S:
        raise signature_does_not_match(
            f"Signature expired: {claim.date} is now earlier than "
            f"{_iso(now_s - MAX_SKEW_S)} ({now} - {minutes} min.)"
        )


def _iso(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime(_ISO)


def _hash_of(data: bytes) -> str:
    return sha256(data).hexdigest()


def _bytes(text: str) -> bytes:
    # A header that is not UTF-8 arrives with surrogates for its bytes.
    return text.encode(errors="surrogateescape")


@lru_cache(maxsize=256)
def _signing_key(secret: str, day: str, region: str, service: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.digest(key, _bytes(part), "sha256")
    return key


# Refusals that only the HTTP layer gives: who is asking, how much, how slowly.


def request_too_large(max_bytes: int) -> SqsError:
    """The whole HTTP body is over the server's limit; nothing of it was kept."""
    return SqsError(
        "RequestEntityTooLargeException",
        f"The request is longer than {max_bytes} bytes.",
        query_code="RequestEntityTooLarge",
        status=413,
    )


def request_timeout() -> SqsError:
    """The body did not arrive in time."""
    return SqsError(
        "RequestTimeoutException",
        "The request did not arrive within the time allowed.",
        query_code="RequestTimeout",
        status=408,
    )


# Who is asking


def missing_authentication_token() -> SqsError:
    """No signature at all."""
    return SqsError(
        "MissingAuthenticationTokenException",
        "Request is missing Authentication Token",
        query_code="MissingAuthenticationToken",
        status=403,
    )


def invalid_client_token_id() -> SqsError:
    """An access key that is not known here."""
    return SqsError(
        "UnrecognizedClientException",
        "The security token included in the request is invalid.",
        query_code="InvalidClientTokenId",
        status=403,
    )


def incomplete_signature(message: str) -> SqsError:
    """A signature that lacks a part."""
    return SqsError(
        "IncompleteSignatureException", message, query_code="IncompleteSignature", status=400
    )


def signature_does_not_match(
    message: str = "The request signature we calculated does not match the signature you "
    "provided. Check your AWS Secret Access Key and signing method. Consult the service "
    "documentation for details.",
) -> SqsError:
    """Another secret, or the request was changed on its way, or the clock is off."""
    return SqsError(
        "InvalidSignatureException", message, query_code="SignatureDoesNotMatch", status=403
    )


def request_expired(message: str = "Request has expired.") -> SqsError:
    """A presigned URL after its time."""
    return SqsError("RequestExpiredException", message, query_code="RequestExpired", status=400)
