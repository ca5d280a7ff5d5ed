"""Whether the job's interpreter gets as far as a program."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._shared.install import in_command
from netdoctor.facts.software import PythonStart
from netdoctor.model import HERE, Cause, Finding, look, seen, unknown

# Where it takes so many times as long as without `site`, it waits for something and is not just slow.
TIMES_BARE = 5.0

BROKEN = Cause("python-start", "The job's Python does not start on {nodes}")


@check(explains=("gpu.work", "bw.*"), source="https://docs.python.org/3/library/site.html")
def sw_start(start: PythonStart) -> Iterator[Finding]:
    """The job's interpreter starts.

    Looks at:
        ``PYTHON -c pass`` in a process of its own, within 7 s, with the job's variables: what it runs before
        any program are ``sitecustomize.py``, ``usercustomize.py`` and lines of ``.pth`` files in
        site-packages. One that does not end in time is held against a start without these (``-E -S -s``).

    Matters because:
        Every rank starts so. One that ends there takes the job with it, and what it prints, if anything,
        does not name a file of the job. netdoctor itself starts without all of it.

    Fix:
        Take out, or repair, the file that ends it; ``python -v`` names each that it runs, the last one is it.
        Of an environment that was copied or half removed, make a new one.
    """
    if start.starts:
        return
    python = in_command(start.executable)
    if start.code is None:
        how = f"did not come to an end in {start.seconds:.0f} s"
    elif start.code < 0:
        how = f"was killed by signal {-start.code}"
    else:
        how = f"ended with exit code {start.code}"
    words = f"{how}: {start.said}" if start.said else f"{how} and printed nothing"
    bare = "" if start.bare_s is None else f", and a start without site-packages takes {start.bare_s:.1f} s"
    if start.code is None and (start.bare_s is None or start.seconds < TIMES_BARE * start.bare_s):
        yield unknown(HERE, f"{start.executable} {words}{bare}: a slow node, or a start that waits")
        return
    yield BROKEN.fail(
        f"{start.executable} {words}{bare}",
        observed=how,
        expected="starts, and runs a program",
        seen=seen(f"{start.executable} -c pass", words, "command"),
        fixes=look(
            "see which file is the last (sitecustomize.py, usercustomize.py, a .pth file): mend it or take it"
            " out, or make the environment anew",
            f"timeout 20 {python} -v -c pass 2>&1 | tail -n 20",
        ),
    )
