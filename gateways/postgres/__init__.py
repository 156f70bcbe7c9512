"""Queues in a PostgreSQL database."""

from .gateway import PostgresGateway, from_url
from .settings import Listen, PostgresSettings

__all__ = ["Listen", "PostgresGateway", "PostgresSettings", "from_url"]
