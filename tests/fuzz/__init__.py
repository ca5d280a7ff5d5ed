"""Generators of hostile input; what those that only draw cases have in common."""

import itertools
import random
import time
from collections.abc import Callable


def drawn(name: str, case: Callable[[random.Random], None], seed: int, seconds: float) -> int:
    """Run cases drawn from `seed` until `seconds` are over; how many. AssertionError names seed and case."""
    ends = time.monotonic() + seconds
    for number in itertools.count():
        if time.monotonic() >= ends:
            return number
        try:
            case(random.Random(f"{seed}/{number}"))
        except Exception as error:
            said = "; ".join([*getattr(error, "__notes__", ()), str(error)])
            raise AssertionError(f"{name}: seed {seed}, case {number}: {said}") from error
    raise AssertionError  # of an endless count
