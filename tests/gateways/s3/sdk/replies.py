"""Replies as S3 words them."""

from __future__ import annotations

from collections.abc import Mapping

from tests.gateways.aws.fake_aws import Answer

DATE = "Sun, 16 Nov 2025 20:00:00 GMT"
DATE_S = 1_763_323_200.0


def written(etag: str = '"1"') -> Answer:
    return Answer(body=b"", headers={"ETag": etag, "Date": DATE})


def found(body: bytes, etag: str = '"1"') -> Answer:
    return Answer(body=body, headers={"ETag": etag, "Date": DATE})


def error(status: int, code: str, message: str = "no", **headers: str) -> Answer:
    text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return Answer(status=status, body=text.encode(), headers={"Date": DATE, **headers})


def bare(status: int, headers: Mapping[str, str] | None = None) -> Answer:
    """Without a body, as to a HEAD or with 304."""
    return Answer(status=status, body=b"", headers={"Date": DATE, **(headers or {})})


PRECONDITION_FAILED = error(412, "PreconditionFailed")
CONFLICT = error(409, "ConditionalRequestConflict")
NO_SUCH_KEY = error(404, "NoSuchKey")
NO_SUCH_BUCKET = error(404, "NoSuchBucket")
BREAKDOWN = error(500, "InternalError")
SLOW_DOWN = error(503, "SlowDown")


def listing(*keys: str, is_truncated: bool = False) -> Answer:
    lines = "".join(
        f"<Contents><Key>{key}</Key><LastModified>2025-11-16T20:00:00.000Z</LastModified>"
        f"<ETag>&quot;{key}&quot;</ETag><Size>{len(key)}</Size></Contents>"
        for key in keys
    )
    body = (
        f"<ListBucketResult><IsTruncated>{str(is_truncated).lower()}</IsTruncated>"
        f"{lines}</ListBucketResult>"
    )
    return Answer(body=body.encode(), headers={"Date": DATE})


def removed(**failed: str) -> Answer:
    """The answer to a removal of many, with codes of those that failed."""
    lines = "".join(
        f"<Error><Key>{key}</Key><Code>{code}</Code><Message>no</Message></Error>"
        for key, code in failed.items()
    )
    return Answer(body=f"<DeleteResult>{lines}</DeleteResult>".encode(), headers={"Date": DATE})
