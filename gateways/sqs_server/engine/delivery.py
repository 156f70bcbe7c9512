"""Delivery: what a receive took, as the receiver is shown it."""

from __future__ import annotations

from ..model import Received
from .codec import PLAIN, attributes_of, unpack_extra
from .identity import Identity, receipt_of, sequence_number
from .steps import Taken


def deliver(taken: Taken, *, queue: int, identity: Identity, is_fifo: bool) -> list[Received]:
    """Every message that was taken, with a receipt for this very receive."""
    name, head = identity.message_id, identity.receipt_head(queue)
    packed, extra, attributes = None, PLAIN, attributes_of(PLAIN)
    received: list[Received] = []
    for record, receive_count in zip(taken.records, taken.receive_counts, strict=True):
        seq = record.seq
        # What says no more than who the sender is, is one object for all messages of theirs.
        if record.extra is not packed:
            packed = record.extra
            extra = unpack_extra(packed)
            attributes = attributes_of(extra)
        received.append(
            Received(
                id=name(record.origin),
                receipt=receipt_of(head, seq, receive_count),
                body=record.body,
                attributes=attributes,
                trace_header=extra.trace_header,
                sender=extra.sender,
                sent_at_s=record.sent_at_s,
                first_received_at_s=record.first_at_s,
                receive_count=receive_count + extra.received_before,
                group=record.group,
                deduplication_id=extra.deduplication_id,
                sequence_number=sequence_number(seq) if is_fifo else None,
                dead_letter_source=record.source,
            )
        )
    return received
