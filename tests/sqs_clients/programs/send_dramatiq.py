"""Send dramatiq's worker its work."""

from __future__ import annotations

from .child_dramatiq import add, stumble

for number in range(20):
    add.send(number, number)
stumble.send()
