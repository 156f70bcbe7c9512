"""Messages: what a copy around another body keeps."""

from __future__ import annotations

import attrs

from pump.message import Message


def test_when_a_message_gets_another_body_then_every_other_field_stays() -> None:
    """R68."""
    fields = {field.name: f"the {field.name}" for field in attrs.fields(Message)}
    message = Message(**{**fields, "headers": {"tenant": "t"}})  # type: ignore[arg-type]

    changed = message.with_body(b"another")

    assert changed == attrs.evolve(message, body=b"another")
    assert message != changed, "the original is untouched"
