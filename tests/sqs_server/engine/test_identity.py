"""Names made of numbers."""

from uuid import UUID

from hypothesis import given, strategies as st

from gateways.sqs_server.engine.record import FileIdentity, read_receipt, receipt_of
from gateways.sqs_server.model import Attribute, NewMessage

_NUMBERS = st.integers(0, (1 << 60) - 1)


def test_when_numbers_follow_each_other_then_no_two_have_the_same_id() -> None:
    identity = FileIdentity.new()

    ids = [identity.message_id(number) for number in range(10_000)]

    assert len(set(ids)) == len(ids)


@given(numbers=st.lists(_NUMBERS, min_size=2, max_size=20, unique=True))
def test_when_ids_are_made_in_any_order_then_each_is_a_uuid_of_its_own(numbers: list[int]) -> None:
    identity = FileIdentity.new()

    ids = [identity.message_id(number) for number in numbers]

    assert len(set(ids)) == len(ids)
    assert all(UUID(each).version == 4 and str(UUID(each)) == each for each in ids)
    assert [FileIdentity(identity.key).message_id(number) for number in numbers] == ids


@given(queue=_NUMBERS, seq=_NUMBERS, receive_count=_NUMBERS)
def test_when_a_receipt_is_read_then_it_says_what_it_was_made_of(
    queue: int, seq: int, receive_count: int
) -> None:
    identity = FileIdentity.new()

    receipt = receipt_of(identity.receipt_head(queue), seq, receive_count)

    assert read_receipt(receipt) == (identity.boot, f"{queue:x}", seq, receive_count)


def test_when_a_message_is_shown_then_what_it_says_is_not() -> None:
    attributes = {"Secret": Attribute("String", "hush")}

    shown = repr(NewMessage(body="hush", attributes=attributes, group="g"))

    assert "hush" not in shown
    assert "'g'" in shown
