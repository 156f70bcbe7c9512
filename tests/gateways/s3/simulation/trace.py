"""The trace of a run: its last events, in words only when somebody wants to read them."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

import attrs

from gateways.s3.store.objects import FoundObject, Get, List, Page, Put, Remove

MAX_SHOWN = 160
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]+")


class Trace:
    """Notes events; the oldest are forgotten."""

    def __init__(self, now_s: Callable[[], float], *, max_count: int = 100_000) -> None:
        self._now_s = now_s
        self._start_s = now_s()
        self._events: deque[tuple[float, str, str, object]] = deque(maxlen=max_count)
        self.count = 0

    def note(self, who: str, what: str, about: object = "") -> None:
        self.count += 1
        self._events.append((self._now_s(), who, what, about))

    def lines(self, max_count: int | None = None) -> Iterator[str]:
        """What was noted last, a line each."""
        first = 0 if max_count is None else max(0, len(self._events) - max_count)
        for at_s, who, what, about in islice(self._events, first, None):
            yield f"{at_s - self._start_s:9.3f} {who:<8} {what:<9} {shown(about)}"


def shown(about: object) -> str:
    """A request, a reply or a text in a line."""
    match about:
        case Put(key, body, if_match, is_new):
            condition = f"if {if_match[1:7]}" if if_match else "new" if is_new else "ALWAYS"
            return f"put {_short(key)} [{condition}] {_text(body)}"
        case Get(key, unless, has_body):
            condition = f" unless {unless[1:7]}" if unless else ""
            return f"get {_short(key)}{condition}{'' if has_body else ' (no body)'}"
        case List(prefix, after, max_count):
            return f"list {_short(prefix)} after {_short(after)!r} max {max_count}"
        case Remove(keys):
            return f"remove {', '.join(map(_short, keys))}"
        case FoundObject(etag, body):
            return f"Found {etag[1:7]} {_text(body)}"
        case Page(entries, is_last):
            lines = ", ".join(
                f"{_short(each.key)} {each.etag[1:7]} {each.size}" for each in entries
            )
            return f"Page [{lines}]{'' if is_last else ' …'}"
        case _ if attrs.has(type(about)):
            return re.sub(r'"(\w{6})\w+"', r"\1", repr(about))
        case _:
            return str(about)


def _short(key: str) -> str:
    return key.partition("queues/q/")[2] or key


def _text(body: bytes) -> str:
    text = _UNPRINTABLE.sub("·", body.decode("latin-1"))
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
