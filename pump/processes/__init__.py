"""Several processes of one app: a supervisor, its workers, and what they say to each other.

The command line chooses (`pump run --processes 4`) and starts; nothing here imports it.
"""
