"""Number and kind of GPUs, against the hosts file and across the cluster."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from netdoctor.check import check
from netdoctor.checks._shared.majority import majority
from netdoctor.checks._shared.parity import differing
from netdoctor.checks._shared.text import listing
from netdoctor.checks.gpu._gpus import given_by_slurm, withheld
from netdoctor.facts.accelerators import AcceleratorFacts
from netdoctor.facts.expected import Expectation, Expectations
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.host import Node
from netdoctor.facts.software import EnvFacts
from netdoctor.model import (
    CERTAIN,
    CONFIG,
    DERIVED,
    PEERS,
    Action,
    Cause,
    Confidence,
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
    "see which GPU is missing, and why",
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
        NVML's devices (MIG parents count once), or the GPUs that AMD's driver offers. Expected is
        ``--expect``, else ``gpus=`` or ``slots=`` of the hosts file, in a Slurm task the number that
        Slurm gave it (SLURM_GPUS_ON_NODE), else the number that most nodes have. Also names and memory of
        the GPUs.

    Matters because:
        With ``--nproc-per-node gpu`` a node that lost a GPU starts fewer ranks without any message. With
        a fixed number a rank ends with "invalid device ordinal". Nodes may differ on purpose, so fewer
        GPUs than on other nodes is a warning. Fewer than ``gpus=`` says, or none, stops the job. Mixed
        GPUs run at the speed, and with the memory, of the smallest.

    Fix:
        Repair the GPU, or leave the node out. If fewer GPUs are on purpose, write ``gpus=`` in the hosts
        file, and start as many processes as the node has GPUs (``--nproc-per-node gpu``).
    """
    others = others or {}
    uncountable = {finding.target: finding for finding in _uncountable(gpus, others)}
    yield from uncountable.values()
    gpus = {node: gpu for node, gpu in gpus.items() if node not in uncountable}
    counts = {n: len(gpu.devices) or len(others[n].kfd if n in others else ()) for n, gpu in gpus.items()}
    shares = {n: given_by_slurm(nodes[n], gpu, (envs or {}).get(n)) for n, gpu in gpus.items()}
    values = {node: str(count) for node, count in counts.items()}
    expectations = expect.for_values("gpu.count", values) if expect else {}
    listed = [nodes[node].gpus for node in gpus]
    if gpus and not (expectations or any((*counts.values(), *shares.values(), *listed))):
        yield skip("no GPU on any node, and none listed")
    elif gpus:
        yield from _unlike_expected(counts, _expected_counts(counts, nodes, shares, expectations), gpus)
        yield from _models(gpus, counts, expect)


class _Expected(NamedTuple):
    """How many GPUs a node should have."""

    number: int
    source: str  # who says so, in words
    stated: bool = False  # by the user or Slurm, and not by the other nodes
    exact: bool = True  # whether more of them are wrong, too
    confidence: Confidence = CERTAIN  # that the node with fewer is the one at fault


def _expected_counts(
    counts: Mapping[str, int],
    nodes: Mapping[str, Node],
    shares: Mapping[str, int | None],
    expectations: Mapping[str, Expectation],
) -> dict[str, _Expected]:
    """What --expect says of each node, else the hosts file, else Slurm's share of the job, else most."""
    listed = {node: number for node in counts if (number := nodes[node].gpus) is not None}
    slots = {node: n for node in counts if node not in listed and (n := nodes[node].slots) is not None}
    # slots= are processes per node. They stand for GPUs where some node has that many.
    if any(counts[node] == slot for node, slot in slots.items()):
        listed |= slots
    found = {n: _Expected(x, "Slurm gave the task", True, False) for n, x in shares.items() if x is not None}
    found |= {n: _Expected(number, "the hosts file lists", True, False) for n, number in listed.items()}
    for node, expectation in expectations.items():
        number = counts[node] if expectation.is_met_by(f"{counts[node]}") else int(expectation.number)
        found[node] = _Expected(number, f"{expectation.place} expects", True)
    peers = majority({node: count for node, count in counts.items() if node not in found})
    # Without a majority the smaller are the suspects.
    typical = max(peers.groups) if peers.is_split else peers.value
    source = "another node has" if peers.is_split else "most nodes have"
    rest = _Expected(typical or 0, source, confidence=peers.confidence)
    return {node: found.get(node, rest) for node in counts}


