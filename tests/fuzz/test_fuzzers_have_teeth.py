"""A fuzzer that finds nothing is worth something only if it finds what is there."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st

from pump.errors import ConfigurationError, MappingError
from pump.message import Message

from . import (
    test_config,
    test_envelopes_and_probes,
    test_law_4,
    test_local,
    test_requests,
    test_settings_text,
    test_sqs_messages,
    test_sqs_server,
)
from .exploring import Effort, Target, explore
from .mutations import mutated, mutated_tree

EFFORT = Effort(examples=100, is_random=False, shrinks=False)


class Planted(IndexError):
    """What no parser documents."""


def stumbling(parse: Callable[..., Any], is_it: Callable[..., bool]) -> Callable[..., Any]:
    """The parser, with a defect for one kind of input."""

    def parse_or_stumble(*args: Any, **options: Any) -> Any:
        if is_it(*args, **options):
            raise Planted(str(args)[:100])
        return parse(*args, **options)

    return parse_or_stumble


DEFECTS: list[tuple[Any, str, str, Callable[..., bool]]] = [
    (test_sqs_messages, "received: spoilt", "gateways.sqs.wire._octets",
     lambda encoding, body: encoding == "base64"),
    (test_sqs_messages, "notification: spoilt tree", "gateways.sqs.wire._sns_headers",
     lambda notification: notification.Subject != "s"),
    (test_sqs_messages, "event: spoilt", "gateways.sqs.events._binary",
     lambda text: text != "AP8="),
    (test_sqs_messages, "address: spoilt", "gateways.sqs.calls._checked_name",
     lambda name, given: not name.isascii()),
    (test_sqs_messages, "claim: spoilt", "gateways.sqs.claims._decode",
     lambda header: '"size": 3' not in header and '"size"' in header),
    (test_local, "packed: spoilt", "pump.stores.packing._unescaped",
     lambda text: text not in ("m", "t", "application/json", "g", "a", "\xed\xa0\x80")),
    (test_local, "failures: anything", "gateways.local.wire.unpack_failure",
     lambda failure, target: len(failure.fields) > 2),
    (test_local, "requests: carried out", "gateways.local.codec.unpack_settings",
     lambda packed: len(packed) % 2 == 0),
    (test_requests, "application/json: spoilt", "pump.mapping.mapper.describe",
     lambda error, body: isinstance(error, UnicodeDecodeError)),
    (test_requests, "cloudevent, structured: spoilt", "pump.cloudevents._time_s",
     lambda message_type, text: text != "2026-11-16T00:00:00Z"),
    (test_requests, "content type: spoilt", "pump.headers.ContentType",
     lambda media, charset: not media.isascii()),
    (test_sqs_server, "head: spoilt", "gateways.sqs_server.http.connection._length_of",
     lambda headers: headers.get("host") != "localhost"),
    (test_sqs_server, "aws json: spoilt", "gateways.sqs_server.protocol.aws_json._tidied",
     lambda value, type_: value == []),
    (test_sqs_server, "aws query: spoilt", "gateways.sqs_server.protocol.aws_query._tree_of",
     lambda fields: len(fields) == 1),
    (test_sqs_server, "signature, header: spoilt", "gateways.sqs_server.http.sigv4._check_scope",
     lambda claim: claim.signed_headers.count(";") != 2),
    (test_config, "filters: spoilt", "gateways.sqs_server.config.patterns._flat",
     lambda found: isinstance(found, dict)),
    (test_config, "answer: spoilt", "gateways.sqs_server.mappings.invoking._identifier",
     lambda failure, sent: not isinstance(failure, dict)),
    (test_settings_text, "gateway URL", "pump.gateway_url._unknown",
     lambda scheme, known: scheme == ""),
    (test_settings_text, "lines to send", "pump.cli.send._check_json",
     lambda body, called: body.startswith(b"[") and b"]" not in body),
    (test_envelopes_and_probes, "envelope: spoilt", "pump.crypto.envelope._text",
     lambda key_id: b"\xff" in key_id),
    (test_envelopes_and_probes, "probe's head: spoilt", "pump.http.wire._segments",
     lambda target: target not in ("/health", "/ready?x=1", "/subscriptions/a%2Fb/scale")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("module", "name", "path", "is_it"), DEFECTS, ids=[name for _, name, _, _ in DEFECTS]
)
def test_when_a_parser_stumbles_over_some_input_then_its_fuzzer_finds_that_input(
    module: Any, name: str, path: str, is_it: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    [target] = [each for each in module.TARGETS if each.name == name]
    monkeypatch.setattr(path, stumbling(_found_at(path), is_it))

    with pytest.raises((Planted, AssertionError, BaseExceptionGroup)) as found:
        explore(target, EFFORT)

    assert "Planted" in repr(found.value)


def test_when_the_rejected_copy_cannot_be_made_then_law_4_is_seen_to_be_broken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The defect that stood in `pump.rejection` until this fuzzer found it."""
    copy_id = _found_at("pump.rejection.copy_id")
    stumble = stumbling(copy_id, lambda delivery, reason: "\ud800" in delivery.message.id)
    monkeypatch.setattr("pump.rejection.copy_id", stumble)

    with pytest.raises((AssertionError, TimeoutError, Planted)):
        test_law_4.deliver([Message(body=b"?", id="\ud800")], dict)


def test_when_a_refusal_is_of_another_kind_then_it_is_no_answer() -> None:
    def refuse(_: object) -> None:
        raise MappingError("t", "d")

    target = Target(name="", inputs=st.none(), feed=refuse, refusals=(ConfigurationError,))

    with pytest.raises(MappingError):
        explore(target, EFFORT)


def test_when_a_refusal_cannot_be_put_into_words_then_it_is_no_answer() -> None:
    def refuse(_: object) -> None:
        raise ConfigurationError("field", 10**5_000, "remedy")

    target = Target(name="", inputs=st.none(), feed=refuse, refusals=(ConfigurationError,))

    with pytest.raises(ValueError, match="digits"):
        explore(target, EFFORT)


def test_mutations_cut_lengthen_and_change() -> None:
    """Each kind of change is made, and one of them alone reaches far into a parser."""
    seed = b'{"order_id": "o-1", "quantity": 2}'
    seen: set[object] = set()

    def note(spoilt: bytes) -> None:
        seen.add((len(spoilt) > len(seed)) - (len(spoilt) < len(seed)))
        try:
            json.loads(spoilt)
        except UnicodeDecodeError:
            seen.add("not UTF-8")
        except RecursionError:
            pass  # `test_depth` is about these
        except ValueError:
            seen.add("not JSON")
        else:
            seen.add("JSON")

    explore(Target(name="", inputs=mutated([seed]), feed=note), Effort(300, is_random=False))

    assert seen == {-1, 0, 1, "not UTF-8", "not JSON", "JSON"}


def test_mutated_trees_are_trees_and_hold_what_parsers_do_not_expect() -> None:
    seed, seen = {"a": [{"b": "c"}], "d": 5}, set()

    def note(spoilt: Any) -> None:
        json.dumps(spoilt)  # raises for a tree that holds itself
        seen.add(type(spoilt.get("a")).__name__ if isinstance(spoilt, dict) else "no table")

    explore(Target(name="", inputs=mutated_tree([seed]), feed=note), Effort(300, is_random=False))

    assert seen >= {"list", "dict", "str", "int", "NoneType", "no table"}


def _found_at(path: str) -> Any:
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError:
        return getattr(_found_at(module), name)
