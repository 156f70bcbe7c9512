"""Requests and replies of an object store as values, the store that performs them, and its time."""
