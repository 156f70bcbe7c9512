"""Refusals that only the HTTP layer gives: who is asking, how much, how slowly."""

from __future__ import annotations

from ..errors import SqsError


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
