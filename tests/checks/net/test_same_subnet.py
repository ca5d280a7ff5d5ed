from typing import Any

from netdoctor.checks.net.same_subnet import net_same_subnet
from netdoctor.facts.net import SharedAddress
from netdoctor.facts.paths import Paths, Use
from netdoctor.model import Finding, Status

from ..build import causes, net, nets

FREE = {"rp_filter": 2, "arp_ignore": 1, "arp_announce": 2, "arp_filter": 0}
PLAIN = {"rp_filter": 0, "arp_ignore": 0, "arp_announce": 0, "arp_filter": 0}


def shared(ifname: str, last: int, dev: str | None = "eth0", **settings: Any) -> SharedAddress:
    return SharedAddress(ifname=ifname, address=f"10.0.0.{last}", prefix_len=24, dev=dev, **settings)


def judged(first: SharedAddress, other: SharedAddress, *purposes: str) -> list[Finding]:
    """Node n1, whose other address has these purposes, beside one that is not so."""
    uses = tuple(Use(node="n1", address=other.address, purpose=one, rule="") for one in purposes)
    return list(net_same_subnet({**nets(2), "n1": net(shared=(first, other))}, Paths(uses=uses)))


def pair(
    first: dict[str, int], other: dict[str, int], dev: str = "eth0", ifname: str = "eth1"
) -> list[SharedAddress]:
    return [shared("eth0", 1, **first), shared(ifname, 11, dev, **other)]


STRICT, IGNORE = {**PLAIN, "rp_filter": 1}, {**PLAIN, "arp_ignore": 1}
RAIL = "RoCE mlx5_1:1"
# Settings of eth0, settings of eth1, where it sends from eth1's address, purposes of that, cause.
CASES: list[tuple[Any, Any, str, tuple[str, ...], str]] = [
    (FREE, FREE, "eth0", (RAIL,), ""),
    (FREE, STRICT, "eth1", (RAIL,), ""),  # a rule for its own address
    (PLAIN, PLAIN, "eth0", (RAIL,), "rail-answered-twice"),
    (PLAIN, STRICT, "eth0", (RAIL,), "rail-answered-elsewhere"),
    (PLAIN, {**PLAIN, "arp_filter": 1}, "eth0", (RAIL,), "rail-answered-elsewhere"),
    (IGNORE, STRICT, "eth0", (RAIL,), "subnet-no-answer"),
    (IGNORE, STRICT, "eth0", ("gloo",), "subnet-no-answer"),
    # TCP takes it from whichever interface.
    (PLAIN, PLAIN, "eth0", ("gloo", "NCCL socket 1", "store"), ""),
    (PLAIN, STRICT, "eth0", ("store",), ""),
    (PLAIN, PLAIN, "eth0", (), ""),  # no address of the job
]  # fmt: skip


def test_what_breaks_and_what_does_not() -> None:
    for first, other, dev, purposes, key in CASES:
        findings = judged(*pair(first, other, dev), *purposes)
        assert causes(findings) == ({key: {"n1"}} if key else {}), (first, other, dev, purposes)
        for finding in findings:
            assert finding.status is (Status.WARN if key == "rail-answered-twice" else Status.FAIL)


def test_the_fix_sets_what_is_wrong_alone() -> None:
    (finding,) = judged(*pair(IGNORE, {**FREE, "rp_filter": 1}), RAIL)
    assert finding.cause
    now, later = finding.cause.fixes
    (done,), (undone,) = now.commands, now.undo
    assert done.shell == "sysctl -qw net/ipv4/conf/eth0/arp_announce=2 net/ipv4/conf/eth1/rp_filter=2"
    assert undone.shell == "sysctl -qw net/ipv4/conf/eth0/arp_announce=0 net/ipv4/conf/eth1/rp_filter=1"
    assert later.commands[0].shell.endswith("> /etc/sysctl.d/zz-netdoctor-subnet.conf")
    # The higher of the two counts: of what is too high, that of all interfaces goes down, too.
    (finding,) = judged(*pair(PLAIN, {**PLAIN, "arp_filter": 1}), RAIL)
    assert finding.cause
    assert "conf/all/arp_filter=0 net/ipv4/conf/eth1/arp_filter=0" in finding.cause.fixes[0].commands[0].shell


def test_no_word_of_a_node_stands_in_a_command() -> None:
    (finding,) = judged(*pair(PLAIN, PLAIN, ifname="$(id)"), RAIL)
    assert finding.cause
    assert not any(fix.commands for fix in finding.cause.fixes)


def test_what_does_not_apply_and_what_was_not_read() -> None:
    (finding,) = net_same_subnet(nets(2), Paths())
    assert finding.status is Status.SKIP
    unread = shared("eth1", 11, None)
    assert [one.status for one in judged(shared("eth0", 1, **PLAIN), unread, RAIL)] == [Status.UNKNOWN]
    assert judged(shared("eth0", 1, **PLAIN), unread, "gloo") == []
    nonsense = SharedAddress(ifname="eth1", address="no", prefix_len=99, **PLAIN)
    assert judged(shared("eth0", 1, **PLAIN), nonsense, "gloo", RAIL) == []
