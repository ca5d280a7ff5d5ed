"""Versions of packages against those that the job asks for."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._shared.install import install_requested
from netdoctor.checks._shared.text import listing, slug, title_text
from netdoctor.facts.host import HostFacts
from netdoctor.facts.software import Job, Requested, SoftwareFacts
from netdoctor.model import CONFIG, HERE, Cause, Finding, Status, look, skip, unknown
from netdoctor.rules.packages import applies, environment, fits, nearly

# So many missing at once are another interpreter rather than as many mistakes.
MANY = 6
ELSEWHERE = Cause("packages-missing", "{nodes} lack{s} most packages that the job requires")


@check(after=["sw.start"], source="https://packaging.python.org/en/latest/specifications/version-specifiers/")
def sw_wanted(software: SoftwareFacts, host: HostFacts | None, job: Job) -> Iterator[Finding]:
    """Every node has the packages that the job needs, in the required versions.

    Looks at:
        Metadata of the packages that ``--packages 'torch==2.6.0,vllm>=0.8'`` or ``--requirements FILE``
        names, in the job's interpreter. Markers are evaluated for the node's own Python and platform.
        Hashes, addresses and editable folders are not compared, and the report says so.

    Matters because:
        A job with another release than it was written for ends with an import error at best. All nodes
        may have the same wrong version.

    Fix:
        Install the required version, or correct the requirement. If most packages are missing,
        ``--python`` names the wrong interpreter.
    """
    if not job.requested:
        yield skip("no versions requested (--packages 'torch==2.6.0', --requirements FILE)")
        return
    here, lacking, count = environment(software, host), list[Requested](), 0
    for request in job.requested:
        is_for_node = applies(request.marker, here)
        if is_for_node is None:
            yield unknown(
                HERE, f"it is not known whether {request.origin} requires {request.name} on this node"
            )
        if not is_for_node:
            continue
        count += 1
        version = software.packages.get(request.name, "")
        if request.name not in software.packages:
            yield unknown(HERE, f"{request.name} was not searched on this node")
        elif version is None:
            lacking += [] if request.only_if_there else [request]
        elif (fitting := fits(request.specifier, version)) is None:
            text = f"version {version!r}" if version else "a version that could not be read"
            yield unknown(HERE, f"{request.name} has {text}: it cannot be compared with {request.specifier}")
        elif not fitting:
            yield _differs(request, version, software)
    if len(lacking) >= MANY and 2 * len(lacking) > count:
        names = listing([request.name for request in lacking], 5)
        yield ELSEWHERE.fail(
            f"{len(lacking)} of {count} packages are not in {software.executable}: {names}",
            observed="not installed",
            expected=CONFIG(f"installed, as {lacking[0].origin.partition(':')[0]} requires"),
            fixes=look(
                "name the job's interpreter with --python; or see which one this is", "command -v python3"
            ),
        )
        return
    for request in lacking:
        yield _cause(request, "missing", "{nodes} {has} no ").fail(
            f"{request.name} is not installed, but {request.origin} requires it",
            observed="not installed",
            expected=CONFIG(request.specifier or "installed"),
            fixes=install_requested(software, request),
        )


def _differs(request: Requested, version: str, software: SoftwareFacts) -> Finding:
    # A vendor's build between two releases, as in NVIDIA's containers: what meets the release mostly runs.
    early = nearly(request.specifier, version)
    return _cause(request, "unwanted", "{nodes} {has} another version than required of ").say(
        Status.WARN if early else Status.FAIL,
        f"{request.name} is {version}{', a pre-release,' if early else ''} but {request.origin} requires "
        f"{request.specifier}",
        observed=version,
        expected=CONFIG(request.specifier),
        fixes=install_requested(software, request),
    )


def _cause(request: Requested, what: str, title: str) -> Cause:
    word = slug(request.name)
    follows = ("sw.torch",) if word == "torch" else ()
    return Cause(f"package-{word}-{what}", title + title_text(request.name), follows=follows)
