"""send, peek, queues and purge, on the embedded queues of a folder."""

import json
from pathlib import Path

import pytest

from pump import Message
from pump.cli.peek import print_messages

from .conftest import Pump, Write


def bodies(pump: Pump, queue: str) -> list[str]:
    peeked = json.loads(pump("peek", queue, "--max", "100", "--json").stdout)
    return [message["body"] for message in peeked]


def test_a_sent_message_is_there_with_everything_that_was_said_about_it(pump: Pump) -> None:
    sent = pump(
        *("send", "orders", '{"id": 1}', "--create", "--type", "PlaceOrder", "--group", "g"),
        *("--header", "tenant=blue", "--header", "note=a=b", "--correlation-id", "c"),
        *("--dedup-id", "d"),
    )

    [message] = json.loads(pump("peek", "orders", "--json").stdout)
    assert message.pop("created_at_s") > 0
    assert message == {
        "id": sent.stdout.strip(),
        "type": "PlaceOrder",
        "content_type": "application/json",
        "correlation_id": "c",
        "group": "g",
        "deduplication_id": "d",
        "headers": {"tenant": "blue", "note": "a=b"},
        "body": '{"id": 1}',
    }


def test_when_sent_with_a_delay_then_it_is_not_available_yet(pump: Pump) -> None:
    pump("send", "orders", "{}", "--create", "--delay", "1h")

    [stats] = json.loads(pump("queues", "--json").stdout)

    assert (stats["name"], stats["visible"], stats["delayed"]) == ("orders", 0, 1)
    assert bodies(pump, "orders") == []


def test_the_body_may_come_from_a_file(pump: Pump, write: Write) -> None:
    write("order.json", '{"id": 2}')

    pump("send", "orders", "@order.json", "--create")

    assert bodies(pump, "orders") == ['{"id": 2}']


def test_the_body_may_come_from_the_standard_input(pump: Pump) -> None:
    pump("send", "orders", "-", "--create", input='{"id": 3}')

    assert bodies(pump, "orders") == ['{"id": 3}']


def test_each_line_may_be_a_message(pump: Pump) -> None:
    result = pump("send", "orders", "--lines", "--create", input='{"id": 1}\r\n\n{"id": 2}\n')

    assert bodies(pump, "orders") == ['{"id": 1}', '{"id": 2}']
    assert len(set(result.stdout.split())) == 2


def test_more_lines_than_a_batch_are_all_sent_in_order(pump: Pump) -> None:
    lines = [str(number) for number in range(1_201)]

    result = pump("send", "orders", "--lines", "--create", input="\n".join(lines))

    assert len(set(result.stdout.split())) == len(lines)
    peeked = json.loads(pump("peek", "orders", "--max", "2000", "--json").stdout)
    assert [message["body"] for message in peeked] == lines


def test_a_body_may_be_sent_many_times(pump: Pump) -> None:
    result = pump("send", "orders", "{}", "--count", "3", "--create")

    assert len(set(result.stdout.split())) == 3
    assert bodies(pump, "orders") == ["{}"] * 3


def test_when_the_body_is_not_json_then_nothing_is_sent(pump: Pump) -> None:
    result = pump("send", "orders", "{id: 1}", "--type", "PlaceOrder", "--create")

    assert result.exit_code == 2
    assert "error: the body is not JSON" in result.stderr
    assert "--content-type" in result.stderr
    assert json.loads(pump("queues", "--json").stdout) == []


def test_when_a_content_type_is_named_then_any_body_is_sent_as_it_is(pump: Pump) -> None:
    pump("send", "orders", "{id: 1}", "--content-type", "application/json", "--create")

    assert bodies(pump, "orders") == ["{id: 1}"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["send", "orders"], "give a BODY"),
        (["send", "orders", "@nowhere.json"], "cannot read 'nowhere.json'"),
        (["send", "orders", "{}", "--lines", "--count", "2"], "exclude each other"),
        (["send", "orders", "{}", "--header", "tenant"], "write name=value"),
        (["send", "orders", "{}", "--delay", "5"], "5s, 2m"),
        (["send", "orders", "{}", "--count", "0"], "0 is not in the range"),
        (["peek", "orders", "--max", "0"], "0 is not in the range"),
        (["queues", "--watch", "--every", "0"], "use 100ms or more"),
    ],
)
def test_when_the_input_is_wrong_then_it_is_a_usage_error_with_a_remedy(
    pump: Pump, arguments: list[str], said: str
) -> None:
    result = pump(*arguments)

    assert result.exit_code == 2
    assert "error: " in result.stderr
    assert said in result.stderr


