"""The set of HCAs, compared across the cluster, and whether a process can open them."""

import re
from collections.abc import Iterator, Mapping, Sequence

from netdoctor.check import check
from netdoctor.checks._shared.distribution import install_package
from netdoctor.checks._shared.majority import majority
from netdoctor.checks._shared.parity import differing, unlike_expected
from netdoctor.checks._shared.rdma import NO_HCAS, hca_evidence, unbound_evidence
from netdoctor.checks._shared.text import listing, title_text
from netdoctor.facts.expected import Expectations
from netdoctor.facts.host import HostFacts
from netdoctor.facts.rdma import Hca, RdmaFacts
from netdoctor.model import (
    DERIVED,
    HERE,
    LIKELY,
    PEERS,
    Action,
    Cause,
    Finding,
    Fix,
    Status,
    at,
    in_job,
    look,
    placed,
    run,
    seen,
    skip,
    unknown,
)
from netdoctor.rules.versions import Version, parse_version

MISSING = Cause(
    "hca-missing",
    "{nodes} lack{s} HCAs that other nodes have",
    verify=("rdma.*", "nccl.ib-hca"),
    action=Action.DRAIN,
)
# An HCA that is there and bad does not explain what NCCL would choose.
UNBOUND = Cause("hca-unbound", "{nodes} {has} NICs without an RDMA device", explains=False)
NAMES = Cause("hca-names", "HCAs of {nodes} have other names than on most nodes", explains=False)
NO_LIBRARY = Cause("libibverbs-missing", "{nodes} {has} HCAs but no libibverbs", explains=False)
NO_DEVICE = Cause(
    "hca-no-device",
    "HCAs of {nodes} have no device in /dev/infiniband, so that NCCL cannot open them",
    verify=("rdma.hca", "nccl.ib-hca"),
)
CLOSED = Cause(
    "hca-permission",
    "{nodes} refuse{s} to let the login user open the HCAs",
    verify=("rdma.hca", "nccl.ib-hca"),
    explains=False,
)
LIBRARIES = {"apt": "libibverbs1 ibverbs-providers", "dnf": "libibverbs", "zypper": "libibverbs1 libmlx5-1"}
LOOK = look(
    "see whether the card is on the PCI bus, and read its driver's messages",
    "lspci -d 15b3: -nnk; dmesg | grep -E 'mlx5|infiniband'",
    root=True,
)
RENAME = look(
    "see their names, then use the same names (rdma-core's 60-rdma-persistent-naming.rules), or set "
    "NCCL_IB_HCA per node",
    "rdma link show",
)
UPDATE = (
    look("read the firmware version, and the vendor of the card", "mlxfwmanager --query", root=True),
    run("install the others' version with an image from the card's vendor (mlxfwmanager -u -i FILE)"),
)
GIVE = in_job(
    "start the container with the HCAs and the right to lock memory",
    "docker run --network host --device /dev/infiniband --cap-add IPC_LOCK --ulimit memlock=-1 ..."
    "   # your image and options",
)
MAKE = run(
    "load the module that creates the devices, now and at boot, and let udev create them",
    "modprobe ib_uverbs && udevadm trigger --subsystem-match=infiniband_verbs && "
    "echo ib_uverbs > /etc/modules-load.d/netdoctor-uverbs.conf",
    undo="rm -f /etc/modules-load.d/netdoctor-uverbs.conf",
    root=True,
)
MKNOD = (
    "[ -e /dev/infiniband/{0} ] || mknod -m 666 /dev/infiniband/{0} c "
    '$(tr : " " < /sys/class/infiniband_verbs/{0}/dev)'
)
OPEN = run(
    "let every user open them, as rdma-core's own udev rules do",
    "chmod 666 /dev/infiniband/uverbs* /dev/infiniband/rdma_cm",
    root=True,
    persistent=False,
    widens="every local user may use the HCAs",
)


