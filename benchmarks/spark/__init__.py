"""Spark and what it is compared with: pumps in processes, a report on DuckDB."""
