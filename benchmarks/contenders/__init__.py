"""Contenders: each a function that moves `count` messages and returns a `Reading`.

A library is imported in the function that needs it: a contender's process loads no other's.
"""
