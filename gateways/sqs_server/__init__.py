"""An SQS server on this machine, over SQLite: what `pump local` runs."""
