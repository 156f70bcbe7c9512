"""The layout of group commit: one register, and everything that happens is an entry of its log."""
