"""R69: keys are shown nowhere. A key made of a known text is put everywhere, and looked for."""

from __future__ import annotations

import base64
import copy
import io
import logging
import pickle
import traceback
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest

import pump.crypto.errors as error_module
from pump import App
from pump.crypto import (
    AuthenticationFailed,
    CallableKeys,
    Encryption,
    FallbackKeys,
    Key,
    KeyNotFound,
    KeyRing,
    KeyUnavailable,
    NonceTracking,
    PlaintextPolicy,
)
from pump.crypto.errors import shown
from pump.errors import ConfigurationError, CryptoError, PumpError
from pump.observability.telemetry import Counters
from pump.testing.builders import a_message

from .desk import MESSAGE, changed, delivered

SECRET = b"SECRET-key-of-thirty-two-bytes!!"
FORMS = (
    SECRET,
    SECRET[4:12],
    SECRET.hex().encode(),
    base64.b64encode(SECRET)[:10],
    repr(list(SECRET))[1:12].encode(),
)


def secret_key() -> Key:
    return Key("2026-01", SECRET)


def leaks(text: str | bytes) -> list[bytes]:
    """The forms of the secret that stand in a text."""
    found = text if isinstance(text, bytes) else text.encode("utf-8", "backslashreplace")
    return [form for form in FORMS if form in found]


@attrs.define
class Holder:
    """An application's own class that holds a key."""

    key: Any


def holders() -> Iterator[object]:
    key = secret_key()
    ring = KeyRing(key, retired=[Key("2025-12", SECRET[::-1])])
    encryption = Encryption(ring, nonces=NonceTracking())
    yield from (key, ring, encryption, Encryption.off(ring), FallbackKeys(ring, ring))
    yield CallableKeys(lambda: ring)
    yield from ((key,), [ring], {"key": key}, Holder(key), Holder(encryption))
    yield App("memory://", encryption=encryption)


def test_the_search_finds_what_it_looks_for() -> None:
    assert len(leaks(SECRET + SECRET.hex().encode() + base64.b64encode(SECRET))) == 4
    assert leaks(repr(list(SECRET)))
    assert leaks("2026-01") == []


@pytest.mark.parametrize("holder", list(holders()), ids=lambda holder: type(holder).__name__)
def test_when_a_key_is_shown_in_any_way_then_its_bytes_are_not(holder: Any) -> None:
    """R69, R57."""
    shapes = [repr(holder), str(holder), f"{holder}", f"{holder!a}"]
    if attrs.has(type(holder)):
        shapes.append(repr(attrs.asdict(holder)))
        shapes.append(repr(attrs.astuple(holder)))
    if hasattr(holder, "__dict__"):
        shapes.append(repr(vars(holder)))

    assert [leaks(shape) for shape in shapes] == [[]] * len(shapes)


@pytest.mark.parametrize("holder", list(holders()), ids=lambda holder: type(holder).__name__)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_when_something_that_holds_a_key_is_pickled_then_the_key_is_not(
    holder: object, protocol: int
) -> None:
    """R69: a key made in code stays in its process; whoever pickles it is told what to do."""
    file = io.BytesIO()

    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)) as caught:
        pickle.Pickler(file, protocol).dump(holder)

    assert leaks(file.getvalue()) == []
    assert leaks(str(caught.value)) == []


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy])
def test_when_a_key_is_copied_then_that_is_refused(clone: Any) -> None:
    """R69: a copy would outlive the wiping."""
    with pytest.raises(TypeError, match=r"KeyRing\.from_file"):
        clone(secret_key())


ERRORS: dict[type[PumpError], tuple[Any, ...]] = {
    AuthenticationFailed: ("2026-01",),
    error_module.MessageExpired: (datetime(2026, 1, 1, tzinfo=UTC), timedelta(minutes=5)),
    error_module.MessageFromFuture: (datetime(2026, 1, 1, tzinfo=UTC), timedelta(minutes=5)),
    KeyNotFound: ("2026-01",),
    error_module.NonceReused: ("m-1",),
    error_module.UnsupportedVersion: (2,),
    error_module.SealedForAnotherQueue: ("m-1", "orders", "refunds"),
    error_module.UnencryptedMessage: ("m-1", "orders"),
    error_module.MalformedEnvelope: ("it ends before its key id",),
    error_module.PlaintextLooksSealed: ("m-1",),
    KeyUnavailable: ("2026-01", "KMS: ThrottlingException"),
}


