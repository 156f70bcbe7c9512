"""De-duplication: which ids were seen within the window."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class DeduplicationWindow:
    """Remembers ids for `window_s` seconds, and forgets them at the next question after."""

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self._until_s: dict[str, float] = {}
        self._order: deque[tuple[float, str]] = deque()
        self._forgotten: list[str] = []

    def __len__(self) -> int:
        return len(self._until_s)

    def admit(self, key: str, now_s: float) -> bool:
        """Return whether `key` is new, and remember it if so."""
        self._forget(now_s)
        # Those before it in order may be kept longer, from when the window was wider.
        if self._until_s.get(key, now_s) > now_s:
            return False
        self.remember(key, now_s + self.window_s)
        return True

    def remember(self, key: str, until_s: float) -> None:
        """Refuse `key` until then."""
        self._until_s[key] = until_s
        self._order.append((until_s, key))

    def remembered(self, now_s: float) -> list[tuple[str, float]]:
        """What is refused now, and until when, for whoever starts from a copy."""
        kept = [each for each in self._until_s.items() if each[1] > now_s]
        return sorted(kept, key=lambda each: (each[1], each[0]))

    def withdraw(self, keys: Iterable[str]) -> None:
        """Forget ids whose message was not accepted in the end."""
        for key in keys:
            self._until_s.pop(key, None)

    def _forget(self, now_s: float) -> None:
        order = self._order
        while order and order[0][0] <= now_s:
            until_s, key = order.popleft()
            # A withdrawn id may have been admitted again with a later end.
            if self._until_s.get(key) == until_s:
                del self._until_s[key]
                self._forgotten.append(key)

    def take_forgotten(self) -> list[str]:
        """The ids forgotten since the last call, for whoever keeps a copy."""
        forgotten, self._forgotten = self._forgotten, []
        return forgotten
