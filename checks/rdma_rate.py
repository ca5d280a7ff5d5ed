"""Link rate of HCA ports, compared across the cluster."""

from collections import Counter
from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._rdma import (
    NO_HCAS,
    has_any,
    is_plain_name,
    is_virtual,
    lanes,
    port_evidence,
    ports_of,
    signalling,
)
from netdoctor.facts.net import NetFacts
from netdoctor.facts.rdma import Hca, HcaPort, RdmaFacts
from netdoctor.model import (
    CauseHint,
    Command,
    Confidence,
    ExpectedFrom,
    Finding,
    Fix,
    fail,
    skip,
    warn,
)


@check(
    # Not after rdma.port: a port that is down says nothing about the others of its node.
    source="https://docs.kernel.org/admin-guide/abi-stable.html#abi-file-stable-sysfs-class-infiniband",
)
def rdma_rate(nodes: Mapping[str, RdmaFacts], nets: Mapping[str, NetFacts] | None) -> Iterator[Finding]:
    """Every active HCA port runs at the usual rate of that port in the cluster.

    Looks at:
        ``rate`` of each active port, its number and its lanes (``400 Gb/sec (4X NDR)``), against
        the same port on the other nodes; for a port that only one node has, against ports of the
        same kind of card. Software and cloud adapters print a fixed number and are left out.

    Matters because:
        A collective ends when its slowest ring does: one port that trained at 200 Gbit/s among
        400s, or with two lanes of four, holds back every rank.

    Fix:
        Reseat or swap the cable and transceiver, then read ``ibstat`` again. A port that stays
        slow after the swap points at the HCA or the switch port. A kernel that is older than the
        HCA prints SDR for speeds that it does not know.
    """
    if not has_any(nodes):
        yield skip(NO_HCAS)
        return
    ports = [
        (node, hca, port)
        for node, hca, port in ports_of(nodes)
        if port.active and port.rate_gbit_s and not is_virtual(hca)
    ]
    if not ports:
        yield skip("no node has an active HCA port with a rate of its own")
        return
    by_name: dict[str, list[HcaPort]] = {}
    by_card: dict[str, list[HcaPort]] = {}
    for _, hca, port in ports:
        by_name.setdefault(port.name, []).append(port)
        by_card.setdefault(_card(hca), []).append(port)
    usual_by_name = {name: _usual(group) for name, group in by_name.items() if len(group) > 1}
    usual_by_card = {card: _usual(group) for card, group in by_card.items()}
    for node, hca, port in ports:
        usual, fast = usual_by_name.get(port.name) or usual_by_card[_card(hca)]
        if (port.rate_gbit_s or 0) < usual:
            yield _slow(node, hca, port, usual, fast, (nets or {}).get(node))


def _card(hca: Hca) -> str:
    return hca.board_id or hca.hca_type or hca.name


def _usual(ports: list[HcaPort]) -> tuple[float, HcaPort]:
    """The commonest rate, and a port that has it. Not the highest: one 800G port among 400s is the
    odd one out. On a tie, as between two nodes, the slower one is the suspect."""
    count = Counter(port.rate_gbit_s or 0.0 for port in ports)
    usual = max(count, key=lambda rate: (count[rate], rate))
    return usual, next(port for port in ports if port.rate_gbit_s == usual)


def _slow(node: str, hca: Hca, port: HcaPort, usual: float, fast: HcaPort, net: NetFacts | None) -> Finding:
    rate = port.rate_gbit_s or 0.0
    evidence = (port_evidence(node, hca, port),)
    observed = port.rate_text or f"{rate:g} Gbit/s"
    expected = fast.rate_text or f"{usual:g} Gbit/s"
    own, wanted = lanes(port.rate_text), lanes(fast.rate_text)
    if rate <= 10 and signalling(port.rate_text) in ("SDR", None) and own == wanted and own:
        speed = _netdev_speed(hca, net)
        true = f"; its interface says {speed / 1000:g} Gbit/s" if speed else ""
        return warn(
            node,
            f"{port.name} prints {rate:g} Gbit/s, as kernels do that do not know its speed{true}",
            observed=observed,
            expected=expected,
            expected_from=ExpectedFrom.PEERS,
            evidence=evidence,
            cause=CauseHint(
                key="hca-rate-not-known",
                title="the kernel of {nodes} cannot name the rate of HCA ports",
                culprits=(node,),
                confidence=Confidence.SUSPECTED,
                settle_by="mlxlink on the port shows the true rate",
                fixes=(_read(node, hca, port, "read the true rate from the card"),),
            ),
        )
    narrow = own is not None and wanted is not None and own < wanted
    what = f"with {own} of {wanted} lanes" if narrow else f"at {rate:g} Gbit/s"
    return fail(
        node,
        f"{port.name} runs {what}, the same port of most nodes at {usual:g} Gbit/s",
        observed=observed,
        expected=expected,
        expected_from=ExpectedFrom.PEERS,
        evidence=evidence,
        cause=CauseHint(
            key="hca-rate-lanes" if narrow else "hca-rate-low",
            title="HCA ports of {nodes} run with too few lanes"
            if narrow
            else "HCA ports of {nodes} run slower than on most nodes",
            culprits=(node,),
            fixes=(
                _read(
                    node,
                    hca,
                    port,
                    "read the link's own report, then reseat or swap cable and transceiver",
                ),
            ),
        ),
    )


def _netdev_speed(hca: Hca, net: NetFacts | None) -> int | None:
    for dev in net.netdevs if net else ():
        if dev.name in hca.netdevs and dev.speed_mbit_s and dev.speed_mbit_s > 0:
            return dev.speed_mbit_s
    return None


def _read(node: str, hca: Hca, port: HcaPort, text: str) -> Fix:
    device = hca.name if is_plain_name(hca.name) else "mlx5_0"
    shell = f"mlxlink -d {device} -p {port.number} -m -c; ibstat {device} {port.number}"
    return Fix(text=text, commands=(Command(run_on=node, shell=shell),), root=True, effect="")
