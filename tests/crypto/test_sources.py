"""Keys from the environment, from a function, and from several places at once."""

from __future__ import annotations

import asyncio
import os
import pickle
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pump.crypto import (
    CallableKeys,
    Encryption,
    FallbackKeys,
    Key,
    KeyFile,
    KeyNotFound,
    KeyRing,
    KeyUnavailable,
)
from pump.errors import ConfigurationError
from pump.observability.telemetry import Counters
from pump.testing.virtual_clock import VirtualClock

from .desk import MESSAGE, Log, OpenDesk, delivered
from .written_keys import A, B, C, entry, write


async def test_when_keys_are_in_the_environment_then_they_are_read_when_the_app_opens(
    monkeypatch: pytest.MonkeyPatch, desk: OpenDesk
) -> None:
    encryption = Encryption(KeyRing.from_environment("ORDERS_KEYS"))
    monkeypatch.setenv("ORDERS_KEYS", f"{entry('b', B)},{entry('a', A)}")

    open_desk = await desk(encryption)
    sealed = await open_desk.seal()

    assert sealed.body[7:8] == b"b"
    assert await open_desk.open(sealed) == MESSAGE
    with pytest.raises(KeyNotFound):
        await open_desk.open(await (await desk(Encryption(KeyRing(Key("c", C))))).seal())


async def test_when_the_variable_is_missing_then_the_error_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ORDERS_KEYS", raising=False)

    with pytest.raises(ConfigurationError, match=r"ORDERS_KEYS.*is not set"):
        await Encryption(KeyRing.from_environment("ORDERS_KEYS")).start(Counters(), None)


async def test_when_an_app_opens_again_then_the_environment_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R69: wiped in between."""
    monkeypatch.setenv("ORDERS_KEYS", entry("a", A))
    keys = KeyRing.from_environment("ORDERS_KEYS")
    await keys.load()
    first = await keys.active()

    await keys.aclose()
    await keys.load()

    assert first.is_wiped
    assert not (await keys.active()).is_wiped
    await keys.aclose()
    with pytest.raises(KeyUnavailable, match="not loaded"):
        await keys.active()


async def test_when_providers_are_pickled_then_the_copies_load_for_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R69: without their keys."""
    path = tmp_path / "keys"
    write(path, entry("a", A))
    monkeypatch.setenv("ORDERS_KEYS", entry("a", A))
    for provider in (KeyFile(path), KeyRing.from_environment("ORDERS_KEYS"), CallableKeys(fetch)):
        await provider.load()

        pickled = pickle.dumps(Encryption(provider, max_age=timedelta(hours=1)))

        assert not any(
            secret in pickled for secret in (A, A.hex().encode(), entry("", A)[:9].encode())
        )
        copy: Encryption = pickle.loads(pickled)
        await copy.start(Counters(), None)
        sealed = await copy.encrypt(MESSAGE, "orders")
        assert await copy.decrypt(delivered(sealed)) == MESSAGE
        await copy.aclose()
        await provider.aclose()


def fetch() -> KeyRing:
    return KeyRing(Key("a", A))


@pytest.mark.parametrize("kind", ["plain", "coroutine", "awaitable"])
async def test_when_keys_come_from_a_function_then_it_may_be_of_any_kind(kind: str) -> None:
    async def fetch_later() -> KeyRing:
        return fetch()

    kinds: dict[str, Any] = {
        "plain": fetch,
        "coroutine": fetch_later,
        "awaitable": lambda: fetch_later(),
    }
    keys = KeyRing.from_callable(kinds[kind])

    await keys.load()

    assert (await keys.active()).id == "a"
    await keys.aclose()


async def test_when_a_function_fails_later_then_the_keys_stay_and_unknown_ones_are_retried(
    clock: VirtualClock, log: Log
) -> None:
    """R65: an outage of the vault is no reason to reject messages."""
    rings = [fetch()]

    async def fetch_once() -> KeyRing:
        if not rings:
            raise TimeoutError("the vault's password is hunter2")
        return rings.pop()

    keys = CallableKeys(fetch_once, clock=clock)
    await keys.load()

    finding = asyncio.create_task(keys.find("new"))
    await clock.advance(1)

    with pytest.raises(KeyUnavailable, match="TimeoutError"):
        await finding
    assert (await keys.active()).id == "a"
    assert "hunter2" not in str(log)
    await keys.aclose()


