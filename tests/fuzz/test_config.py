"""The configuration file of `pump local`, its filters, and what functions answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from gateways.sqs_server.config import InvalidLocalConfig, load_config
from gateways.sqs_server.config.entry import Unusable
from gateways.sqs_server.config.patterns import parse_body, passes, read_filters, read_pattern
from gateways.sqs_server.mappings.invoking import MalformedResponse, as_json, failed_ids
from pump.errors import ConfigurationError

from .exploring import Effort, Target, each_of, explore
from .mutations import any_text, hostile_values, mutated, mutated_tree

YAML = """
account: "000000000000"
region: eu-west-1
queues:
  orders: &defaults
    visibility_timeout: 2m
    retention: 4d
    dead_letter_queue: dead
    max_receive_count: 3
    tags: {team: "blue"}
  dead:
  line.fifo:
    <<: *defaults
    fifo: true
    content_based_deduplication: true
    dead_letter_queue: dead.fifo
mappings:
  - queue: orders
    function: shop.functions:on_orders
    batch_size: 5
    batching_window: 1s
    report_batch_item_failures: true
    maximum_concurrency: 2
    timeout: 10
    filter_criteria:
      - body: {kind: [order, {prefix: o}]}
      - '{"body": {"n": [{"numeric": [">", 0, "<=", 5]}], "$or": [{"a": [1]}, {"b": [2]}]}}'
"""
TOML = """
account = "000000000000"
[queues.orders]
visibility_timeout = "2m"
delay = 5
dead_letter_queue = "dead"
max_receive_count = 3
[queues.dead]
[[mappings]]
queue = "orders"
function = "shop.functions:on_orders"
batch_size = 5
since = 2026-11-16T00:00:00Z
filter_criteria = [{ body = { kind = ["order"] } }]
"""
# Values that a parser may stumble over, where a value is expected.
YAML_VALUES = [
    *(
        "2001-99-99",
        "2001-01-01",
        "12:30:45",
        "0x" + "f" * 5_000,
        "9" * 5_000,
        "1e999",
        ".nan",
        ".inf",
    ),
    *(
        "!!int x",
        "!!timestamp x",
        "!!bool x",
        "!!float x",
        "!!binary \u00e9",
        "!!null x",
        "!!set {a, b}",
    ),
    *(
        "!!omap [a: 1]",
        "!!pairs [[]]",
        "!!python/name:os.system",
        "!!map []",
        "!!seq {}",
        "!!str [a]",
    ),
    *(
        "{[a]: 1}",
        "{{a: 1}: 2}",
        "&a [*a]",
        "&a {b: *a}",
        "*missing",
        "{<<: 1}",
        "{<<: [1]}",
        "{1: 2}",
    ),
    *(
        "[" * 500,
        "{a: " * 500,
        "- " * 500,
        "|\n  text",
        "? a",
        "''",
        "~",
        "[~, {}, []]",
        "\x07",
    ),
]
TOML_VALUES = [
    *(
        "2001-99-99",
        "2001-01-01",
        "07:32:00",
        "0x" + "f" * 5_000,
        "9" * 5_000,
        "1e999",
        "nan",
        "-inf",
    ),
    *(
        "[" * 2_000,
        "{a=" * 2_000,
        "[[], {}]",
        '"\\ud800"',
        '"\\U00110000"',
        "'''x",
        "{ a.b = 1, a.c = 2 }",
    ),
]
LAUGHS = "\n".join(
    ["l0: &l0 [lol, lol]", *(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 9))]
)
"""A few lines that are a thousand million when they are written out."""
TREE = {
    "account": "000000000000",
    "queues": {"orders": {"delay": 5, "dead_letter_queue": "dead", "max_receive_count": 3}},
    "mappings": [
        {
            "queue": "orders",
            "function": "shop.functions:on_orders",
            "timeout": "10s",
            "filter_criteria": [{"body": {"kind": ["order"]}}],
        }
    ],
}
PATTERNS = [
    {"body": {"kind": ["order", {"anything-but": ["x", "y"]}], "n": [{"numeric": [">", 0]}]}},
    {"body": [{"wildcard": "a*b\\\\*"}], "messageAttributes": {"a": {"stringValue": [None]}}},
    {"$or": [{"body": {"a": [{"exists": False}]}}, {"body": {"b": [{"suffix": "z"}]}}]},
    {"body": {"a": [{"equals-ignore-case": "A"}, {"prefix": {"equals-ignore-case": "b"}}]}},
]
BODY = '{"kind": "order", "n": 3, "a": ["b", {"c": null}]}'
RECORD = {
    "messageId": "m-1",
    "body": BODY,
    "attributes": {"SentTimestamp": "1"},
    "messageAttributes": {"a": {"stringValue": "x", "dataType": "String"}},
}
ANSWERS = [
    None,
    {},
    {"batchItemFailures": [{"itemIdentifier": "m-1"}, {"itemIdentifier": "m-2"}]},
    {"batchItemFailures": None},
]


def filter_by(fed: tuple[Any, Any]) -> None:
    """A filter that was accepted decides about every record."""
    patterns, record = fed
    filters = read_filters(patterns)
    found = record if isinstance(record, dict) else {}
    body = found.get("body")
    passes(filters, {**found, "body": body if isinstance(body, str) else json.dumps(body)})


def read_answer(value: Any) -> None:
    """Whom a function's answer names was sent to it."""
    assert failed_ids(as_json(value), {"m-1", "m-2"}) <= {"m-1", "m-2"}


