"""Orders on Lambda: the function, an event for it, and the template that deploys it."""
