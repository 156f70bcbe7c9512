"""botocore's own signatures, at a given time, in every version that is allowed (R77)."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import botocore.auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials


def sign_by_botocore(
    request: AWSRequest,
    auth_kind: type[Any],
    scope: tuple[str, str],
    key: tuple[str, str, str | None],
    *,
    at: datetime,
) -> None:
    """Add its headers; the scope is service and region, the key an id, a secret and a token."""
    with _clock_at(at.astimezone(UTC)):
        auth_kind(Credentials(*key).get_frozen_credentials(), *scope).add_auth(request)


def _clock_at(now: datetime) -> AbstractContextManager[object]:
    if hasattr(botocore.auth, "get_current_datetime"):
        return patch("botocore.auth.get_current_datetime", lambda *_: now)
    # Older releases ask the class.
    stopped = SimpleNamespace(datetime=SimpleNamespace(utcnow=lambda: now))
    return patch("botocore.auth.datetime", stopped)
