"""The size of the house in figures: python -m tests.architecture.figures (or: make figures)."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from gateways.sqs import AwsSettings, Credentials, SqsGateway, SqsSettings
from gateways.sqs_server.server import SqsServer
from pump.serving import ServerOptions

from .graph import cycles, shared_class_names, single_importers
from .path import Tracer, trace
from .source import PACKAGES, Source, sources

BEFORE = {
    "modules": "759",
    "lines": "90,818",
    "modules that one other imports": "269",
    "class names used more than once": "108",
    "packages in a circle of imports": "–",
    "path, acked, local: modules / jumps": "43 / 227",
}
"""Of the tree before it was joined (commit 01ea647), by the same counts."""


def main() -> None:
    # A rejected message is an error to the log, and here it is meant.
    logging.disable(logging.ERROR)
    table = Table("figure", "before", "now", title="the house in figures", title_justify="left")
    for name, value in [*static(list(sources(*PACKAGES))), *asyncio.run(paths())]:
        table.add_row(name, BEFORE.get(name, ""), value)
    Console().print(table)


def static(product: Sequence[Source]) -> list[tuple[str, str]]:
    """What can be counted without running anything."""
    return [
        ("modules", f"{len(product):,}"),
        ("lines", f"{sum(len(source.lines) for source in product):,}"),
        ("modules that one other imports", f"{len(single_importers(product)):,}"),
        ("class names used more than once", f"{len(shared_class_names(product)):,}"),
        ("packages in a circle of imports", f"{sum(map(len, cycles(product))):,}"),
    ]


async def paths() -> list[tuple[str, str]]:
    """The path of a message, from its receive to its settlement."""
    found: list[tuple[str, str]] = []
    for ending, is_wanted in (("acked", True), ("rejected", False)):
        with tempfile.TemporaryDirectory(prefix="pump-figures-") as folder:
            for name, gateway in (("memory", "memory://"), ("local", f"local://{folder}")):
                found.append(_row(ending, name, await trace(gateway, is_wanted=is_wanted)))
        found.append(_row(ending, "SQS", await _trace_sqs(is_wanted=is_wanted)))
    return found


async def _trace_sqs(*, is_wanted: bool) -> Tracer:
    server = SqsServer(ServerOptions(port=0))
    await server.open()
    try:
        aws = AwsSettings(
            endpoint_url=server.endpoint,
            region="us-east-1",
            credentials=Credentials(access_key_id="test", secret_access_key="test"),
        )
        return await trace(SqsGateway(SqsSettings(aws=aws)), is_wanted=is_wanted)
    finally:
        await server.aclose()


def _row(ending: str, gateway: str, followed: Tracer) -> tuple[str, str]:
    name = f"path, {ending}, {gateway}: modules / jumps"
    return name, f"{len(followed.modules)} / {followed.jump_count}"


if __name__ == "__main__":
    main()
