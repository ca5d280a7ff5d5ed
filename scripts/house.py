#!/usr/bin/env python3
"""Print what CONTRIBUTING promises of the house, in figures, and fail where one does not hold.

    python scripts/house.py [--list [ROOM]]

With --list, what is over a bar is named one by one.

How many lines the product has, room by room; how much code a check is with what it leans on; how large the
front ends are; how many files a new check, fact, option or format really touches, by the patches that
tests/repo/test_newcomer.py applies; how many modules name an option; how long functions are and how they are
called; how many files lie side by side, and whether modules import in a circle.
"""

import ast
import graphlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Code of checks/ with the helpers and without imports, per check; and the longest file of one.
CHECK_MEAN, CHECK_MOST = 111, 250
# netdoctor/agent/facts has a file for each group of facts.
FOLDER_MOST = 26
FILES = {"cli/scan.py": ("netdoctor/cli/scan.py", 300), "tui/app.py": ("tui/app.py", 500)}
TOUCHED = {"check": 2, "fact": 3, "option": 5, "format": 4}
OPTION_MODULES = 3
FUNCTION_MOST = 60
# Lines of Python in all rooms. Whoever needs more takes them from somewhere, or says here why not. The
# newest first, each what did not exist: where a CUDA error came again (230),
# `rdma.rail-switch`, leaves that nodes know and `rail=` (640), `hosts --topology` (300), `host.health` (395),
# the groups of a job (520), files of models for `plan --fit` (260), bars of a ladder (90), `host.bmc` (240),
# `netdoctor mcp` (640), `history` and `-o npd` (430), a trial in reports and on a page (860),
# `bw.ladder` (420), `bw.collectives`, `gpu.bits`, `fs.rate` (750 each, about), `netdoctor soak` (500),
# `explain hang` (830), what lint reads further, how jobs end.
PRODUCT_MOST = 110_720
# Words that say neither what something is nor what it does: no function, class, parameter, variable or
# attribute has one of them as its whole name. What the field says instead is in docs/glossary.md.
_BARE = """
about alike among apart around asked beside booked cast gone ground guest heard held kept made mine
meant named of own place places said seen shown stranger taken talk theirs there told trouble typed
usual wanted which whole whose wish
"""
BARE = frozenset(_BARE.split())
# Of functions these, too; as variables they are plain English.
BARE_FUNCTIONS = BARE | {"both", "given", "known", "listed", "measured", "odd", "other", "others"}
# Words that plug-ins write, and fields that saved reports and files of facts have.
PUBLIC = ("netdoctor.model", "netdoctor.report.model", "netdoctor.facts.", "netdoctor.factlines")
# Not code that somebody edits to add one: tests of everything, and pages that are generated.
PRODUCT = ("netdoctor", "checks", "tui")


def code_lines(path: Path, imports: bool = True) -> int:
    """Lines of a file that are neither blank nor comment nor docstring. imports: whether those count."""
    text = path.read_text("utf-8")
    docs: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if not imports and isinstance(node, ast.Import | ast.ImportFrom):
            docs.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and first.value.value:
                docs.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines = ((i, line.strip()) for i, line in enumerate(text.splitlines(), 1))
    return sum(1 for i, line in lines if line and not line.startswith("#") and i not in docs)


def check_files() -> list[Path]:
    files = (ROOT / "checks").glob("*/*.py")
    return sorted(p for p in files if not p.name.startswith("_") and p.parent.name != "_shared")


def modules() -> dict[str, Path]:
    """Every module of the package by its installed name."""
    found = {}
    for top in PRODUCT:
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if parts[:2] in (("netdoctor", "checks"), ("netdoctor", "tui")):
                continue  # links to the folders at the top
            name = ".".join(parts if parts[0] == "netdoctor" else ("netdoctor", *parts))
            found[name.removesuffix(".__init__")] = path
    return found


