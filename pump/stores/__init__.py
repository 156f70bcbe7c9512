"""Stores: what must be remembered beside the queues, each behind a small protocol.

One module a store; import the module you need, so that the others cost nothing.
"""
