"""One module a contender: `run(count)` moves `count` messages and returns a `Reading`."""