def imports(name: str, path: Path, known: dict[str, Path]) -> Iterator[str]:
    """The modules of the package that this one imports, wherever in the file, relative imports included."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            names = [inner if (inner := f"{module}.{one.name}") in known else module for one in node.names]
        else:
            continue
        yield from (n for n in names if n in known and n != name)


def circle() -> list[str]:
    """Modules that import each other in a circle, first and last the same; empty when there is none."""
    known = modules()
    graph = {name: set(imports(name, path, known)) for name, path in known.items()}
    try:
        tuple(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def touched() -> dict[str, list[str]]:
    """The files of the patch that adds one, by what is added: generated pages are not among them."""
    patches = (ROOT / "tests" / "repo" / "newcomer").glob("*.patch")
    names = re.compile(r"^diff --git a/(\S+) b/\1$", re.MULTILINE)
    return {path.stem: names.findall(path.read_text("utf-8")) for path in sorted(patches)}


def rooms() -> dict[str, int]:
    """Lines of Python in each room of the product, the largest first."""
    found: dict[str, int] = {}
    for name, path in modules().items():
        parts = name.split(".")
        room = (
            parts[1] if len(parts) > 2 or (path.name == "__init__.py" and len(parts) > 1) else "loose modules"
        )
        found[room] = found.get(room, 0) + len(path.read_text("utf-8").splitlines())
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def functions() -> Iterator[tuple[str, str, int]]:
    """(module, name, lines without its docstring) of every function of the product."""
    for module, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[0]
                docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
                doc = (first.end_lineno or first.lineno) - first.lineno + 1 if docstring else 0
                yield module, node.name, (node.end_lineno or node.lineno) - node.lineno + 1 - doc


def bare_names() -> Iterator[str]:
    """``module.name`` of each function, class, parameter, variable and attribute with a bare name.

    One line for all of one name in one module. Modules of PUBLIC are left out.
    """
    for module, path in modules().items():
        tree = ast.parse(path.read_text("utf-8"))
        public = module.startswith(PUBLIC)
        found = set()
        for node in ast.walk(tree):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    bare = BARE_FUNCTIONS
                case ast.ClassDef(name=name) | ast.arg(arg=name):
                    bare = BARE
                case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                    bare = BARE
                case _:
                    continue
            if name.strip("_").lower() in bare and not public:
                found.add(name)
        yield from (f"{module}.{name}" for name in sorted(found))


def modules_of_options() -> dict[str, set[str]]:
    """The modules of a scan's way that write an option's name, as a string: lists that are kept by hand."""
    table = ROOT / "netdoctor" / "options.py"
    fields = [
        node.target.id
        for node in ast.walk(ast.parse(table.read_text("utf-8")))
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.value, ast.Call)
        and getattr(node.value.func, "id", "").endswith("option")
    ]
    found: dict[str, set[str]] = {name: {"netdoctor.options"} for name in fields if "_" in name}
    for module, path in modules().items():
        if module.startswith(
            ("netdoctor.scanning", "netdoctor.cli.options", "netdoctor.cli.scan", "netdoctor.runner")
        ):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                text = node.value if isinstance(node, ast.Constant) else None
                name = text.removeprefix("--").replace("-", "_") if isinstance(text, str) else ""
                if name in found:
                    found[name].add(module)
    return found


def folders() -> set[Path]:
    """Every folder of the product and of its tests."""
    return {path.parent for top in (*PRODUCT, "tests") for path in (ROOT / top).rglob("*.py")}


def importers_of_checks() -> list[str]:
    """Who imports a check, though checks are found and not listed: ``importer -> check``."""
    known = modules()
    checks = {f"netdoctor.checks.{path.parent.name}.{path.stem}" for path in check_files()}
    return [
        f"{name} -> {one}"
        for name, path in known.items()
        for one in imports(name, path, known)
        if one in checks
    ]


def main() -> int:
    wrong: list[str] = []

    def held(what: str, value: int, most: int, why: str = "") -> None:
        print(f"{what:<40} {value:>6} of at most {most}{f'   {why}' if why else ''}")
        if value > most:
            wrong.append(what)

    by_room = rooms()
    print("lines: " + ", ".join(f"{room} {lines}" for room, lines in by_room.items()))
    held("lines of the product", sum(by_room.values()), PRODUCT_MOST)
    lengths = {f"{path.parent.name}.{path.stem}": code_lines(path) for path in check_files()}
    longest = max(lengths, key=lambda name: lengths[name])
    print(f"{len(lengths)} checks; lines without docstrings and blanks")
    everything = sum(code_lines(path, imports=False) for path in (ROOT / "checks").rglob("*.py"))
    held("lines a check, helpers counted", round(everything / len(lengths)), CHECK_MEAN)
    held("lines of a check, most", lengths[longest], CHECK_MOST, longest)
    for what, (place, most) in FILES.items():
        held(f"lines of {what}", len((ROOT / place).read_text("utf-8").splitlines()), most)
    listed = touched()
    for kind, most in TOUCHED.items():
        files = listed.get(kind, [])
        held(f"files touched to add a {kind}", len(files) or 99, most, ", ".join(files))
    naming = modules_of_options()
    option = max(naming, key=lambda name: len(naming[name]))
    held("modules that name an option, most", len(naming[option]), OPTION_MODULES, option)
    long = [f"{module}.{name}" for module, name, lines in functions() if lines > FUNCTION_MOST]
    held(f"functions over {FUNCTION_MOST} lines", len(long), 0, ", ".join(long[:3]))
    bare = list(bare_names())
    held("names that are a bare participle or such", len(bare), 0, ", ".join(bare[:3]))
    crowded = {folder: len(list(folder.glob("*.py"))) for folder in folders()}
    fullest = max(crowded, key=lambda folder: crowded[folder])
    held("files in one folder, most", crowded[fullest], FOLDER_MOST, str(fullest.relative_to(ROOT)))
    known = importers_of_checks()
    held("files that import a check", len(known), 0, "; ".join(known[:3]))
    round_trip = circle()
    held("import circles", 1 if round_trip else 0, 0, " -> ".join(round_trip))
    if "--list" in sys.argv[1:]:
        room = sys.argv[2] if len(sys.argv) > 2 else ""
        print("\n".join(name for name in (*long, *bare) if not room or name.split(".")[1] == room))
    if wrong:
        print(f"does not hold: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
