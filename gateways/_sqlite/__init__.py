"""Durable storage on SQLite, shared by the gateways that keep messages in a folder.

One file with one writer, group commit, and a lock that dies with its process. What the tables
hold is each gateway's own affair.
"""
