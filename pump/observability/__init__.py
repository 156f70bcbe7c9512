"""Observability: names, log and counters. Nothing here costs anything until someone looks."""
