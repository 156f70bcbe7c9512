"""A key file: read again when it changes, and never half."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from pathlib import Path

import pytest

from pump.crypto import (
    Encryption,
    Key,
    KeyFile,
    KeyNotFound,
    KeyRing,
    KeyUnavailable,
)
from pump.errors import ConfigurationError
from pump.testing.virtual_clock import VirtualClock

from .desk import MESSAGE, Log, OpenDesk
from .written_keys import A, B, C, entry, write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys"


async def test_when_the_file_changes_then_the_next_messages_are_sealed_with_its_new_key(
    path: Path, clock: VirtualClock, desk: OpenDesk
) -> None:
    """R65: no restart, and what the old key sealed still opens."""
    write(path, entry("a", A))
    open_desk = await desk(Encryption(KeyFile(path, every=timedelta(seconds=10), clock=clock)))
    before = await open_desk.seal()

    write(path, entry("b", B), entry("a", A))
    unnoticed = await open_desk.seal()
    await clock.advance(10)
    meanwhile = await open_desk.seal()
    await clock.settle()
    after = await open_desk.seal()

    assert [each.body[7:8] for each in (before, unnoticed, meanwhile, after)] == [
        b"a",
        b"a",
        b"a",
        b"b",
    ]
    for sealed in (before, unnoticed, meanwhile, after):
        assert await open_desk.open(sealed) == MESSAGE


async def test_when_a_message_names_an_unknown_key_then_the_file_is_looked_at_first(
    path: Path, clock: VirtualClock, desk: OpenDesk
) -> None:
    """R65: the sender was quicker than our next look."""
    write(path, entry("a", A))
    open_desk = await desk(Encryption(KeyRing.from_file(path, clock=clock)))
    sealed = await (await desk(Encryption(KeyRing(Key("b", B))))).seal()
    write(path, entry("a", A), entry("b", B))

    opening = asyncio.create_task(open_desk.open(sealed))
    await clock.advance(1)

    assert await opening == MESSAGE


async def test_when_many_messages_name_invented_keys_then_the_file_is_seldom_looked_at(
    path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, entry("a", A))
    keys = KeyFile(path, clock=clock)
    await keys.load()
    looks = 0
    read = keys._read_if_changed

    def counted() -> KeyRing | None:
        nonlocal looks
        looks += 1
        return read()

    monkeypatch.setattr(keys, "_read_if_changed", counted)
    finding = asyncio.gather(
        *(keys.find(f"invented-{number}") for number in range(200)), return_exceptions=True
    )
    await clock.advance(2)

    assert {type(error) for error in await finding} == {KeyNotFound}
    assert looks == 1
    await keys.aclose()


async def test_when_invented_keys_come_one_after_another_then_a_second_passes_between_two_looks(
    path: Path, clock: VirtualClock
) -> None:
    write(path, entry("a", A))
    keys = KeyFile(path, clock=clock)
    await keys.load()
    await clock.advance(60)
    with pytest.raises(KeyNotFound):
        await keys.find("invented-1")

    finding = asyncio.create_task(keys.find("invented-2"))
    await clock.advance(0.9)
    is_waiting = not finding.done()
    await clock.advance(0.1)

    assert is_waiting
    with pytest.raises(KeyNotFound):
        await finding
    await keys.aclose()


async def test_when_the_file_breaks_then_the_keys_stay_and_it_is_logged_once(
    path: Path, clock: VirtualClock, log: Log
) -> None:
    """R65: a file that is half written interrupts nothing."""
    write(path, entry("a", A))
    keys = KeyFile(path, clock=clock)
    await keys.load()

    for content in ("a:half-writ", "", f"{entry('b', B)}:"):
        write(path, content)
        await clock.advance(10)
        assert (await keys.active()).id == "a"
        await clock.settle()
    with_an_unknown_id = asyncio.create_task(keys.find("z"))
    await clock.advance(1)

    with pytest.raises(KeyUnavailable, match="cannot be read"):
        await with_an_unknown_id
    assert [(line["event"], line["log_level"]) for line in log] == [("keys.unread", "error")]
    write(path, entry("b", B), entry("a", A))
    await clock.advance(10)
    await keys.active()
    await clock.settle()
    assert (await keys.active()).id == "b"
    await keys.aclose()


async def test_when_a_key_leaves_the_file_then_it_is_wiped_and_the_others_stay_what_they_are(
    path: Path, clock: VirtualClock
) -> None:
    """R69: a key that stays keeps its cipher and its count."""
    write(path, entry("a", A), entry("b", B))
    keys = KeyFile(path, clock=clock)
    await keys.load()
    a, b = await keys.find("a"), await keys.find("b")

    write(path, entry("c", C), entry("a", A))
    await clock.advance(10)
    await keys.active()
    await clock.settle()

    assert b.is_wiped
    assert await keys.find("a") is a
    assert not a.is_wiped
    assert (await keys.active()).id == "c"
    await keys.aclose()
    assert a.is_wiped


async def test_when_an_id_is_given_to_another_key_then_the_change_is_refused(
    path: Path, clock: VirtualClock, log: Log
) -> None:
    write(path, entry("a", A))
    keys = KeyFile(path, clock=clock)
    await keys.load()
    a = await keys.active()

    write(path, entry("a", B))
    await clock.advance(10)
    await keys.active()
    await clock.settle()

    assert await keys.active() is a
    assert "give it a new id" in log[0]["error"]
    await keys.aclose()


async def test_when_a_refused_file_stays_as_it_is_then_its_new_keys_are_unavailable_not_unknown(
    path: Path, clock: VirtualClock, log: Log
) -> None:
    """R65: messages under a new key wait until the file is mended; each look finds it wrong."""
    write(path, entry("a", A))
    keys = KeyFile(path, clock=clock)
    await keys.load()
    write(path, entry("a", B), entry("c", C))

    for _ in range(3):
        await clock.advance(10)
        with pytest.raises(KeyUnavailable, match="give it a new id"):
            await keys.find("c")

    assert len(log) == 1
    await keys.aclose()


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o644, 0o666])
async def test_when_everybody_may_use_the_file_then_it_is_refused(path: Path, mode: int) -> None:
    write(path, entry("a", A), mode=mode)

    with pytest.raises(ConfigurationError, match=r"chmod 600"):
        await KeyFile(path).load()


async def test_when_its_group_may_use_the_file_then_that_is_warned_of(path: Path, log: Log) -> None:
    write(path, entry("a", A), mode=0o640)
    keys = KeyFile(path)

    await keys.load()

    assert [(line["event"], line["log_level"]) for line in log] == [("keys.exposed", "warning")]
    await keys.aclose()


@pytest.mark.parametrize("name", ["missing", "."])
async def test_when_the_file_cannot_be_read_then_the_error_names_it(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / name

    with pytest.raises(ConfigurationError, match=f"key file {path}"):
        await KeyFile(path).load()


async def test_when_the_file_is_no_text_then_the_error_repeats_nothing_of_it(path: Path) -> None:
    write(path, f"a:{A.decode()}\x00ÿ")

    with pytest.raises(ConfigurationError, match=r"key 1.*base64"):
        await KeyFile(path).load()


def test_when_a_file_provider_is_made_then_nothing_is_read(path: Path) -> None:
    KeyRing.from_file(path)

    with pytest.raises(ConfigurationError, match="above zero"):
        KeyFile(path, every=timedelta(0))


async def test_when_a_pipe_stands_in_place_of_the_file_then_nobody_waits_for_it(
    path: Path,
) -> None:
    """R56: its reader would never come back, nor would the process end."""
    await asyncio.to_thread(os.mkfifo, path, 0o600)

    with pytest.raises(ConfigurationError, match="from_callable"):
        await KeyFile(path).load()
