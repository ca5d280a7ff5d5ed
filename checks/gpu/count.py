"""Number and kind of GPUs, against the hosts file and across the cluster."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from netdoctor.check import check
from netdoctor.checks._shared.majority import majority
from netdoctor.checks._shared.parity import differing
from netdoctor.checks._shared.text import listing
from netdoctor.checks.gpu._gpus import given_by_slurm, kept
from netdoctor.facts.accelerators import AcceleratorFacts
from netdoctor.facts.expected import Expectation, Expectations
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.host import Node
from netdoctor.facts.software import EnvFacts
from netdoctor.model import (
    CONFIG,
    DERIVED,
    LIKELY,
    PEERS,
    Action,
    Cause,
    Evidence,
    Finding,
    Fix,
    Status,
    in_job,
    look,
    ok,
    seen,
    skip,
    unknown,
)

FEWER = Cause("gpu-count-fewer", "{nodes} {has} fewer GPUs than expected", action=Action.DRAIN)
OTHER = FEWER.but(title="{nodes} {has} fewer GPUs than other nodes")
MORE = Cause("gpu-count-more", "{nodes} {has} more GPUs than most nodes")
MODEL = Cause("gpu-model", "GPU model differs between {nodes}")
MIXED = Cause("gpu-mixed", "{nodes} {has} GPUs of different models")
SEARCH = look(
    "see which GPU is gone, and why",
    "nvidia-smi -L; lspci -d 10de: -nn; dmesg | grep -E 'NVRM|Xid'",
    root=True,
)


@check(
    after=["ssh.login", "gpu.visible"],
    source="https://pytorch.org/docs/stable/elastic/run.html",
    expects={"gpu.count": int, "gpu.model": str},
)
def gpu_count(
    gpus: Mapping[str, GpuFacts],
    nodes: Mapping[str, Node],
    expect: Expectations | None = None,
    others: Mapping[str, AcceleratorFacts] | None = None,
    envs: Mapping[str, EnvFacts] | None = None,
) -> Iterator[Finding]:
    """Every node has the GPUs that the hosts file lists, and as many as the other nodes.

    Looks at:
        NVML's devices (MIG parents count once), or what AMD's driver offers; what ``--expect`` says,
        ``gpus=`` or ``slots=`` of the hosts file where it is given, in a task of Slurm's what that was given
        (SLURM_GPUS_ON_NODE), else the number that most nodes have; names and memory of the GPUs.

    Matters because:
        With ``--nproc-per-node gpu`` a node that lost a GPU starts fewer ranks without a word; with
        a fixed number a rank ends with "invalid device ordinal". Nodes may differ on purpose, so that fewer
        than on other nodes is a warning; fewer than ``gpus=`` lists, or none at all, stops the job.
        Mixed GPUs run at the pace, and with the memory, of the smallest.

    Fix:
        Repair the GPU, or leave the node out; where fewer GPUs are on purpose, say so with
        ``gpus=`` in the hosts file, and start as many processes as the node has GPUs
        (``--nproc-per-node gpu``).
    """
    others = others or {}
    uncountable = list(_uncountable(gpus, others))
    yield from uncountable
    gpus = {node: gpu for node, gpu in gpus.items() if node not in {found.target for found in uncountable}}
    if not gpus:
        return
    counts = {n: len(gpu.devices) or len(others[n].kfd if n in others else ()) for n, gpu in gpus.items()}
    by_slurm = {n: given_by_slurm(nodes[n], gpu, (envs or {}).get(n)) for n, gpu in gpus.items()}
    shares = {n: number for n, number in by_slurm.items() if number is not None}
    typed = (
        expect.for_values("gpu.count", {node: str(count) for node, count in counts.items()}) if expect else {}
    )
    if not any((*counts.values(), *shares.values(), *(nodes[node].gpus for node in gpus))) and not typed:
        yield skip("no GPU on any node, and none listed")
        return
    expected = _expected_counts(counts, nodes, shares, typed)
    yield from _unlike_expected(counts, expected, gpus)
    yield from _models(gpus, counts, expect)


@dataclass(frozen=True, slots=True)
class _Expected:
    """How many GPUs a node should have. source: who says so, in words; stated: the user or Slurm, and not the
    other nodes; exact: more of them are wrong, too; tie: as many nodes have another number."""

    count: int
    source: str
    stated: bool = False
    exact: bool = True
    tie: bool = False


def _expected_counts(
    counts: Mapping[str, int],
    nodes: Mapping[str, Node],
    shares: Mapping[str, int],
    typed: Mapping[str, Expectation],
) -> dict[str, _Expected]:
    """What --expect says of each node, else the hosts file, else Slurm's share of the job, else most."""
    found = {n: _Expected(share, "Slurm gave the task", True, exact=False) for n, share in shares.items()}
    listed = {node: number for node in counts if (number := nodes[node].gpus) is not None}
    slots = {node: n for node in counts if node not in listed and (n := nodes[node].slots) is not None}
    # slots= are processes per node. They stand for GPUs where some node has that many.
    if any(counts[node] == slot for node, slot in slots.items()):
        listed |= slots
    found |= {n: _Expected(number, "the hosts file lists", True, exact=False) for n, number in listed.items()}
    for node, wish in typed.items():
        number = counts[node] if wish.is_met_by(f"{counts[node]}") else int(wish.number)
        found[node] = _Expected(number, f"{wish.place} expects", True)
    peers = majority({node: count for node, count in counts.items() if node not in found})
    # With as many nodes on either side the smaller are the suspects.
    typical = max(peers.groups) if peers.tie else peers.value
    source = "another node has" if peers.tie else "most nodes have"
    rest = _Expected(typical or 0, source, tie=bool(peers.tie))
    return {node: found.get(node, rest) for node in counts}