async def test_when_the_app_closes_while_keys_are_fetched_then_those_are_wiped_too(
    clock: VirtualClock, log: Log
) -> None:
    """R69."""
    rings, may_answer = [fetch()], asyncio.Event()

    async def fetch_slowly() -> KeyRing:
        if len(rings) > 1:
            await may_answer.wait()
        return rings[-1]

    keys = CallableKeys(fetch_slowly, clock=clock)
    await keys.load()
    rings.append(KeyRing(Key("a", A), retired=[Key("b", B)]))
    finding = asyncio.create_task(keys.find("b"))
    await clock.advance(1)

    await keys.aclose()
    may_answer.set()

    with pytest.raises(KeyUnavailable, match="not loaded"):
        await finding
    assert all(key.is_wiped for ring in rings for key in ring.keys)
    assert log == []


@pytest.mark.parametrize("answer", [None, A, {"a": A}])
async def test_when_a_function_returns_something_else_then_it_is_not_shown(answer: Any) -> None:
    with pytest.raises(ConfigurationError, match="must return a KeyRing") as caught:
        await CallableKeys(lambda: answer).load()

    assert "\\x01" not in str(caught.value)


async def test_when_a_function_fails_at_once_then_the_app_does_not_open() -> None:
    def broken() -> KeyRing:
        raise OSError("no route to the vault")

    with pytest.raises(ConfigurationError, match=r"broken.*OSError") as caught:
        await CallableKeys(broken).load()

    assert isinstance(caught.value.__cause__, OSError)


async def test_when_a_function_returns_a_ring_that_was_wiped_then_it_is_told_to_make_another() -> (
    None
):
    ring = fetch()
    keys = CallableKeys(lambda: ring)
    await keys.load()
    await keys.aclose()

    with pytest.raises(ConfigurationError, match="give a new ring"):
        await keys.load()


async def test_when_a_function_returns_the_same_ring_then_its_keys_stay(
    clock: VirtualClock,
) -> None:
    ring = fetch()
    keys = CallableKeys(lambda: ring, every=timedelta(minutes=1), clock=clock)
    await keys.load()

    await clock.advance(60)
    await keys.active()
    await clock.settle()

    assert not (await keys.active()).is_wiped
    await keys.aclose()


async def test_when_an_app_moves_between_providers_then_both_open_and_the_first_seals(
    desk: OpenDesk,
) -> None:
    """R65."""
    old = KeyRing(Key("a", A), wipe_on_close=False)
    before = await (await desk(Encryption(old))).seal()
    both = await desk(Encryption(FallbackKeys(KeyRing(Key("b", B)), old)))

    after = await both.seal()

    assert after.body[7:8] == b"b"
    assert await both.open(before) == await both.open(after) == MESSAGE
    with pytest.raises(KeyNotFound):
        await both.open(await (await desk(Encryption(KeyRing(Key("c", C))))).seal())


async def test_when_a_later_provider_has_a_key_then_the_first_is_not_looked_at_for_each_message(
    clock: VirtualClock,
) -> None:
    """R65: it looks once a second at most, so every message of the old key would wait for it."""
    looks: list[float] = []

    def fetch_new() -> KeyRing:
        looks.append(clock.now_s())
        return KeyRing(Key("b", B))

    keys = FallbackKeys(CallableKeys(fetch_new, clock=clock), KeyRing(Key("a", A)))
    await keys.load()
    first = asyncio.create_task(keys.find("a"))
    await clock.advance(1)
    assert (await first).id == "a"

    async with asyncio.timeout(5):
        for _ in range(3):
            assert (await keys.find("a")).id == "a"

    assert len(looks) == 2, "when it was loaded, and for the first message"
    await keys.aclose()


