"""The peer keeps queues as Service Bus documents them."""

from __future__ import annotations

from .entities import DEAD_LETTERS, Namespace, Queue

NOW = 1_000.0


def a_namespace(**fields: object) -> tuple[Namespace, Queue]:
    namespace = Namespace(lambda message: None)
    queue = Queue("Orders", lock_s=10.0)
    for name, value in fields.items():
        setattr(queue, name, value)
    namespace.create(queue)
    return namespace, queue


def add(queue: Queue, message: str, **fields: object) -> None:
    queue.add(message, now=NOW, message_id=None, **fields)


def free(queue: Queue, now: float = NOW, session: str | None = None) -> list[str]:
    return [stored.message for stored in queue.available(now, session)]


def test_when_a_message_is_locked_then_nobody_else_has_it_until_the_lock_ends() -> None:
    namespace, queue = a_namespace()
    add(queue, "A")
    [stored] = queue.available(NOW)
    token = queue.lock(stored, NOW)

    assert queue.find(token, NOW + 9) is stored
    assert free(queue, NOW + 9) == []
    namespace.expire(NOW + 10)
    assert queue.find(token, NOW + 10) is None
    assert (free(queue, NOW + 10), stored.delivery_count) == (["A"], 1)


def test_when_a_message_is_released_then_it_was_not_tried() -> None:
    namespace, queue = a_namespace()
    add(queue, "A")
    [stored] = queue.available(NOW)
    queue.lock(stored, NOW)

    namespace.release(stored)

    assert (free(queue), stored.delivery_count) == (["A"], 0)


def test_when_a_message_is_abandoned_then_it_is_back_in_its_place() -> None:
    namespace, queue = a_namespace()
    add(queue, "A")
    add(queue, "B")
    first = next(queue.available(NOW))
    queue.lock(first, NOW)

    namespace.abandon(queue, first, NOW)

    assert free(queue) == ["A", "B"]


def test_when_a_message_was_tried_too_often_then_it_is_dead_and_says_why() -> None:
    namespace, queue = a_namespace(max_delivery_count=1)
    add(queue, "A")
    [stored] = queue.available(NOW)

    namespace.abandon(queue, stored, NOW)

    dead = namespace.find("orders" + DEAD_LETTERS)
    assert dead is not None
    [dead_lettered] = dead.messages.values()
    assert dead_lettered.dead_because is not None
    assert (dead_lettered.came_from, dead_lettered.dead_because[0]) == (
        "Orders",
        "MaxDeliveryCountExceeded",
    )
    assert free(queue) == []


def test_when_a_message_is_scheduled_then_it_is_as_old_as_it_is_due() -> None:
    _, queue = a_namespace()
    add(queue, "late", due_at=NOW + 5)
    add(queue, "early")

    assert free(queue) == ["early"]
    assert free(queue, NOW + 5) == ["early", "late"]


def test_when_an_id_comes_again_inside_the_window_then_it_is_dropped() -> None:
    _, queue = a_namespace(duplicate_window_s=20.0)
    for at in (NOW, NOW + 19, NOW + 20):
        queue.add("A", now=at, message_id="1")

    assert free(queue, NOW + 30) == ["A", "A"]


def test_when_a_session_is_held_then_it_is_no_next_one_and_its_messages_stay_in_it() -> None:
    namespace, queue = a_namespace(needs_session=True)
    add(queue, "A", session="a")

    assert queue.next_session(NOW) == "a"
    queue.hold_session("a", "holder", NOW)
    assert queue.next_session(NOW) is None
    assert free(queue, session="a") == ["A"]
    namespace.expire(NOW + 10)
    assert queue.next_session(NOW + 10) == "a"
