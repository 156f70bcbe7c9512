"""The lean transport: our own requests for the operations that cost, botocore for the rest."""
