"""Frozen dataclasses of which judging ten thousand nodes makes half a million."""

from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["changed", "record"]

T = TypeVar("T")

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:
    from dataclasses import dataclass

    def record(*, frozen: bool, **options: bool) -> Any:
        """As `dataclass`. That nobody writes into a frozen one is held by mypy alone: what Python does for it
        takes longer than all else when one is made."""
        return dataclass(unsafe_hash=frozen, **options)


def changed(one: T, **fields: Any) -> T:
    """As `dataclasses.replace` of a record with slots, in a quarter of the time."""
    made: Any = object.__new__(type(one))
    for name in type(one).__slots__:  # type: ignore[attr-defined]
        setattr(made, name, fields[name] if name in fields else getattr(one, name))
    return made  # type: ignore[no-any-return]