async def test_when_the_provider_that_had_a_key_lost_it_then_the_others_are_asked_again() -> None:
    """R66."""
    one, two = KeyRing(Key("b", B)), KeyRing(Key("c", C), retired=[Key("a", A)])
    keys = FallbackKeys(one, two)
    await keys.load()
    assert (await keys.find("a")) is two.get("a")

    two.remove("a")
    with pytest.raises(KeyNotFound):
        await keys.find("a")
    one.add(Key("a", A))

    assert (await keys.find("a")) is one.get("a")
    await keys.aclose()


class UnavailableKeys(KeyRing):
    """A vault that cannot be reached, and does not close either."""

    async def find(self, key_id: str) -> Key:
        raise KeyUnavailable(key_id, "no route to the vault")

    async def aclose(self) -> None:
        raise OSError("no route to the vault")


async def test_when_a_provider_is_unavailable_then_the_others_still_open_what_they_can() -> None:
    """R65, R66: what none of the others has may be the first one's, so it is retried."""
    other = KeyRing(Key("b", B))
    keys = FallbackKeys(UnavailableKeys(Key("a", A)), other)
    await keys.load()

    assert (await keys.find("b")).id == "b"
    with pytest.raises(KeyUnavailable):
        await keys.find("c")

    with pytest.raises(OSError, match="no route"):
        await keys.aclose()
    assert other.keys[0].is_wiped, "R69"


async def test_when_two_apps_share_a_provider_then_the_last_to_close_wipes_its_keys(
    desk: OpenDesk,
) -> None:
    """R69."""
    keys = CallableKeys(fetch)
    one, two = Encryption(keys), await desk(Encryption(keys))
    await one.start(Counters(), None)
    sealed = await one.encrypt(MESSAGE, "orders")

    await one.aclose()

    assert await two.open(sealed) == MESSAGE


async def test_when_one_of_several_providers_cannot_load_then_the_others_are_closed(
    tmp_path: Path,
) -> None:
    """R69."""
    ring = KeyRing(Key("a", A))

    with pytest.raises(ConfigurationError):
        await FallbackKeys(ring, KeyFile(tmp_path / os.devnull.replace("/", "-"))).load()

    assert ring.keys[0].is_wiped


async def started(path: Path) -> None:
    encryption = Encryption(KeyRing.from_file(path))
    await encryption.start(Counters(), None)
    await encryption.aclose()


async def test_when_a_key_file_is_of_another_user_then_it_is_refused_as_ssh_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R57: that user could change it."""
    path = tmp_path / "keys"
    write(path, entry("a", A))
    owner = os.stat(path).st_uid
    await started(path)

    # Seen by another user, who is not root: nobody else can make files of others.
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    real = os.fstat
    monkeypatch.setattr(os, "fstat", lambda fd: _owned(real(fd), owner or 7))

    with pytest.raises(ConfigurationError, match=r"owned by user \d+.*chown"):
        await started(path)


def _owned(status: os.stat_result, uid: int) -> os.stat_result:
    return os.stat_result((*status[:4], uid, *status[5:]), {"st_mtime_ns": status.st_mtime_ns})


async def test_when_a_key_file_of_root_is_read_by_another_user_then_it_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubernetes mounts secrets so."""
    path = tmp_path / "keys"
    write(path, entry("a", A))
    real = os.fstat
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    monkeypatch.setattr(os, "fstat", lambda fd: _owned(real(fd), 0))

    await started(path)


@pytest.mark.parametrize("is_link", [False, True])
async def test_when_everybody_may_write_to_a_folder_above_then_its_key_file_is_refused(
    tmp_path: Path, is_link: bool
) -> None:
    """R57: another file could be put in its place."""
    folder = tmp_path / "open" / "inner"
    folder.mkdir(parents=True)
    write(folder / "keys", entry("a", A))
    path = folder / "keys"
    if is_link:
        path = tmp_path / "link"
        path.symlink_to(folder / "keys")
    await started(path)
    (tmp_path / "open").chmod(0o777)

    with pytest.raises(ConfigurationError, match=r"open drwxrwxrwx.*chmod o-w"):
        await started(path)

    (tmp_path / "open").chmod(0o1777)
    await started(path)
