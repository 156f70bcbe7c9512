"""Removals: what S3 says of many objects that were to be removed in one request. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pump.errors import AccessDenied, ConnectionFailed, GatewayError

from ..._aws.codes import Meaning, meaning_of, permission_for, plain

MAX_KEYS: Final = 1000
"""How many objects S3 removes in one request."""
_ALL_RIGHT = (Meaning.OBJECT_MISSING,)


def fault_in(reply: Mapping[str, Any], *, bucket: str) -> GatewayError | None:
    """The first reason why an object may still be there; None when all are gone.

    A whole request succeeds although parts of it failed. `AccessDenied` is raised: that is for a
    person.
    """
    for error in reply.get("Errors") or ():
        code = str(error.get("Code", ""))
        meaning = meaning_of(code, 500)
        target = f"s3://{bucket}/{error.get('Key', '')}"
        if meaning is Meaning.DENIED:
            raise AccessDenied(target, permission_for("s3", "delete_objects"))
        if meaning not in _ALL_RIGHT:
            return ConnectionFailed(target, f"it was not removed ({plain(code)})")
    return None
