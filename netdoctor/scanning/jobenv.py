"""What the job will use: an env file and the calling environment, as the Job fact."""

import re
import resource
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from netdoctor.agent.system.private import is_secret, masked_variable
from netdoctor.errors import InputError
from netdoctor.facts.software import BACKENDS, CALLING, LAUNCHERS, TASKS, Job
from netdoctor.files import read_regular, reason
from netdoctor.options import OPTIONS, ScanRequest
from netdoctor.rules.packages import MOST
from netdoctor.scanning.packages import Requirements
from netdoctor.text import clean

# Variables of the calling shell that a launcher would hand on; everything else stays private. NCCL_VERSION is
# no setting: NVIDIA's images say in it what they have.
CARRIED = re.compile(
    r"^((?!NCCL_VERSION$)NCCL_\w+|GLOO_\w+|TP_SOCKET_IFNAME|MASTER_ADDR|MASTER_PORT|VIRTUAL_ENV|CONDA_PREFIX|TMPDIR)$"
)
# What of an env file goes into the report: names that checks read. Such files hold tokens, too.
REPORTED = re.compile(
    r"(NCCL|GLOO|UCX|FI|PET|MASTER|CUDA|CUBLAS|CUDNN|HF|OMP|MKL|KMP|TRITON|PYTORCH)_\w+|TORCH\w*|PYTHON\w+"
    r"|TP_SOCKET_IFNAME"
    r"|(LOCAL_|GROUP_|ROLE_|NODE_)?RANK|(LOCAL_|GROUP_|ROLE_)?WORLD_SIZE|NNODES"
    r"|NVIDIA_(VISIBLE_DEVICES|DRIVER_CAPABILITIES)"
    r"|(?i:(https?|all|no)_proxy)|(REQUESTS|CURL)_CA_BUNDLE|SSL_CERT_(FILE|DIR)"
    r"|TMPDIR|XDG_CACHE_HOME|LD_LIBRARY_PATH|LD_PRELOAD|VIRTUAL_ENV|CONDA_PREFIX"
)
IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,300}")
_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)=(.*)", re.DOTALL)
_HOST = re.compile(r"^[A-Za-z0-9_.:%-]{1,255}$")
MAX_BYTES = 1024 * 1024


def read_env_file(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """(values, origins) of an env file: `NAME=value` or `export NAME=value` lines, comments, shell quotes.

    Only names that checks read are kept, without what is secret: the job's tokens are none of our business.
    Origins read ``train.env:4``. Raises InputError that lists every line that is neither.
    """
    try:
        data = read_regular(path, MAX_BYTES)
    except OSError as error:
        raise InputError(f"--env-file {path}: {reason(error)}") from None
    if len(data) > MAX_BYTES:
        raise InputError(f"--env-file {path}: larger than {MAX_BYTES} bytes; is this an env file?")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"--env-file {path}: byte {error.start} is not UTF-8") from None
    values: dict[str, str] = {}
    origins: dict[str, str] = {}
    problems = []
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        # Not the line itself: what is no assignment may be a token on a line of its own.
        name = match.group(1) if match else ""
        where = f"{path}:{number}: {clean(name, 80) + ': ' if name else ''}"
        try:
            value = _value(match.group(2)) if match and "\0" not in line else None
        except ValueError as error:
            problems.append(f"{where}{str(error).lower()} (write: NAME=value)")
            continue
        if match is None or value is None:
            problems.append(f"{where}not NAME=value (write: NAME=value)")
            continue
        if not REPORTED.fullmatch(name) or is_secret(name):
            continue
        values[name] = masked_variable(name, value)
        origins[match.group(1)] = f"{path.name}:{number}"
    if problems:
        raise InputError("\n".join(problems[:20]))
    return values, origins


def _value(text: str) -> str | None:
    """What a shell would assign, or None when more words follow. ValueError: a quote that stays open."""
    text = _without_comment(text)
    if not text.strip():
        return ""
    if text[0].isspace():
        return None  # NAME= value runs `value` with an empty NAME
    words = shlex.split(text)
    return words[0] if len(words) == 1 else None


def _without_comment(text: str) -> str:
    """`text` up to a # that begins a word outside quotes (shlex cuts inside words, too)."""
    quote, before = "", "="
    skip = False
    for at, char in enumerate(text):
        if skip:
            skip, before = False, "\\"  # an escaped space ends no word
            continue
        if char == "\\" and quote != "'":
            skip = True
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "#" and before.isspace():
            return text[:at]
        before = char
    return text


