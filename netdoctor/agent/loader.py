"""First code of the bundle that runs on a node: makes the other modules importable as `ndagent`, runs main.

Executed by the bootstrap with `BUNDLE` in its globals. Modules are compiled when they are first imported,
so a request pays only for what it uses.
"""

import sys
from importlib.machinery import ModuleSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

PACKAGE = "ndagent"


class BundleImporter(object):
    """Finds `ndagent` and `ndagent.NAME` among source texts.

    Of no class of importlib.abc: importing that alone costs a node a fifth of what the rest does.
    """

    def __init__(self, sources: "dict[str, str]") -> None:
        self._sources = sources

    def find_spec(self, fullname: str, path: "Any" = None, target: "Any" = None) -> "ModuleSpec | None":
        me = self  # type: Any
        if fullname == PACKAGE:
            return ModuleSpec(fullname, me, origin="<bundle>", is_package=True)
        package, _, name = fullname.rpartition(".")
        if package == PACKAGE and name in self._sources:
            return ModuleSpec(fullname, me, origin="<bundle>/" + name + ".py")
        return None

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: "ModuleType") -> None:
        name = module.__name__.rpartition(".")[2]
        if module.__name__ != PACKAGE:
            code = compile(self._sources[name], "<bundle>/" + name + ".py", "exec")
            exec(code, module.__dict__)


def start(bundle: "dict[str, Any]") -> None:
    """Install the importer and hand over to main."""
    sys.dont_write_bytecode = True
    sys.meta_path.insert(0, BundleImporter(bundle["modules"]))
    main = __import__(PACKAGE + ".main", fromlist=["main"])
    main.main(bundle)


if "BUNDLE" in globals():
    start(globals()["BUNDLE"])
