"""Every public name is documented, and every name in an `__all__` is there (STYLE §5)."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import pytest

import pump
from tests.together import together

from .specimens import core_modules, own_classes

MODULES = list(core_modules())


def test_when_a_module_is_read_then_its_docstring_says_what_it_is_for() -> None:
    with together() as each:
        for module in MODULES:
            with each(module.__name__):
                assert (module.__doc__ or "").strip()


def test_when_a_module_names_its_public_names_then_each_is_there() -> None:
    with together() as each:
        for module in MODULES:
            names = getattr(module, "__all__", [])
            with each(module.__name__):
                assert sorted(set(names)) == sorted(names)
                assert [name for name in names if not hasattr(module, name)] == []


def test_when_a_name_is_public_then_it_can_be_imported_and_is_documented() -> None:
    with together() as each:
        for name in pump.__all__:
            with each(name):
                value = getattr(importlib.import_module("pump"), name)
                assert inspect.getdoc(value)
                assert name in dir(pump)


def test_when_a_name_does_not_exist_then_that_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        pump.no_such_name  # type: ignore[attr-defined]  # noqa: B018


def public_functions() -> Iterator[tuple[str, Any]]:
    for module in MODULES:
        for name, value in vars(module).items():
            is_ours = getattr(value, "__module__", None) == module.__name__
            if inspect.isfunction(value) and is_ours and not name.startswith("_"):
                yield f"{module.__name__}.{name}", value


def test_when_a_function_is_public_then_it_is_documented() -> None:
    with together() as each:
        for name, function in public_functions():
            with each(name):
                assert (function.__doc__ or "").strip()


def test_when_a_class_is_public_then_it_and_its_own_methods_are_documented() -> None:
    kinds = own_classes()
    ports = [kind for kind in kinds if getattr(kind, "_is_protocol", False)]
    with together() as each:
        for kind in kinds:
            if not kind.__name__.startswith("_"):
                with each(f"{kind.__module__}.{kind.__name__}"):
                    _is_documented(kind, ports)


def _is_documented(kind: type, ports: Sequence[type]) -> None:
    generated = attrs.has(kind) and (kind.__doc__ or "").startswith("Method generated")
    assert (kind.__doc__ or "").strip()
    assert not generated
    undocumented = [
        name
        for name, value in vars(kind).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod))
        # An implementation does not repeat its protocol.
        and not inspect.getdoc(getattr(kind, name))
        and not _implements_a_port(kind, name, ports)
    ]
    assert undocumented == []


def _implements_a_port(kind: type, name: str, ports: Sequence[type]) -> bool:
    return kind not in ports and any(vars(port).get(name) for port in ports)


def test_when_pump_is_imported_then_no_gateway_handler_or_vendor_is() -> None:
    """DESIGN: `pump` imports neither, and no vendor."""
    program = (
        "import sys, pump; [getattr(pump, name) for name in pump.__all__];"
        "print([m for m in sys.modules if m.split('.')[0] in"
        " ('gateways', 'handlers', 'boto3', 'botocore', 'aioboto3', 'pydantic', 'pyspark')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "[]"
