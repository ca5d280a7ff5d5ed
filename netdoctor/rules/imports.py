"""What the last line of a failed import says: patterns with a real line each, and what helps."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Failure:
    """How a failed import ends."""

    pattern: str  # found in the last line
    key: str  # of the cause
    words: str  # what is wrong, for people
    helps: str  # what to do


FAILURES = (
    # ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by …/_C.abi3.so)
    Failure(
        r"version [`'](GLIBC|GLIBCXX|CXXABI)_[\d.]+' not found",
        "import-glibc",
        "the system's C or C++ library is older than the wheel needs",
        "take a wheel for an older manylinux, or a container with a newer distribution",
    ),
    # ImportError: …/libtorch_cuda.so: undefined symbol: ncclCommRegister
    Failure(
        r"undefined symbol",
        "import-symbol",
        "a library is another release than the one that it was built with",
        "see sw.libraries and sw.nccl; install the packages again that belong together, in one pip command",
    ),
    # ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory
    Failure(
        r"\blib[\w+-]+\.so[\d.]*: cannot open shared object file",
        "import-library",
        "a library is missing",
        "install the package that brings it; of NVIDIA's, the wheel that torch requires",
    ),
    # ModuleNotFoundError: No module named 'typing_extensions'
    Failure(
        r"No module named",
        "import-module",
        "a module is missing",
        "install it, or name the job's own interpreter (--python)",
    ),
    # ImportError: numpy.core.multiarray failed to import
    Failure(
        r"numpy\.core\.multiarray failed|numpy\.dtype size changed",
        "import-numpy",
        "it was built for another numpy",
        "install numpy below 2, or a newer build",
    ),
    # ImportError: …: failed to map segment from shared object
    Failure(
        r"failed to map segment",
        "import-map",
        "its library cannot be mapped: a file system mounted noexec, or too little memory",
        "look at the mount's options, and at the limit on address space",
    ),
)
OTHER = Failure("", "import-failed", "it raises", "run it on the node, and read the whole trace")
# Of a process that ended at an import: negative numbers are signals.
SIGNALS = {
    -4: "illegal instruction: its code is for a newer processor",
    -6: "it aborted",
    -7: "bus error: a file on a file system that is full, or was cut short",
    -9: "killed: too little memory, or a limit of the session",
    -11: "segmentation fault: libraries that do not fit each other",
}


def failure(error: str) -> Failure:
    """The first that fits the line."""
    return next((one for one in FAILURES if re.search(one.pattern, error)), OTHER)
