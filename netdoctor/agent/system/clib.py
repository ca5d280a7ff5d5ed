"""Calls into the C library, through what `ctypes` is made of: to import that costs as much as half the agent.

For functions that take pointers and return an int. Addresses are numbers.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

try:
    _ctypes = __import__("_ctypes")  # type: Any
    _call = _ctypes.call_cdeclfunction
except (ImportError, AttributeError):  # no CPython
    _ctypes = __import__("ctypes")
    _call = None

_Simple = _ctypes._SimpleCData  # type: Any
byref = _ctypes.byref
addressof = _ctypes.addressof


class Pointer(_Simple):  # type: ignore[misc]
    """A void * in C's memory, where a function may put one; its number is `value`."""

    _type_ = "P"


class Text(_Simple):  # type: ignore[misc]
    """A char * in C's memory; what it points to is `value`, bytes or None."""

    _type_ = "z"


class _Byte(_Simple):  # type: ignore[misc]
    _type_ = "B"


def load(soname: "Any") -> "Any":
    """Return a library that the loader finds, the program itself for None. Raises OSError."""
    return _ctypes.CDLL(soname) if _call is None else _ctypes.dlopen(soname, 0)


def call(name: str, *args: "Any") -> int:
    """Return name(*args), made of Pointer and byref(Pointer)."""
    own = load(None)
    return int(getattr(own, name)(*args) if _call is None else _call(_ctypes.dlsym(own, name), args))


def array(count: int) -> "Any":
    """Return the type of so many bytes in C's memory, at addressof() of one while that lives."""
    byte = _Byte  # type: Any
    return byte * count


def peek(address: int, count: int) -> bytes:
    """Return what is in C's memory."""
    return bytes(array(count).from_address(address))
