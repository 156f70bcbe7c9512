"""A KMS of our own, which does as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from pump.crypto import KmsKeys

Make = Callable[..., KmsKeys]


class Refused(Exception):
    """An error as the SDK raises it."""

    def __init__(self, code: str) -> None:
        super().__init__(f"An error occurred ({code}): secret words of KMS")
        self.response = {"Error": {"Code": code, "Message": "secret words of KMS"}}


class FakeKms:
    """Makes data keys, and unwraps them for who names the right key and context."""

    def __init__(self) -> None:
        self.made: dict[bytes, tuple[str, dict[str, str], bytes]] = {}
        self.calls: list[str] = []
        self.error: Exception | None = None
        self.gate: asyncio.Event | None = None
        self.is_closed = False

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[FakeKms]:
        yield self
        self.is_closed = True

    async def generate_data_key(self, **request: Any) -> dict[str, bytes]:
        await self._answer("generate")
        assert request["KeySpec"] == "AES_256"
        number = len(self.made)
        plaintext, wrapped = bytes([number]) * 32, b"wrapped-%d" % number
        self.made[wrapped] = (request["KeyId"], request["EncryptionContext"], plaintext)
        return {"Plaintext": plaintext, "CiphertextBlob": wrapped}

    async def decrypt(self, **request: Any) -> dict[str, bytes]:
        await self._answer("decrypt")
        if request["CiphertextBlob"] not in self.made:
            raise Refused("InvalidCiphertextException")
        name, context, plaintext = self.made[request["CiphertextBlob"]]
        if request["KeyId"] != name:
            raise Refused("IncorrectKeyException")
        if request["EncryptionContext"] != context:
            raise Refused("InvalidCiphertextException")
        return {"Plaintext": plaintext}

    async def _answer(self, call: str) -> None:
        self.calls.append(call)
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
