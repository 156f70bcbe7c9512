"""What a supervisor and its processes say to each other, over a real pair of sockets."""

import asyncio
import socket

from pump.http.wire import Answer, Request
from pump.performer import DesiredState
from pump.processes.ipc import (
    IpcChannel,
    Order,
    RunOptions,
    WorkerStart,
    answer_heard,
    answer_said,
    encode,
    hear_at_once,
    request_heard,
    request_said,
)

LETTER = WorkerStart(
    number=2,
    announces_start=False,
    options=RunOptions(
        target="app:app",
        gateway="sqs://user:secret@host",
        concurrencies=(("orders", 5),),
        telemetry=("otlp", "prometheus"),
        until_empty=True,
    ),
    desired={"orders": Order(asked=DesiredState.PAUSE, concurrency=7)},
)


def test_a_letter_arrives_as_it_was_written_and_what_follows_it_waits() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(encode(LETTER.as_message()) + encode({"order": "drain"}))

        first, second = hear_at_once(theirs), hear_at_once(theirs)

    assert first is not None
    assert WorkerStart.of(first) == LETTER
    assert second == {"order": "drain"}


def test_a_letter_shows_no_secret_of_the_gateway() -> None:
    assert "secret" not in repr(LETTER)


def test_when_the_other_one_goes_in_the_middle_of_a_word_then_nothing_was_said() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        ours.sendall(encode({"order": "drain"})[:-1])
        ours.close()

        assert hear_at_once(theirs) is None


async def test_what_is_longer_than_any_buffer_arrives_whole_and_the_end_is_heard() -> None:
    ours, theirs = socket.socketpair()
    speaker, listener = await IpcChannel.over(ours), await IpcChannel.over(theirs)
    long = {"event": "ended", "metrics": "x" * 3_000_000}

    speaker.say(long)
    heard, _ = await asyncio.gather(listener.hear(), speaker.flush())
    speaker.close()

    assert heard == long
    assert await listener.hear() is None
    speaker.say({"order": "drain"})
    listener.close()


async def test_when_the_other_one_has_gone_then_speaking_is_no_error() -> None:
    ours, theirs = socket.socketpair()
    speaker = await IpcChannel.over(ours)
    theirs.close()

    for _ in range(3):
        speaker.say({"order": "drain"})
        await speaker.flush()

    assert await speaker.hear() is None
    speaker.close()


def test_requests_and_answers_arrive_as_they_were_said() -> None:
    request = Request(method="POST", path=("subscriptions", "a/b", "scale"), body=b'{"x": 1}')
    answer = Answer.of({"error": "no"})

    heard = request_heard(request_said(7, request))
    assert (heard.method, heard.path, heard.body) == (request.method, request.path, request.body)
    assert answer_heard(answer_said(7, answer)) == answer