@check(
    # Not rdma.port, rdma.rate, rdma.gid: they speak of HCAs that are there, and a bad port of one HCA
    # does not come from another one's absence. Only an absent HCA explains what NCCL would choose.
    explains=("nccl.ib-hca",),
    source="https://docs.kernel.org/admin-guide/abi-stable.html#abi-file-stable-sysfs-class-infiniband",
    expects={"rdma.hcas": int},
)
def rdma_hca(
    nodes: Mapping[str, RdmaFacts], hosts: Mapping[str, HostFacts] | None, expect: Expectations | None = None
) -> Iterator[Finding]:
    """Every node has the HCAs that the other nodes have, and the login user may open them.

    Looks at:
        RDMA devices, NVIDIA/Mellanox NICs on the PCI bus without an RDMA device, /dev/infiniband/uverbs*,
        libibverbs, and the firmware of equal cards.

    Matters because:
        NCCL leaves out what it cannot open and uses what is left, in the end TCP. The job runs many times
        slower, or hangs because its nodes chose different transports.

    Fix:
        Load the driver, give the user or the container the devices, install libibverbs, or check the
        card.
    """
    number = {node: str(len(facts.hcas)) for node, facts in nodes.items()}
    expectations = expect.for_values("rdma.hcas", number) if expect else {}
    if not expectations and not any(facts.hcas or facts.unbound_pci for facts in nodes.values()):
        yield skip(NO_HCAS)
        return
    for node, expectation in expectations.items():
        if not expectation.is_met_by(number[node]):
            status = Status.FAIL if float(number[node]) < expectation.number else Status.WARN
            details = {"seen": hca_evidence(nodes[node]), "fixes": LOOK}
            yield unlike_expected(
                expectation, node, number[node], "number of HCAs", MISSING, status, **details
            )
    counts = majority({node: len(facts.hcas) for node, facts in nodes.items() if node not in expectations})
    typical = max(counts.groups, default=0) if counts.value is None else counts.value
    example = next((facts for facts in nodes.values() if len(facts.hcas) == typical), RdmaFacts())
    names = majority({node: _names(facts) for node, facts in nodes.items() if facts.hcas}).value or ()
    # Containers of which none has the devices agree on TCP: slow, and perhaps meant.
    everywhere = all(hca.uverbs_there is False for facts in nodes.values() for hca in facts.hcas)
    for node, facts in nodes.items():
        host = (hosts or {}).get(node)
        container = host is not None and bool(host.container)
        if len(facts.hcas) < typical and node not in expectations:
            yield placed(_fewer(facts, example, counts.is_split, container), node)
        else:
            yield from at(node, _as_many(facts, len(facts.hcas) if node in expectations else typical, names))
        if facts.hcas:
            yield from at(node, _usable(facts, host, container, everywhere))
    yield from _firmware(nodes)


def _as_many(facts: RdmaFacts, typical: int, names: Sequence[str]) -> Iterator[Finding]:
    local = _names(facts)
    if facts.unbound_pci:
        are = "is" if len(facts.unbound_pci) == 1 else "are each"
        yield UNBOUND.warn(
            f"{listing(facts.unbound_pci)} {are} an NVIDIA NIC without an RDMA device",
            observed="no RDMA device",
            expected=DERIVED("an RDMA device per NIC"),
            seen=unbound_evidence(facts),
            fixes=_load(facts),
        )
    if local != names and len(local) == len(names) == typical:
        yield NAMES.warn(
            f"HCAs are called {listing(local)} here, {listing(names)} on most nodes",
            observed=listing(local, 8),
            expected=PEERS(listing(names, 8)),
            seen=hca_evidence(facts),
            fixes=RENAME,
        )


def _names(facts: RdmaFacts) -> tuple[str, ...]:
    return tuple(hca.name for hca in facts.hcas)


def _fewer(facts: RdmaFacts, example: RdmaFacts, is_split: bool, container: bool) -> Finding:
    local, typical = _names(facts), _names(example)
    missing = [name for name in typical if name not in local]
    summary = f"{len(local) or 'no'} HCA{'' if len(local) == 1 else 's'}"
    summary += f", {'another node has' if is_split else 'most nodes have'} {len(typical)}"
    if len(missing) == len(typical) - len(local):
        summary += f"; missing: {listing(missing)}"
    evidence, fixes = [hca_evidence(facts)], [LOOK]
    if container:
        fixes.insert(0, GIVE)
    if facts.unbound_pci:
        summary += f"; {listing(facts.unbound_pci)} on the bus without a driver"
        evidence.append(unbound_evidence(facts))
        fixes[:0] = _load(facts)
    return (MISSING.but(confidence=LIKELY) if is_split else MISSING).fail(
        summary,
        observed=listing(local, 8) or "none",
        expected=PEERS(listing(typical, 8)),
        seen=evidence,
        fixes=fixes,
    )