@pytest.mark.parametrize(
    "arguments", [["send", "ordes", "{}"], ["peek", "ordes"], ["purge", "ordes", "--yes"]]
)
def test_when_the_queue_is_unknown_then_the_known_ones_are_named(
    pump: Pump, arguments: list[str]
) -> None:
    pump("send", "orders", "{}", "--create")

    result = pump(*arguments)

    assert result.exit_code == 4
    assert "error: queue 'ordes' does not exist on local://; there are orders" in result.stderr


def test_when_the_app_is_named_then_its_queues_are_made_before_the_send(
    pump: Pump, greetings: Path
) -> None:
    result = pump("send", "greetings", '{"name": "Ada"}', "--app", "greeting:app")

    assert result.exit_code == 0
    assert bodies(pump, "greetings") == ['{"name": "Ada"}']


def test_when_the_gateway_is_not_shared_then_sending_to_it_is_warned_of(pump: Pump) -> None:
    result = pump("send", "orders", "{}", "--gateway", "memory://", "--create")

    assert result.exit_code == 0
    assert "nobody else will see this" in result.stderr


def test_peek_shows_a_table_and_changes_nothing(pump: Pump) -> None:
    id_ = pump("send", "orders", "{}", "--type", "PlaceOrder", "--create").stdout.strip()

    first = pump("peek", "orders")
    second = pump("peek", "orders")

    header, row = first.stdout.splitlines()
    assert header.split() == ["id", "type", "age", "group", "bytes"]
    assert row.split()[:2] == [id_, "PlaceOrder"]
    assert row.split()[-1] == "2"
    assert second.exit_code == 0


def test_peek_prints_bodies_and_headers_when_asked(pump: Pump) -> None:
    pump("send", "orders", '{"id": 1}', "--header", "tenant=blue", "--create")

    result = pump("peek", "orders", "--body")

    assert result.stdout.splitlines()[1:] == ["  tenant: blue", '{"id": 1}']


def test_peek_shows_why_a_message_was_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    headers = {
        "rejectionReason": "DELIVERY_ERROR",
        "rejectionMessage": "no stock",
        "attempts": "3",
    }

    print_messages(
        [Message(body=b"{}", headers=headers)], queue="dead", with_bodies=False, as_json=False
    )

    header, row = capsys.readouterr().out.splitlines()
    assert header.split()[-5:] == ["bytes", "attempts", "rejected", "because", "detail"]
    assert row.split()[-4:] == ["3", "DELIVERY_ERROR", "no", "stock"]


def test_when_a_body_is_not_text_then_json_holds_it_in_base64(pump: Pump) -> None:
    content = ("--content-type", "application/octet-stream")
    pump("send", "orders", "-", *content, "--create", input=b"\xff\x00")

    [message] = json.loads(pump("peek", "orders", "--json").stdout)

    assert message["body_base64"] == "/wA="
    assert "2 bytes that are not text" in pump("peek", "orders", "--body").stdout


def test_when_a_body_holds_control_characters_then_they_do_not_reach_the_terminal(
    pump: Pump,
) -> None:
    content = ("--content-type", "text/plain")
    pump("send", "orders", "\x1b[2Jgone", *content, "--type", "\x1b[31m", "--create")

    shown = pump("peek", "orders").stdout + pump("peek", "orders", "--body").stdout

    assert "\x1b" not in shown
    assert r"\x1b[2Jgone" in shown


@pytest.mark.parametrize("with_bodies", [False, True])
def test_when_an_id_holds_control_characters_then_they_do_not_reach_the_terminal(
    capsys: pytest.CaptureFixture[str], with_bodies: bool
) -> None:
    message = Message(body=b"{}", id="\x1b[2Jgone")

    print_messages([message], queue="orders", with_bodies=with_bodies, as_json=False)

    assert r"\x1b[2Jgone" in capsys.readouterr().out


