"""Space for temporary files."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._shared.positions import clean_up
from netdoctor.checks._shared.text import GIB, MIB, quoted, size, title_text
from netdoctor.facts.host import FileSystem, LimitFacts
from netdoctor.model import Cause, Finding, Fix, in_job, run, seen

# torchrun keeps error files and logs there, Triton and inductor compile there, Ray puts its session there.
# One compiled kernel cache takes tens of MiB, a Ray session hundreds (Ray warns when under 5 % is free).
LEAST_BYTES = 64 * MIB
ADVISED_BYTES = 1 * GIB
# What an empty file system of the advised size keeps for itself.
OVERHEAD_BYTES = ADVISED_BYTES // 8

UNUSABLE = Cause("tmp-unusable", "{where} cannot be used on {{nodes}}")
FULL = Cause("tmp-full", "{where} is full on {{nodes}}")
SMALL = Cause("tmp-small", "{where} is small on {{nodes}}")
ELSEWHERE = in_job("let the job use another folder", "export TMPDIR=/var/tmp")


@check(source="https://docs.pytorch.org/docs/stable/elastic/errors.html")
def host_disk(limits: LimitFacts) -> Iterator[Finding]:
    """The folder for temporary files is writable and has free space.

    Looks at:
        Free space and write permission (statvfs) of the job's TMPDIR if it can be used, else of the login
        session's, else of /tmp.

    Matters because:
        torchrun, Triton, Ray and every Python that makes a temporary file write there. If it is full, a
        launch ends with "No space left on device", often without saying where.

    Fix:
        Delete what fills it, enlarge it if it is small, or set TMPDIR to a file system with space.
    """
    tmp, free = limits.tmp, f"{size(limits.tmp.free_bytes)} free"
    evidence = seen(f"df {tmp.path}", tmp.error or f"{free} of {size(tmp.total_bytes)}", "command")
    if tmp.error or not tmp.writable:
        yield _of_path(UNUSABLE, tmp).fail(
            f"{tmp.path} cannot be used: {tmp.error or 'not writable'}",
            expected="a directory that can be written",
            seen=evidence,
            fixes=(ELSEWHERE, clean_up(tmp.path)),
        )
    elif tmp.free_bytes < ADVISED_BYTES - OVERHEAD_BYTES:
        # What is mostly free has nothing in it that could be removed.
        small = tmp.free_bytes > tmp.total_bytes // 2
        cause = _of_path(SMALL if small else FULL, tmp)
        say = cause.fail if tmp.free_bytes < LEAST_BYTES else cause.warn
        larger = (_enlarge(tmp),) if tmp.fs_type == "tmpfs" and tmp.is_mount else ()
        yield say(
            f"{tmp.path} has {free} of {size(tmp.total_bytes)}",
            observed=free,
            expected=f"at least {size(ADVISED_BYTES)}",
            seen=evidence,
            fixes=(*(larger if small else (clean_up(tmp.path),)), ELSEWHERE),
        )


def _of_path(cause: Cause, tmp: FileSystem) -> Cause:
    return cause.but(title=cause.title.format(where=title_text(tmp.path)))


def _enlarge(tmp: FileSystem) -> Fix:
    """Four GiB for the place of temporary files."""
    return run(
        "enlarge it; it uses memory only for its files",
        f"mount -o remount,size={4 * GIB // MIB}M {quoted(tmp.path)}",
        root=True,
        persistent=False,
    )
