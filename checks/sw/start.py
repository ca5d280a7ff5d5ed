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
        ``PYTHON -c pass`` in a separate process, within 7 s, with the job's variables. Before any program
        it runs ``sitecustomize.py``, ``usercustomize.py`` and lines of ``.pth`` files in site-packages.
        If it does not end in time, a start without these (``-E -S -s``) is tried for comparison.

    Matters because:
        Every rank starts like this. If the start fails, the job fails, and its message, if there is one,
        does not name a file of the job. netdoctor itself starts without these files.

    Fix:
        Remove or repair the file that fails. ``python -v`` prints each file that it runs; the last one is
        it. Create an environment again if it was copied or half deleted.
    """
    if start.starts:
        return
    python = in_command(start.executable)
    if start.code is None:
        how = f"did not end in {start.seconds:.0f} s"
    elif start.code < 0:
        how = f"was killed by signal {-start.code}"
    else:
        how = f"ended with exit code {start.code}"
    words = f"{how}: {start.said}" if start.said else f"{how} and printed nothing"
    bare = "" if start.bare_s is None else f", and a start without site-packages takes {start.bare_s:.1f} s"
    if start.code is None and (start.bare_s is None or start.seconds < TIMES_BARE * start.bare_s):
        yield unknown(HERE, f"{start.executable} {words}{bare}: the node is slow, or the start waits")
        return
    yield BROKEN.fail(
        f"{start.executable} {words}{bare}",
        observed=how,
        expected="starts, and runs a program",
        seen=seen(f"{start.executable} -c pass", words, "command"),
        fixes=look(
            "see which file is the last (sitecustomize.py, usercustomize.py, a .pth file): repair or remove"
            " it, or create the environment again",
            f"timeout 20 {python} -v -c pass 2>&1 | tail -n 20",
        ),
    )
