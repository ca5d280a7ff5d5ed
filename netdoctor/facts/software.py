"""Facts about the interpreter that the job will use, read without importing torch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from netdoctor.facts.base import fact

Launcher = Literal["torchrun", "srun", "mpirun", "deepspeed", "pdsh", "ray", "accelerate"]
Backend = Literal["nccl", "gloo"]
LAUNCHERS: tuple[str, ...] = get_args(Launcher)
BACKENDS: tuple[str, ...] = get_args(Backend)
# Of the job's environment, what only says where to look for a Python.
PYTHON_PLACES = ("VIRTUAL_ENV", "CONDA_PREFIX")
BY_HAND = "--packages"  # of Requested.origin: said on the command line
CALLING = "calling environment"  # of Job.env_from: what netdoctor was called with, as a launcher would be

TASKS = "the job's tasks"  # of Job.env_from: what those had that wrote facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Torch:
    """torch/version.py and its metadata."""

    version: str
    cuda: str | None = None  # cuda, hip: None in a build without them
    hip: str | None = None
    path: str = ""
    # The Pythons that its extension was built for, where that of this interpreter is not among them:
    # ``cpython-310``.
    built_for: tuple[str, ...] = ()
    # The GPUs that it has code for, ``sm_90`` and ``compute_90``; empty where its library does not say.
    archs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Nccl:
    """A libnccl that torch would load."""

    version: str | None
    origin: str  # ``wheel``, ``torch-bundled``, ``LD_PRELOAD``, ``LD_LIBRARY_PATH``, ``system``
    path: str
    # The CUDA that it was built with, ``12`` or ``12.4``, None where neither wheel nor library say it.
    cuda: str | None = None

    @property
    def is_torchs_own(self) -> bool:
        """It came with torch, which was built with it."""
        return self.origin in ("wheel", "torch-bundled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """Another Python of a node, whose environment has torch."""

    python: str
    origin: str  # how it was found
    torch: str  # its version
    # Who beside root and the login's user could change what it runs; empty for nobody.
    distrust: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmet:
    """A requirement in the metadata of a distribution that is not plainly met."""

    # of, version: whose.
    of: str
    version: str
    requires: str  # as it stands there, with its marker
    installed: str | None = None  # the version that is there, None for none
    extras: tuple[str, ...] = ()  # those that were asked for of which it is a requirement


@dataclass(frozen=True, slots=True, kw_only=True)
class Shadow:
    """A library that LD_PRELOAD or LD_LIBRARY_PATH put in front of what torch or the driver brought."""

    name: str  # ``libcuda.so.1``
    path: str
    origin: str
    version: str | None = None  # as the file's own name has it, None without one


@fact("python_start")
@dataclass(frozen=True, slots=True, kw_only=True)
class PythonStart:
    """How the job's interpreter starts: with its `site` and the job's variables, up to the first program."""

    executable: str
    starts: bool
    code: int | None = None  # exit status, negative for a signal; None where it did not end in time
    said: str = ""  # the last line that it printed, where it does not start
    seconds: float = 0.0  # how long it took, or was waited for
    # The same without `site` and variables, where it did not end in time; None where that did not, either.
    bare_s: float | None = None

    def missing_field(self) -> str:
        return "" if self.executable else "the interpreter"


@fact("software")
@dataclass(frozen=True, slots=True, kw_only=True)
class SoftwareFacts:
    """The job's interpreter."""

    executable: str
    version: str
    implementation: str = "CPython"
    prefix: str = ""
    is_venv: bool = False
    # It is its distribution's own, and pip installs nothing into it unless told to.
    externally_managed: bool = False
    torch: Torch | None = None
    torch_error: str | None = None
    nccl: tuple[Nccl, ...] = ()  # every libnccl found, the one that the loader would take first
    # nvidia-cuda-runtime and friends by distribution name.
    cuda_packages: dict[str, str] = field(default_factory=dict)
    # Asked-for distributions, None where absent, empty where the version of one that is there could not be
    # read.
    packages: dict[str, str | None] = field(default_factory=dict)
    search_path: tuple[str, ...] = ()  # where distributions were looked for
    # Interpreters that have torch: where this one has none all that are found, else those that the calling
    # shell, the session or torchrun on its PATH name.
    others: tuple[Interpreter, ...] = ()
    # Of torch and the packages that were asked for; None where no metadata were read, as in reports of
    # earlier releases.
    unmet: tuple[Unmet, ...] | None = None
    shadows: tuple[Shadow, ...] = ()  # the first of each library

    def missing_field(self) -> str:
        return "" if self.version else "the version of Python"


