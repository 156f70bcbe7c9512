"""docs/gateways-s3.md repeats the code in several tables; none of them may drift from it."""

from __future__ import annotations

import ast
import json
import re
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import attrs
import botocore.session
import pytest
from botocore import xform_name
from click.testing import CliRunner

import gateways._aws
import gateways.s3
from gateways._aws.errors import permission_for
from gateways.s3 import AwsSettings, S3QueueSettings, S3Settings
from gateways.s3.layout import MAX_BODY_BYTES, QueueKeys
from gateways.s3.leases.codec import LeaseObject, decode_lease
from gateways.s3.leases.outbox import MAX_BATCH_BYTES, MAX_BATCH_COUNT
from gateways.s3.log.sending import SEGMENT_BYTES
from gateways.s3.queue_options import DEDUPLICATION_WINDOW, LAYOUT, MAX_NAME_BYTES
from gateways.s3.settings import MAX_PREFIX_BYTES
from pump import errors as pump_errors
from pump.cli.root import cli
from pump.errors import ConfigurationError, PumpError

from .markdown import json_after, rows_between, rows_under
from .test_gateways_sqs import code_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "gateways-s3.md"
# Implied: a listing needs it, and so does being told that an object is not there.
LISTING = "s3:ListBucket"


def shown(default: object) -> str:
    """A default as the page writes it."""
    if default is attrs.NOTHING:
        return ""
    if isinstance(default, AwsSettings):
        return f"`AwsSettings(max_connections={default.max_connections})`"
    if default == S3QueueSettings():
        return "`S3QueueSettings()`"
    return f"`{str(default)!r}`" if isinstance(default, str) else f"`{default!r}`"


def test_every_key_of_the_url_is_documented() -> None:
    """The error of an unknown key lists the known ones, and so does the page."""
    with pytest.raises(ConfigurationError) as refused:
        S3Settings.from_url("s3://bucket?unheard-of=1")
    _, _, known = refused.value.remedy.partition("known: ")

    rows = rows_under(PAGE, "## Where it is, and as whom")

    assert [code_of(key)[0] for key, _, _ in rows] == known.split(", ")


def test_the_settings_that_a_key_of_the_url_stands_for_exist() -> None:
    classes = {each.__name__: each for each in (AwsSettings, S3Settings, S3QueueSettings)}

    for _, setting, _ in rows_under(PAGE, "## Where it is, and as whom"):
        owner, _, name = code_of(setting)[0].partition(".")
        assert name in attrs.fields_dict(classes[owner])


@pytest.mark.parametrize(
    ("marker", "settings"), [("s3 settings", S3Settings), ("queue settings", S3QueueSettings)]
)
def test_every_setting_is_documented_with_its_default(marker: str, settings: type) -> None:
    documented = {code_of(name)[0]: default for name, default, _ in rows_between(PAGE, marker)}

    declared = {field.name: shown(field.default) for field in attrs.fields(settings)}
    assert documented == declared


def test_every_option_of_a_queue_is_documented() -> None:
    rows = rows_under(PAGE, "## Queues and their options")

    assert [code_of(name)[0] for name, _ in rows] == [LAYOUT, DEDUPLICATION_WINDOW]


def test_the_keys_are_where_the_page_says() -> None:
    keys = QueueKeys("", "q")
    written = {code_of(key)[0] for key, _, _ in rows_under(PAGE, "## In the bucket")}

    places = (keys.facts, keys.tail, keys.messages, keys.pending, keys.head)
    for place in (*places, keys.history, keys.segments):
        assert any(each.startswith(place.removeprefix(keys.root)) for each in written), place


def test_the_policy_names_exactly_the_actions_that_the_gateway_calls() -> None:
    model = botocore.session.get_session().get_service_model("s3")
    operations = {xform_name(name) for name in model.operation_names}
    texts = {
        node.value
        for path in (ROOT / "gateways" / "s3").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    called = {permission_for("s3", operation) for operation in texts & operations}

    allowed: set[str] = set()
    for marker in ("policy", "policy: doctor"):
        for statement in json_after(PAGE, marker)["Statement"]:
            named = statement["Action"]
            allowed |= {named} if isinstance(named, str) else set(named)
    assert allowed == called | {LISTING}


def test_the_lease_on_the_page_is_one_and_each_field_is_explained() -> None:
    lease = json_after(PAGE, "lease")
    decode_lease(json.dumps(lease).encode())

    _, _, after = PAGE.read_text().partition("<!-- lease -->")
    rows = re.findall(r"^\| `(\w+)` \|", after.partition("A `lease.json` of size zero")[0], re.M)
    assert rows == list(lease) == list(LeaseObject.__struct_fields__)


def error_names() -> set[str]:
    """The errors that the gateway's modules name."""
    modules = [
        import_module(each.name)
        for package in (gateways.s3, gateways._aws)
        for each in walk_packages(package.__path__, f"{package.__name__}.")
    ]
    return {
        name
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, PumpError)
    }


def test_every_documented_error_exists_and_has_a_remedy() -> None:
    known = error_names() | set(vars(pump_errors))

    for error, meaning, remedy in rows_under(PAGE, "## When something fails"):
        assert set(code_of(error)) <= known
        assert meaning
        assert remedy


def test_every_number_of_the_settings_that_the_text_repeats_is_right() -> None:
    text = PAGE.read_text()

    assert f"`poll_s` ({S3QueueSettings().poll_s:g} s)" in re.sub(r"\s+", " ", text)


def test_the_cost_on_the_page_is_what_the_command_prints() -> None:
    found = re.search(r"<!-- cost -->\n```console\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    assert found is not None
    examples = re.split(r"^\$ pump ", found[1], flags=re.M)[1:]

    assert len(examples) >= 2
    for example in examples:
        command, _, shown_on_page = example.partition("\n")
        result = CliRunner().invoke(cli, command.split(), prog_name="pump")
        printed = "".join(f"{line.rstrip()}\n" for line in result.stdout.splitlines())
        assert printed == shown_on_page


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    _, _, after = PAGE.read_text().partition("\n## Limits\n")
    limits = re.sub(r"\s+", " ", after)

    assert f"({MAX_BODY_BYTES:,} bytes)" in limits
    assert f"a queue has {MAX_NAME_BYTES} bytes" in limits
    assert f"the prefix has {MAX_PREFIX_BYTES}" in limits
    assert f"up to {MAX_BATCH_COUNT} messages or {MAX_BATCH_BYTES // 2**20} MiB" in limits
    assert f"{SEGMENT_BYTES // 2**20} MiB in `log`" in limits
