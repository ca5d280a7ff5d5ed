"""Tables of what others decide, as TOML beside the code that reads them, each held to a schema."""

from importlib.resources import files
from typing import TypeVar

import msgspec

from netdoctor.compat import tomllib

T = TypeVar("T")


def table(package: str, name: str, kind: type[T]) -> T:
    """The table ``data/NAME`` of a package. Raises ValueError with the file and the key at fault."""
    text = files(package).joinpath("data").joinpath(name).read_text("utf-8")
    return parsed(text, f"{package.replace('.', '/')}/data/{name}", kind)


def parsed(text: str, name: str, kind: type[T]) -> T:
    """A table from its text; name: of the file, for what is said of mistakes."""
    try:
        return msgspec.convert(tomllib.loads(text), type=kind, str_keys=True)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ValueError(f"{name}: {error}") from None


def names(text: str) -> frozenset[str]:
    """The words of a text; what stands behind ``#`` in a line is a remark."""
    return frozenset(word for line in text.splitlines() for word in line.partition("#")[0].split())