TARGETS = [
    Target(
        name="pattern: spoilt",
        inputs=mutated_tree(PATTERNS),
        feed=read_pattern,
        refusals=(Unusable,),
        share=2,
    ),
    Target(
        name="filters: spoilt",
        inputs=st.tuples(
            mutated_tree([PATTERNS, {"Filters": [{"Pattern": json.dumps(PATTERNS[0])}]}]),
            mutated_tree([RECORD, {**RECORD, "body": "text"}]),
        ),
        feed=filter_by,
        refusals=(Unusable,),
        share=2,
    ),
    Target(
        name="filters: anything",
        inputs=st.tuples(
            hostile_values | st.lists(any_text, max_size=3), st.just(RECORD) | hostile_values
        ),
        feed=filter_by,
        refusals=(Unusable,),
    ),
    Target(name="body: spoilt", inputs=mutated([BODY]) | any_text, feed=parse_body),
    Target(
        name="answer: spoilt",
        inputs=mutated_tree(ANSWERS) | hostile_values,
        feed=read_answer,
        refusals=(MalformedResponse,),
        share=2,
    ),
]  # fmt: skip


@each_of(TARGETS)
def test_when_a_filter_or_an_answer_is_anything_then_it_is_read_or_refused(
    target: Target, effort: Effort
) -> None:
    """R56: with a remedy, or as a failed batch."""
    explore(target, effort)


@st.composite
def with_odd_values(draw: st.DrawFn, text: str, sign: str, values: list[str]) -> str:
    """The text with one or two of its values replaced."""
    lines = text.splitlines()
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(lines) - 1))
        key, found, _ = lines[at].partition(sign)
        if found:
            lines[at] = f"{key}{sign} {draw(st.sampled_from(values))}"
    return "\n".join(lines)


def _file_target(path: Path, name: str, inputs: st.SearchStrategy[Any], share: float) -> Target:
    def feed(text: str | bytes) -> None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode(errors="surrogatepass"))
        try:
            load_config(path)
        except InvalidLocalConfig as error:
            for problem in error.problems:
                assert str(problem)
            raise

    refusals = (ConfigurationError,)
    return Target(name=name, inputs=inputs, feed=feed, refusals=refusals, share=share)


def test_when_a_yaml_file_holds_anything_then_it_is_loaded_or_refused(
    effort: Effort, tmp_path: Path
) -> None:
    """R56: a file of the user's is refused with its place and a remedy, never with a traceback."""
    values = mutated_tree([TREE]).map(lambda tree: json.dumps(tree))
    odd = with_odd_values(YAML, ":", YAML_VALUES)
    inputs = odd | odd | mutated([YAML, LAUGHS]) | any_text | values
    explore(_file_target(tmp_path / "local.yaml", "yaml", inputs, 1.5), effort)


def test_when_a_toml_file_holds_anything_then_it_is_loaded_or_refused(
    effort: Effort, tmp_path: Path
) -> None:
    """R56."""
    odd = with_odd_values(TOML, "=", TOML_VALUES)
    inputs = odd | mutated([TOML]) | any_text | mutated([TOML.encode()])
    explore(_file_target(tmp_path / "local.toml", "toml", inputs, 1.5), effort)