def _unlike_expected(
    counts: Mapping[str, int], expected: Mapping[str, _Expected], gpus: Mapping[str, GpuFacts]
) -> Iterator[Finding]:
    ranks = _numbers(counts)
    fixes: tuple[Fix, ...]
    for node, count in counts.items():
        want = expected[node]
        summary = f"{count} GPU{'' if count == 1 else 's'}, {want.source} {want.number}"
        if count < want.number and (want.stated or not count):
            say, fixes = FEWER.but(confidence=want.confidence).fail, (SEARCH,)
        elif count < want.number:
            say, fixes = OTHER.but(confidence=want.confidence).warn, (*ranks, SEARCH)
            summary += f"; torchrun needs --nproc-per-node {count} here"
        elif count > want.number and want.exact:
            say, fixes = MORE.warn, ranks
        else:
            continue
        number = (CONFIG if want.stated else PEERS)(str(want.number))
        evidence = _evidence(gpus[node])
        yield say(summary, at=node, observed=str(count), expected=number, seen=evidence, fixes=fixes)


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
        why="the job runs at the speed and with the memory of the smallest",
        evidence_of=lambda node: _evidence(gpus[node]),
    )
    for node, facts in gpus.items():
        names = sorted({device.name for device in facts.devices if device.name})
        if len(names) > 1:
            yield MIXED.warn(
                f"different GPUs in one node: {listing(names)}",
                at=node,
                observed=listing(names),
                expected=DERIVED("one model"),
                seen=_evidence(facts),
            )
        if nameless := [f"GPU {d.index}" for d in facts.devices if not d.name and d.error is None]:
            yield unknown(node, f"the model of {listing(nameless, 4)} could not be read")
    if len(set(counts.values())) == 1 and len(set(models.values())) == 1:
        for node, count in counts.items():
            text = f"{count} x {models.get(node, 'GPU')}"
            yield ok(node, text, observed=text)


def _uncountable(gpus: Mapping[str, GpuFacts], others: Mapping[str, AcceleratorFacts]) -> Iterator[Finding]:
    for node, gpu in gpus.items():
        found = others.get(node)
        if (withheld(gpu) and not gpu.login_job) or (
            found and not gpu.devices and (found.others or found.kfd_hidden)
        ):
            yield skip("unknown GPUs, and GPUs that this login cannot see, are not counted", node)
        elif gpu.nvml == "error" and not gpu.devices:
            yield unknown(
                node, f"the GPUs could not be counted: {gpu.nvml_message or 'NVML gives no answer'}"
            )


def _numbers(counts: Mapping[str, int]) -> tuple[Fix, ...]:
    """How torchrun starts as many processes as each node has GPUs; nothing where a node has none."""
    nodes: dict[int, list[str]] = {}
    for node, count in counts.items():
        nodes.setdefault(count, []).append(node)
    if 0 in nodes:
        return ()
    shares = "; ".join(f"{count} on {listing(nodes[count], 4)}" for count in sorted(nodes, reverse=True))
    text = f"if it is on purpose, start one process per GPU: {sum(counts.values())} ranks in all ({shares})"
    return (in_job(text, "torchrun --nproc-per-node gpu ..."),)


def _evidence(gpu: GpuFacts) -> Evidence:
    devices = [f"GPU {d.index} {d.name or '?'} at {d.pci_bus_id}" for d in gpu.devices]
    return seen("NVML", listing(devices, 8) or "none")
