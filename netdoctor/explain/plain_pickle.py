"""Pickles that hold nothing but plain data: no name is looked up, nothing is called.

Python's unpickler in its Python form, as only that one takes a table of opcodes: the C unpickler sets aside
64 GB for one LONG_BINPUT of a few bytes, and overflows the stack where a deeply nested tuple is a key.
"""

import io
import pickle
import struct
from collections.abc import Callable
from typing import Any

STEPS_MAX = 5_000_000
CONTAINERS_MAX = 500_000  # a container is 60 bytes of memory for one of the file
MEMO_MAX = 1_000_000
DEPTH_MAX = 10_000

_BASE: Any = pickle._Unpickler  # the Python form
_CONTAINERS = frozenset(b"]})t\x85\x86\x87")
# What numbers, text, lists, tuples and dicts are written with, and the frames and memo around them.
# torch's C++ code (torch/csrc/jit/serialization/pickler.cpp) writes some of these.
_ALLOWED = _CONTAINERS | frozenset(b"\x80\x95NKMJG\x88\x89\x8aX\x8c\x8d(aesuhjqr\x94.")


class NotPlain(ValueError):
    """Not a pickle of plain data, or a damaged one."""


def load(data: bytes) -> Any:
    """Return the value in a pickle of protocol 2 to 5. Raises NotPlain; reads no more than `data`.

    Parts may be shared, so that walking all of it can take longer than it is large: take what is needed.
    """
    if data[:1] != b"\x80" or not b"\x02" <= data[1:2] <= b"\x05":
        raise NotPlain("no pickle of protocol 2 to 5")
    try:
        return _PlainUnpickler(io.BytesIO(data)).load()
    except KeyError as error:
        raise NotPlain(f"opcode {error.args[0]:#04x} builds more than plain data") from None
    except (IndexError, struct.error, UnicodeDecodeError, TypeError, AttributeError, EOFError,
            pickle.UnpicklingError) as error:  # fmt: skip
        raise NotPlain(f"a damaged pickle ({type(error).__name__})") from None


class _PlainUnpickler(_BASE):  # type: ignore[misc]  # as above
    steps = containers = 0


def _bounded(opcode: int) -> Callable[[Any], None]:
    run: Callable[[Any], None] = _BASE.dispatch[opcode]
    container = opcode in _CONTAINERS

    def step(machine: Any) -> None:
        # A key of tuples that share tuples takes for ever to hash.
        if opcode == pickle.SETITEM[0]:
            _check_keys(machine.stack[-2:-1])
        elif opcode == pickle.SETITEMS[0]:
            _check_keys(machine.stack[::2])
        run(machine)
        machine.steps += 1
        machine.containers += container
        if machine.steps > STEPS_MAX:
            raise NotPlain(f"more than {STEPS_MAX} steps")
        if machine.containers > CONTAINERS_MAX or len(machine.memo) > MEMO_MAX:
            raise NotPlain("too many parts")
        if len(machine.metastack) > DEPTH_MAX:
            raise NotPlain("nested too deeply")

    return step


def _check_keys(keys: list[Any]) -> None:
    if not all(type(key) in (str, int) for key in keys):
        raise NotPlain("a key that is neither text nor number")


_PlainUnpickler.dispatch = {opcode: _bounded(opcode) for opcode in _ALLOWED}
