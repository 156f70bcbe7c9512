"""Tests of the core: decisions, rejection, stores, app, dispatcher."""
