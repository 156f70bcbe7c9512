"""AWS KMS: messages are encrypted with data keys, which KMS makes and wraps.

A data key encrypts for a while, then the next one is asked for. It travels, wrapped, in the
key id of every envelope it encrypted (`kms:` and base64), so a receiver needs nothing but the right
to have KMS unwrap it. The encryption context binds a wrapped key to this use: KMS will not unwrap
it for anything that does not name the same context, and writes the context to its audit log.

Only keys that the application named unwrap anything. Left to itself KMS would take any key that
the caller may use, another account's too, and with that accept messages of any sender.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import timedelta
from functools import partial
from typing import Any, Final

import attrs

from ..clock import SYSTEM_CLOCK, Clock
from ..errors import ConfigurationError, PumpError
from .aiobotocore_client import kms_client
from .errors import KeyNotFound, KeyUnavailable
from .keys import KEY_SIZE, Key

PREFIX: Final = "kms:"
PURPOSE: Final = ("pumphouse", "QRE1")
"""Always part of the encryption context."""
_MAX_WRAPPED = 6_144
"""What KMS takes for a ciphertext, in bytes."""
# KMS does not have the key (any more), or it is not the one that wrapped: another may be.
_NOT_THIS_KEY = frozenset({"IncorrectKeyException", "NotFoundException"})
# What KMS says of a wrapped key that it will never open; the rest may pass, or be put right.
_FOR_GOOD = frozenset(
    {
        "InvalidArnException",
        "InvalidCiphertextException",
        "InvalidKeyUsageException",
        "UnsupportedOperationException",
        "ValidationException",
    }
)
# What a sender has to put right before KMS makes a data key for it.
_MISCONFIGURED = _FOR_GOOD | {"AccessDeniedException", "DisabledException", "NotFoundException"}
Connect = Callable[[], AbstractAsyncContextManager[Any]]


@attrs.frozen(kw_only=True)
class KmsOptions:
    """How KMS is reached and how long its data keys serve."""

    region: str | None = None
    endpoint_url: str | None = None
    profile: str | None = None
    context: Mapping[str, str] = attrs.field(factory=dict)
    """More for the encryption context; the same on both sides, and no secret."""
    max_age: timedelta = timedelta(minutes=5)
    """How long a data key encrypts."""
    max_messages: int = 100_000
    """How many messages a data key encrypts."""
    max_unwrapped: int = 1_000
    """How many unwrapped data keys are kept for opening; the least used go first."""
    max_unwrapped_age: timedelta = timedelta(hours=1)
    """How long they are kept, and so how late a key that KMS has disabled is noticed."""

    def __attrs_post_init__(self) -> None:
        for name in ("max_age", "max_unwrapped_age"):
            value = getattr(self, name)
            if not isinstance(value, timedelta) or value <= timedelta(0):
                raise ConfigurationError(f"KmsOptions.{name}", value, "use a timedelta above zero")
        for name, most in (("max_messages", 2**32), ("max_unwrapped", 1_000_000)):
            value = getattr(self, name)
            if not isinstance(value, int) or not 1 <= value <= most:
                raise ConfigurationError(f"KmsOptions.{name}", value, f"use 1 to {most}")
        if PURPOSE[0] in self.context:
            raise ConfigurationError(
                "KmsOptions.context", sorted(self.context), f"{PURPOSE[0]!r} is ours"
            )


@attrs.define(eq=False)
class _DataKey:
    key: Key
    expires_at_s: float


class KmsKeys:
    """A `KeyProvider` of data keys under the KMS key `key`: its id, ARN or alias.

    `also_open` names KMS keys under which older data keys were wrapped, for a move from one to
    another; KMS's own yearly rotation needs none of it. Senders need kms:GenerateDataKey,
    receivers kms:Decrypt; neither is called before it is needed. `connect` brings a client of
    one's own: `lambda: session.client("kms")`.
    """

    def __init__(
        self,
        key: str,
        *,
        also_open: Sequence[str] = (),
        options: KmsOptions | None = None,
        connect: Connect | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._key_names = _checked_names(key, also_open)
        self._options = options or KmsOptions()
        self._context = {**self._options.context, PURPOSE[0]: PURPOSE[1]}
        self._own_connect = connect
        self._clock = clock
        self._stack = AsyncExitStack()
        self._client: Any = None
        self._user_count = 0
        self._active: _DataKey | None = None
        self._renewing: asyncio.Task[_DataKey] | None = None
        self._connecting = asyncio.Lock()
        self._unwrapped: OrderedDict[str, _DataKey] = OrderedDict()
        self._unwrapping: dict[str, asyncio.Task[Key]] = {}

    def __repr__(self) -> str:
        return f"KmsKeys({self._key_names[0]!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        key, *others = self._key_names
        make = partial(
            KmsKeys, key, also_open=others, options=self._options, connect=self._own_connect
        )
        return make, ()

    async def load(self) -> None:
        async with self._connecting:
            if self._client is None:
                connecting = self._own_connect() if self._own_connect else self._connect()
                self._client = await self._stack.enter_async_context(connecting)
        self._user_count += 1

    async def active(self) -> Key:
        data_key = self._active
        while data_key is None or not self._is_good(data_key):
            # One call for all waiters: when KMS does not answer, none waits for the others' turns.
            task = self._renewing or self._begin_renewal()
            # A cancelled waiter leaves the work to the other ones.
            await asyncio.wait([task])
            if task.cancelled():
                raise KeyUnavailable(self._key_names[0], "KMS was closed meanwhile")
            data_key = task.result()
        return data_key.key

    async def find(self, key_id: str) -> Key:
        while True:
            known = self._unwrapped.get(key_id)
            if known is not None and self._clock.now_s() < known.expires_at_s:
                self._unwrapped.move_to_end(key_id)
                return known.key
            task = self._unwrapping.get(key_id) or self._begin(key_id)
            # A cancelled waiter leaves the work to the other ones.
            await asyncio.wait([task])
            if task.cancelled():
                raise KeyUnavailable(key_id, "KMS was closed meanwhile")
            if not task.result().is_wiped:
                return task.result()

    async def aclose(self) -> None:
        self._user_count = max(0, self._user_count - 1)
        if self._user_count:
            return
        working = [each for each in (self._renewing, *self._unwrapping.values()) if each]
        for task in working:
            task.cancel()
        if working:
            await asyncio.wait(working)
        for data_key in (*self._unwrapped.values(), self._active):
            if data_key is not None:
                data_key.key.wipe()
        self._unwrapped.clear()
        self._active, self._client = None, None
        self._connecting = asyncio.Lock()
        await self._stack.aclose()

    def _connect(self) -> AbstractAsyncContextManager[Any]:
        options = self._options
        return kms_client(
            region=options.region, endpoint_url=options.endpoint_url, profile=options.profile
        )

    # -- encrypting --------------------------------------------------------------------------

    def _is_good(self, data_key: _DataKey) -> bool:
        return (
            data_key.key.encrypted_count < self._options.max_messages
            and self._clock.now_s() < data_key.expires_at_s
        )

    def _begin_renewal(self) -> asyncio.Task[_DataKey]:
        task = asyncio.create_task(self._renew(), name="pumphouse-kms-renew")
        self._renewing = task
        task.add_done_callback(self._end_renewal)
        return task

    def _end_renewal(self, done: asyncio.Task[_DataKey]) -> None:
        self._renewing = None
        if not done.cancelled():
            done.exception()  # Retrieved, so that asyncio logs nothing when there was no waiter.

    async def _renew(self) -> _DataKey:
        name = self._key_names[0]
        try:
            reply = await self._call("generate_data_key", KeyId=name, KeySpec="AES_256")
        except Exception as error:  # broad: the SDK raises its own, botocore's and aiohttp's errors
            code = _code_of(error)
            if code in _MISCONFIGURED:
                raise ConfigurationError(
                    "KmsKeys.key",
                    name,
                    f"KMS makes no data key with it ({code}); it must exist, be enabled and allow "
                    f"kms:GenerateDataKey",
                ) from error
            raise _unavailable(name, error) from error
        if self._client is None:
            raise KeyUnavailable(name, "KMS was closed meanwhile")  # Who would wipe the key?
        wrapped = base64.b64encode(reply["CiphertextBlob"]).decode()
        key = Key(f"{PREFIX}{wrapped}", reply["Plaintext"])
        expires_at_s = self._clock.now_s() + self._options.max_age.total_seconds()
        before, self._active = self._active, _DataKey(key, expires_at_s)
        if before is not None:
            before.key.wipe()
        return self._active

    # -- opening -----------------------------------------------------------------------------

    def _begin(self, key_id: str) -> asyncio.Task[Key]:
        task = asyncio.create_task(self._unwrap(key_id), name="pumphouse-kms-unwrap")
        self._unwrapping[key_id] = task
        task.add_done_callback(partial(self._end, key_id))
        return task

    def _end(self, key_id: str, done: asyncio.Task[Key]) -> None:
        del self._unwrapping[key_id]
        # Asking for the exception also marks it as retrieved when there was no waiter.
        if done.cancelled() or done.exception() is not None:
            return
        expires_at_s = self._clock.now_s() + self._options.max_unwrapped_age.total_seconds()
        before = self._unwrapped.pop(key_id, None)
        if before is not None:
            before.key.wipe()
        self._unwrapped[key_id] = _DataKey(done.result(), expires_at_s)
        while len(self._unwrapped) > self._options.max_unwrapped:
            _, oldest = self._unwrapped.popitem(last=False)
            oldest.key.wipe()

    async def _unwrap(self, key_id: str) -> Key:
        wrapped = _wrapped(key_id)
        for name in self._key_names:
            try:
                reply = await self._call("decrypt", CiphertextBlob=wrapped, KeyId=name)
            except Exception as error:  # broad: the SDK raises its own and aiohttp's errors
                code = _code_of(error)
                if code in _NOT_THIS_KEY:
                    continue
                if code in _FOR_GOOD:
                    raise KeyNotFound(key_id) from error
                raise _unavailable(key_id, error) from error
            if len(reply["Plaintext"]) != KEY_SIZE:
                break
            return Key(key_id, reply["Plaintext"])
        raise KeyNotFound(key_id)

    async def _call(self, operation: str, **request: Any) -> Mapping[str, Any]:
        if self._client is None:
            raise KeyUnavailable(self._key_names[0], "KMS is not connected; open the app first")
        reply: Mapping[str, Any] = await getattr(self._client, operation)(
            EncryptionContext=self._context, **request
        )
        return reply


def _checked_names(key: object, also_open: object) -> tuple[str, ...]:
    others = () if isinstance(also_open, str) or not isinstance(also_open, Sequence) else also_open
    names = [name for name in (key, *others) if isinstance(name, str) and name.strip()]
    if len(names) != 1 + len(others) or others is not also_open:
        raise ConfigurationError(
            "KmsKeys.key", (key, also_open), "name KMS keys by id, ARN or alias/…"
        )
    return tuple(names)


def _wrapped(key_id: str) -> bytes:
    try:
        if key_id.startswith(PREFIX):
            wrapped = base64.b64decode(key_id.removeprefix(PREFIX), validate=True)
            if 0 < len(wrapped) <= _MAX_WRAPPED:
                return wrapped
    except (binascii.Error, ValueError):
        pass
    raise KeyNotFound(key_id)


def _code_of(error: Exception) -> str:
    response = getattr(error, "response", None)
    if not isinstance(response, Mapping):
        return ""
    return str((response.get("Error") or {}).get("Code") or "").rpartition("#")[2]


def _unavailable(key_id: str, error: Exception) -> PumpError:
    if isinstance(error, PumpError):
        return error
    return KeyUnavailable(key_id, f"KMS: {_code_of(error) or type(error).__name__}")
