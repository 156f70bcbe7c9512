"""The SQS server: whatever a client says is served or refused, and never a fault of ours."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import strategies as st

from gateways.sqs_server.errors import SqsError
from gateways.sqs_server.http import HttpLimits
from gateways.sqs_server.http.connection import OrdinaryReader
from gateways.sqs_server.http.exchange import refusal_of
from gateways.sqs_server.http.sigv4 import SignedRequest, verify
from gateways.sqs_server.protocol import OPERATIONS, parse, render_error
from gateways.sqs_server.protocol.aws_json import operation_of, read_parameters
from gateways.sqs_server.protocol.aws_query import read_form, read_parameters as read_query
from pump.serving import ServerOptions, make_server

from .exploring import Effort, Target, each_of, explore
from .mutations import any_text, hostile_values, mutated, mutated_tree
from .seeds_server import (
    ARN,
    ATTRIBUTES,
    CALLS,
    FORMS,
    HASHED,
    ORIGINS,
    PRESIGNED,
    RAW,
    RECEIPT,
    SIGNED,
    TASK,
)
from .sqs_host import KEY, SECRET, SqsHost, form_request, json_request, sqs_host, statuses

# As aiohttp decodes them: bytes that are not UTF-8 become surrogates.
header_texts = st.binary(max_size=60).map(lambda raw: raw.decode(errors="surrogateescape"))


def read_head(data: bytes) -> None:
    """What the reader takes is where it says, and nothing is taken twice."""
    request = OrdinaryReader(HttpLimits()).read(data)
    if request is not None:
        start = request.size - int(request.headers["content-length"])
        assert data[:start].endswith(b"\r\n\r\n")
        assert request.body == data[start : request.size]


def understand(fed: tuple[str, str, dict[str, str], bytes]) -> None:
    refusal: SqsError | None = None
    try:
        parse(*fed)
    except SqsError as error:
        refusal = error
    assert refusal is None or 400 <= render_error(refusal, fed[2]).status < 500


def check_signature(fed: tuple[Any, str, str, bytes]) -> None:
    headers, path, query, body = fed
    pairs = headers if isinstance(headers, dict) else {}
    request = SignedRequest(
        method="POST",
        path=path,
        query=query,
        headers=[(name, text) for name, text in pairs.items() if isinstance(text, str)],
        body=body,
    )
    verify(request, {KEY: SECRET}, 1_750_000_000.0)


def encodable(headers: Any) -> bool:
    """Whether a header could have come so: of surrogates, only those that stand for a byte."""
    texts = [text for pair in headers.items() for text in pair if isinstance(text, str)]
    try:
        "".join(texts).encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def target_of(name: str) -> dict[str, str]:
    return {"x-amz-target": f"AmazonSQS.{name}", "host": "localhost"}


bodies = st.sampled_from(CALLS).flatmap(
    lambda call: st.tuples(
        st.just(call[0]),
        mutated([json.dumps(call[1]).encode()])
        | mutated_tree([call[1]]).map(lambda tree: json.dumps(tree).encode()),
    )
)
signed = mutated_tree([SIGNED, HASHED]).filter(
    lambda tree: isinstance(tree, dict) and encodable(tree)
)
TARGETS = [
    Target(name="head: spoilt", inputs=mutated(RAW) | st.binary(), feed=read_head, share=2),
    Target(
        name="aws json: spoilt",
        inputs=bodies,
        feed=lambda fed: read_parameters(*fed),
        refusals=(SqsError,),
        share=2,
    ),
    Target(
        name="target: spoilt",
        inputs=mutated(["AmazonSQS.ListQueues"]) | header_texts,
        feed=operation_of,
        refusals=(SqsError,),
    ),
    Target(
        name="aws query: spoilt",
        inputs=st.tuples(
            st.sampled_from(sorted(OPERATIONS)), mutated([form.decode() for form in FORMS])
        ),
        feed=lambda fed: read_query(fed[0], read_form(fed[1])),
        refusals=(SqsError,),
        share=2,
    ),
    Target(
        name="request: spoilt",
        inputs=st.tuples(
            mutated(["/", "/000000000000/q"]) | any_text,
            mutated([PRESIGNED, FORMS[0].decode()]) | any_text,
            signed | bodies.map(lambda call: target_of(call[0])),
            bodies.map(lambda call: call[1]) | mutated(FORMS),
        ),
        feed=lambda fed: understand(
            (fed[0], fed[1], {k: str(v) for k, v in fed[2].items()}, fed[3])
        ),
        share=2,
    ),
    Target(
        name="signature, header: spoilt",
        inputs=st.tuples(signed, st.just("/"), st.just(""), st.just(b"{}")),
        feed=check_signature,
        refusals=(SqsError,),
        share=2,
    ),
    Target(
        name="signature, query: spoilt",
        inputs=st.tuples(
            st.just({"host": "localhost"}),
            mutated(["/", "/000000000000/q"]).filter(lambda path: encodable({"": path})),
            mutated([PRESIGNED]).filter(lambda query: encodable({"": query})),
            st.just(b""),
        ),
        feed=check_signature,
        refusals=(SqsError,),
        share=2,
    ),
    Target(
        name="signature: noise",
        inputs=st.tuples(
            st.dictionaries(st.sampled_from([*SIGNED]), header_texts),
            header_texts,
            header_texts,
            st.binary(),
        ),
        feed=check_signature,
        refusals=(SqsError,),
    ),
    Target(
        name="origin and host: spoilt",
        inputs=st.fixed_dictionaries(
            {
                "origin": mutated(ORIGINS) | header_texts,
                "host": mutated(["localhost:4100", "[::1]:4100"]) | header_texts,
            }
        ),
        feed=lambda headers: refusal_of(headers, frozenset()),
    ),
]


@each_of(TARGETS)
def test_when_a_client_says_anything_then_it_is_understood_or_refused_as_sqs_would(
    target: Target, effort: Effort
) -> None:
    """A refusal is an SqsError; anything else would be a 500, and a traceback in the log."""
    explore(target, effort)


def serve(chunks: list[bytes], *, is_verified: bool = False) -> None:
    """Refusals are the client's fault, and the next client is served."""

    async def run() -> None:
        async with sqs_host(is_verified=is_verified) as host:
            handles = {} if is_verified else await fill(host)
            heard = await host.say(*(with_handles(chunk, handles) for chunk in chunks))
            assert all(status < 500 for status in statuses(heard)), heard
            [status] = statuses(await host.say(json_request("ListQueues", b"{}")))
            assert status == (403 if is_verified else 200)

    asyncio.run(run())


