"""Fabric, partitions, flow control and driver of HCA ports, compared between nodes."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._shared.parity import differing
from netdoctor.checks._shared.rdma import NO_HCAS, has_any, ports_of
from netdoctor.checks._shared.text import listing
from netdoctor.checks.rdma._properties import PROBES, PROPERTIES, Property
from netdoctor.facts.expected import Expectations
from netdoctor.facts.rdma import Hca, HcaPort, RdmaFacts
from netdoctor.model import Cause, Evidence, Finding, Status, seen, skip


@check(
    after=["ssh.login", "rdma.port"],
    required=False,
    source="https://docs.kernel.org/admin-guide/abi-stable.html#abi-file-stable-sysfs-class-infiniband",
    expects={one.key: str for one in PROPERTIES},
)
def rdma_parity(nodes: Mapping[str, RdmaFacts], expect: Expectations | None = None) -> Iterator[Finding]:
    """The same HCA port of all nodes has the same fabric, partitions and driver.

    Looks at:
        On active InfiniBand ports (by libibverbs): LID of the subnet manager, subnet prefix, partitions
        and active MTU. On RoCE ports: the traffic class that the driver sets for all traffic, priority
        flow control or pauses, sorting by DSCP or VLAN, and ECN if the driver reports it (MLNX_OFED). The
        driver, its version and, as root, the card's max read request. They are compared between nodes,
        port by port and by kind of card, because each rail may be a separate fabric. A fabric without PFC
        anywhere is lossy by design and is not reported.

    Matters because:
        Ports in different subnets or partitions are up but cannot reach each other: NCCL waits for its
        timeout. One node with another traffic class, or without the PFC of the others, loses packets:
        RoCE then sends a whole window again.

    Fix:
        Connect the port to the fabric of its rail, or ask the subnet manager's owner for the partitions.
    """
    ports: dict[tuple[str, ...], dict[str, tuple[Hca, HcaPort]]] = defaultdict(dict)
    for node, hca, port in ports_of(nodes):
        if port.active and (hca.is_efa or not hca.is_virtual):
            ports[port.link_layer, hca.board_id or "", port.name][node] = hca, port
    if not ports:
        yield skip("no active HCA port on any node" if has_any(nodes) else NO_HCAS)
    for one in PROPERTIES:
        # Ports that differ in the same way are told together.
        groups: dict[frozenset[tuple[str, str | None]], list[str]] = defaultdict(list)
        is_expected = expect is not None and expect.has(one.key)
        for (layer, _, name), by_node in ports.items():
            if one.layer in ("", layer):
                values = {node: one.read(*port) for node, port in by_node.items()}
                if is_expected or any(values.values()):
                    groups[frozenset(values.items())].append(name)
        for values_of, names in groups.items():
            yield from _compared(one, dict(sorted(values_of)), names, expect)


def _compared(
    one: Property, values: Mapping[str, str | None], names: list[str], expect: Expectations | None
) -> Iterator[Finding]:
    def evidence(node: str) -> Evidence:
        if one.file in PROBES:
            return seen(PROBES[one.file], values[node] or "")
        where = f"/sys/class/infiniband/{names[0].replace(':', '/ports/')}/{one.file}"
        return seen(where, values[node] or "", "file")

    noun = f"{one.word} of {listing(names, 3)}"
    cause = Cause(one.key.replace(".", "-"), f"{one.word} differs between HCA ports of {{nodes}}")
    yield from differing(
        values, noun, cause, key=one.key, expect=expect, status=Status.WARN, why=one.why,
        evidence_of=evidence, fixes=lambda *_: one.fix, peers=one.of_peers,
    )  # fmt: skip
