"""SQS over HTTP: connections, limits, access. The only place that knows aiohttp."""

from .connection import HttpLimits
from .server import Bound, HttpServer

__all__ = ["Bound", "HttpLimits", "HttpServer"]
