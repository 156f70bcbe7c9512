"""The requirements' numbers and what each is about, in a few words; where a source asks for a
mechanism and its purpose is held otherwise; and what was measured.
"""

from __future__ import annotations

from typing import NamedTuple

TITLES: dict[str, str] = {
    "R1": "send returns a unique id; body and attributes arrive exactly",
    "R2": "send to a missing queue: QueueNotFound, no side effect",
    "R3": "receive returns payload and a valid receipt",
    "R4": "an empty queue returns nothing at its timeout; cancellable",
    "R5": "complete removes for good; the receipt is invalid afterwards",
    "R6": "unknown or expired receipt: InvalidReceipt, nothing changes",
    "R7": "on success the lock is removed and the message is terminal",
    "R8": "unacknowledged messages come back after the visibility timeout",
    "R9": "redelivery has a new receipt, the old one is invalid",
    "R10": "token, owner and expiry are stored and updated atomically",
    "R11": "on failure the lock is cleared or replaced",
    "R12": "two workers, one message: one token",
    "R13": "100 and more consumers, one message: one winner",
    "R14": "tokens are unique and bound to the message's version",
    "R15": "renewal extends atomically",
    "R16": "renewal after release is refused",
    "R17": "retry(max_retries)",
    "R18": "dead_letter(queue)",
    "R19": "hybrid(max_retries, queue)",
    "R20": "max_receive_count: then in the dead-letter queue",
    "R21": "a dead letter keeps its failure context",
    "R22": "dead-letter configuration is validated when built and when opened",
    "R23": "operators can hook into outcomes",
    "R24": "outcome events: id, status, attempt",
    "R25": "reject(DELIVERY_ERROR) goes straight to the dead-letter queue",
    "R26": "reject(UNACCEPTABLE) goes to the invalid queue, else the dead-letter queue",
    "R27": "the original is deleted after the send",
    "R28": "the routed copy carries payload, reason, detail, time, type, attempts, ids",
    "R29": "queue names per subscription, all optional",
    "R30": "neither configured: acknowledge, warn, count",
    "R31": "the rejection producer is lazy",
    "R32": "routing send fails: see T1",
    "R33": "a structured log line for each routed message",
    "R34": "boto3 and aioboto3 behave identically",
    "R35": "signals and undecodable messages lead where they should",
    "R36": "FIFO by default, LIFO on request, else ConfigurationError",
    "R37": "strict order across retries, or a diagnostic event",
    "R38": "order within a group, groups in parallel",
    "R39": "de-duplication inside a window",
    "R40": "accept_session is exclusive, renewed, released",
    "R41": "an idle session's lock expires",
    "R42": "SQS: message group as session",
    "R43": "local: safe under concurrent tasks",
    "R44": "local: state in SQLite through aiosqlite",
    "R45": "local: in flight at a clean stop is visible after restart; after a crash of the host, "
    "what consumers that may live have stays theirs (`pump local --keep-leases` chooses)",
    "R46": "event-source mapping",
    "R47": "S3: claim by conditional put",
    "R48": "S3: heartbeat, expiry, conditional reclaim",
    "R49": "S3: direct push and ack, no scan",
    "R50": "S3: paged discovery with bounded requests",
    "R51": "lost network: ConnectionFailed, recovers by itself",
    "R52": "throttling: backoff with jitter, bounded, then success",
    "R53": "concurrent operations on one client",
    "R54": "connection pool",
    "R55": "the provider is chosen by configuration",
    "R56": "bad configuration: ConfigurationError at construction",
    "R57": "secrets never in logs, reprs, serialised configuration",
    "R58": "batches are chunked, partial failures reported per message",
    "R59": "OpenTelemetry context and spans",
    "R60": "counters and histograms",
    "R61": "structured logs without secrets and bodies",
    "R62": "encryption: transparent round trip",
    "R63": "encryption: tampering is detected",
    "R64": "encryption: max_age",
    "R65": "encryption: key rotation",
    "R66": "encryption: unknown key",
    "R67": "encryption: nonce tracking",
    "R68": "encryption: only the body",
    "R69": "encryption: key material is redacted and wiped",
    "R70": "encryption: off by default",
    "R71": "encryption: explicitly off warns and counts",
    "R72": "encryption: envelope version",
    "R73": "encryption: constant-time verification",
    "R74": "encryption: mixed queues",
    "R75": "encryption: plaintext policy",
    "R76": "feature matrix; UnsupportedOperation",
    "R77": "minimum SDK versions are checked",
    "R78": "the data pipeline runs on Spark",
    "R79": "outbox: sent if and only if the caller's transaction commits",
    "R80": "inbox shared by machines; effect and mark commit together",
    "R81": "Postgres is a gateway like the others",
    "R92": "settling by hand is observed, and as safe as the pump",
    "R93": "however a handler ends, its message is settled or comes again",
    "T1": "on_routing_failure: spill, delete, keep",
    "T2": "a handler error is never an ack; hybrid by default",
    "T3": "write-through with group commit: kill -9 loses no accepted send",
    "T4": "only leases of dead owners are reset",
    "T5": "N retries are N+1 deliveries; max_receive_count=N is N deliveries",
    "T6": "nonces and redelivery",
    "T7": "strict order is one in flight per ordering domain",
    "T8": "S3 expiry by the server's clock, fencing",
    "T9": "associated data uses the application's id",
    "T10": "a crash between routing and deletion may duplicate, never lose",
    "T11": "SQS attributes are packed; foreign messages are understood",
    "T12": "wait times finer than whole seconds",
    "T13": "no corruption under concurrent tasks, without the lock that 001 asks for",
    "T14": "a crash of the server frees no lease of a consumer that may live",
}

