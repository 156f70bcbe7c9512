"""R70, R73: nothing is loaded that nobody asked for, and tags are compared by the library alone."""

from __future__ import annotations

import ast
import builtins
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import pump.crypto
from pump.crypto import AuthenticationFailed, Encryption, Key, KeyRing, aes
from pump.crypto.envelope import associated_data, make_header, parse
from pump.errors import ConfigurationError
from pump.message import Message
from pump.observability.telemetry import Counters

FOLDER = Path(pump.crypto.__file__).parent
LOADED = "print(sorted({'cryptography', 'aioboto3', 'boto3', 'botocore'} & set(sys.modules)))"


@pytest.mark.parametrize(
    ("program", "loaded"),
    [
        ("import pump; [getattr(pump, name) for name in pump.__all__]", "[]"),
        ("import pump.crypto", "[]"),
        (
            "import pump.crypto as c; [getattr(c, name) for name in c.__all__];"
            "c.Encryption(c.KeyRing(c.Key.generate('k'))); c.KmsKeys('alias/orders')",
            "[]",
        ),
        (
            "import asyncio, pump.crypto as c; from pump.observability.telemetry import Counters;"
            "asyncio.run(c.Encryption.off().start(Counters(), None))",
            "[]",
        ),
        (
            "import asyncio, pump.crypto as c; from pump.observability.telemetry import Counters;"
            "asyncio.run(c.Encryption(c.KeyRing(c.Key.generate('k'))).start(Counters(), None))",
            "['cryptography']",
        ),
    ],
)
def test_when_nobody_encrypts_then_no_cryptography_is_loaded(program: str, loaded: str) -> None:
    """R70."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {program}; {LOADED}"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == loaded


async def test_when_the_library_is_missing_then_the_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, ring: KeyRing
) -> None:
    importing = builtins.__import__

    def without(name: str, *args: Any, **options: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(f"No module named {name!r}", name=name)
        return importing(name, *args, **options)

    monkeypatch.delitem(sys.modules, "pump.crypto.aes")
    monkeypatch.setattr(builtins, "__import__", without)

    with pytest.raises(ConfigurationError, match=r"pip install pumphouse\[crypto\]"):
        await Encryption(ring).start(Counters(), None)


def test_when_a_name_is_public_then_it_is_there_and_documented() -> None:
    for name in pump.crypto.__all__:
        assert (getattr(pump.crypto, name).__doc__ or "").strip(), name
    assert set(pump.crypto.__all__) <= set(dir(pump.crypto))
    assert sorted(pump.crypto.__all__) == pump.crypto.__all__
    with pytest.raises(AttributeError, match="no_such_name"):
        pump.crypto.no_such_name  # type: ignore[attr-defined]  # noqa: B018


def test_when_a_tag_is_verified_then_the_library_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """R73: ciphertext and tag go to AESGCM.decrypt together, which compares in constant time."""
    given: list[tuple[bytes, bytes, bytes]] = []

    class Recording:
        def __init__(self, key: bytearray) -> None:
            self._real = AESGCM(key)

        def decrypt(self, nonce: bytes, sealed: bytes, associated: bytes) -> bytes:
            given.append((nonce, sealed, associated))
            return bytes(self._real.decrypt(nonce, sealed, associated))

    message = Message(body=b"body", id="m")
    header = make_header(b"k", 1, b"n" * 12)
    associated = associated_data(header, message)
    key = Key("k", bytes(32))
    sealed = aes.encrypt(key, b"body", nonce=b"n" * 12, associated=associated)
    monkeypatch.setattr(aes, "AESGCM", Recording)

    plaintext = aes.decrypt(Key("k", bytes(32)), parse(header + sealed), associated=associated)
    wrong = parse(header + sealed[:-16] + b"t" * 16)
    with pytest.raises(AuthenticationFailed):
        aes.decrypt(Key("k", bytes(32)), wrong, associated=associated)

    assert plaintext == b"body"
    assert given == [
        (b"n" * 12, sealed, associated),
        (b"n" * 12, sealed[:-16] + b"t" * 16, associated),
    ]


def test_when_the_sources_are_read_then_nothing_of_ours_compares_tags_or_keys() -> None:
    """R73: keys are compared by `hmac.compare_digest`, tags not at all."""
    secret = {"tag", "sealed", "material", "_material", "plaintext", "ciphertext"}
    found = []
    for path in sorted(FOLDER.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
                names = {getattr(side, "attr", getattr(side, "id", "")) for side in sides}
                is_identity = all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops)
                if names & secret and not is_identity:
                    found.append(f"{path.name}:{node.lineno}")

    assert found == []
