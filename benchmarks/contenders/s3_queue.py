"""A queue on S3, of one design: sent, then consumed, every request counted."""

from __future__ import annotations

from ..reading import Reading
from ..s3.designs import Place
from ..s3.life import measure_life


def run(
    count: int, *, design: str, consumers: int = 10, processes: int = 1, latency_ms: float = 0.0
) -> Reading:
    place = Place(endpoint="", design=design, consumers=consumers, processes=processes)
    return measure_life(count, place, latency_ms)
