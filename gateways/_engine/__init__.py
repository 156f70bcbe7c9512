"""The queue semantics that the memory and the local gateway share.

`state.py` decides, purely and synchronously; `engine.py` performs: it waits, arms timers and
writes the journal. Follow a message: `Engine.send` → `QueueState.add` → `Engine.receive` →
`QueueState.take` → `Engine.settle` → `QueueState.detach` and `finish_…`.
"""
