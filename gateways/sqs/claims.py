"""Claim checks: a body too large for a queue waits in S3, and a claim to it travels instead.

Each object has one owner, the message that carries its claim:

| step                       | object                                                       |
|----------------------------|--------------------------------------------------------------|
| before the send            | put, under a key of its own, so that no two sends share one  |
| received, deferred, lost   | stays                                                        |
| after the ack              | deleted                                                      |
| rejected                   | the copy is sent as any message is: with an object of its    |
|                            | own. Then the original is acked and its object deleted       |

A crash anywhere leaves an object without a message, never a message without its object. For
the same reason a copy does not share the original's object: the first ack, or a spilled copy
flushed late, would take the body from the other one. Objects left over (a crash, a send
that FIFO de-duplication swallowed) are for a lifecycle rule on the prefix, set longer than the
retention of the queues.

What cannot be redeemed for good is delivered as it is. A message that still carries a claim is
not mapped but rejected as unacceptable, and its copy keeps the claim, whose object, if any,
is not deleted. That also happens to the rare message that SQS delivers once more after it was
deleted.
"""

from __future__ import annotations

import re
import secrets
from hashlib import sha256
from typing import Any, Final

import attrs
import msgspec
from msgspec.structs import replace

from pump.errors import ConfigurationError
from pump.headers import CLAIM
from pump.message import Message
from pump.tasks import in_thread

from .._aws.errors import ObjectNotFound
from .._aws.sdk_transport import Transport
from .calls import MAX_BYTES
from .wire import encode

_OCTETS: Final = "application/octet-stream"
_MAX_PREFIX: Final = 512  # of the 1,024 bytes of a key
_SAFE_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}").fullmatch


@attrs.frozen
class BodyMismatch(ObjectNotFound):
    """The object is there, but is not the body that was sent."""

    detail: str

    def __str__(self) -> str:
        return f"{self.bucket_key} is not the body that was sent: {self.detail}"


@attrs.frozen(kw_only=True)
class ClaimCheck:
    """Where large bodies wait. A consumer may need s3:ListBucket besides reading and
    deleting: without it S3 answers "denied" instead of "not there", which is tried for ever.
    """

    bucket: str
    prefix: str = ""
    """What keys begin with; only objects below it are ever read or deleted."""
    threshold_bytes: int = 262_144
    """Bodies that take more on the wire are stored, as are those that SQS would not carry."""

    def __attrs_post_init__(self) -> None:
        if not _is_text(self.bucket) or not self.bucket.strip():
            raise ConfigurationError("ClaimCheck.bucket", self.bucket, "name an S3 bucket")
        if not _is_text(self.prefix) or len(_octets(self.prefix)) > _MAX_PREFIX:
            raise ConfigurationError(
                "ClaimCheck.prefix", self.prefix, f"use text of at most {_MAX_PREFIX} bytes"
            )
        if not _is_size(self.threshold_bytes):
            raise ConfigurationError(
                "ClaimCheck.threshold_bytes",
                self.threshold_bytes,
                f"use a whole number from 0 to {MAX_BYTES}, all that SQS carries",
            )


class _ClaimContent(msgspec.Struct, frozen=True):
    """The header's content, as JSON."""

    bucket: str
    key: str
    size: int
    sha256: str

    @property
    def target(self) -> str:
        return f"{self.bucket}/{self.key}"


_decode = msgspec.json.Decoder(_ClaimContent).decode


class Claims:
    """Stores bodies in one bucket, and redeems and discards what was stored there.

    Claims to anything outside its bucket and prefix are none: a program that may send must not
    thereby read or delete what we may. Inside, the claim's hash must be that of the object, so
    that only a sender that knows a body can ask for it.
    """

    def __init__(self, transport: Transport, settings: ClaimCheck) -> None:
        self._transport = transport
        self._settings = settings

    async def store(self, message: Message, queue: str) -> Message:
        """The message to send instead: its body in S3, durably, and a header that says where.

        The very same message when its body is small, or when SQS would not carry its headers
        alone. A header named `claimCheck` of its own does not survive.
        """
        if not self._is_large(message):
            return message
        claim = _ClaimContent(
            bucket=self._settings.bucket,
            key=self._key(message.id, queue),
            size=len(message.body),
            sha256=await _digest(message.body),
        )
        header = msgspec.json.encode(claim).decode()
        stored = replace(message, body=b"", headers={**message.headers, CLAIM: header})
        if encode(stored, is_fifo=True).size > MAX_BYTES:
            return message
        await self._call(
            "put_object",
            claim,
            Body=message.body,
            ContentType=_content_type(message.content_type),
        )
        return stored

    async def redeem(self, message: Message) -> Message:
        """The message with its body, as it was sent; the very same when it carries no claim.

        Raises `ObjectNotFound` when the body is gone, or is not the one that was sent: asking
        again does not help. Any other error says that it might.
        """
        claim = self._claim_of(message)
        if claim is None:
            return message
        body = (await self._call("get_object", claim))["Body"]
        if len(body) != claim.size:
            raise BodyMismatch(claim.target, f"{len(body)} bytes instead of {claim.size}")
        if await _digest(body) != claim.sha256:
            raise BodyMismatch(claim.target, "its SHA-256 is another")
        headers = {name: text for name, text in message.headers.items() if name != CLAIM}
        return replace(message, body=body, headers=headers)

    async def discard(self, claimed: Message | str) -> None:
        """Delete the object of a message as it was received, or of its claim header.

        For after the ack, of what was redeemed: a claim's hash is not looked at again. Nothing
        happens when there is no claim or no object.
        """
        header = claimed.headers.get(CLAIM) if isinstance(claimed, Message) else claimed
        claim = None if header is None else self._read(header)
        if claim is None:
            return
        try:
            await self._call("delete_object", claim)
        except ObjectNotFound:
            return

    def is_claim(self, message: Message) -> bool:
        """Whether its body waits in S3 for us."""
        return self._claim_of(message) is not None

    def _is_large(self, message: Message) -> bool:
        if not message.body:
            return False
        if len(message.body) > MAX_BYTES:
            return True
        entry = encode(message, is_fifo=True)
        return entry.body_size > self._settings.threshold_bytes or entry.size > MAX_BYTES

    def _key(self, message_id: str, queue: str) -> str:
        name = re.split("[/:]", queue)[-1]  # of a URL or an ARN
        return f"{self._settings.prefix}{_safe(name)}/{_safe(message_id)}-{secrets.token_hex(8)}"

    def _claim_of(self, message: Message) -> _ClaimContent | None:
        if message.body or CLAIM not in message.headers:
            return None
        return self._read(message.headers[CLAIM])

    def _read(self, header: str) -> _ClaimContent | None:
        try:
            claim = _decode(header)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        settings = self._settings
        is_ours = claim.bucket == settings.bucket and claim.key.startswith(settings.prefix)
        return claim if is_ours and claim.key else None

    async def _call(self, operation: str, claim: _ClaimContent, **more: object) -> dict[str, Any]:
        request = {"Bucket": claim.bucket, "Key": claim.key, **more}
        return await self._transport.call("s3", operation, request, target=claim.target)


async def _digest(body: bytes) -> str:
    # A hundred megabytes take longer than a lease keeper should have to wait.
    return (await in_thread(sha256, body)).hexdigest()


def _content_type(content_type: str) -> str:
    is_header = content_type.isascii() and content_type.isprintable() and content_type.strip()
    return content_type if is_header else _OCTETS


def _safe(name: str) -> str:
    if _SAFE_NAME(name):
        return name
    return sha256(_octets(name)).hexdigest()


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_BYTES