def test_when_the_queue_is_empty_then_peek_says_so(pump: Pump) -> None:
    pump("send", "orders", "{}", "--create")
    pump("purge", "orders", "--yes")

    assert pump("peek", "orders").stdout == "Nothing is available in 'orders'.\n"
    assert pump("peek", "orders", "--json").stdout == "[]\n"


def test_queues_shows_what_is_in_each(pump: Pump) -> None:
    pump("send", "orders", "{}", "--create", "--count", "2")
    pump("send", "orders", "{}", "--delay", "1h")

    lines = pump("queues").stdout.splitlines()

    assert lines[0].split() == ["queue", "waiting", "in", "flight", "delayed", "oldest"]
    assert lines[1].split()[:4] == ["orders", "2", "0", "1"]


def test_when_there_are_no_queues_then_it_says_how_they_come_about(pump: Pump) -> None:
    assert "There are no queues yet" in pump("queues").stdout


def test_when_nobody_can_be_asked_then_purge_refuses(pump: Pump) -> None:
    pump("send", "orders", "{}", "--create")

    result = pump("purge", "orders", input="y\n")

    assert result.exit_code == 2
    assert "nothing was removed from 'orders'" in result.stderr
    assert "--yes" in result.stderr
    assert bodies(pump, "orders") == ["{}"]


def test_when_told_yes_then_purge_removes_everything(pump: Pump) -> None:
    pump("send", "orders", "{}", "--create", "--count", "3")

    result = pump("purge", "orders", "--yes")

    assert result.stdout == "Removed 3 message(s) from 'orders'.\n"
    assert bodies(pump, "orders") == []


def test_purge_can_answer_in_json(pump: Pump) -> None:
    pump("send", "orders", "{}", "--create")

    assert json.loads(pump("purge", "orders", "--yes", "--json").stdout) == {
        "queue": "orders",
        "removed": 1,
    }


def test_when_the_folder_of_the_queues_is_a_file_then_the_broker_is_out_of_reach(
    pump: Pump, write: Write
) -> None:
    write("queues", "not a folder")

    result = pump("queues", "--gateway", "local://queues")

    assert result.exit_code == 4
    assert result.stderr.startswith("error: ")


def test_an_app_given_a_gateway_object_serves_the_commands_too(pump: Pump, write: Write) -> None:
    write(
        "shop.py",
        """
        from gateways.local import LocalGateway
        from pump import App

        app = App(LocalGateway("elsewhere"))
        """,
    )

    pump("send", "orders", "{}", "--app", "shop:app", "--create")

    [stats] = json.loads(pump("queues", "--gateway", "local://elsewhere", "--json").stdout)
    assert (stats["name"], stats["visible"]) == ("orders", 1)


def test_when_a_line_is_not_json_then_it_is_named_and_the_ids_say_what_was_sent(
    pump: Pump,
) -> None:
    lines = [*["{}"] * 500, "", "{}", "{oops"]

    result = pump("send", "orders", "--lines", "--create", input="\n".join(lines))

    assert result.exit_code == 2
    assert "error: line 502 (not counting blank ones) is not JSON" in result.stderr
    assert len(result.stdout.split()) == 500
    [stats] = json.loads(pump("queues", "--json").stdout)
    assert stats["visible"] == 500


def test_when_a_body_is_nested_too_deeply_then_nothing_is_sent(pump: Pump) -> None:
    result = pump("send", "orders", "[" * 100_000, "--create")

    assert result.exit_code == 2
    assert "error: the body is not JSON" in result.stderr


def test_when_a_body_holds_bytes_that_are_not_utf_8_then_they_are_sent_as_they_are(
    pump: Pump,
) -> None:
    """A shell's argument is bytes; Python hands those that are not text over as surrogates."""
    pump("send", "notes", "caf\udce9", "--create", "--content-type", "text/plain; charset=latin-1")

    [message] = json.loads(pump("peek", "notes", "--json").stdout)
    assert message["body_base64"] == "Y2Fm6Q=="
