"""From rates of pairs to who is slow, and how sure that is. Pure: no I/O, no schedule, no verdict."""
