"""`netdoctor explain log --ras HOST[:PORT]`: NCCL's RAS asked while a job hangs, over SSH."""

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import replace

from netdoctor.errors import InputError
from netdoctor.text import clean

PORT = 28028
# NCCL waits for its processes twice as long as it is told, and we for NCCL a little longer.
WAIT_S, ANSWER_S = 5, 25.0


def ask_ras(endpoints: Sequence[str], args: argparse.Namespace) -> dict[str, str]:
    """What RAS said, by the name that it is quoted under. Raises InputError where no node answers."""
    from netdoctor.scanning import ScanRequest
    from netdoctor.scanning.asking import ask

    found: dict[str, str] = {}
    failures: list[str] = []
    for endpoint in endpoints:
        host, port = split_endpoint(endpoint)
        request = ScanRequest(hosts=(host,), save=None)
        for name in ("ssh_config", "known_hosts"):
            if getattr(args, name) is not None:
                request = replace(request, **{name: getattr(args, name)})
        question = {"port": port, "wait_s": WAIT_S, "timeout_s": ANSWER_S - 2}
        for reply in ask(request, "ras", question, ANSWER_S):
            result = reply.result if isinstance(reply.result, dict) else {}
            text, error = result.get("text"), result.get("error")
            if reply.missing is not None:
                failures.append(f"{reply.node}: {reply.missing.detail}")
            elif isinstance(text, str) and text:
                found[f"RAS of {clean(reply.node, 80)}"] = text
                if result.get("cut"):
                    failures.append(f"{reply.node}: the answer is not whole: {result['cut']}")
            else:
                failures.append(f"{reply.node}: port {port}: {_meaning(str(error or 'no answer'))}")
    if not found:
        raise InputError("explain log: --ras: " + clean("; ".join(failures), 600))
    for one in failures:
        sys.stderr.write(f"netdoctor explain: --ras: {clean(one, 300)}\n")
    return found


def split_endpoint(endpoint: str) -> tuple[str, int]:
    """Host and port of ``node3``, ``node3:28029``, ``[fd00::1]:28029``. Raises InputError."""
    match = re.fullmatch(r"(\[[^\[\]]+\]|[^:]+|[0-9a-fA-F:]*::[0-9a-fA-F:]*)(?::(\d{1,5}))?", endpoint)
    port = int(match[2] or PORT) if match else 0
    if match is None or not 0 < port < 65536:
        raise InputError(
            f"explain log: --ras {clean(endpoint, 80)!r} is no HOST or HOST:PORT, such as gpu03:28028"
        )
    return match[1].strip("[]"), port


def _meaning(error: str) -> str:
    if error == "ECONNREFUSED":
        return "nobody listens: no job with NCCL 2.24 or newer, NCCL_RAS_ENABLE=0, or another NCCL_RAS_ADDR"
    return error