async def fill(host: SqsHost) -> dict[bytes, bytes]:
    """Queues with a message each; a receipt and a task to be named in an example."""
    for name, attributes in (("dead", {}), ("q", {}), ("line.fifo", {"FifoQueue": "true"})):
        await host.call("CreateQueue", QueueName=name, Attributes=attributes)
    redrive = json.dumps({"deadLetterTargetArn": ARN + "dead", "maxReceiveCount": 3})
    await host.call("SetQueueAttributes", QueueUrl="q", Attributes={"RedrivePolicy": redrive})
    for name in ("q", "q", "dead"):
        await host.call("SendMessage", QueueUrl=name, MessageBody="x", MessageAttributes=ATTRIBUTES)
    received = await host.call("ReceiveMessage", QueueUrl="q")
    task = await host.call("StartMessageMoveTask", SourceArn=ARN + "dead")
    receipt = received["Messages"][0]["ReceiptHandle"]
    return {RECEIPT.encode(): receipt.encode(), TASK.encode(): task["TaskHandle"].encode()}


def with_handles(chunk: bytes, handles: dict[bytes, bytes]) -> bytes:
    for name, handle in handles.items():
        escaped = json.dumps(name.decode())[1:-1].encode()
        chunk = chunk.replace(name, handle).replace(escaped, handle)
    return chunk


def test_when_an_operation_gets_anything_then_the_server_has_no_fault(effort: Effort) -> None:
    """Every operation, with parameters that are nearly right."""
    requests = bodies.map(lambda call: [json_request(*call)]) | mutated(FORMS).map(
        lambda form: [form_request(form)]
    )
    explore(Target(name="operations", inputs=requests, feed=serve, share=1.5), effort)


def test_when_a_connection_carries_anything_then_the_server_has_no_fault(effort: Effort) -> None:
    """Raw bytes, in one piece or in several, pipelined or cut short."""
    chunks = st.lists(mutated(RAW) | st.sampled_from(RAW) | st.binary(), min_size=1, max_size=3)
    explore(Target(name="connection", inputs=chunks, feed=serve), effort)


def test_when_requests_must_be_signed_then_no_signature_is_a_fault_of_ours(effort: Effort) -> None:
    """With secrets set, every byte of a head is looked at."""
    heads = [
        "\r\n".join(
            ["POST / HTTP/1.1", *map(": ".join, headers.items()), "Content-Length: 2", "", "{}"]
        )
        for headers in (SIGNED, HASHED)
    ]
    chunks = mutated([*(head.encode() for head in heads), *RAW]).map(lambda data: [data])
    target = Target(
        name="signed", inputs=chunks, feed=lambda fed: serve(fed, is_verified=True), share=2
    )
    explore(target, effort)


def test_when_a_socket_carries_anything_then_the_next_client_is_served(effort: Effort) -> None:
    """The same over the machine's own network."""
    with asyncio.Runner() as runner:
        faults: list[Any] = []
        runner.get_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        server = make_server(ServerOptions(port=0, queues=("q",)))
        runner.run(server.open())
        port = int(server.endpoint.rpartition(":")[2])

        async def talk(data: bytes) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(data)
            writer.write_eof()
            heard = await reader.read()
            writer.close()
            return heard

        async def ask(data: bytes) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(data)
            status_line = await reader.readline()
            writer.close()
            return status_line

        def feed(data: bytes) -> None:
            try:
                heard = runner.run(talk(data))
            except ConnectionError:  # it hung up on us, which is an answer
                heard = b""
            assert all(status < 500 for status in statuses(heard)), heard
            assert b" 200 " in runner.run(ask(json_request("ListQueues", b"{}")))
            assert not faults, faults

        try:
            inputs = mutated(RAW) | st.binary()
            explore(Target(name="socket", inputs=inputs, feed=feed, share=0.5), effort)
        finally:
            runner.run(server.aclose())


def test_when_a_value_is_anything_then_parameters_are_refused_in_awss_words(effort: Effort) -> None:
    """Whole requests of no sense at all."""
    inputs = st.tuples(st.sampled_from(sorted(OPERATIONS)), hostile_values)

    def feed(fed: tuple[str, Any]) -> None:
        read_parameters(fed[0], json.dumps(fed[1]).encode())

    explore(Target(name="values", inputs=inputs, feed=feed, refusals=(SqsError,)), effort)
