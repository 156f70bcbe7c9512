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
SPILL_PERISHABLE: Final = "spill.perishable"
SPILL_UNREADABLE: Final = "spill.unreadable"
SPILL_FLUSHED: Final = "spill.flushed"

# What the relay of an outbox says, and counts.
RELAY_STARTED: Final = "relay.started"
RELAY_ENDED: Final = "relay.ended"
OUTBOX_SENT: Final = "outbox.sent"
OUTBOX_DELAYED: Final = "outbox.delayed"
OUTBOX_RECOVERED: Final = "outbox.recovered"
OUTBOX_UNREACHABLE: Final = "outbox.unreachable"
OUTBOX_ROW_SET_ASIDE: Final = "outbox_row.set_aside"
OUTBOX_RELAYED: Final = "pump_outbox_relayed"
OUTBOX_SET_ASIDE: Final = "pump_outbox_set_aside"

LEASE_LOST: Final = "lease.lost"
LEASE_EXTENSION_FAILED: Final = "lease.extension_failed"
SESSION_LOST: Final = "session.lost"
SESSION_RENEWAL_FAILED: Final = "session.renewal_failed"
SESSION_RELEASE_FAILED: Final = "session.release_failed"
SETTLE_FAILED: Final = "settle.failed"
RECEIVE_FAILED: Final = "receive.failed"
GATEWAY_RECOVERED: Final = "gateway.recovered"

# A log line that could not be printed.
LINE_LOST: Final = "line.lost"

# What the command line says.
RUN_STARTED: Final = "run.started"
RUN_ENDED: Final = "run.ended"
RUN_WARNED: Final = "run.warned"

# What the supervisor of several processes says, and a process that has lost its supervisor.
PROCESS_STARTED: Final = "process.started"
PROCESS_READY: Final = "process.ready"
PROCESS_ENDED: Final = "process.ended"
PROCESS_DIED: Final = "process.died"
RESTART_STARTED: Final = "restart.started"
RESTART_COMPLETED: Final = "restart.completed"
RESTART_ABANDONED: Final = "restart.abandoned"
SUPERVISOR_LOST: Final = "supervisor.lost"

PUMP_STARTED: Final = "pump.started"
PUMP_DRAINED: Final = "pump.drained"
PUMP_STOPPED: Final = "pump.stopped"
PUMP_FAILED: Final = "pump.failed"
PUMP_SCALED: Final = "pump.scaled"
DRAIN_STARTED: Final = "drain.started"
DRAIN_EXPIRED: Final = "drain.expired"
TASK_ABANDONED: Final = "task.abandoned"
FLUSH_EXPIRED: Final = "flush.expired"
ORDER_BEST_EFFORT: Final = "order.best_effort"
DEAD_LETTER_MISSING: Final = "dead_letter.missing"
OBSERVER_FAILED: Final = "observer.failed"
HANDLER_TIMES_UNRECORDED: Final = "handler_times.unrecorded"

# What the control of a running app does, and where it listens.
PUMP_PAUSED: Final = "pump.paused"
PUMP_RESUMED: Final = "pump.resumed"
DRAIN_DELAYED: Final = "drain.delayed"
HEALTH_SERVED: Final = "health.served"
CONTROL_SERVED: Final = "control.served"
CONTROL_ASKED: Final = "control.asked"
PROBE_FAILED: Final = "probe.failed"

# What a function says.
RECORDS_REFUSED: Final = "records.refused"
INVOCATION_EXPIRED: Final = "invocation.expired"

# What gateways say.
QUEUE_DIFFERS: Final = "queue.differs"
HAND_BACK_COUNTED: Final = "hand_back.counted"
QUEUE_REPLACED: Final = "queue.replaced"
BODY_NOT_FETCHED: Final = "body.not_fetched"
BODY_ORPHANED: Final = "body.orphaned"
SEND_REPEATED: Final = "send.repeated"

# What a driver on Spark says.
SLICE_ENDED: Final = "slice.ended"

# What the server behind `pump local` says.
CONFIG_DOUBTED: Final = "config.doubted"
REQUEST_FAILED: Final = "request.failed"
REQUEST_UNSTORED: Final = "request.unstored"
LEASE_UNSTORED: Final = "lease.unstored"
MESSAGE_CORRUPTED: Final = "message.corrupted"
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

# Telemetry: what it says, and its metrics; `metrics_catalogue.py` says what each one counts.
TELEMETRY_FAILED: Final = "telemetry.failed"
METRICS_SERVED: Final = "metrics.served"
MESSAGES_SENT: Final = "queue_messages_sent"
MESSAGES_RECEIVED: Final = "queue_messages_received"
COMPLETED: Final = "pump_messages_completed"
RETRIED: Final = "pump_messages_retried"
RELEASED: Final = "pump_messages_released"
IN_FLIGHT: Final = "pump_messages_in_flight"
LEASE_EXTENSIONS: Final = "pump_lease_extensions"
ERRORS: Final = "pump_errors"
SPILL_MESSAGES: Final = "pump_spill_messages"
PROCESS_DURATION: Final = "messaging.process.duration"
OPERATION_DURATION: Final = "messaging.client.operation.duration"

# What the ledger says.
LEDGER_UNWRITTEN: Final = "ledger.unwritten"
LEDGER_UNROLLED: Final = "ledger.unrolled"
LEDGER_UNFINISHED: Final = "ledger.unfinished"
LEDGER_RECOVERED: Final = "ledger.recovered"
ROWS_DROPPED: Final = "rows.dropped"
ROWS_REFUSED: Final = "rows.refused"
JOURNAL_ADOPTED: Final = "journal.adopted"
JOURNAL_REFUSED: Final = "journal.refused"

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

# What encryption says and counts; whether a message was encrypted is a label of MESSAGES_SENT and
# MESSAGES_RECEIVED.
ENCRYPTION_DISABLED: Final = "encryption.disabled"
MESSAGE_OPENED: Final = "message.opened"
MESSAGE_UNOPENED: Final = "message.unopened"
MESSAGE_UNENCRYPTED: Final = "message.unencrypted"
KEY_WORN: Final = "key.worn"
KEYS_CHANGED: Final = "keys.changed"
KEYS_UNREAD: Final = "keys.unread"
KEYS_EXPOSED: Final = "keys.exposed"
NONCES_UNRECORDED: Final = "nonces.unrecorded"
NONCES_FORGOTTEN: Final = "nonces.forgotten"
PLAINTEXT_REFUSED: Final = "pump_plaintext_refused"
PLAINTEXT_ALERTS: Final = "pump_plaintext_alerts"
