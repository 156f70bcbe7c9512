"""The report: numbers that are known, texts that mean harm, folders that are others'."""
