"""Credentials: botocore finds and renews them; here they are only asked for, off the loop."""

from __future__ import annotations

from typing import Any

from pump.tasks import in_thread

from .signing import Key


class CredentialSource:
    """The key of a botocore client, whatever it comes from: settings, profile, role, container."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._frozen: Any = None
        self._key: Key | None = None

    async def key(self) -> Key:
        """The key of now. When its time nears, a thread renews it before it is given out."""
        is_due = getattr(self._source, "refresh_needed", None)
        if is_due is not None and is_due():
            frozen = await in_thread(self._source.get_frozen_credentials)
        else:
            frozen = self._source.get_frozen_credentials()
        if self._key is None or frozen != self._frozen:
            self._frozen = frozen
            self._key = Key(
                access_key_id=frozen.access_key,
                secret_access_key=frozen.secret_key,
                session_token=frozen.token,
            )
        return self._key