_BUILT_REQUIREMENTS = (*range(1, 82), 92, 93)
BUILT = frozenset(
    [f"R{number}" for number in _BUILT_REQUIREMENTS] + [f"T{number}" for number in range(1, 15)]
)
"""What the tests hold whole. A number outside of this that a test names is met in part only."""


class Instead(NamedTuple):
    """A mechanism that a source asks for, and what holds its purpose here."""

    number: str
    asked: str
    purpose: str
    replaced_by: str
    tests: tuple[str, ...]


_CONTRACT = "pump/testing/contract"
INSTEAD = (
    Instead(
        "T13",
        "001: the in-memory queue uses `asyncio.Lock` for all queue operations",
        "no corruption under concurrent tasks",
        "each transition of a queue is one synchronous function on one event loop: nothing else "
        "runs between its first and its last line, so there is nothing to lock, and nothing to "
        "await while a lock is held",
        (
            f"{_CONTRACT}/concurrency.py::"
            "test_when_everything_happens_at_once_then_nothing_is_lost_or_doubled",
            f"{_CONTRACT}/concurrency.py::"
            "test_when_many_ask_for_one_message_then_one_gets_it_and_the_others_do_not_see_it",
            f"{_CONTRACT}/ordering.py::"
            "test_when_many_consume_groups_at_once_then_each_group_stays_in_order",
        ),
    ),
    Instead(
        "T3",
        "001: on shutdown all in-memory state is flushed to SQLite",
        "messages survive between sessions",
        "a send is committed before it is acknowledged, acks in groups; the flush at a shutdown is "
        "a checkpoint, and a process that is killed has lost nothing it had confirmed",
        (
            "tests/gateways/test_local_durability.py::"
            "test_when_everything_dies_then_what_was_acknowledged_is_there",
            "tests/kill/test_kill.py::test_when_the_pump_is_killed_ten_times_then_nothing_is_lost",
            "tests/kill/test_kill_sqs_server.py::"
            "test_when_the_server_is_killed_eight_times_under_load_then_no_answered_call_is_undone",
        ),
    ),
)

MEASURED_WAITS = (
    ("local", "+0 … +9 ms"),
    ("NATS (nats-server 2.15)", "+0 … +4 ms"),
    ("RabbitMQ (3.10)", "+1 … +11 ms"),
    ("SQS on `pump local`", "+1 … +10 ms"),
    ("SQS on LocalStack", "+12 … +31 ms"),
    ("S3 on LocalStack, `leases` and `log`", "+1 … +20 ms"),
    (
        "Service Bus (our peer)",
        "+57 … +303 ms: **not held**. The service never says that a queue is empty, so each "
        "receive looks for `look_s` (0.25 s) at least",
    ),
)
"""By how much an empty receive ends late, on 2026-11-18: waits of 0, 0.05, 0.75 and 1.25 s, three
times each, on a machine of two cores at a load of 8 to 12 (`tests/conformance/test_waits.py`)."""
