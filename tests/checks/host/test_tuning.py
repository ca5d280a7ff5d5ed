from typing import Any

from netdoctor.checks.host.tuning import host_tuning
from netdoctor.facts.expected import Expectation, Expectations
from netdoctor.facts.host import HostFacts
from netdoctor.facts.tuning import TuningFacts
from netdoctor.model import Finding, Status

from ..build import GIB, causes, host, hosts, name, said, tuning

SYSCTLS = tuning().sysctls


def judged(*nodes: TuningFacts, **changes: HostFacts) -> list[Finding]:
    facts = {name(i): one for i, one in enumerate(nodes, 1)}
    return said(host_tuning(facts, hosts(len(nodes)) | changes), "cluster")


def odd(**changes: Any) -> list[TuningFacts]:
    return [tuning(), tuning(), tuning(**changes)]


def memory(gib: float, i: int = 3) -> HostFacts:
    return host(i, memory_total_bytes=int(gib * GIB))


OTHERS = {**SYSCTLS, "net.core.rmem_max": "212992"}
SILENT: list[tuple[list[TuningFacts], dict[str, HostFacts]]] = [
    (odd(), {}),
    # Machines of another kind are compared with their own.
    (odd(product="login", bios="9", governor="powersave", cpus_online=8), {}),
    (odd(cpus_present=8, cpus_online=8), {}),
    ([tuning(product=None, bios=None, governor=None, smt=None)] * 2, {}),
    (odd(), {"n3": host(3, container="docker")}),
    # What firmware keeps, what was bought, and what a cloud was asked for.
    (odd(), {"n3": memory(508)}),
    (odd(), {"n3": memory(256)}),
    (odd(), {"n3": memory(1024)}),
    ([tuning(is_virtual=True)] * 3, {"n3": memory(384)}),
    (odd(sysctls={"kernel.numa_balancing": "1"}), {}),  # a network namespace of its own shows few
    (odd(memory_limit_bytes=None, clock_source="kvm-clock", swap_bytes=8 * GIB), {}),
    ([tuning(clock_source="hpet", swap_used_bytes=9 * GIB)] * 3, {}),
    ([tuning(), tuning(sysctls=OTHERS)], {}),
    ([tuning(memory_limit_bytes=GIB), tuning(memory_limit_bytes=2 * GIB)], {}),
]
SPEAKING: list[tuple[list[TuningFacts], dict[str, HostFacts], str, str]] = [
    (odd(bios="1.9"), {}, "tuning-bios", "BIOS 1.9 here, 2.1 on most nodes"),
    (odd(cpus_online=62), {}, "tuning-number-of-processors", "62, SMT off here, 64, SMT off"),
    (odd(smt="on"), {}, "tuning-number-of-processors", "SMT on here"),
    (odd(boot={"iommu": "pt", "mitigations": "off"}), {}, "tuning-kernel-parameters", "mitigations=off here"),
    (odd(boot={}), {}, "tuning-kernel-parameters", "none that matter here"),
    (odd(governor="powersave"), {}, "tuning-cpu-governor", "powersave here"),
    (odd(hugepages="never"), {}, "tuning-transparent-huge-pages", "never here"),
    (odd(memory_limit_bytes=GIB), {}, "tuning-memory-limit-of-the-session", "one here, none on most"),
    (odd(), {"n3": memory(480)}, "tuning-memory", "480.0 GiB here, 512.0 GiB on most nodes"),
    (odd(sysctls=OTHERS), {}, "tuning-sysctl", "net.core.rmem_max 212992, on most nodes 134217728"),
    (odd(clock_source="hpet"), {}, "tuning-clock-source", "the clock source is hpet"),
    (odd(swap_used_bytes=3 * GIB), {}, "tuning-swap", "3.0 GiB of program memory"),
    (odd(has_kfd=True), {}, "numa-balancing", "numa_balancing is on"),
    (odd(is_grace=True), {}, "numa-balancing", "numa_balancing is on"),
]


def test_silent_where_machines_are_alike_or_not_comparable() -> None:
    for nodes, machines in SILENT:
        assert causes(judged(*nodes, **machines)) == {}, (nodes[-1], machines)


def test_names_the_odd_one() -> None:
    for nodes, machines, key, words in SPEAKING:
        findings = [one for one in judged(*nodes, **machines) if one.status is not Status.SKIP]
        assert causes(findings) == {key: {"n3"}}, key
        assert {one.status for one in findings} == {Status.WARN}, key
        assert words in findings[0].summary, findings[0].summary
        assert findings[0].cause is not None
        assert findings[0].cause.fixes, key


def test_balancing_is_nobodys_fault_elsewhere() -> None:
    off = {**SYSCTLS, "kernel.numa_balancing": "0"}
    for one in (tuning(), tuning(has_kfd=True, numa_nodes=1), tuning(has_kfd=True, sysctls=off)):
        assert causes(judged(one)) == {}


def test_balancing_goes_back_to_what_it_was() -> None:
    """2 is memory tiering (Linux 5.18): evidence and undo say what the node said."""
    tiered = tuning(has_kfd=True, sysctls={**SYSCTLS, "kernel.numa_balancing": "2"})
    (finding,) = (one for one in judged(tiered) if one.cause and one.cause.key == "numa-balancing")
    assert [one.output for one in finding.evidence] == ["2"]
    assert finding.cause is not None
    assert [one.shell for one in finding.cause.fixes[0].undo] == ["sysctl -w kernel.numa_balancing=2"]


def test_a_setting_is_put_right_and_back() -> None:
    (finding,) = judged(*odd(sysctls=OTHERS))
    assert finding.cause is not None
    (fix,) = finding.cause.fixes
    assert [one.shell for one in fix.commands] == ["sysctl -w net.core.rmem_max=134217728"]
    assert [one.shell for one in fix.undo] == ["sysctl -w net.core.rmem_max=212992"]


def test_words_of_a_node_reach_no_command() -> None:
    hostile = "1;$(touch PWN)"
    spoilt = tuning(governor=hostile, hugepages=hostile, sysctls={"net.core.rmem_max": hostile})
    for finding in judged(spoilt, spoilt, tuning()):
        for fix in finding.cause.fixes if finding.cause else ():
            assert not any("PWN" in one.shell for one in (*fix.commands, *fix.undo)), fix


def test_what_is_expected_takes_the_place_of_most_nodes() -> None:
    expect = Expectations(
        wishes=(Expectation(key="host.governor", any_of=("performance",), place="e.toml:1"),)
    )
    assert causes(said(host_tuning({"n1": tuning()}, hosts(1), expect))) == {}
    slow = {name(i): tuning(governor="powersave") for i in (1, 2)}
    findings = said(host_tuning(slow, hosts(2), expect))
    assert causes(findings) == {"tuning-cpu-governor": {"n1", "n2"}}
    assert "e.toml:1 expects performance" in findings[0].summary


def test_what_firmware_keeps_of_the_memory_that_is_expected_is_not_lost() -> None:
    expect = Expectations(wishes=(Expectation(key="host.memory", any_of=("500",), place="e.toml:2"),))
    for gib, status in ((500, None), (490, None), (489, Status.WARN), (0, Status.UNKNOWN)):
        findings = said(host_tuning({"n1": tuning()}, {"n1": memory(gib, 1)}, expect))
        assert [one.status for one in findings] == ([status] if status else []), gib


def test_nothing_to_compare_with() -> None:
    (finding,) = judged(tuning())
    assert finding.status is Status.SKIP
