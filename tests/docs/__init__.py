"""Documentation is product: what it shows is run, and what can be generated is."""
