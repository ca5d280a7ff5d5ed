"""torch of the job's interpreter, compared across the cluster."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sized
from typing import Any

from netdoctor.check import check
from netdoctor.checks._shared.install import install_torch
from netdoctor.checks._shared.parity import differing, expected_of_lacking
from netdoctor.checks._shared.text import listing, title_text
from netdoctor.facts.expected import Expectations
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.host import Session
from netdoctor.facts.software import Job, SoftwareFacts, no_torch
from netdoctor.model import DERIVED, LIKELY, Cause, Evidence, Finding, Fix, look, seen, skip, unknown
from netdoctor.rules.packages import meets

MISSING = Cause("torch-missing", "{nodes} {has} no torch in the job's interpreter")
# Where no more than half have it: one node's own is no norm.
ELSEWHERE = Cause(
    "torch-missing", "{nodes} {has} no torch in {where}, other nodes have: is this the job's interpreter?"
)
NOT_NAMED = ("python3", "auto")  # what is asked where --python names no interpreter
NAME = look(
    "name the interpreter of the job: --python PATH, or --python auto for one with torch that is found on the"
    " nodes"
)
CPU_BUILD = Cause("torch-cpu-build", "{nodes} {has} GPUs but a torch built without CUDA")
VERSION = Cause("torch-version", "torch differs between {nodes}", verify=("sw.torch", "sw.nccl", "sw.cuda"))


@check(
    after=["sw.start"],
    explains=("sw.nccl", "sw.cuda"),
    source="https://pytorch.org/docs/stable/elastic/run.html",
    expects={"sw.torch": str},
)
def sw_torch(
    nodes: Mapping[str, SoftwareFacts],
    gpus: Mapping[str, GpuFacts] | None,
    expect: Expectations | None = None,
    job: Job | None = None,
    sessions: Mapping[str, Session] | None = None,
) -> Iterator[Finding]:
    """Every node has the same torch, built for the hardware of the node.

    Looks at:
        ``torch/version.py`` of the job's interpreter, without importing torch: version, CUDA or ROCm
        build; and whether the node has NVIDIA GPUs. If more than half of the nodes have no torch, and
        ``--python`` names no interpreter, it is not known whether this is the job's interpreter. If no
        node has torch there, the report names environments with torch (the calling shell's, torchrun's,
        venv, conda, uv, poetry); none of them is run.

    Matters because:
        Ranks with different releases of torch disagree about collectives, object layouts and timeouts,
        and usually bring different NCCLs. A CPU-only build on a GPU node ends with "Torch not compiled
        with CUDA enabled". A scan of the wrong interpreter shows nothing of the job.

    Fix:
        Install the version of most nodes, from the same index, on the nodes that differ. Name the job's
        interpreter: ``--python PATH``, or ``--python auto`` for one with torch that is found on the
        nodes. If the job runs in containers, give netdoctor the interpreter inside them.
    """
    have = {node: software.torch for node, software in nodes.items() if software.torch}
    versions = {node: torch.version for node, torch in have.items()}
    if not have and not any(software.torch_error for software in nodes.values()):
        yield skip("no torch on any node: nothing to compare", gap=no_torch(nodes.values()))
        return

    def evidence(node: str) -> Evidence:
        torch = have[node]
        build = f"cuda {torch.cuda}" if torch.cuda else f"hip {torch.hip}" if torch.hip else "cpu"
        text = f"{torch.version} ({build}) in {nodes[node].executable}"
        return seen(f"{torch.path or 'torch'}/version.py", text, "file")

    def install(node: str, version: str | None) -> Fix:
        return install_torch(nodes[node], version)

    count = Counter(versions.values())
    typical = min(count, key=lambda version: (-count[version], version), default=None)
    for node, software in nodes.items():
        torch, gpu = software.torch, (gpus or {}).get(node)
        for_gpus = torch and (torch.cuda or torch.hip)
        if software.torch_error and not for_gpus:
            yield unknown(node, f"torch could not be read: {software.torch_error}")
        elif torch is None and typical is not None:
            who = f"{listing(have, 3)} {'has' if len(have) == 1 else 'have'}"
            say, first = _of_lacking(software, have, nodes, (sessions or {}).get(node))
            also = f"; here {software.others[0].python} has it (--python auto)" if software.others else ""
            yield say(
                f"no torch in {software.executable}, while {who} it{also}",
                at=node,
                observed="not installed",
                expected=expected_of_lacking(typical, have, nodes),
                seen=seen("torch in the interpreter's search path", listing(software.search_path, 4), "file"),
                fixes=[*first, install(node, typical)],
            )
        elif torch is None:
            yield skip("no torch on this node", node)
        elif gpu is None and not for_gpus:
            yield unknown(node, f"torch {torch.version} is built without CUDA; GPUs could not be searched")
        elif gpu and (gpu.devices or gpu.pci) and not for_gpus:
            yield CPU_BUILD.fail(
                f"torch {torch.version} is built without CUDA, and the node has GPUs",
                at=node,
                observed=torch.version,
                expected=DERIVED("a build with CUDA"),
                seen=evidence(node),
                fixes=install(node, next((torch.version for torch in have.values() if torch.cuda), None)),
            )
    tell, why = len(have) == len(nodes), "ranks would disagree about collectives"
    if job and not expect:  # what it does not ask for is no majority: sw.wanted names it
        versions = {node: version for node, version in versions.items() if meets(job, "torch", version)}
    like: dict[str, Any] = {"key": "sw.torch", "expect": expect, "why": why, "report_equal": tell}
    yield from differing(versions, "torch", VERSION, evidence_of=evidence, fixes=install, **like)


def _of_lacking(
    software: SoftwareFacts, have: Sized, nodes: Sized, session: Session | None
) -> tuple[Callable[..., Finding], tuple[Fix, ...]]:
    """How a node without torch is told of, where `have` of `nodes` have one, and what comes before pip."""
    is_named = session is not None and session.interpreter not in NOT_NAMED
    if is_named or 2 * len(have) > len(nodes):
        return MISSING.fail, ()
    if 2 * len(have) == len(nodes):
        return MISSING.but(confidence=LIKELY).fail, (NAME,)
    title = ELSEWHERE.title.replace("{where}", title_text(software.executable))
    return ELSEWHERE.but(title=title).unknown, (NAME,)
