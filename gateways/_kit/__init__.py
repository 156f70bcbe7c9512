"""What several gateways need, each mechanism once; no vendor's words in it."""
