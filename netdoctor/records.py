"""Dataclasses that are quick to define, and some that are quick to make: judging ten thousand nodes makes
half a million of them."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["changed", "dataclass", "record"]

T = TypeVar("T")

# What `dataclasses` writes as text and compiles: most of the time that a class costs.
MADE = {"__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__"}


if TYPE_CHECKING:
    from dataclasses import dataclass
    from dataclasses import dataclass as record
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        """As `dataclasses.dataclass`, but each method is made when it is first called: of the hundreds of
        classes that a scan imports, most are never built, compared or printed."""
        return (lambda cls: _defined(cls, **options)) if cls is None else _defined(cls, **options)

    def record(*, frozen: bool, **options: bool) -> Any:
        """As `dataclass`. That nobody writes into a frozen one is held by mypy alone: what Python does for it
        takes longer than all else when one is made."""
        return dataclass(unsafe_hash=frozen, **options)


def _defined(cls: Any, *, eq: bool = True, frozen: bool = False, order: bool = False, **options: bool) -> Any:
    asked = {"eq": eq, "frozen": frozen, "order": order, **options}
    if order or MADE & vars(cls).keys() or any(map(dataclasses.is_dataclass, cls.__bases__)):
        return dataclasses.dataclass(**asked)(cls)
    hashed = options.pop("unsafe_hash", False) or (eq and frozen)
    if not cls.__doc__:
        cls.__doc__ = f"{cls.__name__}(...)"  # as `dataclass`, which has `inspect` look the arguments up
    cls = dataclasses.dataclass(init=False, repr=False, eq=False, **options)(cls)
    for name in ["__init__", "__repr__", *["__eq__"] * eq, *["__hash__"] * hashed]:
        setattr(cls, name, _late(cls, name, frozen=frozen, slots=options.get("slots", False)))
    if eq and not hashed:
        cls.__hash__ = None
    if frozen:
        cls.__setattr__, cls.__delattr__ = _set, _delete
        cls.__dataclass_params__.frozen = True
    if frozen and options.get("slots"):
        cls.__getstate__, cls.__setstate__ = _Frozen.__getstate__, _Frozen.__setstate__  # type: ignore[attr-defined]
    return cls


def _late(cls: Any, name: str, **asked: bool) -> Callable[..., Any]:
    """A method that puts what `dataclasses` makes under its name in its own place, and calls that."""
    asked |= {ask: f"__{ask}__" == name for ask in ("init", "repr", "eq")}
    asked["unsafe_hash"] = name == "__hash__"

    def method(*args: Any, **kwargs: Any) -> Any:
        heir = type(cls.__name__, (cls,), {"__qualname__": cls.__qualname__, "__module__": cls.__module__})
        setattr(cls, name, vars(dataclasses.dataclass(**asked)(heir))[name])
        return getattr(cls, name)(*args, **kwargs)

    return method


def _set(self: object, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete(self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


@dataclasses.dataclass(frozen=True, slots=True)
class _Frozen:
    """How every frozen one with slots is pickled and copied."""


def changed(one: T, **fields: Any) -> T:
    """As `dataclasses.replace` of a record with slots, in a quarter of the time."""
    made: Any = object.__new__(type(one))
    for name in type(one).__slots__:  # type: ignore[attr-defined]
        setattr(made, name, fields[name] if name in fields else getattr(one, name))
    return made  # type: ignore[no-any-return]
