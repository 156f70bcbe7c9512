"""The local gateway: durable queues in a folder, shared by the processes of one machine."""

from .gateway import LocalGateway, from_url

__all__ = ["LocalGateway", "from_url"]
