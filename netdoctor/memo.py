"""Remembers what pure functions answered about frozen objects.

To hash or to compare the facts of a node takes longer than most of what is asked of them: what counts is that
they are the very same objects. They live as long as the answers do. Answers may not be changed.
"""

import gc
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")

# Answers about one node: of ten thousand some each. About all nodes together: of the last few clusters.
OF_NODES = 1 << 15
OF_ALL = 4
_PLAIN = frozenset((str, int, bool, type(None)))


@contextmanager
def keeping() -> Iterator[None]:
    """For work that makes what stays: nobody looks for garbage meanwhile.

    Python looks through all that there is each time it has grown by a quarter, a third of the time among the
    facts of thousands of nodes; these are in no circles, and go when nobody holds them any more.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def by_identity(function: Callable[P, T]) -> Callable[P, T]:
    """Answer from memory what was asked of the same objects; of texts and numbers, of equal ones."""
    known: dict[Hashable, tuple[Any, T]] = {}

    @wraps(function)
    def remembered(*args: P.args, **kwargs: P.kwargs) -> T:
        key: Hashable = tuple([one if type(one) in _PLAIN else id(one) for one in args])
        if kwargs:
            key = (
                key,
                tuple([(name, one if type(one) in _PLAIN else id(one)) for name, one in kwargs.items()]),
            )
        found = known.get(key)
        if found is None:
            if len(known) >= OF_NODES:
                known.clear()
            found = known[key] = ((args, kwargs), function(*args, **kwargs))
        return found[1]

    return remembered


def by_members(function: Callable[[Mapping[str, A]], T]) -> Callable[[Mapping[str, A]], T]:
    """Answer from memory what was asked of a mapping with the same objects in it, in the same order."""
    known: dict[Hashable, tuple[Any, T]] = {}

    @wraps(function)
    def remembered(mapping: Mapping[str, A], /) -> T:
        key = (tuple(map(id, mapping)), tuple(map(id, mapping.values())))
        found = known.get(key)
        if found is None:
            if len(known) >= OF_ALL:
                del known[next(iter(known))]
            found = known[key] = (list(mapping.items()), function(mapping))
        return found[1]

    return remembered
