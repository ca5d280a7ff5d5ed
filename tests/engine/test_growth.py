"""Work that grows with the nodes, and no faster: counted, over the whole passive catalogue."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from netdoctor.check import Profile
from netdoctor.checks._shared.matrix import decode, vertex_cover
from netdoctor.checks.net.resolve import net_resolve
from netdoctor.engine import registry
from netdoctor.engine.assemble.context import Context
from netdoctor.engine.assemble.report import build as report_of
from netdoctor.engine.gathering import Answers, addresses, all_paths, first_groups, put_control_facts
from netdoctor.engine.run import judge_facts
from netdoctor.facts.host import Node
from netdoctor.facts.software import Job
from netdoctor.report import kept
from netdoctor.report.formats.json_ import dumps, loads
from netdoctor.report.model import Report, Run
from netdoctor.report.output import FORMATS, render
from netdoctor.store import Store
from netdoctor.transport.base import Reply
from netdoctor.transport.frames import decode_members
from netdoctor.tui import pages
from netdoctor.tui.state import Known, State, opened
from tests import clusters
from tests.checks import build
from tests.counting import steps

RUN = Run(
    id="1", started="2026-01-01T00:00:00Z", finished="2026-01-01T00:00:09Z", duration_ms=9000, complete=True,
    ended_by="end", profile="quick",
)  # fmt: skip
# Nodes. With what is measured between them so many that each dials a sample of its peers.
SIZES = {"healthy": (30, 120), "different": (30, 120), "firewall": (66, 132)}


def started(report: Report) -> tuple[State, Known]:
    """What the first screen of the TUI is drawn of."""
    return opened(report), Known(report)


def work(count: int, shape: str) -> int:
    """Steps from the answers of so many nodes to the report, its text, its file, and that read again."""
    profile = Profile.LAUNCH if shape == "firewall" else Profile.QUICK
    checks = registry.select(registry.load(plugins=False).checks, profile)
    listed = clusters.targets(count)
    names, store, job = [target.id for target in listed], Store(), Job(master_node=listed[0].id)
    groups = first_groups({p.info.group for c in checks for p in c.needs}, listed, job, profile)
    put_control_facts(store, listed, job, None)
    answers = [(node, decode_members(said)) for node, said in clusters.replies(count, shape)]

    if profile is Profile.LAUNCH:
        clusters.measure(store, count)

    def all_of_it() -> None:
        unread = Answers(store, groups)
        for i, (node, said) in enumerate(answers):
            unread.add(Reply(node=node, result=said))
            store.put("session", node, build.session(1, address=clusters.address(i)))
        unread.read()
        store.cluster["job"] = replace(job, data_addresses=dict(addresses(store, names, job)))
        store.cluster["paths"] = all_paths(store, names, store.cluster["job"])
        report = report_of(judge_facts(store, checks), Context(run=RUN))
        assert report.verdict.state == ("ready" if shape == "healthy" else "not_ready")
        for name in FORMATS if shape == "different" else ("text",):
            render(report, name)
        if shape == "firewall":
            (cause,) = report.causes
            assert (cause.key, len(cause.node_list)) == ("fabric-inbound", count // 8)
        else:
            again = loads(dumps(report, facts=True, packed=True))
            kept.as_facts(again.facts).store()
            pages.causes(*started(again), 100, 0.0)

    return steps(all_of_it)


@pytest.mark.thorough
@pytest.mark.parametrize("shape", SIZES)
def test_judging_grows_with_the_nodes_and_no_faster(shape: str) -> None:
    work(2, "healthy")  # what is imported and worked out once
    low, high = SIZES[shape]
    few, many = work(low, shape), work(high, shape)
    # What is done once weighs less with more nodes: below 1 unless something looks at nodes for each node.
    assert many / high < 1.02 * few / low, f"{low} nodes {few} steps, {high} nodes {many}"


def ladder(rungs: int) -> dict[tuple[str, str], bool]:
    """Bad pairs, of sources with one target more than the one before each; and a good one."""
    bad = [(src, f"{i}-{j}") for i in range(rungs) for j in range(i + 2) for src in (f"n{i}", "all")]
    return {**dict.fromkeys(bad, True), ("sound", "well"): False}


def of_one_name(count: int) -> Callable[[], object]:
    """What is said of the names of targets that are one machine's, on ports of their own."""
    nodes = [f"n{i}" for i in range(count)]
    listed = {node: Node(id=node, host="h", order=i) for i, node in enumerate(nodes)}
    nets = {node: build.net(addresses=(build.row("eth0", "10.0.0.1", 24),)) for node in nodes}
    hosts = dict.fromkeys(nodes, build.host(hostname="h"))
    named = build.lookup("h", "10.0.0.1")
    resolves = dict.fromkeys(nodes, build.resolve(own=named, first_bindable="10.0.0.1", peers=(named,)))
    job = Job(data_addresses=dict.fromkeys(nodes, "10.0.0.1"))
    return lambda: list(net_resolve(resolves, nets, hosts, listed, job))


@pytest.mark.parametrize(
    ("few", "many", "times"),
    [
        pytest.param(
            lambda: vertex_cover(ladder(6), ()), lambda: vertex_cover(ladder(24), ()),
            len(ladder(24)) / len(ladder(6)),
            id="nodes around bad pairs",
        ),
        pytest.param(
            lambda: decode(ladder(6)), lambda: decode(ladder(24)), len(ladder(24)) / len(ladder(6)),
            id="faults behind bad pairs",
        ),
        pytest.param(of_one_name(30), of_one_name(120), 4, id="targets of one name"),
    ],
)  # fmt: skip
def test_work_on_pairs_grows_with_them(
    few: Callable[[], object], many: Callable[[], object], times: float
) -> None:
    few()
    assert steps(many) < 1.2 * times * steps(few)
