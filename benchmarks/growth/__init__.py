"""How the cost of a message grows: with how many there are, with queues, with what is in flight."""
