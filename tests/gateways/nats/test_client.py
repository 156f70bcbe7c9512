"""The SDK's client, where it would leave something behind."""

from __future__ import annotations

import pytest
from nats.aio.client import Client

from gateways.nats.client import PumpClient


async def test_when_a_reset_connection_cannot_be_flushed_then_its_end_is_told_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Law 7: or what waits for an answer would wait for its timeout, and the loop complains of a
    task whose exception was never retrieved.
    """
    told: list[str] = []

    async def reset(self: Client, status: int, do_cbs: bool = True) -> None:
        raise ConnectionResetError(104, "Connection reset by peer")

    async def closed() -> None:
        told.append("closed")

    monkeypatch.setattr(Client, "_close", reset)
    client = PumpClient()
    client._closed_cb = closed

    await client._close(Client.CLOSED)

    assert told == ["closed"]
    assert client.is_closed
