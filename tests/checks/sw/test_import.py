"""What a failed import says."""

from netdoctor.checks.sw.import_ import sw_import
from netdoctor.facts.software import Import, Imports
from netdoctor.model import Status

from ..build import causes
from ..build_hw import imports

LINES = {
    "ImportError: /lib/libc.so.6: version `GLIBC_2.34' not found (required by /x/_C.so)": "glibc",
    "ImportError: /x/libtorch_cuda.so: undefined symbol: ncclCommRegister": "symbol",
    "ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory": "library",
    "ModuleNotFoundError: No module named 'typing_extensions'": "module",
    "ImportError: numpy.core.multiarray failed to import": "numpy",
    "OSError: /x/libtorch.so: failed to map segment from shared object": "map",
    "ValueError: x": "failed",
}


def test_each_failure_has_its_cause() -> None:
    for line, key in LINES.items():
        assert list(causes(sw_import(imports(line)))) == [f"import-{key}-package"], line
        (finding,) = sw_import(Imports(imports=(Import(name="torch", error=line),)))
        assert finding.cause
        assert (finding.status, finding.cause.key) == (Status.FAIL, f"import-{key}-torch")


def test_a_crash_says_how_the_process_ended() -> None:
    (finding,) = sw_import(imports("its process ended with status -11", status=-11))
    assert "segmentation fault" in finding.summary
    assert finding.cause
    assert finding.cause.key == "import-ends-package"
    (finding,) = sw_import(imports("its process ended with status 3", status=3))
    assert "its process ends" in finding.summary


def test_what_imports_passes_with_its_version() -> None:
    (finding,) = sw_import(imports())
    assert (finding.status, finding.summary) == (Status.PASS, "torch 2.6.0 imports in 2.0 s")
