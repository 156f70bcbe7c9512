"""Keys written down, for the tests of where keys come from."""

from __future__ import annotations

import base64
from pathlib import Path

A, B, C = (bytes([number]) * 32 for number in (1, 2, 3))


def entry(key_id: str, material: bytes) -> str:
    """A key as it stands in a file or a variable."""
    return f"{key_id}:{base64.b64encode(material).decode()}"


def write(path: Path, *entries: str, mode: int = 0o600) -> None:
    """Replace the file as a whole, as the documentation asks."""
    fresh = path.with_suffix(".new")
    fresh.write_text("\n".join(entries))
    fresh.chmod(mode)
    fresh.replace(path)
