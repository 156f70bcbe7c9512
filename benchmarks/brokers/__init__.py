"""Real brokers under consumers: the pump beside frameworks that speak to the same server."""
