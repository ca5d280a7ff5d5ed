"""What the job will use: an env file and the calling environment, as the Job fact."""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from netdoctor.errors import InputError
from netdoctor.facts.software import Job
from netdoctor.text import clean

# Variables of the calling shell that a launcher would hand on; everything else stays private.
CARRIED = re.compile(r"^(NCCL_\w+|GLOO_\w+|TP_SOCKET_IFNAME|MASTER_ADDR|MASTER_PORT)$")
_LINE = re.compile(r"^\s*(?:export\s+)?([A-Za-z_]\w*)=(.*)$")
_HOST = re.compile(r"^[A-Za-z0-9_.:%-]{1,255}$")
MAX_BYTES = 1024 * 1024


def read_env_file(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """(values, origins) of an env file: `NAME=value` or `export NAME=value` lines, `#` comments, shell quotes.

    Origins read ``train.env:4``. Raises InputError that lists every line that is neither.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"--env-file {path}: {error.strerror or error}") from None
    if len(data) > MAX_BYTES:
        raise InputError(f"--env-file {path}: larger than {MAX_BYTES} bytes; is this an env file?")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"--env-file {path}: byte {error.start} is not UTF-8") from None
    values: dict[str, str] = {}
    origins: dict[str, str] = {}
    problems = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.match(line)
        try:
            words = shlex.split(match.group(2), comments=True) if match else []
        except ValueError as error:
            problems.append(f"{path}:{number}: {clean(line, 80)!r}: {error} (write: NAME=value)")
            continue
        if match is None or len(words) > 1 or "\0" in line:
            problems.append(f"{path}:{number}: {clean(line, 80)!r}: not NAME=value (write: NAME=value)")
            continue
        values[match.group(1)] = words[0] if words else ""
        origins[match.group(1)] = f"{path.name}:{number}"
    if problems:
        raise InputError("\n".join(problems[:20]))
    return values, origins


def job(
    *,
    env_file: Path | None,
    environ: Mapping[str, str],
    master_port: int | None,
    packages: Sequence[str],
    nodes: Sequence[str],
) -> Job:
    """The Job fact. The env file wins over the calling environment, a flag over both.

    Raises InputError for an unusable env file, port or master address.
    """
    env = {name: value for name, value in environ.items() if CARRIED.match(name)}
    origins = dict.fromkeys(env, "calling environment")
    if env_file is not None:
        values, places = read_env_file(env_file)
        env |= values
        origins |= places
    port = master_port
    if port is None:
        text = env.get("MASTER_PORT", "").strip() or "29500"
        if not text.isdecimal() or not 0 < int(text) < 65536:
            where = origins.get("MASTER_PORT", "")
            raise InputError(f"MASTER_PORT={clean(text, 40)} ({where}): not a port (write 1 to 65535)")
        port = int(text)
    address = env.get("MASTER_ADDR", "").strip() or None
    if address is not None and (not _HOST.match(address) or address.startswith("-")):
        where = origins.get("MASTER_ADDR", "")
        raise InputError(f"MASTER_ADDR={clean(address, 80)} ({where}): not a host name or address")
    return Job(
        env=env,
        env_from=origins,
        master_addr=address,
        master_port=port,
        master_node=nodes[0] if nodes else None,
        packages=tuple(packages),
    )
