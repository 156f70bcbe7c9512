"""Run LocalStack with KMS alone; like `tests/brokers/launch_localstack.py`, which does the work.

.venv-localstack/bin/python -P tests/crypto/launch_kms.py FOLDER
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import uuid
from pathlib import Path
from types import ModuleType

SERVICES = ("kms",)


def main(folder: Path) -> None:
    """Serve until the folder's owner is gone."""
    launcher = _launcher()
    launcher.SERVICES = SERVICES  # type: ignore[attr-defined]
    if sys.version_info < (3, 12):
        _let_uuid5_take_bytes()
    launcher.main(folder)


def _launcher() -> ModuleType:
    path = Path(__file__).parents[1] / "brokers" / "launch_localstack.py"
    spec = importlib.util.spec_from_file_location("launch_localstack", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _let_uuid5_take_bytes() -> None:
    """LocalStack's KMS names its key material with `uuid5` of bytes, which Python 3.12 takes."""
    plain = uuid.uuid5

    def uuid5(namespace: uuid.UUID, name: str | bytes) -> uuid.UUID:
        if isinstance(name, str):
            return plain(namespace, name)
        digest = hashlib.sha1(namespace.bytes + name, usedforsecurity=False).digest()
        return uuid.UUID(bytes=digest[:16], version=5)

    uuid.uuid5 = uuid5


if __name__ == "__main__":
    main(Path(sys.argv[1]))
