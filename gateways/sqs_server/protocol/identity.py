"""Who calls, for which region and by which address, as far as headers and query string say.

Nothing is verified here: signatures are checked by `http/sigv4.py`, when there are secrets to
check them with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

import attrs

from ..model import DEFAULT_ACCOUNT, DEFAULT_REGION

_CREDENTIAL: Final = re.compile(r"Credential=([^,\s]{1,256})")
_PRESIGNED: Final = re.compile(r"(?:^|&)X-Amz-Credential=([^&]{1,512})")
_REGION: Final = re.compile(r"[a-z0-9-]{1,32}")
_ACCESS_KEY: Final = re.compile(r"\w{1,128}", re.ASCII)
_TRACE: Final = re.compile(r"[\x21-\x7e]{1,1024}")
_ACCOUNT: Final = re.compile(r"[0-9]{12}")
# What may be repeated in a queue URL: a name, an IPv4 or bracketed IPv6 address, and a port.
_HOST: Final = re.compile(r"(?:[A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")


@attrs.frozen
class Identity:
    """The account and region of a request, and the name its messages are sent under."""

    account: str
    region: str
    sender: str


_NOBODY: Final = Identity(DEFAULT_ACCOUNT, DEFAULT_REGION, DEFAULT_ACCOUNT)


def identify(headers: Mapping[str, str], query: str) -> Identity:
    """Read the credential scope of the Authorization header or of a presigned URL."""
    found = _CREDENTIAL.search(headers.get("authorization", ""))
    if found:
        return _identity_of(found[1])
    if "X-Amz-Credential=" in query:
        found = _PRESIGNED.search(query)
        if found:
            return _identity_of(unquote(found[1]))
    return _NOBODY


@lru_cache(maxsize=1024)
def _identity_of(credential: str) -> Identity:
    # access key/date/region/sqs/aws4_request
    key, _, scope = credential.partition("/")
    parts = scope.split("/")
    region = parts[1] if len(parts) > 1 and _REGION.fullmatch(parts[1]) else DEFAULT_REGION
    # An access key of 12 digits is an account of its own, so that tests can be kept apart.
    account = key if _ACCOUNT.fullmatch(key) else DEFAULT_ACCOUNT
    return Identity(account, region, key if _ACCESS_KEY.fullmatch(key) else account)


def trace_of(headers: Mapping[str, str]) -> str | None:
    """The trace id that came as a header, if it can be stored and sent on as text."""
    header = headers.get("x-amzn-trace-id")
    return header if header is not None and _TRACE.fullmatch(header) else None


@lru_cache(maxsize=256)
def base_url_of(host: str | None) -> str:
    """Where queue URLs shall point: back to the Host the client used, when that is a host."""
    return f"http://{host}" if host and _HOST.fullmatch(host) else "http://localhost"
