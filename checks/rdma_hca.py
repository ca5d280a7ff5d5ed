"""The set of HCAs, compared across the cluster, and whether a process can open them."""

import re
from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._majority import majority
from netdoctor.checks._parity import differing
from netdoctor.checks._rdma import NO_HCAS
from netdoctor.checks._words import listing, title_text
from netdoctor.facts.host import HostFacts
from netdoctor.facts.rdma import Hca, RdmaFacts
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
    skip,
    warn,
)


@check(
    # Not rdma.port, rdma.rate, rdma.gid: they speak of HCAs that are there, and a bad port of one HCA
    # does not come from another one's absence. Only an absent HCA explains what NCCL would choose.
    explains=("nccl.ib-hca", "rdma.gpudirect"),
    source="https://docs.kernel.org/admin-guide/abi-stable.html#abi-file-stable-sysfs-class-infiniband",
)
def rdma_hca(nodes: Mapping[str, RdmaFacts], hosts: Mapping[str, HostFacts] | None) -> Iterator[Finding]:
    """Every node has the HCAs that the other nodes have, and the login user may open them.

    Looks at:
        RDMA devices, NVIDIA/Mellanox network functions on the PCI bus without one, /dev/infiniband,
        libibverbs, and the firmware of equal cards.

    Matters because:
        NCCL leaves out what it cannot open and goes on with what is left, in the end over TCP: the
        job runs many times slower, or hangs because its nodes picked different transports.

    Fix:
        Load the driver, give the user or the container the devices, install libibverbs, or have a
        look at the card.
    """
    if not any(facts.hcas or facts.unbound_pci for facts in nodes.values()):
        yield skip(NO_HCAS)
        return
    container = {node: host.container for node, host in (hosts or {}).items()}
    counts = majority({node: len(facts.hcas) for node, facts in nodes.items()})
    most = max(len(facts.hcas) for facts in nodes.values())
    usual = most if counts.value is None else counts.value
    names = majority({n: tuple(hca.name for hca in f.hcas) for n, f in nodes.items() if f.hcas})
    example = next(node for node, facts in nodes.items() if len(facts.hcas) == usual)

    for node, facts in nodes.items():
        have = len(facts.hcas)
        if have < usual:
            yield _fewer(node, facts, nodes[example], usual, counts.tie, container.get(node))
        elif have and have == usual and node in names.minority:
            yield from _other_names(node, facts, names.value)
        if facts.unbound_pci and have >= usual:
            yield warn(
                node,
                f"{listing(facts.unbound_pci)} {_is(facts.unbound_pci)} an NVIDIA NIC without an RDMA device",
                observed="no RDMA device",
                expected="an RDMA device per NIC",
                expected_from=ExpectedFrom.DERIVED,
                evidence=(_pci(node, facts),),
                cause=CauseHint(
                    key="hca-unbound",
                    title="{nodes} {has} NICs without an RDMA device",
                    culprits=(node,),
                    fixes=(_load(node, facts),),
                    explains=False,
                ),
            )
        if not facts.hcas:
            continue
        if facts.libibverbs is None:
            yield _no_library(node, container.get(node))
        closed = [hca for hca in facts.hcas if hca.uverbs_ok is False]
        if closed:
            yield _closed(node, closed, container.get(node))
    yield from _firmware(nodes)


def _fewer(
    node: str,
    facts: RdmaFacts,
    example: RdmaFacts,
    usual: int,
    tie: bool,
    container: str | None,
) -> Finding:
    own = {hca.name for hca in facts.hcas}
    missing = [hca.name for hca in example.hcas if hca.name not in own]
    said = f"most nodes have {usual}" if not tie else f"another node has {usual}"
    names = f"; missing: {listing(missing)}" if len(missing) == usual - len(own) else ""
    fixes: list[Fix] = []
    if facts.unbound_pci:
        fixes.append(_load(node, facts))
    if container:
        fixes.append(_give_container())
    fixes.append(
        Fix(
            text="see whether the card is on the PCI bus, and what its driver said",
            commands=(Command(run_on=node, shell="lspci -d 15b3: -nnk; dmesg | grep -E 'mlx5|infiniband'"),),
            root=True,
            effect="",
        )
    )
    unbound = f"; {listing(facts.unbound_pci)} on the bus without a driver" if facts.unbound_pci else ""
    return fail(
        node,
        f"{len(own) or 'no'} HCA{'' if len(own) == 1 else 's'}, {said}{names}{unbound}",
        observed=listing([h.name for h in facts.hcas], 8) or "none",
        expected=listing([h.name for h in example.hcas], 8),
        expected_from=ExpectedFrom.PEERS,
        evidence=(_list(node, facts), *([_pci(node, facts)] if facts.unbound_pci else [])),
        cause=CauseHint(
            key="hca-missing",
            title="{nodes} lack{s} HCAs that other nodes have",
            culprits=(node,),
            confidence=Confidence.LIKELY if tie else Confidence.CERTAIN,
            fixes=tuple(fixes),
            verify=("rdma.*", "nccl.ib-hca"),
        ),
    )


