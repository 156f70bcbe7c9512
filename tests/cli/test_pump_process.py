"""What a supervisor knows of a process, from what that says over the intercom."""

import asyncio
import socket

from pump.clock import SYSTEM_CLOCK
from pump.http.wire import Answer, Request
from pump.processes.ipc import IpcChannel, answer_said, encode
from pump.processes.worker_process import WorkerProcess

HEALTH = Request(method="GET", path=("health",))


class _Child(asyncio.subprocess.Process):
    """Of an operating system process only that it has not ended, until it has."""

    def __init__(self) -> None:
        self._exit = asyncio.get_running_loop().create_future()

    async def wait(self) -> int:
        return int(await self._exit)

    def end(self) -> None:
        self._exit.set_result(0)


def _health(processed: int) -> Answer:
    return Answer.of({"subscriptions": [{"name": "work", "counts": {"processed": processed}}]})


async def _asked(process: WorkerProcess, member: IpcChannel) -> asyncio.Task[Answer | None]:
    """Ask it how it is, until it is there to hear that."""
    hearing = asyncio.create_task(member.hear())
    while True:
        asking = asyncio.create_task(process.ask(HEALTH))
        await asyncio.wait([asking, hearing], return_when=asyncio.FIRST_COMPLETED)
        if hearing.done():
            return asking


async def test_when_the_last_word_comes_with_an_answer_then_the_last_word_counts() -> None:
    """A sum of what was done must never fall."""
    # given a process that is asked how it is
    ours, theirs = socket.socketpair()
    child = _Child()
    process = WorkerProcess(1, child, await IpcChannel.over(ours), SYSTEM_CLOCK)
    member = await IpcChannel.over(theirs)
    member.say({"event": "serving"})
    asking = await _asked(process, member)

    # when its answer and its last word arrive together
    counts = {"work": {"processed": 7}}
    last = {"event": "ended", "counts": counts, "metrics": "", "discarded": 0, "spilled": 0}
    theirs.sendall(encode(answer_said(1, _health(5))) + encode(last))
    await asking

    # then nothing that it did is forgotten
    child.end()
    member.close()
    await process.ended()
    assert process.tally.counts == counts
