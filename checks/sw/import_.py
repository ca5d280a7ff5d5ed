"""Imports of torch and others, tried in the job's interpreter."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.facts.software import Imports
from netdoctor.model import HERE, Cause, Finding, look, ok, seen, skip
from netdoctor.rules.imports import SIGNALS, failure

FOLLOWS = ("sw.libraries", "sw.nccl")


@check(
    after=["ssh.login", "sw.torch"],
    profile="full",
    required=False,
    source="https://docs.python.org/3/library/exceptions.html#ImportError",
)
def sw_import(found: Imports) -> Iterator[Finding]:
    """The job's interpreter imports torch, and the packages that the job asks for.

    Looks at:
        ``import`` of torch and of the modules of packages named with ``--packages`` or in ``--requirements``,
        one after the other in one process of the job's interpreter, with the job's variables and the
        session's limits. The code of these packages runs, as it does in the job; no bytecode is written.
        Of an error the last line is told.

    Matters because:
        Versions say nothing of files that are missing or cut short, of a C library that is too old, or of an
        undefined symbol. A job finds that out on one node of many, after the others have waited.

    Fix:
        Install again what does not import, in the versions that belong together.
    """
    for one in found.imports:
        if not one.error and not one.modules:
            yield skip(f"{one.name} brings nothing that could be imported")
            continue
        if not one.error:
            text = f"{one.name} {one.version}".strip()
            yield ok(HERE, f"{text} imports in {one.seconds:.1f} s", observed=one.version or None)
            continue
        why = failure(one.error)
        words, key = why.words, why.key
        if one.status is not None:
            words = SIGNALS.get(one.status, "its process ends")
            key = "import-ends"
        kind, name = ("torch", "torch") if one.name == "torch" else ("package", "a package")
        cause = Cause(f"{key}-{kind}", f"import of {name} fails on {{nodes}}", follows=FOLLOWS)
        yield cause.fail(
            f"import of {one.name} fails: {words}: {one.error}",
            observed=one.error,
            expected="imports",
            seen=seen(f"import of {', '.join(one.modules) or one.name}", one.error, "command"),
            fixes=look(why.helps),
        )
