"""Requests and replies of an object store as values, who performs them, and its time."""
