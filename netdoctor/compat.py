"""What Python 3.11 has and 3.10 has not, under one name for both."""

import sys
from datetime import datetime, timezone

__all__ = ["UTC", "Self", "StrEnum", "Unpack", "instant", "tomllib"]

if sys.version_info >= (3, 11):
    from enum import StrEnum
    from typing import Self, Unpack

    import tomllib
else:
    from enum import Enum

    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]
    from typing_extensions import Self, Unpack

    class StrEnum(str, Enum):
        """Members are texts, also where they are written into one."""

        def __str__(self) -> str:
            return str(self.value)

        def __format__(self, form: str) -> str:
            return format(str(self.value), form)


UTC = timezone.utc  # 3.11's name for it


def instant(text: str) -> datetime:
    """An RFC 3339 time, of which 3.10 reads no ``Z``. Raises ValueError."""
    return datetime.fromisoformat(f"{text[:-1]}+00:00" if text.endswith("Z") else text)
