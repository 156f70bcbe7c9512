"""The report: what became of messages, and what lies in dead-letter queues, as tables and a page.

`run_report` makes one; the engine that runs its SQL is `duckdb_engine`, for one machine, or
`pump.spark.report.spark_engine`. Nothing here is loaded by `import pump`.
"""
