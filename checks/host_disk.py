"""Space in /tmp."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._words import GIB, MIB, size
from netdoctor.facts.host import LimitFacts
from netdoctor.model import Cause, Finding, in_job, look, run, seen

# torchrun keeps error files and logs there, Triton and inductor compile there, Ray puts its session there.
# One compiled kernel cache takes tens of MiB, a Ray session hundreds (Ray warns when under 5 % is free).
LEAST_BYTES = 64 * MIB
ADVISED_BYTES = 1 * GIB
# What an empty file system of the advised size keeps for itself.
OVERHEAD_BYTES = ADVISED_BYTES // 8

UNUSABLE = Cause("tmp-unusable", "/tmp cannot be used on {nodes}")
FULL = Cause("tmp-full", "/tmp is full on {nodes}")
SMALL = Cause("tmp-small", "/tmp is small on {nodes}")
ELSEWHERE = in_job("let the job use another place", "export TMPDIR=/var/tmp")
CLEAN = look(
    "see what fills it, and remove what nobody uses",
    "df -h /tmp; du -xah /tmp 2>/dev/null | sort -h | tail -n 15",
    root=True,
)
ENLARGE = run(
    "enlarge it; it takes memory only for what is in it",
    f"mount -o remount,size={4 * ADVISED_BYTES // MIB}M /tmp",
    root=True,
    persistent=False,
)


@check(source="https://docs.pytorch.org/docs/stable/elastic/errors.html")
def host_disk(limits: LimitFacts) -> Iterator[Finding]:
    """/tmp can be written and has space.

    Looks at:
        Free space and writability of /tmp (statvfs).

    Matters because:
        torchrun, Triton, Ray and every Python that makes a temporary file write there. A full one ends a
        launch with "No space left on device", often without saying where.

    Fix:
        Remove what fills it, enlarge it where it is small, or point TMPDIR at a file system with space.
    """
    tmp, free = limits.tmp, f"{size(limits.tmp.free_bytes)} free"
    evidence = seen("df /tmp", tmp.error or f"{free} of {size(tmp.total_bytes)}", "command")
    if tmp.error or not tmp.writable:
        yield UNUSABLE.fail(
            f"/tmp cannot be used: {tmp.error or 'not writable'}",
            expected="a directory that can be written",
            seen=evidence,
            fixes=(CLEAN, ELSEWHERE),
        )
    elif tmp.free_bytes < ADVISED_BYTES - OVERHEAD_BYTES:
        # What is mostly free has nothing in it that could be removed.
        small = tmp.free_bytes > tmp.total_bytes // 2
        cause = SMALL if small else FULL
        say = cause.fail if tmp.free_bytes < LEAST_BYTES else cause.warn
        larger = (ENLARGE,) if tmp.fs_type == "tmpfs" and tmp.is_mount else ()
        yield say(
            f"/tmp has {free} of {size(tmp.total_bytes)}",
            observed=free,
            expected=f"at least {size(ADVISED_BYTES)}",
            seen=evidence,
            fixes=(*(larger if small else (CLEAN,)), ELSEWHERE),
        )
