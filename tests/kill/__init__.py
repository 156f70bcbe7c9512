"""Kill tests: real processes, real signals, the embedded queue on a real disk."""
