"""Number and kind of GPUs, against the hosts file and across the cluster."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._majority import majority
from netdoctor.checks._parity import differing
from netdoctor.checks._words import listing
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.host import Node
from netdoctor.model import (
    Cause,
    CauseHint,
    Command,
    Confidence,
    Evidence,
    ExpectedFrom,
    Finding,
    Fix,
    Status,
    fail,
    ok,
    skip,
    warn,
)

MODEL = Cause("gpu-model", "GPU model differs between {nodes}")


@check(
    after=["ssh.login", "gpu.visible"],
    source="https://pytorch.org/docs/stable/elastic/run.html",
)
def gpu_count(gpus: Mapping[str, GpuFacts], nodes: Mapping[str, Node]) -> Iterator[Finding]:
    """Every node has the GPUs that the hosts file lists, and as many as the other nodes.

    Looks at:
        NVML's devices (MIG parents count once), ``gpus=`` or ``slots=`` of the hosts file where it
        is given, else the number that most nodes have; names and memory of the GPUs.

    Matters because:
        With ``--nproc-per-node gpu`` a node that lost a GPU starts fewer ranks without a word; with
        a fixed number a rank ends with "invalid device ordinal". Mixed GPUs run at the pace, and
        with the memory, of the smallest.

    Fix:
        Repair the GPU, or leave the node out; where fewer GPUs are on purpose, say so with
        ``gpus=`` in the hosts file.
    """
    counts = {node: len(facts.devices) for node, facts in gpus.items()}
    if not any(counts.values()) and not any(nodes[n].gpus for n in gpus if n in nodes):
        yield skip("no GPU on any node, and none listed")
        return
    listed: dict[str, int] = {}
    slots: dict[str, int] = {}
    for node in gpus:
        wanted, slot = (nodes[node].gpus, nodes[node].slots) if node in nodes else (None, None)
        if wanted is not None:
            listed[node] = wanted
        elif slot is not None:
            slots[node] = slot
    # slots= are processes per node. They stand for GPUs where some node has that many.
    if any(counts[node] == slot for node, slot in slots.items()):
        listed.update(slots)
    peers = majority({node: count for node, count in counts.items() if node not in listed})
    uneven: list[str] = []
    for node, count in counts.items():
        if node in listed:
            if count < listed[node]:
                yield _few(node, gpus[node], count, listed[node], ExpectedFrom.CONFIG)
        elif peers.value is not None and count < peers.value:
            yield _few(node, gpus[node], count, peers.value, ExpectedFrom.PEERS)
        elif peers.value is not None and count > peers.value:
            yield warn(
                node,
                f"{count} GPUs, most nodes have {peers.value}",
                observed=str(count),
                expected=str(peers.value),
                expected_from=ExpectedFrom.PEERS,
                evidence=_evidence(node, gpus[node]),
                cause=CauseHint(
                    key="gpu-count-more",
                    title="{nodes} {has} more GPUs than most nodes",
                    culprits=(node,),
                ),
            )
        elif peers.tie:
            uneven.append(node)
    most = max((counts[node] for node in uneven), default=0)
    for node in uneven:
        if counts[node] < most:
            yield _few(node, gpus[node], counts[node], most, ExpectedFrom.PEERS, tie=True)

    models = {
        node: listing(sorted({device.name for device in facts.devices}), 3)
        for node, facts in gpus.items()
        if facts.devices and all(device.name for device in facts.devices)
    }
    yield from differing(
        models,
        "GPU model",
        MODEL,
        status=Status.WARN,
        why="the job runs at the pace and with the memory of the smallest",
        seen=lambda node: _evidence(node, gpus[node]),
    )
    for node, facts in gpus.items():
        names = {device.name for device in facts.devices}
        if len(names) > 1:
            yield warn(
                node,
                f"different GPUs in one node: {listing(sorted(names))}",
                observed=listing(sorted(names)),
                expected="one model",
                expected_from=ExpectedFrom.DERIVED,
                evidence=_evidence(node, facts),
                cause=CauseHint(
                    key="gpu-mixed",
                    title="{nodes} {has} GPUs of different models",
                    culprits=(node,),
                ),
            )
    if len(set(counts.values())) == 1 and len(set(models.values())) == 1:
        for node, count in counts.items():
            text = f"{count} x {models.get(node, 'GPU')}"
            yield ok(node, text, observed=text)


def _few(
    node: str,
    gpu: GpuFacts,
    count: int,
    wanted: int,
    expected_from: ExpectedFrom,
    tie: bool = False,
) -> Finding:
    said = "the hosts file lists" if expected_from is ExpectedFrom.CONFIG else "most nodes have"
    return fail(
        node,
        f"{count} GPU{'' if count == 1 else 's'}, {'another node has' if tie else said} {wanted}",
        observed=str(count),
        expected=str(wanted),
        expected_from=expected_from,
        evidence=_evidence(node, gpu),
        cause=CauseHint(
            key="gpu-count-fewer",
            title="{nodes} {has} fewer GPUs than expected",
            culprits=(node,),
            confidence=Confidence.LIKELY if tie else Confidence.CERTAIN,
            fixes=(
                Fix(
                    text="see which GPU is gone, and why",
                    commands=(
                        Command(
                            run_on=node,
                            shell="nvidia-smi -L; lspci -d 10de: -nn; dmesg | grep -E 'NVRM|Xid'",
                        ),
                    ),
                    root=True,
                    effect="",
                ),
            ),
        ),
    )


def _evidence(node: str, gpu: GpuFacts) -> tuple[Evidence, ...]:
    return (
        Evidence(
            kind="probe",
            where=node,
            what="NVML",
            output=listing([f"GPU {d.index} {d.name or '?'} at {d.pci_bus_id}" for d in gpu.devices], 8)
            or "none",
        ),
    )
