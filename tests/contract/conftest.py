"""Fixtures of the contract's runs."""

from __future__ import annotations

from ..loops import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
