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
    """The job's interpreter can import torch and the packages that the job needs.

    Looks at:
        ``import`` of torch and of the modules of packages named with ``--packages`` or in
        ``--requirements``, one after the other in one process of the job's interpreter, with the job's
        variables and the session's limits. The code of these packages runs, as it does in the job; no
        bytecode is written. After an error its last line is reported.

    Matters because:
        Versions do not show missing or truncated files, a C library that is too old, or an undefined
        symbol. A job finds such a fault on one of many nodes, while the others wait.

    Fix:
        Reinstall what cannot be imported, in versions that fit together.
    """
    for one in found.imports:
        if not one.error and not one.modules:
            yield skip(f"{one.name} has nothing to import")
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
