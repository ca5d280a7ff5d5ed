"""Pickles that hold nothing but plain data, read without the unpickler: no name is looked up, nothing called.

torch's C++ code writes flight records with a handful of opcodes (torch/csrc/jit/serialization/pickler.cpp).
What is not among those that build numbers, text, lists, tuples and dicts is refused, and so is what is larger
than a record can be.
"""

import struct
from collections.abc import Callable
from typing import Any

STEPS_MAX = 5_000_000
CONTAINERS_MAX = 500_000  # a container is 60 bytes of memory for one of the file
MEMO_MAX = 1_000_000
DEPTH_MAX = 10_000


class NotPlain(ValueError):
    """Not a pickle of plain data, or a damaged one; the message says where."""


class _Mark:
    pass


_MARK = _Mark()
# Opcode: struct format of its argument, and what is pushed for it.
_NUMBERS: dict[int, tuple[str, int]] = {
    ord("M"): ("<H", 2),  # BININT2
    ord("J"): ("<i", 4),  # BININT
    ord("G"): (">d", 8),  # BINFLOAT
}
# Opcode: bytes that its length takes.
_TEXTS = {ord("X"): 4, 0x8C: 1, 0x8D: 8}  # BINUNICODE, SHORT_BINUNICODE, BINUNICODE8
_CONSTANTS: dict[int, Any] = {ord("N"): None, 0x88: True, 0x89: False}
_EMPTY: dict[int, Callable[[], Any]] = {ord("]"): list, ord("}"): dict, ord(")"): tuple}
_TUPLES = {0x85: 1, 0x86: 2, 0x87: 3}


def load(data: bytes) -> Any:
    """The value in a pickle of protocol 2 to 5. Raises NotPlain; reads no more than `data`.

    Parts may be shared, so that walking all of it can take longer than it is large: take what is needed.
    """
    try:
        return _Machine(data).run()
    except (IndexError, struct.error, UnicodeDecodeError, TypeError, AttributeError, KeyError) as error:
        raise NotPlain(f"a damaged pickle ({type(error).__name__})") from None


class _Machine:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.containers = 0

    def run(self) -> Any:
        data, stack, memo = self.data, self.stack, self.memo
        if data[:1] != b"\x80" or not 2 <= data[1] <= 5:
            raise NotPlain("no pickle of protocol 2 to 5")
        at, number = 2, int.from_bytes
        for _ in range(STEPS_MAX):
            op = data[at]
            # Nine of ten; the bytes are read here, as a call for each would take most of the time.
            if op == 0x6A:  # LONG_BINGET
                stack.append(memo[number(data[at + 1 : at + 5], "little")])
                at += 5
                continue
            if op == 0x72:  # LONG_BINPUT
                self.put(number(data[at + 1 : at + 5], "little"))
                at += 5
                continue
            if op == 0x68:  # BINGET
                stack.append(memo[data[at + 1]])
                at += 2
                continue
            if op == 0x71:  # BINPUT
                self.put(data[at + 1])
                at += 2
                continue
            if op == 0x4B:  # BININT1
                stack.append(data[at + 1])
                at += 2
                continue
            self.at = at + 1
            if op == 0x94:  # MEMOIZE
                self.put(len(memo))
            elif op in _TEXTS:
                stack.append(str(self.take(self.number(_TEXTS[op])), "utf-8", "surrogatepass"))
            elif op in _NUMBERS:
                form, size = _NUMBERS[op]
                stack.append(struct.unpack(form, self.take(size))[0])
            elif op == 0x8A:  # LONG1
                stack.append(int.from_bytes(self.take(self.number(1)), "little", signed=True))
            elif op in _CONSTANTS:
                stack.append(_CONSTANTS[op])
            elif op in _EMPTY:
                self.count()
                stack.append(_EMPTY[op]())
            elif op == ord("("):  # MARK
                if len(self.marks) > DEPTH_MAX:
                    raise NotPlain("nested too deeply")
                self.marks.append(len(stack))
            elif op == ord("a"):  # APPEND
                value = stack.pop()
                self.top(list).append(value)
            elif op == ord("e"):  # APPENDS
                items = self.since_mark()
                self.top(list).extend(items)
            elif op == ord("s"):  # SETITEM
                value, key = stack.pop(), stack.pop()
                self.top(dict)[self.key(key)] = value
            elif op == ord("u"):  # SETITEMS
                items = self.since_mark()
                found = self.top(dict)
                for i in range(0, len(items), 2):
                    found[self.key(items[i])] = items[i + 1]
            elif op in _TUPLES:
                self.collapse(_TUPLES[op])
            elif op == ord("t"):  # TUPLE
                self.count()
                stack.append(tuple(self.since_mark()))
            elif op == 0x95:  # FRAME
                self.take(8)
            elif op == ord("."):  # STOP
                return stack.pop()
            else:
                raise NotPlain(f"opcode {op:#04x} at byte {at} builds more than plain data")
            at = self.at
        raise NotPlain(f"more than {STEPS_MAX} steps")

    def take(self, size: int) -> bytes:
        piece = self.data[self.at : self.at + size]
        if len(piece) != size:
            raise NotPlain("the data end early")
        self.at += size
        return piece

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def put(self, place: int) -> None:
        if len(self.memo) >= MEMO_MAX:
            raise NotPlain("too many parts")
        self.memo[place] = self.stack[-1]

    def top(self, kind: type) -> Any:
        if type(self.stack[-1]) is not kind:
            raise NotPlain("a damaged pickle (another container)")
        return self.stack[-1]

    def key(self, value: Any) -> str | int:
        if type(value) not in (str, int):
            raise NotPlain("a key that is neither text nor number")
        return value  # type: ignore[no-any-return]  # just seen

    def since_mark(self) -> list[Any]:
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def count(self) -> None:
        self.containers += 1
        if self.containers > CONTAINERS_MAX:
            raise NotPlain("too many lists")

    def collapse(self, size: int) -> None:
        self.count()
        items = tuple(self.stack[-size:])
        if len(items) != size:
            raise NotPlain("a damaged pickle (too few parts)")
        self.stack[-size:] = [items]
