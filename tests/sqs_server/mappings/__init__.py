"""Event-source mappings do what Lambda does."""
