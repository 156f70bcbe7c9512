"""The report over a ledger of very many outcomes, made up in moments, on DuckDB or on Spark."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import attrs
import psutil

from ..reading import CpuClock, Reading

_LEDGER, _OUT = Path("ledger"), Path("report")
_WARM_UP = 10_000
_LOOK_S = 0.1
_ROWS_A_FILE = 500_000
_ROWS_A_GROUP = 131_072
_DAYS = 10
_DAY_US = 86_400_000_000
_FIRST_US = int(datetime.datetime(2026, 11, 1, tzinfo=datetime.UTC).timestamp() * 1e6)
_ID_LENGTH = 32
_RETRIED, _DEAD = 0.05, 0.003
_TYPES = ("PlaceOrder", "CancelOrder", "SendParcel", "Pay", "Refund", "Notify")
_QUEUES = ("orders", "orders", "parcels", "payments", "payments", "mail")
_ERRORS = (
    ("ConnectionError", "the warehouse at 10.0.0.{n} does not answer"),
    ("TimeoutError", "no answer from payments within {n} ms"),
    ("KeyError", "'order-{n}'"),
    ("ValueError", "quantity {n} of item {n} is not in stock"),
    ("HandlerTimeout", "PlaceOrderHandler took longer than {n} s"),
)
_PUMPS = 8


def run(count: int, *, engine: str) -> Reading:
    """From the question to the HTML. Making the ledger, and a session, does not count."""
    from pump.report.job import ReportOptions, run_report

    make_ledger(Path("warm-up"), min(count, _WARM_UP))
    make_ledger(_LEDGER, count)
    with _engine(engine) as chosen:
        run_report(ReportOptions(ledger=Path("warm-up"), out=Path("warmed-up")), chosen)
        with PeakMemory() as memory:
            clock = CpuClock(own_processes)
            made = run_report(ReportOptions(ledger=_LEDGER, out=_OUT), chosen)
            reading = clock.reading(count)
    assert made.totals["rows"] == count
    return attrs.evolve(reading, rss_mib=(memory.peak_mib,))


@contextmanager
def _engine(name: str) -> Iterator[Any]:
    if name == "duckdb":
        from pump.report.duckdb_engine import duckdb_engine

        yield duckdb_engine
        return
    from pump.spark.report import spark_engine
    from pump.spark.session import SparkOptions, spark_session

    with spark_session(SparkOptions(master="local[2]", app_name="benchmark")) as spark:
        yield spark_engine(spark)


# Memory of this process and its children, a JVM among them where there is one.


def own_processes() -> list[psutil.Process]:
    """This one and its children, a JVM among them where there is one."""
    own = psutil.Process()
    return [own, *own.children(recursive=True)]


class PeakMemory:
    """The largest resident memory of all of them together, looked at ten times a second."""

    def __init__(self) -> None:
        self.peak_mib = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peak memory", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.peak_mib = max(self.peak_mib, _resident_mib())
            if self._ended.wait(_LOOK_S):
                return


def _resident_mib() -> float:
    total = 0
    for each in own_processes():
        try:
            total += each.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total / 2**20


# The ledger.


def make_ledger(folder: Path, count: int) -> None:
    """Write `count` outcomes of ten days, as a Parquet ledger has them; the same ones each time.

    About one message in twenty fails at its first attempt and is handled at its second; three in
    a thousand end as dead letters. The texts of errors differ in their numbers.
    """
    for number, start in enumerate(range(0, count, _ROWS_A_FILE)):
        rows = _LedgerPart(
            number=number, start=start, size=min(_ROWS_A_FILE, count - start), of=count
        )
        rows.write(folder)


@attrs.frozen(kw_only=True)
class _LedgerPart:
    """Rows that follow one another, written as a file a day."""

    number: int
    start: int
    size: int
    of: int

    def write(self, folder: Path) -> None:
        import numpy as np
        import pyarrow.parquet as pq

        times_us = self._times_us()
        days = (times_us - _FIRST_US) // _DAY_US
        table = self._table(times_us)
        for day in np.unique(days):
            at = np.flatnonzero(days == day)
            name = datetime.date(2026, 11, 1) + datetime.timedelta(days=int(day))
            (folder / f"day={name}").mkdir(parents=True, exist_ok=True)
            file = f"outcomes-benchmark-{self.number:09}-{self.number:09}.parquet"
            pq.write_table(
                table.slice(int(at[0]), len(at)),
                folder / f"day={name}" / file,
                compression="zstd",
                row_group_size=_ROWS_A_GROUP,
            )

    def _times_us(self) -> Any:
        import numpy as np

        return _FIRST_US + (self.start + np.arange(self.size)) * (_DAYS * _DAY_US) // self.of

    def _table(self, times_us: Any) -> Any:
        import numpy as np
        import pyarrow as pa

        from pump.stores.ledger.parquet import SCHEMA

        rng = np.random.default_rng(self.number)
        rows = _RowKinds.drawn(rng, self.size)
        pumps = tuple(f"host-{each}:1:{each}" for each in range(_PUMPS))
        columns = {
            "version": pa.array(np.ones(self.size, np.int32)),
            "time": pa.array(times_us).cast(pa.timestamp("us")).cast(SCHEMA.field("time").type),
            **self._messages(rng, rows),
            **self._results(rng, rows),
            "run_s": pa.array(rng.lognormal(-4.0, 1.0, self.size)),
            "age_s": pa.array(rng.lognormal(0.0, 1.5, self.size)),
            "gateway": _named(("sqs",), np.zeros(self.size, int)),
            "pump": _named(pumps, rng.integers(0, _PUMPS, self.size)),
        }
        return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)

    def _messages(self, rng: Any, rows: _RowKinds) -> dict[str, Any]:
        import numpy as np
        import pyarrow as pa

        message = np.arange(self.size) - rows.is_second
        kind = rng.integers(0, len(_TYPES), self.size)[message]
        dead = tuple(f"{each}-dead" for each in _QUEUES)
        return {
            "message_id": _ids(rng, self.size).take(pa.array(message)),
            "type": _named(_TYPES, kind),
            "queue": _named(_QUEUES, kind),
            "subscription": _named(_QUEUES, kind),
            "destination": _named(dead, kind, ~rows.is_dead),
            "attempts": pa.array((1 + rows.is_second).astype(np.int32)),
        }

    def _results(self, rng: Any, rows: _RowKinds) -> dict[str, Any]:
        import numpy as np

        kinds = tuple(name for name, _ in _ERRORS)
        texts = tuple(text.format(n=number) for number in range(1000) for _, text in _ERRORS)
        text = rng.integers(0, len(texts), self.size)
        is_well = ~(rows.is_retry | rows.is_dead)
        statuses = ("processed", "retrying", "dead-lettered")
        return {
            "status": _named(statuses, rows.is_retry + 2 * rows.is_dead),
            "reason": _named(("DeliveryError",), np.zeros(self.size, int), ~rows.is_dead),
            "error_type": _named(kinds, text % len(kinds), is_well),
            "detail": _named(texts, text, is_well),
        }


@attrs.frozen
class _RowKinds:
    """Row by row. A retry and what came of it are two rows of one message, in this order."""

    is_retry: Any
    is_second: Any
    is_dead: Any

    @classmethod
    def drawn(cls, rng: Any, size: int) -> _RowKinds:
        import numpy as np

        drawn = rng.random(size)
        draws_retry = (drawn < _RETRIED) & (np.arange(size) < size - 1)
        # What follows a retry is the same message's second row, and no retry itself.
        is_retry = draws_retry & ~np.concatenate(([False], draws_retry[:-1]))
        is_second = np.concatenate(([False], is_retry[:-1]))
        return cls(is_retry, is_second, (drawn > 1 - _DEAD) & ~is_retry)


def _ids(rng: Any, count: int) -> Any:
    """Random ids as hexadecimal digits, which no loop makes."""
    import numpy as np
    import pyarrow as pa

    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    letters = digits[rng.integers(0, 16, count * _ID_LENGTH, dtype=np.uint8)]
    offsets: Any = np.arange(count + 1, dtype=np.int32) * _ID_LENGTH
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(letters))


def _named(names: tuple[str, ...], index: Any, is_absent: Any = None) -> Any:
    """The name for each index; null where it is absent."""
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(
        pa.array(index, pa.int32(), mask=is_absent), pa.array(names)
    ).cast(pa.string())