def test_every_error_of_encryption_is_known_here() -> None:
    own = {
        value
        for value in vars(error_module).values()
        if isinstance(value, type) and value.__module__ == error_module.__name__
    }

    assert own == set(ERRORS)
    assert {kind for kind in own if not issubclass(kind, CryptoError)} == {KeyUnavailable}


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_when_an_error_is_read_then_it_says_what_to_do_and_survives_pickling(
    kind: type[PumpError],
) -> None:
    error = kind(*ERRORS[kind])

    arrived = pickle.loads(pickle.dumps(error))

    assert (type(arrived), str(arrived), arrived.args) == (kind, str(error), error.args)
    assert len(str(error).split(";")) > 1, "what happened; what to do"


@pytest.mark.parametrize(
    ("key_id", "text"),
    [
        ("2026-01", "'2026-01'"),
        ("a\nERROR all is well\x1b[31m\x00", r"'a\nERROR all is well\x1b[31m\x00'"),
        ("\u202eevil\u2028", r"'\u202eevil\u2028'"),
        ("k" * 300, f"'{'k' * 64}…' (and 236 characters more)"),
    ],
)
def test_when_a_key_id_from_outside_is_shown_then_it_is_cut_and_escaped(
    key_id: str, text: str
) -> None:
    """R61: a log line stays one line, whatever a stranger writes into an envelope."""
    assert shown(key_id) == text
    for error in (KeyNotFound(key_id), AuthenticationFailed(key_id), KeyUnavailable(key_id, "d")):
        assert text in str(error)
        assert len(str(error)) < 800
        assert str(error).isprintable()


async def test_when_everything_goes_wrong_then_no_log_and_no_traceback_holds_a_key(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """R63, R69: everything is logged, and printed with its traceback."""
    caplog.set_level(logging.DEBUG)
    printed = io.StringIO()
    encryption = Encryption(
        KeyRing(secret_key()),
        max_age=timedelta(days=1),
        plaintext=PlaintextPolicy.ALLOW_WITH_ALERT,
        nonces=NonceTracking(),
    )
    with redirect_stdout(printed), redirect_stderr(printed):
        await encryption.start(Counters(), None)
        sealed = await encryption.encrypt(MESSAGE, "orders")
        for message in (
            sealed,
            sealed,
            a_message("plain"),
            changed(sealed, id="other"),
            changed(sealed, body=sealed.body[:-1]),
            changed(sealed, body=sealed.body[:20]),
            changed(sealed, body=b"QRE1\x02"),
            changed(sealed, body=sealed.body.replace(b"2026-01", b"2099-01")),
            changed(sealed, body=sealed.body[:14] + bytes(8) + sealed.body[22:]),
        ):
            try:
                await encryption.decrypt(delivered(message, broker_id=id(message)))
            except PumpError:
                traceback.print_exc(file=printed)
                logging.getLogger("app").exception("failed")
        for wrong in (SECRET + b"!", SECRET[:5], SECRET.decode()):
            try:
                Key("2026-01", wrong)  # type: ignore[arg-type]
            except ConfigurationError:
                traceback.print_exc(file=printed)
        await encryption.aclose()

    assert "AuthenticationFailed" in printed.getvalue()
    assert leaks(printed.getvalue()) == []
    assert leaks(caplog.text) == []


async def test_when_a_message_is_opened_then_neither_its_body_nor_headers_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """R61."""
    caplog.set_level(logging.DEBUG)
    printed = io.StringIO()
    encryption = Encryption(KeyRing(secret_key()), plaintext=PlaintextPolicy.ALLOW)
    message = a_message("hush-body", headers={"authorization": "hush-header"})
    with redirect_stdout(printed):
        await encryption.start(Counters(), None)
        await encryption.decrypt(delivered(await encryption.encrypt(message, "orders")))
        await encryption.decrypt(delivered(message))
        await encryption.aclose()

    assert "message.opened" in printed.getvalue() + caplog.text
    assert "hush" not in printed.getvalue() + caplog.text
