"""Vocabulary: every log event and metric name, spelled once.

An event is `noun.past_participle`, never interpolated; what varies goes into its fields.
"""

from __future__ import annotations

from typing import Final

# One canonical line a delivery.
MESSAGE_SETTLED: Final = "message.settled"

MESSAGE_REJECTED: Final = "message.rejected"
MESSAGE_DISCARDED: Final = "message.discarded"
MESSAGE_SPILLED: Final = "message.spilled"
MESSAGE_KEPT: Final = "message.kept"
MESSAGE_LOST: Final = "message.lost"
ROUTING_FAILED: Final = "routing.failed"
SPILL_FAILED: Final = "spill.failed"
SPILL_UNREADABLE: Final = "spill.unreadable"
SPILL_FLUSHED: Final = "spill.flushed"

LEASE_LOST: Final = "lease.lost"
LEASE_EXTENSION_FAILED: Final = "lease.extension_failed"
SESSION_LOST: Final = "session.lost"
SESSION_RENEWAL_FAILED: Final = "session.renewal_failed"
SESSION_RELEASE_FAILED: Final = "session.release_failed"
SETTLE_FAILED: Final = "settle.failed"
RECEIVE_FAILED: Final = "receive.failed"
GATEWAY_RECOVERED: Final = "gateway.recovered"

# What the command line says.
RUN_STARTED: Final = "run.started"
RUN_ENDED: Final = "run.ended"
RUN_WARNED: Final = "run.warned"

PUMP_STARTED: Final = "pump.started"
PUMP_DRAINED: Final = "pump.drained"
PUMP_STOPPED: Final = "pump.stopped"
PUMP_FAILED: Final = "pump.failed"
PUMP_RESTARTED: Final = "pump.restarted"
PUMP_SCALED: Final = "pump.scaled"
DRAIN_STARTED: Final = "drain.started"
DRAIN_EXPIRED: Final = "drain.expired"
FLUSH_EXPIRED: Final = "flush.expired"
ORDER_BEST_EFFORT: Final = "order.best_effort"
DEAD_LETTER_MISSING: Final = "dead_letter.missing"
OBSERVER_FAILED: Final = "observer.failed"
HANDLER_TIMES_UNRECORDED: Final = "handler_times.unrecorded"

# What a function says.
RECORDS_REFUSED: Final = "records.refused"
INVOCATION_EXPIRED: Final = "invocation.expired"

# What gateways say.
QUEUE_DIFFERS: Final = "queue.differs"
BODY_NOT_FETCHED: Final = "body.not_fetched"
BODY_ORPHANED: Final = "body.orphaned"
SEND_REPEATED: Final = "send.repeated"

# What the server behind `pump local` says.
CONFIG_DOUBTED: Final = "config.doubted"
REQUEST_FAILED: Final = "request.failed"
REQUEST_UNSTORED: Final = "request.unstored"
MAPPING_STARTED: Final = "mapping.started"
MAPPING_DRAINED: Final = "mapping.drained"
INVOCATION_COMPLETED: Final = "invocation.completed"
INVOCATION_FAILED: Final = "invocation.failed"
FUNCTION_ABANDONED: Final = "function.abandoned"
CODE_RELOADED: Final = "code.reloaded"
CODE_REFUSED: Final = "code.refused"
CLOSE_FAILED: Final = "close.failed"
DELETE_FAILED: Final = "delete.failed"
DELETE_REFUSED: Final = "delete.refused"
RETURN_FAILED: Final = "return.failed"
QUEUE_MISSING: Final = "queue.missing"
QUEUE_FOUND: Final = "queue.found"

# Counters.
REJECTED: Final = "pump_messages_rejected"
DISCARDED: Final = "pump_messages_discarded"
SPILLED: Final = "pump_messages_spilled"
ROUTING_FAILURES: Final = "pump_routing_failures"
LEASES_LOST: Final = "pump_leases_lost"

# What the middleware of `handlers` say.
HANDLER_STARTED: Final = "handler.started"
HANDLER_COMPLETED: Final = "handler.completed"
HANDLER_SIGNALLED: Final = "handler.signalled"
HANDLER_FAILED: Final = "handler.failed"
HANDLER_CANCELLED: Final = "handler.cancelled"
HANDLER_RETRIED: Final = "handler.retried"
FALLBACK_USED: Final = "fallback.used"
DUPLICATE_SKIPPED: Final = "duplicate.skipped"
DUPLICATE_DEFERRED: Final = "duplicate.deferred"
CLAIM_LOST: Final = "claim.lost"
CLAIM_EXTENSION_FAILED: Final = "claim.extension_failed"
CLAIM_RELEASE_FAILED: Final = "claim.release_failed"
COMPLETION_UNRECORDED: Final = "completion.unrecorded"
