"""Queues in a PostgreSQL database."""

from pump.postgres.settings import Listen, PostgresSettings

from .gateway import PostgresGateway, from_url

__all__ = ["Listen", "PostgresGateway", "PostgresSettings", "from_url"]
