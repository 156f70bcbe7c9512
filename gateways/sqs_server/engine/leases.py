"""Leases: which messages are in flight, kept for after a crash of the server (T4, T14).

A consumer outlives the server that is killed under it, and so must its lease. The leases are
appended to a file beside the database by plain writes, without waiting for the disk: what was
written survives the process, and a receive costs a few microseconds more. A crash of the machine
may forget the last seconds of them, and then the consumers on it are gone, too.

Two files are written in turn. When one is long, the leases that still run are written to the
other, which replaces it with its header, so that there is always one whole account.

    file    magic · version · key of the database · turn
    frames  length, CRC-32 · end, time of the receive (Unix) · process · (number, receive count) …

Of several frames about one message the last one counts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from struct import Struct, error as struct_error, pack
from zlib import crc32

import attrs

from pump.observability import vocabulary
from pump.observability.log import get_logger

from .record import IN_FLIGHT, LIMBO, SqsRecord, TimedHold

_HEADER = Struct("<4sIQQ")
_MAGIC = b"PULS"
_VERSION = 1
_FRAME = Struct("<II")
_LEASE = Struct("<ddI")
_MESSAGE = Struct("<QI")
# Of the file that is written: about ten seconds of the greatest load.
_MAX_BYTES = 4 * 1024 * 1024

_log = get_logger("gateways.sqs_server")


@attrs.frozen
class NotedLease:
    """One message in flight, as it was noted last. Times are Unix times."""

    due_s: float
    taken_s: float
    boot: str
    """The process whose receipt it has."""
    receive_count: int


class LeaseFile:
    """The account of leases. Writes never raise: without room a lease is kept in memory only."""

    def __init__(
        self, folder: Path, *, key: int, boot: str, live: Callable[[], Iterable[TimedHold]]
    ) -> None:
        self._paths = lease_paths(folder)
        self._key = key
        self._boot = boot
        self._live = live
        self._turn = 0
        self._files: list[int] = []
        self._position = 0
        self._max_bytes = _MAX_BYTES
        self._is_failing = False

    def open(self, turn: int, offset_s: float) -> None:
        """Go on after the account of that turn, with what still runs of it. Blocks."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._files = [os.open(path, flags, 0o600) for path in self._paths]
        self._turn = turn
        self._begin_turn(offset_s)

    def note(self, hold: TimedHold, records: Sequence[SqsRecord], offset_s: float) -> None:
        """Messages are in flight until the end of a hold of theirs."""
        self._append(_frame(hold, records, offset_s, self._boot), offset_s)

    def note_changes(self, records: Sequence[SqsRecord], offset_s: float) -> None:
        """Messages are hidden for other times than before, or not at all."""
        by_hold: dict[TimedHold | None, list[SqsRecord]] = {}
        for record in records:
            by_hold.setdefault(record.hold, []).append(record)
        frames = [
            _frame(_SHOWN if hold is None else hold, held, offset_s, self._boot)
            for hold, held in by_hold.items()
        ]
        self._append(b"".join(frames), offset_s)

    def close(self, *, keeps: bool) -> None:
        """Let go of the files, without a lease in them unless it `keeps` those. Blocks."""
        for file in self._files:
            if not keeps:
                os.ftruncate(file, 0)
            os.close(file)
        self._files = []

    def _append(self, frames: bytes, offset_s: float) -> None:
        if not self._files or not self._write(frames, self._position):
            return
        self._position += len(frames)
        if self._position > self._max_bytes:
            self._begin_turn(offset_s)

    def _begin_turn(self, offset_s: float) -> None:
        """Write what still runs to the other file, and go on there."""
        frames = b"".join(_frames_of(self._live(), offset_s, self._boot))
        other = self._files[::-1]
        if not self._write(frames, _HEADER.size, file=other[0], is_first=True):
            self._max_bytes = self._position + _MAX_BYTES
            return
        # Last, so that a file with a header is complete.
        header = _HEADER.pack(_MAGIC, _VERSION, self._key, self._turn + 1)
        if self._write(header, 0, file=other[0]):
            self._files, self._turn = other, self._turn + 1
            self._position = _HEADER.size + len(frames)
            self._max_bytes = self._position + _MAX_BYTES

    def _write(
        self, data: bytes, position: int, *, file: int | None = None, is_first: bool = False
    ) -> bool:
        target = self._files[0] if file is None else file
        try:
            if is_first:
                os.ftruncate(target, 0)
            is_whole = os.pwrite(target, data, position) == len(data)
        except OSError as error:
            self._tell(error)
            return False
        self._is_failing = self._is_failing and not is_whole
        return is_whole

    def _tell(self, error: OSError) -> None:
        if not self._is_failing:
            self._is_failing = True
            _log.warning(vocabulary.LEASE_UNSTORED, path=str(self._paths[0]), error=str(error))


_SHOWN = TimedHold(0.0, [])


def lease_paths(folder: Path) -> tuple[Path, Path]:
    """The two files, in no order: which one is newer is written in them."""
    return folder / "sqs.leases", folder / "sqs.leases2"


def read_leases(folder: Path, key: int) -> tuple[int, dict[int, NotedLease]]:
    """The turn, and by message the lease that was noted last, also those that are over.

    Files that are not there, not of this database or cut short say what they can. Blocks.
    """
    accounts = sorted(_accounts(folder, key), key=lambda account: account[0])
    leases: dict[int, NotedLease] = {}
    for _, frames in accounts:
        leases.update(_read_frames(frames))
    return (accounts[-1][0] if accounts else 0), leases


def _accounts(folder: Path, key: int) -> Iterator[tuple[int, bytes]]:
    for path in lease_paths(folder):
        try:
            data = path.read_bytes()
            magic, version, owner, turn = _HEADER.unpack_from(data)
        except (OSError, struct_error):
            continue
        if (magic, version, owner) == (_MAGIC, _VERSION, key):
            yield turn, data[_HEADER.size :]


def _read_frames(data: bytes) -> Iterator[tuple[int, NotedLease]]:
    position = 0
    while position + _FRAME.size <= len(data):
        length, checksum = _FRAME.unpack_from(data, position)
        payload = data[position + _FRAME.size : position + _FRAME.size + length]
        # Also where the file ends in zeros, as a crash of the machine may leave it.
        if length < _LEASE.size or len(payload) < length or crc32(payload) != checksum:
            return
        due_s, taken_s, boot = _LEASE.unpack_from(payload)
        for seq, receive_count in _MESSAGE.iter_unpack(payload[_LEASE.size :]):
            yield seq, NotedLease(due_s, taken_s, f"{boot:08x}", receive_count)
        position += _FRAME.size + length


def _frame(hold: TimedHold, records: Sequence[SqsRecord], offset_s: float, boot: str) -> bytes:
    is_shown = hold is _SHOWN
    payload = pack(
        "<ddI" + "QI" * len(records),
        0.0 if is_shown else hold.due_s + offset_s,
        0.0 if is_shown else hold.taken_s + offset_s,
        int(hold.holder or boot, 16),
        *chain.from_iterable([(r.seq, r.receive_count) for r in records]),
    )
    return _FRAME.pack(len(payload), crc32(payload)) + payload


def _frames_of(holds: Iterable[TimedHold], offset_s: float, boot: str) -> Iterator[bytes]:
    for hold in holds:
        # A delete that is being written may fail, so what is in limbo may stay in flight.
        held = [r for r in hold.records if r.hold is hold and r.phase in (IN_FLIGHT, LIMBO)]
        if held and hold.holder is not None:
            yield _frame(hold, held, offset_s, boot)
