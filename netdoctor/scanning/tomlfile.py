"""TOML files that people write for netdoctor: read with bounds, and mistakes told with their lines."""

import difflib
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from netdoctor.errors import InputError
from netdoctor.files import read_regular
from netdoctor.text import clean

SIZE_MAX = 1024 * 1024


def load(path: Path) -> tuple[dict[str, Any], list[str]]:
    """(the tables of a file, its lines). Raises InputError."""
    try:
        data = read_regular(path, SIZE_MAX)
        if len(data) > SIZE_MAX:
            raise InputError(f"{path}: has more than {SIZE_MAX} bytes")
        text = data.decode("utf-8-sig")
        return tomllib.loads(text), text.splitlines()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 (byte {error.start})") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{path}: {clean(str(error), 200)}") from None


def quoted(word: str) -> str:
    """A word of the file, for a message about it."""
    return repr(clean(word, 60))


def hint_for(key: str, known: Sequence[str]) -> str:
    """What may have been meant by a word that nobody knows, as the end of a message."""
    close = difflib.get_close_matches(key.lower(), known, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; there are: {', '.join(known)}" if len(known) < 9 else ""
