"""What watching costs: a pump with logs, metrics, traces, encryption, a ledger, or nothing."""
