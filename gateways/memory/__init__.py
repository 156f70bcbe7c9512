"""The memory gateway: the reference semantics, in one process, gone with it."""

from .gateway import MemoryGateway, from_url

__all__ = ["MemoryGateway", "from_url"]
