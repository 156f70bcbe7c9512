"""AWS Signature Version 4: a pure function of a request, a key and a moment.

Deriving the signing key takes four of the five HMACs, and only the day, the region and the
service go into it: it is kept until one of them, or the secret, changes.
"""

from __future__ import annotations

import hmac
import time
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import attrs

from pump.tasks import in_thread

UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
"""In place of a body's hash, where TLS and a checksum vouch for the body: S3 alone knows it."""
EMPTY_HASH = sha256(b"").hexdigest()
_ALGORITHM = "AWS4-HMAC-SHA256"


@attrs.frozen(kw_only=True, repr=False)
class SigningKey:
    """Who signs; nothing of it reaches a repr."""

    access_key_id: str
    secret_access_key: str
    session_token: str | None = None


@attrs.frozen(kw_only=True)
class Signable:
    """A request as it is signed: everything in it is as it goes over the wire."""

    method: str
    path: str
    """As `canonical_path` makes it; S3 takes the path as it is sent."""
    query: str = ""
    headers: dict[str, str] = attrs.field(factory=dict, repr=False)
    """All that are to be signed, `host` among them; names in lower case."""
    payload_hash: str = EMPTY_HASH


class Signer:
    """Signs requests to one service in one region."""

    def __init__(self, *, region: str, service: str) -> None:
        self._region = region
        self._service = service
        self._derived_from = ("", "")
        self._keyed = hmac.new(b"", digestmod="sha256")

    def sign(self, request: Signable, key: SigningKey, *, at_s: float) -> dict[str, str]:
        """The headers of the request with those that sign it; the request stays as it is."""
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at_s))
        headers = {**request.headers, "x-amz-date": stamp}
        if key.session_token:
            headers["x-amz-security-token"] = key.session_token
        names = sorted(headers)
        signed = ";".join(names)
        lines = "".join([f"{name}:{' '.join(headers[name].split())}\n" for name in names])
        query = canonical_query(request.query)
        canonical = (
            f"{request.method}\n{request.path}\n{query}\n{lines}\n{signed}\n{request.payload_hash}"
        )
        scope = f"{stamp[:8]}/{self._region}/{self._service}/aws4_request"
        digest = sha256(canonical.encode()).hexdigest()
        to_sign = f"{_ALGORITHM}\n{stamp}\n{scope}\n{digest}"
        keyed = self._keyed_for(key, stamp[:8]).copy()
        keyed.update(to_sign.encode())
        headers["authorization"] = (
            f"{_ALGORITHM} Credential={key.access_key_id}/{scope}, "
            f"SignedHeaders={signed}, Signature={keyed.hexdigest()}"
        )
        return headers

    def _keyed_for(self, key: SigningKey, day: str) -> hmac.HMAC:
        source = (day, key.secret_access_key)
        if source != self._derived_from:
            derived = f"AWS4{key.secret_access_key}".encode()
            for part in (day, self._region, self._service, "aws4_request"):
                derived = hmac.digest(derived, part.encode(), "sha256")
            self._derived_from, self._keyed = source, hmac.new(derived, digestmod="sha256")
        return self._keyed


def canonical_path(path: str) -> str:
    """A path as every service but S3 wants it signed: in its shortest form, encoded once more."""
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del kept[-1:]
        elif segment not in ("", "."):
            kept.append(segment)
    ending = "/" if kept and path.endswith("/") else ""
    return quote(f"/{'/'.join(kept)}{ending}", safe="/~")


def canonical_query(query: str) -> str:
    """A query as it is signed: sorted by name and value, each with its equals sign."""
    if not query:
        return ""
    pairs = sorted(pair.partition("=")[::2] for pair in query.split("&"))
    return "&".join([f"{name}={value}" for name, value in pairs])


# Credentials: botocore finds and renews them; here they are only asked for, off the loop.


class CredentialSource:
    """The key of a botocore client, whatever it comes from: settings, profile, role, container."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._frozen: Any = None
        self._key: SigningKey | None = None

    async def key(self) -> SigningKey:
        """The key of now. When its time nears, a thread renews it before it is given out."""
        is_due = getattr(self._source, "refresh_needed", None)
        if is_due is not None and is_due():
            frozen = await in_thread(self._source.get_frozen_credentials)
        else:
            frozen = self._source.get_frozen_credentials()
        if self._key is None or frozen != self._frozen:
            self._frozen = frozen
            self._key = SigningKey(
                access_key_id=frozen.access_key,
                secret_access_key=frozen.secret_key,
                session_token=frozen.token,
            )
        return self._key
