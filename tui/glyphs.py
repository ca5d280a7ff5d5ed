"""Whether this terminal draws lines of boxes in one column each: some draw them two columns wide.

Asked once, as vim asks for its `ambiwidth`: one such character is written, and the terminal says where the
cursor is then. Without a clear answer frames are drawn with ``+-|``.
"""

import codecs
import contextlib
import locale
import os
import re
import select
import sys
import termios
import time
import tty

ANSWER = re.compile(r"\x1b\[\d+;(\d+)R")
ANSWER_S = 0.3  # as long as a terminal at the other end of the world takes


def boxes() -> tuple[bool, str]:
    """Whether frames may be drawn with box characters, and what was typed in the meantime."""
    if codecs.lookup(locale.getpreferredencoding(False)).name != "utf-8":
        return False, ""
    screen, keys = sys.__stderr__, sys.__stdin__  # those that Textual draws on, and reads
    if screen is None or keys is None or not (screen.isatty() and keys.isatty()):
        return False, ""
    before = termios.tcgetattr(keys.fileno())
    try:
        tty.setcbreak(keys.fileno(), termios.TCSANOW)
        screen.write("\r─\x1b[6n")
        screen.flush()
        answer = _read(keys.fileno(), ANSWER_S)
        screen.write("\r\x1b[K")
        screen.flush()
    except (OSError, UnicodeError, termios.error):
        return False, ""
    finally:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(keys.fileno(), termios.TCSANOW, before)
    found = ANSWER.search(answer)
    # What is left was typed; of keys that are no letters, parts would act as others.
    return found is not None and found[1] == "2", re.sub(r"\x1b(\[[0-9;]*[A-Za-z~]|O.)?", "", answer)


def _read(fd: int, seconds: float) -> str:
    """What comes until the answer is there, or the time is over."""
    got, end = b"", time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and not ANSWER.search(got.decode("utf-8", "replace")):
        if select.select([fd], [], [], left)[0]:
            got += os.read(fd, 1024)
    return got.decode("utf-8", "replace")
