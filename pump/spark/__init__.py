"""Spark: the same app on many machines, queues as DataFrames, and reports over what happened.

Needs `pip install 'pumphouse[spark]'`; nothing here is loaded before it is asked for.
"""
