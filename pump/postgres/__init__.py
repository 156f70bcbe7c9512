"""PostgreSQL: connections to a database, what its errors mean, and tables of ours with a version.

For whatever keeps something there: the queues of `postgres://`, the outbox, and the stores.
"""
