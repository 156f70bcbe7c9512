"""The lean transport's own parts; what it shares with the SDKs is tested beside this folder."""
