"""Texts of errors, friendly and not, on which every engine must agree."""

from __future__ import annotations

import random

_ALPHABET = "abcXYZ0189 \t\n\r'\"`“”/\\.:;,@#<>()[]{}-_%+=é߀🙂\u2028\u00a0\x00\x0b\x85 "


def _drawn(count: int) -> list[str]:
    chance = random.Random(11)
    return [
        "".join(chance.choice(_ALPHABET) for _ in range(chance.randrange(0, 90)))
        for _ in range(count)
    ]


TEXTS = [
    "",
    " ",
    "KeyError: 'customer'",
    "can't find order 123, isn't it b'raw' or 'so'",
    "a 'quote that never ends because the text was cut",
    'say "what" and "wh',
    "at 2026-11-16T08:30:00.123+00:00 and 2026-11-16 08:30",
    "GET https://user@shop.example/a/b?c=1#d, then (ftp://x.y)",
    "mail ada.l+x@shop.example failed",
    "/usr/lib/python3/site.py:12 and C:\\Temp\\a.txt and and/or",
    "4f3a8b1c-1111-2222-3333-abcdefabcdef vs deadbeefdeadbeef vs 0xFF",
    "ids [1, 2, 3] of ['a', 'b'] and [1]",
    "1.5s 12ms 3,000 12:30:01",
    "x" * 1_000,
    "'" * 301,
    "1" * 299 + "'" + "2" * 10,
    "🙂" * 299 + "12345",
    "$1 \\1 ${a} \\g<1>",
    *_drawn(400),
]