def checked(known: Job) -> Job:
    """The job of a saved report, which is anybody's file, held to the rules for one of our own.

    Raises InputError.
    """
    for name, value in known.env.items():
        if not (REPORTED.fullmatch(name) or CARRIED.fullmatch(name)) or "\0" in value:
            raise InputError(f"the report's job cannot be used: variable {clean(name, 60)!r}")
    _check_address(known.master_addr, "in the report")
    if known.launcher not in (None, *LAUNCHERS) or known.backend not in (None, *BACKENDS):
        raise InputError("the report's job cannot be used: its launcher or backend is none that is known")
    if any(max(len(w.specifier), len(w.marker), len("".join(w.extras))) > MOST for w in known.requested):
        raise InputError("the report's job cannot be used: it asks for versions that nobody would write")
    options: dict[str, object] = {"path": known.paths, "write_test": known.write_test, "reach": known.reach}
    options |= {name: text for name in ("rate_test", "groups") if (text := getattr(known, name))}
    for name, values in options.items():
        try:
            OPTIONS[name].from_report(values)
        except InputError as error:
            raise InputError(f"the report's job cannot be used: {OPTIONS[name].flag}: {error}") from None
    _image(known.image)
    if not 0 < known.master_port < 65536:
        raise InputError(f"the report's job cannot be used: port {known.master_port}")
    return known


def _check_address(address: str | None, where: str) -> None:
    if address is not None and (not _HOST.fullmatch(address) or address.startswith("-")):
        raise InputError(f"MASTER_ADDR={clean(address, 80)} ({where}): not a host name or address")


def _image(name: str | None) -> str | None:
    if name is not None and not IMAGE.fullmatch(name):
        raise InputError(f"--image {clean(name, 80)!r}: no image (write: nvcr.io/nvidia/pytorch:25.03)")
    return name


def job(
    request: ScanRequest,
    nodes: Sequence[str],
    packages_asked: Requirements | None = None,
    tasks: Mapping[str, str] = MappingProxyType({}),
) -> Job:
    """The Job fact. What tasks that wrote facts say (MASTER_ADDR, MASTER_PORT) wins over the calling
    environment, the env file over both, a flag over all.

    packages_asked: those of the request. The launcher is torchrun where nothing else is said and variables
    say how that is to run (PET_NNODES and the like).

    Raises InputError for an unusable env file, port or master address.
    """
    environ, packages = request.environ, packages_asked or Requirements()
    carried = (name for name in environ if CARRIED.match(name) and not is_secret(name))
    env = {name: masked_variable(name, environ[name]) for name in carried}
    origins = dict.fromkeys(env, CALLING) | dict.fromkeys(tasks, TASKS)
    env |= tasks
    if request.env_file is not None:
        values, file_origins = read_env_file(request.env_file)
        env |= values
        origins |= file_origins
    port = request.master_port
    if port is None:
        text = env.get("MASTER_PORT", "").strip() or "29500"
        if not text.isdecimal() or not 0 < int(text) < 65536:
            where = origins.get("MASTER_PORT", "")
            raise InputError(f"MASTER_PORT={clean(text, 40)} ({where}): not a port (write 1 to 65535)")
        port = int(text)
    address = env.get("MASTER_ADDR", "").strip() or None
    _check_address(address, origins.get("MASTER_ADDR", ""))
    torchrun = any(name.startswith("PET_") for name in [*env, *environ])
    return Job(
        env=env,
        env_from=origins,
        master_addr=address,
        master_port=port,
        master_node=nodes[0] if nodes else None,
        packages=packages.packages,
        requested=tuple(packages.requested),
        launcher=request.launcher or ("torchrun" if torchrun else None),
        backend=request.backend,
        image=_image(request.image),
        paths=request.path,
        reach=request.reach,
        write_test=request.write_test,
        rate_test=request.rate_test or "",
        groups=request.groups or "",
    )


def environ_remarks(tasks: Mapping[str, str], environ: Mapping[str, str]) -> list[str]:
    """What the calling environment has otherwise than the tasks whose job is judged."""
    other = [name for name, value in tasks.items() if environ.get(name, value) != value]
    return [
        f"{name} is {clean(tasks[name], 80)}, as the tasks have it; {clean(environ[name], 80)} of this shell "
        "is not taken (--env-file would be)"
        for name in other
    ]


def session_limits() -> dict[str, int | None]:
    """The soft limits of this session, as of Job."""
    numbers = {"memlock": resource.RLIMIT_MEMLOCK, "nofile": resource.RLIMIT_NOFILE}
    softs = {name: resource.getrlimit(number)[0] for name, number in numbers.items()}
    return {name: None if soft == resource.RLIM_INFINITY else soft for name, soft in softs.items()}
