"""A function's code is found by name and follows its files (R46)."""

from __future__ import annotations

import os
import sys
import textwrap
import threading
from itertools import count
from pathlib import Path

import pytest

from gateways.sqs_server.mappings.event_source import make_record
from gateways.sqs_server.mappings.invoking import FunctionCode
from gateways.sqs_server.model import QueueId
from pump.errors import ConfigurationError

from .conftest import Project
from .fake_engine import received

_numbers = count(1)


def code_of(project: Project, target: str | None = None, *, reloads: bool = True) -> FunctionCode:
    return FunctionCode(
        target or f"{project.module}:on_orders",
        origin="local.toml: mappings[0]",
        root=project.folder,
        reloads=reloads,
    )


def returns(value: object, before: str = "") -> str:
    return f"{before}\ndef on_orders(event, context):\n    return {value!r}\n"


def test_when_the_file_changes_then_the_next_call_runs_the_new_code(project: Project) -> None:
    project.write(returns(1))
    code = code_of(project)
    assert code.edition().function({}, None) == 1

    project.write(returns(2))

    assert code.edition().function({}, None) == 2


def test_when_size_and_second_of_the_change_agree_then_old_compiled_code_is_not_taken(
    project: Project,
) -> None:
    file = project.folder / f"{project.module}.py"
    project.write(returns(1))
    os.utime(file, ns=(10**18, 10**18))
    code = code_of(project)
    assert code.edition().function({}, None) == 1

    project.write(returns(2))
    os.utime(file, ns=(10**18 + 1_000, 10**18 + 1_000))

    assert code.edition().function({}, None) == 2


def test_when_nothing_changed_then_the_module_is_the_same(project: Project) -> None:
    project.write(returns(1))
    code = code_of(project)

    assert code.edition() is code.edition()


def test_when_reloading_is_off_then_the_old_code_stays(project: Project) -> None:
    project.write(returns(1))
    code = code_of(project, reloads=False)
    code.load()

    project.write(returns(2))

    assert code.edition().function({}, None) == 1


def test_when_a_neighbour_that_it_imports_changes_then_both_are_imported_anew(
    project: Project,
) -> None:
    neighbour = f"{project.module}_prices"
    project.write("PRICE = 1\n", f"{neighbour}.py")
    project.write(
        f"from {neighbour} import PRICE\n\ndef on_orders(event, context):\n    return PRICE\n"
    )
    code = code_of(project)
    assert code.edition().function({}, None) == 1

    project.write("PRICE = 2\n", f"{neighbour}.py")

    assert code.edition().function({}, None) == 2


def test_when_another_module_of_its_package_changes_then_the_package_is_imported_anew(
    project: Project,
) -> None:
    package = f"shop_{next(_numbers)}"
    project.write("", f"{package}/__init__.py")
    project.write("def price():\n    return 1\n", f"{package}/prices.py")
    project.write(
        "from .prices import price\n\ndef on_orders(event, context):\n    return price()\n",
        f"{package}/functions.py",
    )
    code = code_of(project, f"{package}.functions:on_orders")
    assert code.edition().function({}, None) == 1

    project.write("def price():\n    return 22\n", f"{package}/prices.py")

    assert code.edition().function({}, None) == 22


