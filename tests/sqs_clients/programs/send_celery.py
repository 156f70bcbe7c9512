"""Ask Celery's worker for sums, and print what came back."""

from __future__ import annotations

from .child_celery import add, stumble

sums = [add.delay(number, number) for number in range(20)]
print("sums", [each.get(timeout=60) for each in sums])
print("retries", stumble.delay().get(timeout=60))