def _usable(facts: RdmaFacts, host: HostFacts | None, container: bool, everywhere: bool) -> Iterator[Finding]:
    if not facts.libibverbs:
        install, where = (in_job, ", in the container's image") if container else (run, "")
        yield NO_LIBRARY.fail(
            "the node has HCAs, and no libibverbs for NCCL to load",
            observed="no libibverbs.so.1",
            expected="libibverbs.so.1",
            seen=seen("ldconfig -p", "no libibverbs.so.1", "command"),
            fixes=install(
                f"install the user-space RDMA libraries{where}",
                install_package(host, LIBRARIES),
                root=True,
                effect="next launch",
                persistent=True,
            ),
        )
    bare = [hca for hca in facts.hcas if hca.uverbs_there is False]
    if bare:
        names = listing(hca.name for hca in bare)
        devices = listing(f"/dev/infiniband/{hca.uverbs or 'uverbs*'}" for hca in bare)
        yield (NO_DEVICE.warn if everywhere and container else NO_DEVICE.fail)(
            f"{names} {'is' if len(bare) == 1 else 'are'} in sysfs, without {devices}: NCCL uses TCP"
            + (", as on every node" if everywhere else ""),
            observed=f"no {devices}",
            expected=DERIVED("a device for every HCA: libibverbs opens nothing else (libibverbs/init.c)"),
            seen=[hca_evidence(facts), seen(devices, "does not exist", "file")],
            fixes=GIVE if container else _make(facts, bare),
        )
    closed = [hca for hca in facts.hcas if hca.uverbs_ok is False]
    if closed:
        names = listing(f"/dev/infiniband/{hca.uverbs}" if hca.uverbs else hca.name for hca in closed)
        yield CLOSED.fail(
            f"the login user may not open {names}",
            observed="no permission",
            expected="readable and writable",
            seen=seen(names, "no access", "file"),
            fixes=GIVE if container else OPEN,
        )
    for hca in facts.hcas:
        if hca.uverbs_ok is None and hca.uverbs_there is not False:
            yield unknown(HERE, f"{hca.name} has nothing in /dev/infiniband that could be opened")


def _make(facts: RdmaFacts, bare: Sequence[Hca]) -> Fix:
    """What gives HCAs their devices. What has a number is loaded: its file alone is lacking."""
    numbered = [hca.uverbs for hca in bare if hca.uverbs and re.fullmatch(r"uverbs[0-9]{1,4}", hca.uverbs)]
    if len(numbered) < len(bare):
        return LOOK if any(hca.uverbs for hca in facts.hcas) else MAKE
    text = "create the missing device file: the kernel has its number"
    return run(text, "; ".join(MKNOD.format(name) for name in numbered), root=True, persistent=False)


def _firmware(nodes: Mapping[str, RdmaFacts]) -> Iterator[Finding]:
    """Cards with the same board id compared over the whole cluster; a node's oldest one stands for it."""
    boards: dict[str, dict[str, tuple[Version, str]]] = {}
    cards = [(node, hca) for node, facts in nodes.items() for hca in facts.hcas]
    known_types = {hca.hca_type for _, hca in cards if hca.board_id and hca.hca_type}
    for node, hca in cards:
        version = parse_version(hca.fw_version)
        if hca.board_id and hca.fw_version and version:
            oldest = boards.setdefault(hca.board_id, {})
            oldest[node] = min(oldest.get(node, (version, hca.fw_version)), (version, hca.fw_version))
        elif hca.board_id or hca.hca_type in known_types:  # other makers' cards name no board
            yield unknown(node, f"board or firmware of {hca.name} could not be read")
    for board, by_node in sorted(boards.items()):
        text: dict[Version, str] = {}
        noun = f"HCA firmware ({board})"
        yield from differing(
            {node: text.setdefault(*oldest) for node, oldest in by_node.items()},
            noun,
            Cause("hca-firmware", title_text(noun) + " differs between {nodes}", explains=False),
            status=Status.WARN,
            evidence_of=lambda node: hca_evidence(nodes[node]),
            fixes=lambda _, __: UPDATE,
        )


def _load(facts: RdmaFacts) -> tuple[Fix, ...]:
    known = [one for one in facts.unbound_pci if re.fullmatch(r"[0-9a-fA-F:.]{7,16}", one)]
    show = f"lspci -nnk -s {known[0]}" if known else "lspci -d 15b3: -nnk"
    modules = (
        "modprobe -a mlx5_core mlx5_ib ib_uverbs && "
        "printf 'mlx5_ib\\nib_uverbs\\n' > /etc/modules-load.d/netdoctor-rdma.conf"
    )
    undo = "rm -f /etc/modules-load.d/netdoctor-rdma.conf"
    return (
        run("load the RDMA driver of the NIC, now and at boot", modules, undo=undo, root=True),
        look("see which driver uses it", show),
    )
