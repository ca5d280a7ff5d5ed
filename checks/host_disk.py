"""Space in /tmp."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._words import GIB, MIB, size
from netdoctor.facts.host import LimitFacts, Node
from netdoctor.model import CauseHint, Command, Evidence, ExpectedFrom, Finding, Fix, fail, warn

# torchrun keeps error files and logs there, Triton and inductor compile there, Ray puts its session there.
# One compiled kernel cache takes tens of MiB, a Ray session hundreds (Ray warns when under 5 % is free).
LEAST_BYTES = 64 * MIB
ADVISED_BYTES = 1 * GIB


@check(source="https://docs.pytorch.org/docs/stable/elastic/errors.html")
def host_disk(node: Node, limits: LimitFacts) -> Iterator[Finding]:
    """/tmp can be written and has space.

    Looks at:
        Free space and writability of /tmp (statvfs).

    Matters because:
        torchrun, Triton, Ray and every Python that makes a temporary file write there. A full one ends a
        launch with "No space left on device", often without saying where.

    Fix:
        Remove what fills it, or point TMPDIR at a file system with space.
    """
    tmp = limits.tmp
    evidence = (
        Evidence(
            kind="command",
            where=node.id,
            what="df /tmp",
            output=tmp.error or f"{size(tmp.free_bytes)} free of {size(tmp.total_bytes)}",
        ),
    )
    fixes = (
        Fix(
            text="see what fills it, and remove what nobody uses",
            commands=(
                Command(
                    run_on=node.id,
                    shell="df -h /tmp; du -xah /tmp 2>/dev/null | sort -h | tail -n 15",
                ),
            ),
            root=True,
            effect="",
        ),
        Fix(
            text="let the job use another place",
            commands=(Command(run_on="job", shell="export TMPDIR=/var/tmp"),),
            effect="next launch",
            persistent=False,
        ),
    )
    if tmp.error or not tmp.writable:
        yield fail(
            node.id,
            f"/tmp cannot be used: {tmp.error or 'not writable'}",
            expected="a directory that can be written",
            expected_from=ExpectedFrom.CONSTANT,
            evidence=evidence,
            cause=CauseHint(
                key="tmp-unusable", title="/tmp cannot be used on {nodes}", culprits=(node.id,), fixes=fixes
            ),
        )
        return
    if tmp.free_bytes >= ADVISED_BYTES:
        return
    say = fail if tmp.free_bytes < LEAST_BYTES else warn
    yield say(
        node.id,
        f"/tmp has {size(tmp.free_bytes)} free of {size(tmp.total_bytes)}",
        observed=f"{size(tmp.free_bytes)} free",
        expected=f"at least {size(ADVISED_BYTES)}",
        expected_from=ExpectedFrom.CONSTANT,
        evidence=evidence,
        cause=CauseHint(key="tmp-full", title="/tmp is full on {nodes}", culprits=(node.id,), fixes=fixes),
    )
