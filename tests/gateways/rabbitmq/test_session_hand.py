"""What a session has in hand: what is given back comes again first."""

from __future__ import annotations

from gateways.rabbitmq.session import HeldMessage, SessionHand
from gateways.rabbitmq.wire import encode
from pump.message import Delivery, Message


def hand_with(*bodies: str) -> SessionHand:
    hand = SessionHand()
    for tag, body in enumerate(bodies, start=1):
        hand.add(HeldMessage(encode(Message(body=body.encode())), tag, 10.0 + tag, 1))
    return hand


def take(hand: SessionHand, count: int) -> list[Delivery]:
    return hand.take(count, queue="orders", lease_expires_at_s=99.0)


def bodies_of(deliveries: list[Delivery]) -> str:
    return "".join(each.message.body.decode() for each in deliveries)


def test_when_messages_are_taken_then_each_is_out_once_and_in_order() -> None:
    hand = hand_with("a", "b", "c")

    taken, had_more = bodies_of(take(hand, 2)), hand.has_ready
    rest = bodies_of(take(hand, 2))

    assert (taken, had_more, rest) == ("ab", True, "c")
    assert not hand.has_ready
    assert len(hand) == 3


def test_when_one_is_given_back_then_it_comes_again_before_its_successors() -> None:
    hand = hand_with("a", "b", "c")
    head, second = take(hand, 2)
    for delivery, is_counted in ((head, True), (second, False)):
        held = hand.find(delivery)
        assert held is not None
        hand.give_back(held, is_counted=is_counted)

    again = take(hand, 5)

    assert bodies_of(again) == "abc"
    assert [each.attempt for each in again] == [2, 1, 1]
    assert {each.receipt for each in again}.isdisjoint({head.receipt, second.receipt})
    assert hand.find(head) is None


def test_when_one_is_done_then_its_receipt_is_valid_no_longer() -> None:
    hand = hand_with("a", "b")
    first, _ = take(hand, 2)
    held = hand.find(first)
    assert held is not None

    hand.drop(held)

    assert hand.find(first) is None
    assert (len(hand), hand.oldest_s) == (1, 12.0)
