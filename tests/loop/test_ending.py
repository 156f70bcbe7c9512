"""How an ending shows to observers (R24)."""

from __future__ import annotations

import pytest

from pump.events import OutcomeEvent, Status
from pump.loop.processing import DeliveryResult, outcome_event, status_of
from pump.outcome import ABANDON, ACK, Action, Defer, Fate, Outcome, Reject, RejectionReason
from pump.testing.builders import a_delivery, a_message

REJECT = Reject(RejectionReason.DELIVERY_ERROR, "no stock")


@pytest.mark.parametrize(
    ("outcome", "action", "fate", "status"),
    [
        (ACK, ACK, None, Status.PROCESSED),
        (REJECT, ACK, Fate.ROUTED, Status.DEAD_LETTERED),
        (REJECT, ACK, Fate.SPILLED, Status.DEAD_LETTERED),
        (REJECT, ACK, Fate.DISCARDED, Status.DISCARDED),
        (Reject(RejectionReason.UNACCEPTABLE), ACK, Fate.ROUTED, Status.DEAD_LETTERED),
        (REJECT, Defer(3.0), Fate.KEPT, Status.RETRYING),
        (Defer(1.0), Defer(1.0), None, Status.RETRYING),
        (ABANDON, ABANDON, None, None),
    ],
)
def test_when_a_delivery_has_ended_then_its_status_says_what_became_of_the_message(
    outcome: Outcome, action: Action, fate: Fate | None, status: Status | None
) -> None:
    result = DeliveryResult(a_delivery(), action, outcome, fate=fate)

    assert status_of(result) is status
    if status is not None:
        assert outcome_event(result, status, "orders").fate is fate


def test_when_a_message_was_rejected_then_its_event_names_reason_destination_and_detail() -> None:
    """R24."""
    delivery = a_delivery(a_message(id="m-1", type="Order"), queue="orders", attempt=4)
    result = DeliveryResult(delivery, ACK, REJECT, 0.25, "dead", ValueError("no stock"))

    event = outcome_event(result, Status.DEAD_LETTERED, "orders-eu")

    assert event == OutcomeEvent(
        message_id="m-1",
        status=Status.DEAD_LETTERED,
        attempt=4,
        queue="orders",
        subscription="orders-eu",
        message_type="Order",
        reason=RejectionReason.DELIVERY_ERROR,
        destination="dead",
        detail="no stock",
        run_s=0.25,
        error_type="ValueError",
    )


def test_when_a_message_is_retried_then_its_event_describes_the_error() -> None:
    result = DeliveryResult(a_delivery(), Defer(), Defer(), error=ValueError("not yet"))

    event = outcome_event(result, Status.RETRYING, "orders")

    assert (event.detail, event.reason) == ("ValueError: not yet", None)


def test_when_a_message_was_processed_then_its_event_has_nothing_to_add() -> None:
    event = outcome_event(DeliveryResult(a_delivery(), ACK, ACK), Status.PROCESSED, "orders")

    assert (event.detail, event.reason, event.destination) == ("", None, None)
