"""The gateway on the peer, through the real SDK."""
