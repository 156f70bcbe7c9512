import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from pump import Context, Delivery, Message
from pump.cli.session import set_up_logging
from pump.context import enter_context, leave_context
from pump.observability.log import get_logger


@pytest.fixture(autouse=True)
def _logging_is_put_back() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []
    yield
    root.handlers = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture
def _message_in_hand() -> Iterator[None]:
    message = Message(body=b"a secret", id="m1", correlation_id="c1")
    delivery = Delivery(
        message=message, queue="orders", receipt="r", attempt=2, lease_expires_at_s=0
    )
    token = enter_context(Context(handler="PlaceOrderHandler", delivery=delivery))
    yield
    leave_context(token)


@pytest.mark.usefixtures("_message_in_hand")
@pytest.mark.parametrize("logger", [get_logger("mine"), logging.getLogger("mine")])
def test_a_line_logged_in_a_handler_says_which_message_it_was_about(
    capsys: pytest.CaptureFixture[str], logger: logging.Logger
) -> None:
    set_up_logging("info", "json")

    logger.info("working")

    line = json.loads(capsys.readouterr().err)
    assert line["event"] == "working"
    assert line["handler"] == "PlaceOrderHandler"
    assert (line["message_id"], line["correlation_id"], line["attempt"]) == ("m1", "c1", 2)


def test_a_line_logged_elsewhere_names_no_message(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("info", "json")

    logging.getLogger("mine").info("idle", extra={"colour": "blue"})

    line = json.loads(capsys.readouterr().err)
    assert "message_id" not in line
    assert (line["logger"], line["level"], line["colour"]) == ("mine", "info", "blue")


def test_when_not_on_a_terminal_then_auto_is_json() -> None:
    assert set_up_logging("info", "auto") == "json"


@pytest.mark.usefixtures("_message_in_hand")
def test_a_traceback_shows_no_local_variables(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("info", "console")

    def handle(body: str) -> None:
        raise ValueError("broken")

    try:
        handle("a " + "secret")
    except ValueError:
        get_logger("mine").exception("handler.failed")

    written = capsys.readouterr().err
    assert "ValueError: broken" in written
    assert "a secret" not in written


def test_below_the_level_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("warning", "console")

    get_logger("pump.delivery").info("message.settled")

    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("level", "expected"),
    [("debug", logging.INFO), ("info", logging.INFO), ("warning", logging.WARNING)],
)
def test_a_library_is_never_louder_than_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, level: str, expected: int
) -> None:
    library = logging.getLogger("botocore")
    monkeypatch.setattr(library, "level", logging.NOTSET)

    set_up_logging(level, "json")

    assert library.level == expected