def no_torch(asked: Iterable[SoftwareFacts]) -> str:
    """Why nothing of the job's torch was seen where none of these interpreters has it, and what helps."""
    asked = list(asked)
    pythons = {software.executable for software in asked}
    said = f"no torch in {pythons.pop() if len(pythons) == 1 else 'the interpreters that were asked'}"
    having = [[other.python for other in software.others] for software in asked]
    nodes = sum(1 for paths in having if paths)
    shared = in_all(having)
    if shared is not None:
        return f"{said}; --python {shared} has it"
    if nodes:
        return f"{said}; --python auto finds one on {nodes} of {len(asked)} nodes"
    return f"{said}; --python names the job's"


def in_all(having: Sequence[Sequence[str]]) -> str | None:
    """The first path that all of these lists have; None where there is none."""
    return (
        next((path for path in having[0] if all(path in paths for paths in having)), None) if having else None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """A distribution whose modules were imported, in `seconds`."""

    name: str
    modules: tuple[str, ...] = ()
    version: str = ""  # as the module has it
    error: str = ""  # the last line of what it raised, empty where it went well
    seconds: float = 0.0
    status: int | None = None  # of the process, where that ended at it


@fact("imports", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class Imports:
    """What the job's interpreter imported, in this order; after a crash that of which it ended alone."""

    imports: tuple[Import, ...] = ()


@fact("nccl_answer", absent=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class NcclAnswer:
    """What the job's own libnccl chose on a node, or why nothing (ncclGetUniqueId, src/init.cc)."""

    library: str
    version: str
    address: str | None = None  # of its bootstrap; with NCCL_COMM_ID it is that one's instead
    zone: str | None = None  # interface of a link-local address
    error: str | None = None  # NCCL's own words (ncclGetLastError) where it gave up


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfFile:
    """/etc/nccl.conf, ~/.nccl.conf or NCCL_CONF_FILE as NCCL reads it (no trimming, `#` only in column 0)."""

    path: str
    # ``named`` (by NCCL_CONF_FILE), ``home``, ``home-variable`` and ``home-passwd`` where $HOME and the
    # passwd entry differ, ``system``; empty in older reports. Which of them count depends on the release.
    place: str = ""
    values: dict[str, str] = field(default_factory=dict)
    error: str | None = None


@fact("env")
@dataclass(frozen=True, slots=True, kw_only=True)
class EnvFacts:
    """Environment of the login session, by allow-list, and NCCL's configuration files in reading order."""

    variables: dict[str, str] = field(default_factory=dict)
    nccl_conf: tuple[ConfFile, ...] = ()

    def missing_field(self) -> str:
        # A session without PATH starts nothing.
        return "" if self.variables else "any variable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
    """A distribution that the job asks for."""

    name: str
    specifier: str = ""  # of PEP 440, ``>=0.8,<1``
    marker: str = ""  # of PEP 508, which nodes it is meant for; both empty where none is given
    origin: str = BY_HAND  # BY_HAND or ``reqs.txt:4``
    only_if_there: bool = False  # a constraint, which asks for nothing that is not installed
    extras: tuple[str, ...] = ()  # ``vllm[ray]``


@fact("job", scope="cluster", origin="control")
@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the user says the job will use."""

    # From --env-file and NCCL_*/GLOO_*/MASTER_* of the calling environment.
    env: dict[str, str] = field(default_factory=dict)
    env_from: dict[str, str] = field(default_factory=dict)  # ``train.env:4`` or CALLING per variable
    master_addr: str | None = None
    master_port: int = 29500
    master_node: str | None = None  # node id that owns master_addr by default, the first
    packages: tuple[str, ...] = ()  # names to look for
    requested: tuple[Requested, ...] = ()  # which versions of them, and where; a name alone is to be equal
    backend: str | None = None
    # launcher, backend: one of LAUNCHERS and BACKENDS, None where that is not known.
    launcher: str | None = None
    image: str | None = None  # the container image that the job runs in, as docker names it
    # The address of each node that peers are expected to dial, by node id.
    data_addresses: dict[str, str] = field(default_factory=dict)
    # Soft limits of the session that netdoctor runs in, for comparison with a step: memlock in bytes,
    # nofile; None stands for unlimited.
    session_limits: dict[str, int | None] = field(default_factory=dict)
    reach: tuple[str, ...] = ()  # URLs that every node is to reach
    write_test: tuple[str, ...] = ()  # folders that all nodes should share and write to
    rate_test: str = ""  # a folder or file whose file system is put under load
    groups: str = ""  # how the job divides its ranks, ``tp=8,pp=2``
    paths: tuple[str, ...] = ()  # of code, data and models on the nodes, absolute or below ``~``