@pytest.mark.parametrize("broken", ["def on_orders(event, context:\n", "1 / 0\n", "x = 1\n"])
def test_when_the_new_code_is_broken_then_the_old_runs_until_it_is_mended(
    broken: str, project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    project.write(returns(1))
    code = code_of(project)
    code.load()

    project.write(broken)
    assert [code.edition().function({}, None) for _ in range(3)] == [1, 1, 1]
    assert project.module in sys.modules
    said = [record for record in caplog.records if "code.refused" in record.getMessage()]
    project.write(returns(3))

    assert len(said) == 1
    assert code.edition().function({}, None) == 3


def test_when_a_new_neighbour_is_broken_then_mending_it_is_enough(project: Project) -> None:
    neighbour = f"{project.module}_new"
    project.write(returns(1))
    code = code_of(project)
    code.load()

    project.write("oops oops\n", f"{neighbour}.py")
    project.write(returns(2, f"import {neighbour}"))
    assert code.edition().function({}, None) == 1
    project.write("fine = True\n", f"{neighbour}.py")

    assert code.edition().function({}, None) == 2


def test_when_the_file_is_deleted_then_the_old_code_runs(project: Project) -> None:
    project.write(returns(1))
    code = code_of(project)
    code.load()

    (project.folder / f"{project.module}.py").unlink()
    assert code.edition().function({}, None) == 1
    project.write(returns(2))

    assert code.edition().function({}, None) == 2


def test_when_a_module_outside_of_the_project_changes_then_nothing_is_reloaded(
    project: Project, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    other = f"{project.module}_other"
    (elsewhere / f"{other}.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(str(elsewhere))
    project.write(f"import {other}\n" + returns(1))
    code = code_of(project)
    function = code.edition().function

    (elsewhere / f"{other}.py").write_text("VALUE = 22\n")

    assert code.edition().function is function
    assert Path(sys.modules[other].__file__ or "").is_relative_to(elsewhere)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (None, "there is no module"),
        ("def on_order(event, context): ...\n", "did you mean"),
        ("", "define it there"),
        ("on_orders = 5\n", "not a function"),
        ("def on_orders(event): ...\n", "(event, context)"),
        ("import no_such_package_here\n", "importing"),
        ("1 / 0\n", "ZeroDivisionError"),
        ("import sys; sys.exit(2)\n", "SystemExit"),
        ("def (\n", "SyntaxError"),
    ],
)
def test_when_there_is_no_such_function_then_the_error_names_file_key_and_remedy(
    source: str | None, words: str, project: Project
) -> None:
    if source is not None:
        project.write(source)

    with pytest.raises(ConfigurationError) as caught:
        code_of(project).load()

    assert caught.value.field == "local.toml: mappings[0].function"
    assert caught.value.value == f"{project.module}:on_orders"
    assert words in caught.value.remedy


def test_when_a_module_interrupts_its_import_then_it_is_only_broken(project: Project) -> None:
    project.write("raise KeyboardInterrupt\n")

    with pytest.raises(ConfigurationError, match="KeyboardInterrupt"):
        code_of(project).load()


CLOSES = """
    class App:
        def __call__(self, event, context):
            return {answer}

        def close(self):
            closed.append({answer})
            {then}

    closed = []
    on_orders = App()
"""


def test_when_an_object_is_replaced_then_the_old_one_is_closed(project: Project) -> None:
    project.write(CLOSES.format(answer=1, then=""))
    code = code_of(project)
    with code.edition() as function:
        assert function({}, None) == 1
    old = project.state()

    project.write(CLOSES.format(answer=22, then=""))

    with code.edition() as function:
        assert old.closed == [1]
        assert function({}, None) == 22
    assert project.state().closed == []


def test_when_an_object_is_replaced_during_a_call_then_it_is_closed_after_the_call(
    project: Project,
) -> None:
    project.write(CLOSES.format(answer=1, then=""))
    code = code_of(project)
    edition = code.edition()
    old = project.state()

    with edition:
        with edition:
            project.write(CLOSES.format(answer=22, then=""))
            assert code.edition() is not edition
        assert old.closed == []

    assert old.closed == [1]


@pytest.mark.parametrize("then", ["raise ValueError", "raise SystemExit"])
def test_when_closing_the_old_one_fails_then_that_is_said_and_the_new_one_runs(
    then: str, project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    project.write(CLOSES.format(answer=1, then=then))
    code = code_of(project)
    code.load()

    project.write(CLOSES.format(answer=22, then=then))

    assert code.edition().function({}, None) == 22
    assert "close.failed" in caplog.text


def test_when_the_same_object_is_found_again_then_it_stays_open(
    project: Project, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = f"{project.module}_library"
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / f"{library}.py").write_text(textwrap.dedent(CLOSES.format(answer=1, then="")))
    monkeypatch.syspath_prepend(str(elsewhere))
    project.write(f"from {library} import on_orders\n")
    code = code_of(project)
    edition = code.edition()

    project.write(f"from {library} import on_orders  # Changed.\n")

    assert code.edition() is edition
    assert sys.modules[library].closed == []


APP = """
    from pump import App, Command, Subscription

    class PlaceOrder(Command):
        number: int

    app = App("sqs://eu-west-1")
    placed = []

    @app.handler
    async def place(order: PlaceOrder) -> None:
        placed.append(order.number)

    app.subscribe(Subscription(queue="orders", request=PlaceOrder, make_channels="assume"))
    on_orders = app.lambda_handler()
"""


def test_when_an_app_behind_lambda_is_replaced_then_it_is_closed(project: Project) -> None:
    project.write(APP)
    code = code_of(project)
    others = portals()
    address = QueueId("000000000000", "eu-west-1", "orders")
    record = make_record(received('{"number": 7}', id="1"), address, has_window=False)

    with code.edition() as function:
        assert function({"Records": [record]}, None) == {"batchItemFailures": []}
    assert project.state().placed == [7]
    assert len(portals() - others) == 1
    project.write(f"{APP}\n    # Changed.\n")
    code.edition()

    assert portals() == others


def portals() -> set[threading.Thread]:
    """The event loops of open apps."""
    return {thread for thread in threading.enumerate() if thread.name == "pump-portal"}


def test_a_method_of_an_object_and_a_built_in_may_be_functions_too(project: Project) -> None:
    project.write("class App:\n    def handle(self, event, context): return 7\napp = App()\n")

    assert code_of(project, f"{project.module}:app.handle").edition().function({}, None) == 7
    assert code_of(project, "builtins:max").edition().function is max
