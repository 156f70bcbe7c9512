"""Operations: what a user asks of a gateway, and what is answered where it cannot be had."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs

from pump.capabilities import Capabilities, OrderingMode
from pump.errors import ConfigurationError, UnsupportedOperation

CARRIED = "carried, not acted on"


@attrs.frozen(kw_only=True)
class Operation:
    """One row of the matrix."""

    title: str
    field: str
    """The capability that says whether there is one."""
    otherwise: type[Exception] | str = UnsupportedOperation
    """What asking for it raises where there is none, or what happens instead."""
    offers: Callable[[Capabilities], bool] | None = None
    """Whether there is one; by default, whether the field is true."""

    def is_offered_by(self, capabilities: Capabilities) -> bool:
        """Whether the gateway says that it can."""
        if self.offers is not None:
            return self.offers(capabilities)
        return bool(getattr(capabilities, self.field))

    def cell(self, capabilities: Capabilities) -> str:
        """What the matrix says."""
        if not self.is_offered_by(capabilities):
            return (
                f"no: {self.otherwise}"
                if isinstance(self.otherwise, str)
                else f"no: `{self.otherwise.__name__}`"
            )
        return "emulated" if self.field in capabilities.emulated else "native"


@attrs.frozen(kw_only=True)
class Limited:
    """A row whose operation everybody has, up to some limit."""

    title: str
    field: str

    def cell(self, capabilities: Capabilities) -> str:
        """What the matrix says."""
        how = "emulated" if self.field in capabilities.emulated else "native"
        limit = getattr(capabilities, self.field)
        return how if limit is None else f"{how}, up to {_amount(self.field, limit)}"


def _amount(field: str, limit: float) -> str:
    if field.endswith("_bytes"):
        return f"{limit:,.0f} bytes"
    for unit, seconds in (("days", 86400), ("h", 3600), ("min", 60)):
        if limit >= seconds and limit % seconds == 0:
            return f"{limit / seconds:,.0f} {unit}"
    return f"{limit:,.0f} s"


def has_lifo(capabilities: Capabilities) -> bool:
    """Whether the newest message can come first."""
    return OrderingMode.LIFO in capabilities.ordering_modes


OPERATIONS: tuple[Operation, ...] = (
    Operation(title='`ordering="lifo"`', field="ordering_modes", offers=has_lifo),
    Operation(
        title="`ordering_guarantee=True`", field="has_strict_order", otherwise=ConfigurationError
    ),
    Operation(
        title="`group`: order within, groups in parallel", field="has_groups", otherwise=CARRIED
    ),
    Operation(title="`deduplication_id`", field="has_deduplication", otherwise=CARRIED),
    Operation(title="`accept_session()`", field="has_sessions"),
    Operation(title="`accept_session(id)`", field="has_session_choice"),
    Operation(title="`max_receive_count`", field="has_native_redrive"),
    Operation(
        title="the broker ends a lease", field="has_lease_expiry", otherwise="a deadline of ours"
    ),
    Operation(
        title="hand back without counting an attempt",
        field="has_uncounted_abandon",
        otherwise="counted",
    ),
    Operation(title="peek", field="has_peek"),
    Operation(title="purge", field="has_purge"),
    Operation(title="exact depths", field="has_exact_stats", otherwise="estimates"),
)
LIMITED: tuple[Limited, ...] = (
    Limited(title="delayed send", field="max_delay_s"),
    Limited(title="defer with a delay", field="max_defer_s"),
    Limited(title="extend a lease, in all", field="max_lease_s"),
    Limited(title="body", field="max_body_bytes"),
)

ROWS: tuple[Operation | Limited, ...] = (*OPERATIONS, *LIMITED)


def matrix(named: Sequence[tuple[str, Capabilities]]) -> Iterator[str]:
    """The lines of the table, a column for each gateway."""
    yield f"| operation | {' | '.join(name for name, _ in named)} |"
    yield f"|---|{'---|' * len(named)}"
    yield f"| send, receive, ack, defer, reject, extend |{' native |' * len(named)}"
    for row in ROWS:
        yield f"| {row.title} | {' | '.join(row.cell(each) for _, each in named)} |"