def _other_names(node: str, facts: RdmaFacts, usual: tuple[str, ...] | None) -> Iterator[Finding]:
    own = [hca.name for hca in facts.hcas]
    if usual is None or len(usual) != len(own):
        return
    yield warn(
        node,
        f"HCAs are called {listing(own)} here, {listing(usual)} on most nodes",
        observed=listing(own, 8),
        expected=listing(usual, 8),
        expected_from=ExpectedFrom.PEERS,
        evidence=(_list(node, facts),),
        cause=CauseHint(
            key="hca-names",
            title="HCAs of {nodes} have other names than on most nodes",
            culprits=(node,),
            fixes=(
                Fix(
                    text="name them alike (rdma-core's 60-rdma-persistent-naming.rules), or give"
                    " NCCL_IB_HCA names per node",
                    commands=(Command(run_on=node, shell="rdma link show"),),
                ),
            ),
            explains=False,
        ),
    )


def _no_library(node: str, container: str | None) -> Finding:
    text = "install the user-space RDMA libraries"
    shell = "apt-get install --yes libibverbs1 ibverbs-providers  # or: dnf install libibverbs"
    if container:
        text += ", in the container's image"
    return fail(
        node,
        "the node has HCAs, and no libibverbs for NCCL to load",
        observed="no libibverbs.so.1",
        expected="libibverbs.so.1",
        expected_from=ExpectedFrom.CONSTANT,
        evidence=(Evidence(kind="command", where=node, what="ldconfig -p", output="no libibverbs.so.1"),),
        cause=CauseHint(
            key="libibverbs-missing",
            title="{nodes} {has} HCAs but no libibverbs",
            culprits=(node,),
            fixes=(
                Fix(
                    text=text,
                    commands=(Command(run_on="job" if container else node, shell=shell),),
                    root=True,
                    effect="next launch",
                ),
            ),
            explains=False,
        ),
    )


def _closed(node: str, closed: list[Hca], container: str | None) -> Finding:
    names = [f"/dev/infiniband/{h.uverbs}" if h.uverbs else h.name for h in closed]
    fix = (
        _give_container()
        if container
        else Fix(
            text="let every user open them, as rdma-core's own udev rules do",
            commands=(
                Command(
                    run_on=node,
                    shell="chmod 666 /dev/infiniband/uverbs* /dev/infiniband/rdma_cm",
                ),
            ),
            root=True,
            persistent=False,
            widens="every local user may use the HCAs",
        )
    )
    return fail(
        node,
        f"the login user may not open {listing(names)}",
        observed="no permission",
        expected="readable and writable",
        expected_from=ExpectedFrom.CONSTANT,
        evidence=(Evidence(kind="file", where=node, what=listing(names), output="no access"),),
        cause=CauseHint(
            key="hca-permission",
            title="{nodes} refuse{s} to let the login user open the HCAs",
            culprits=(node,),
            fixes=(fix,),
            verify=("rdma.hca", "nccl.ib-hca"),
            explains=False,
        ),
    )


def _firmware(nodes: Mapping[str, RdmaFacts]) -> Iterator[Finding]:
    """Cards with the same board id compared over the whole cluster; a node's oldest one stands for
    it."""
    boards: dict[str, dict[str, str]] = {}
    for node, facts in nodes.items():
        for hca in facts.hcas:
            if hca.fw_version and hca.board_id:
                known = boards.setdefault(hca.board_id, {})
                known[node] = min(known.get(node, hca.fw_version), hca.fw_version)
    for board, versions in sorted(boards.items()):
        noun = f"HCA firmware ({board})"
        yield from differing(
            versions,
            noun,
            Cause("hca-firmware", f"{title_text(noun)} differs between {{nodes}}", explains=False),
            status=Status.WARN,
            fixes=lambda node, _: (
                Fix(
                    text="bring the firmware to the version of the other nodes",
                    commands=(Command(run_on=node, shell="mlxfwmanager --query"),),
                    root=True,
                    reboot=True,
                    effect="after reboot",
                    risk="medium",
                ),
            ),
            seen=lambda node: _list(node, nodes[node]),
        )


def _load(node: str, facts: RdmaFacts) -> Fix:
    known = [a for a in facts.unbound_pci if re.fullmatch(r"[0-9a-fA-F:.]{7,16}", a)]
    look = f"lspci -nnk -s {known[0]}" if known else "lspci -d 15b3: -nnk"
    return Fix(
        text="load the RDMA driver of the NIC",
        commands=(
            Command(run_on=node, shell="modprobe -a mlx5_core mlx5_ib ib_uverbs"),
            Command(run_on=node, shell=look),
        ),
        root=True,
        persistent=False,
    )


def _give_container() -> Fix:
    return Fix(
        text="start the container with the HCAs and the right to lock memory",
        commands=(
            Command(
                run_on="job",
                shell="docker run --network host --device /dev/infiniband --cap-add IPC_LOCK"
                " --ulimit memlock=-1 ...   # your image and options",
            ),
        ),
        effect="next launch",
        persistent=False,
    )


def _is(items: tuple[str, ...]) -> str:
    return "is" if len(items) == 1 else "are each"


def _list(node: str, facts: RdmaFacts) -> Evidence:
    text = listing([f"{h.name} {h.hca_type or ''} fw {h.fw_version or '?'}" for h in facts.hcas], 8)
    return Evidence(kind="file", where=node, what="/sys/class/infiniband", output=text or "empty")


def _pci(node: str, facts: RdmaFacts) -> Evidence:
    return Evidence(
        kind="file",
        where=node,
        what="/sys/bus/pci/devices",
        output=listing(facts.unbound_pci, 8) + " without an RDMA device",
    )