def _unlike_expected(
    counts: Mapping[str, int], expected: Mapping[str, _Expected], gpus: Mapping[str, GpuFacts]
) -> Iterator[Finding]:
    ranks = _numbers(counts)
    for node, count in counts.items():
        want = expected[node]
        if count == want.count:
            continue
        about = {"at": node, "observed": str(count), "expected": str(want.count), "seen": _seen(gpus[node])}
        summary = f"{count} GPU{'' if count == 1 else 's'}, {want.source} {want.count}"
        origin = CONFIG if want.stated else PEERS
        if count < want.count and (want.stated or not count):
            yield FEWER.fail(summary, expected_from=origin, fixes=SEARCH, **about)
        elif count < want.count:
            cause = OTHER.but(confidence=LIKELY) if want.tie else OTHER
            summary += f"; torchrun needs --nproc-per-node {count} here"
            yield cause.warn(summary, expected_from=PEERS, fixes=(*ranks, SEARCH), **about)
        elif want.exact:
            yield MORE.warn(summary, expected_from=origin, fixes=ranks, **about)


def _models(
    gpus: Mapping[str, GpuFacts], counts: Mapping[str, int], expect: Expectations | None
) -> Iterator[Finding]:
    models = {
        node: listing(sorted({device.name for device in facts.devices}), 3)
        for node, facts in gpus.items()
        if facts.devices and all(device.name for device in facts.devices)
    }
    yield from differing(
        models,
        "GPU model",
        MODEL,
        key="gpu.model",
        expect=expect,
        status=Status.WARN,
        why="the job runs at the pace and with the memory of the smallest",
        evidence_of=lambda node: _seen(gpus[node]),
    )
    for node, facts in gpus.items():
        names = sorted({device.name for device in facts.devices if device.name})
        if len(names) > 1:
            yield MIXED.warn(
                f"different GPUs in one node: {listing(names)}",
                at=node,
                observed=listing(names),
                expected=DERIVED("one model"),
                seen=_seen(facts),
            )
        if nameless := [f"GPU {d.index}" for d in facts.devices if not d.name and d.error is None]:
            yield unknown(node, f"the model of {listing(nameless, 4)} could not be read")
    if len(set(counts.values())) == 1 and len(set(models.values())) == 1:
        for node, count in counts.items():
            text = f"{count} x {models.get(node, 'GPU')}"
            yield ok(node, text, observed=text)


def _uncountable(gpus: Mapping[str, GpuFacts], others: Mapping[str, AcceleratorFacts]) -> Iterator[Finding]:
    foreign = [n for n, one in gpus.items() if _unknown(one, others.get(n))]
    for node in foreign:
        yield skip("GPUs that are not known here, or that this login may not see, are not counted", node)
    for node, gpu in gpus.items():
        if gpu.nvml == "error" and not gpu.devices and node not in foreign:
            yield unknown(node, f"the GPUs could not be counted: {gpu.nvml_message or 'NVML is silent'}")


def _unknown(gpu: GpuFacts, found: AcceleratorFacts | None) -> bool:
    if kept(gpu) and not gpu.login_job:
        return True
    return bool(found and not gpu.devices and (found.others or found.kfd_hidden))


def _numbers(counts: Mapping[str, int]) -> tuple[Fix, ...]:
    """How torchrun starts as many processes as each node has GPUs; nothing where a node has none."""
    nodes: dict[int, list[str]] = {}
    for node, count in counts.items():
        nodes.setdefault(count, []).append(node)
    if 0 in nodes:
        return ()
    shares = "; ".join(f"{count} on {listing(nodes[count], 4)}" for count in sorted(nodes, reverse=True))
    text = f"if it is on purpose, a process for each GPU: {sum(counts.values())} ranks in all ({shares})"
    return (in_job(text, "torchrun --nproc-per-node gpu ..."),)


def _seen(gpu: GpuFacts) -> Evidence:
    devices = [f"GPU {d.index} {d.name or '?'} at {d.pci_bus_id}" for d in gpu.devices]
    return seen("NVML", listing(devices, 8) or "none")
