"""What users expect of nodes: the file, what it does to a verdict, and `netdoctor expect`."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdoctor import __version__, cli, factlines
from netdoctor.check import Check
from netdoctor.compat import tomllib
from netdoctor.engine import registry
from netdoctor.engine.diagnose import diagnose
from netdoctor.engine.judge import judge
from netdoctor.engine.registry import load_builtin, ordered
from netdoctor.errors import InputError
from netdoctor.facts.expected import Expectation, Expectations, RecordedExpectations
from netdoctor.inventory import Target
from netdoctor.model import CONFIG
from netdoctor.report.model import Report
from netdoctor.report.save import load
from netdoctor.scanning import expecting, learning
from tests import machines
from tests.checks import build
from tests.machines import Machine
from tests.report.build import sample_report

TARGETS = [
    Target(id="n1", host="n1", groups=("new",), leaf="sw1"),
    Target(id="n2", host="n2", groups=("old",), leaf="sw1"),
    Target(id="n3", host="n3", groups=("old",), leaf="sw2"),
]
CHECKS = ordered(load_builtin().values())
GPUS = pytest.mark.skipif(machines.nvml_library() is None, reason="no C compiler for the lab's NVML (gcc)")


def read(folder: Path, text: str) -> list[tuple[str, str, str, tuple[str, ...] | None, str]]:
    """(key, model, values, nodes, place) of each value in a file."""
    path = folder / "expect.toml"
    path.write_text(text)
    wanted = expecting.read(path, CHECKS, TARGETS)
    return [(w.key, w.of, w.text, w.nodes, w.place) for w in wanted.wishes]


def test_a_file_is_read_in_every_way_to_write_it(tmp_path: Path) -> None:
    text = """\
gpu.count = 8
host = { kernel = "6.8.*" }
gpu.driver = ["570.1", "570.2"]
gpu."mig" = false   # a comment
[gpu.vbios]
'NVIDIA A100' = "92"
[rdma]
rate = 400.0
[net.mtu]
eth0 = [1500, 9000]
"rail 0" = 9000
[env.set]
NCCL_DEBUG = false

[[nodes]]
group = "old"
gpu.count = 4
[nodes.sw]
torch = "2.6.0"
[[nodes]]
nodes = ["n[1-2]", "n9"]
sw.python = "3.11"
[[nodes]]
leaf = "sw2"
host.arch = "aarch64"
"""
    assert read(tmp_path, text) == [
        ("gpu.count", "", "8", None, "expect.toml:1"),
        ("gpu.driver", "", "570.1 or 570.2", None, "expect.toml:3"),
        ("gpu.mig", "", "off", None, "expect.toml:4"),
        ("gpu.vbios", "NVIDIA A100", "92", None, "expect.toml:6"),
        ("host.kernel", "", "6.8.*", None, "expect.toml:2"),
        ("rdma.rate", "", "400", None, "expect.toml:8"),
        ("net.mtu.*", "eth0", "1500 or 9000", None, "expect.toml:10"),
        ("net.mtu.*", "rail 0", "9000", None, "expect.toml:11"),
        ("env.set.*", "NCCL_DEBUG", "off", None, "expect.toml:13"),
        ("gpu.count", "", "4", ("n2", "n3"), "expect.toml:17"),
        ("sw.torch", "", "2.6.0", ("n2", "n3"), "expect.toml:19"),
        ("sw.python", "", "3.11", ("n1", "n2"), "expect.toml:22"),
        ("host.arch", "", "aarch64", ("n3",), "expect.toml:25"),
    ]


def test_mistakes_are_told_all_at_once_with_their_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [
        ('[gpu]\ndrivr = "1"\n', 2, "nobody knows 'gpu.drivr'; did you mean gpu.driver?"),
        ('[hots]\nkernel = "1"\n', 2, "nobody knows 'hots.kernel'; did you mean host.kernel?"),
        ("[gpu]\ncount = '8'\n", 2, "gpu.count is a whole number, or a list of such"),
        ("[gpu]\ncount = true\n", 2, "gpu.count is a whole number"),
        ("gpu.count = 8.5\n", 1, "gpu.count is a whole number"),
        ("gpu.driver = 570\n", 1, "gpu.driver is a text in quotes, or a list of such"),
        ("gpu.driver = []\n", 1, "gpu.driver is a text in quotes"),
        ('gpu.mig = "off"\n', 1, "gpu.mig is true or false"),
        ("rdma.rate = inf\n", 1, "rdma.rate is a number"),
        ('gpu.driver = ""\n', 1, "gpu.driver is empty"),
        ('gpu.driver = "\\u001b[31m"\n', 1, "some that none can see"),
        ("\n[[nodes]]\ngpu.count = 8\n", 2, 'say which nodes, in one way: nodes = "..."'),
        ('[[nodes]]\nnodes = "n1"\nleaf = "sw"\n', 1, "say which nodes, in one way"),
        ('[[nodes]]\nnodes = "n[1-"\n', 2, "n[1-"),
        ("[[nodes]]\ngroup = 3\n", 2, "group is a text in quotes, or a list"),
        ("nodes = 3\n", 1, "write each group of nodes as a table of its own: [[nodes]]"),
        ("gpu = 3\n", 1, "nobody knows 'gpu'"),
        ("[gpu\n", 1, "at line 1"),
        ("net.mtu = 9000\n", 1, "say of which one: net.mtu.NAME = ..."),
        ("[net.mtu]\n\neth0 = '9000'\n", 3, "net.mtu.eth0 is a whole number, or a list of such"),
        ("[net]\nmtuu.eth0 = 9000\n", 2, "nobody knows 'net.mtuu.eth0'; did you mean net.mtu.*?"),
        ("[env.set]\nNCCL_DEBUG = 1\n", 2, "env.set.NCCL_DEBUG is true or false"),
        ("host.sysctl.net.core.somaxconn = 4096\n", 1, "host.sysctl.net.core.somaxconn is a text in quotes"),
    ]
    for text, line, told in cases:
        with pytest.raises(InputError) as raised:
            print(text, read(tmp_path, text))
        assert told in str(raised.value), text
        assert f"line {line}" in str(raised.value), text
        assert str(raised.value).startswith(f"{tmp_path}/expect.toml: "), text
    with pytest.raises(InputError) as raised:
        read(tmp_path, "gpu.count = 'x'\nhost.krnel = 'x'\n")
    assert len(str(raised.value).splitlines()) == 2
    monkeypatch.chdir(tmp_path)
    assert cli.run(["scan", "n1", "--expect", "expect.toml"]) == 2
    assert cli.run(["scan", "n1", "--expect", "nowhere.toml"]) == 2
    assert "nowhere.toml: no such file" in capsys.readouterr().err


KEYS = [*expecting.keys_of(CHECKS), "gpu", "nodes", "x.y"]
VALUES = st.one_of(
    st.text(max_size=8), st.integers(), st.floats(), st.booleans(), st.lists(st.text(max_size=3), max_size=2)
)


@given(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4), st.text(max_size=20))
def test_no_file_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, table: dict, more: str) -> None:
    said = {key: str(one).lower() if isinstance(one, bool) else repr(one) for key, one in table.items()}
    with contextlib.suppress(InputError):
        read(tmp_path_factory.getbasetemp(), "\n".join([*(f"{k} = {v}" for k, v in said.items()), more]))


def test_only_what_not_all_nodes_have_says_of_how_many_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a model, and of a part that --by makes: the number is that of the nodes it stands for."""
    report = replace(sample_report("ready", nodes=3), facts={"n": {}})
    nodes = report.matrix.nodes
    known = SimpleNamespace(checks=load_builtin())
    have = {
        ("gpu.count", ""): dict.fromkeys(nodes, "8"),
        ("gpu.vbios", "A100"): dict.fromkeys(nodes[:2], "92"),
        ("gpu.vbios", "H100"): dict.fromkeys(nodes, "96"),
        ("gpu.driver", ""): dict(zip(nodes, ("550", "550", "570"), strict=True)),
    }
    monkeypatch.setattr(learning, "values", lambda *_: have)
    whole = learning.write(report, known, Path("good.json")).splitlines()
    assert [line for line in whole if "# of" in line] == ['vbios."A100" = "92"  # of 2 nodes']
    assert {"count = 8", 'vbios."H100" = "96"'} <= {*whole}
    assert "# Where nothing stands behind a value, all nodes have it." in whole
    parts = learning.write(report, known, Path("good.json"), by="gpu.driver")
    assert "# of" not in parts.partition("[[nodes]]")[2], "all of a part have what stands there"
    assert 'gpu.driver = "570"' in parts
    assert "# Where nothing stands behind a value, all nodes of its part have it." in parts


# --- with machines ----------------------------------------------------------------------------------------


def lines(path: Path, members: Sequence[Machine]) -> list[str]:
    """The facts of a cluster in a file, as netdoctor facts writes them; what judges them."""
    machines.ready(members)
    with path.open("wb") as file:
        for i, machine in enumerate(members, 1):
            found = machines.answers(machine, i) | {"resolve": {"value": build.resolve(i, len(members))}}
            file.write(
                factlines.encode(
                    factlines.Line(
                        node=build.name(i), version=__version__, taken=factlines.now(), facts=found
                    )
                )
            )
    return ["scan", "--facts", str(path), "-q", "-o", "short"]


def alarms(report: Report) -> dict[str, tuple[str, ...]]:
    return {cause.key: cause.node_list for cause in report.causes if cause.status in ("warn", "fail")}


@GPUS
@pytest.mark.thorough
def test_from_a_healthy_report_to_a_broken_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was written is met by the same cluster; later it finds what all nodes lack, or one alone."""
    monkeypatch.chdir(tmp_path)
    good = machines.load("hgx-h100-ib")
    bad = good.broken("hca-port-down")
    bad = replace(
        bad, spec=machines.merged(bad.spec, {"gpus": 7, "kernel": "5.15.0-1", "hcas": 7}), fault="all"
    )
    machines.ready([good, bad])
    cli.run([*lines(tmp_path / "good.jsonl", [good] * 3), "--save", "good.json"])
    assert cli.run(["expect", "--from", "good.json", "-o", "expect.toml"]) == 0
    written = tomllib.loads(Path("expect.toml").read_text())
    assert (written["gpu"]["count"], written["sw"]["torch"]) == (8, "2.6.0+cu124")
    assert (written["rdma"]["hcas"], written["rdma"]["rate"]) == (8, {"MT4129": 400})
    assert cli.run(["expect", "--from", "good.json", "-o", "expect.toml"]) == 2
    assert "is there already" in capsys.readouterr().err

    Path("netdoctor.toml").write_text('expect = "expect.toml"\n')
    cli.run([*lines(tmp_path / "again.jsonl", [good] * 3), "--save", "again.json"])
    assert alarms(load(Path("again.json"))) == {}
    for count in (1, 3):
        cli.run([*lines(tmp_path / "bad.jsonl", [bad] * count), "--save", "bad.json"])
        nodes = tuple(build.names(count))
        report = load(Path("bad.json"))
        found = alarms(report)
        assert {"gpu-count-fewer", "hca-missing", "parity-kernel"} <= found.keys()
        assert all(found[key] == nodes for key in ("gpu-count-fewer", "hca-missing", "parity-kernel"))
        (kernel,) = (r for r in report.results if r.check == "host.parity" and r.target == "n1")
        assert kernel.expected_from == CONFIG
        assert "expect.toml:" in kernel.summary
    # The same facts, judged again: as then, by another file, by none.
    cli.run(["scan", "--facts", "bad.json", "--save", "rejudged.json", "-q", "-o", "short"])
    assert "parity-kernel" in alarms(load(Path("rejudged.json")))
    Path("other.toml").write_text('host.kernel = "5.15.*"\n')
    for file, named in (("other.toml", False), ("", False), ("expect.toml", True)):
        cli.run(["scan", "--facts", "bad.json", "--expect", file, "--save", "r.json", "-q", "-o", "short"])
        assert ("parity-kernel" in alarms(load(Path("r.json")))) is named
    # A report that is not healthy teaches nothing.
    assert cli.run(["expect", "--from", "bad.json"]) == 2
    assert "is NOT READY" in capsys.readouterr().err


@GPUS
@pytest.mark.thorough
def test_two_generations_of_gpus_are_expected_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    members = [machines.load("hgx-h100-ib")] * 2 + [machines.load("dgx-a100-hdr")] * 2
    scan = lines(tmp_path / "mixed.jsonl", members)
    cli.run([*scan, "--save", "mixed.json"])
    assert {"gpu-model", "hca-rate-kind"} <= alarms(load(Path("mixed.json"))).keys()
    assert cli.run(["expect", "--from", "mixed.json", "--anyway", "--by", "gpu.modle"]) == 2
    assert capsys.readouterr().err.endswith("did you mean gpu.model?\n")
    assert cli.run(["expect", "--from", "mixed.json", "--anyway", "--by", "gpu.model", "-o", "e.toml"]) == 0
    assert [one["nodes"] for one in tomllib.loads(Path("e.toml").read_text())["nodes"]] == [
        "n[1-2]",
        "n[3-4]",
    ]
    cli.run([*scan, "--save", "mixed.json", "--expect", "e.toml"])
    assert alarms(load(Path("mixed.json"))) == {}


@GPUS
@pytest.mark.thorough
def test_what_some_nodes_have_nothing_of_is_expected_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hgx = machines.load("hgx-h100-ib")
    login = replace(hgx, spec=machines.merged(hgx.spec, {"gpus": 0, "hcas": 0}), fault="no GPU, no HCA")
    scan = lines(tmp_path / "nodes.jsonl", [hgx, hgx, login])
    cli.run([*scan, "--save", "nodes.json"])
    for file, by in (("all.toml", []), ("parts.toml", ["--by", "gpu.count"])):
        assert cli.run(["expect", "--from", "nodes.json", "--anyway", "-o", file, *by]) == 0
        cli.run([*scan, "--save", "again.json", "--expect", file])
        assert not [one for one in load(Path("again.json")).causes if one.key == "expected-unseen"]
    assert "# driver is left out: 550.127.05 on n[1-2] and (absent) on n3" in Path("all.toml").read_text()
    parts = tomllib.loads(Path("parts.toml").read_text())["nodes"]
    assert [(one["nodes"], one["gpu"].get("driver")) for one in parts] == [
        ("n[1-2]", "550.127.05"),
        ("n3", None),
    ]
    # One node alone, too, has a kernel and a memory to be kept.
    cli.run([*lines(tmp_path / "one.jsonl", [hgx]), "--save", "one.json"])
    assert cli.run(["expect", "--from", "one.json", "-o", "one.toml"]) == 0
    host = tomllib.loads(Path("one.toml").read_text())["host"]
    assert host.keys() >= {"kernel", "memory", "cpus", "bios", "clock-source"}


@GPUS
def test_every_key_is_looked_up_by_its_check_with_values_of_its_kind() -> None:
    """Of each declared key some machine has values, but for Ray's, and each fits the declared type."""
    seen: dict[str, set[str]] = {}
    for name in ("hgx-h100-ib", "workstation", "cpu-cluster"):
        store = machines.fleet([machines.load(name)] * 2)
        watched = RecordedExpectations()
        store.cluster["wanted"] = watched
        judge(CHECKS, build.names(2), store)
        for (key, _), values in watched.compared.items():
            seen.setdefault(key, set()).update(value for value in values.values() if value)
    known = registry.load(plugins=False)
    kinds = expecting.keys_of(known.checks.values())
    assert len(kinds) == sum(len(check.expects) for check in known.checks.values()), "a key of two checks"
    assert seen.keys() <= kinds.keys(), "looked up and not declared in @check(expects=...)"
    odd = {
        key: value for key, values in seen.items() for value in values if not learning.fits(value, kinds[key])
    }
    assert not odd


def other(value: str, kind: type) -> str:
    """A value of the kind that a node with `value` does not have, and of which it has less."""
    return {str: "another", bool: "off" if value == "on" else "on"}.get(kind) or f"{2 * float(value) + 1:g}"


@GPUS
@pytest.mark.thorough
@pytest.mark.parametrize("name", ["hgx-h100-ib", "cpu-cluster", "dgx-a100-hdr"])
def test_each_key_judges_what_all_nodes_have(name: str) -> None:
    """Typed as it is, a value is silent; typed otherwise, it names every node, with file and line."""
    nodes = build.names(2)
    store = machines.fleet([machines.load(name)] * 2)
    watched = RecordedExpectations()
    store.cluster["wanted"] = watched
    judge(CHECKS, nodes, store)
    kinds = expecting.keys_of(CHECKS)
    owner = {key: check for check in CHECKS for key in check.expects}
    for (key, of), values in watched.compared.items():
        if not all(values.get(node) for node in nodes):
            continue
        value = values["n1"] or ""
        for typed, alarmed in ((value, False), (other(value, kinds[key]), True)):
            wish = Expectation(key=key, any_of=(typed,), place="expect.toml:1", of=of)
            store.cluster["wanted"] = Expectations(wishes=(wish,))
            found = judge([owner[key]], nodes, store).findings[owner[key].id]
            judged = [f for f in found if f.expected_from is CONFIG and f.status.value in ("warn", "fail")]
            assert {f.target for f in judged} == ({*nodes} if alarmed else set()), (key, of, typed, found)
            assert all("expect.toml:1" in f.summary for f in judged), found


# Faults that have another name where nobody has it otherwise: the typed value's own.
NAMED_AS = {
    "hca-rate-lanes": "hca-rate-low",
    "driver-branch": "driver-version",
    "torch-missing": "expected-unseen",
    "env-differs-ld-library-path": "env-not-as-typed",
}
# Faults that nodes have against each other alone; what all have in the same way is how it is done there.
BETWEEN_NODES = {"gpu-imex-nodes", "gpu-imex-stopped"}


@pytest.mark.weekly
@GPUS
@pytest.mark.thorough
def test_what_a_healthy_fleet_has_finds_every_fault_that_all_nodes_share() -> None:
    """Each machine: its own values are met by itself, and named is each of its faults on both nodes."""
    known = [machines.load(name) for name in machines.names()]
    machines.ready([*known, *(one.broken(fault) for one in known for fault in one.faults)])
    kinds = expecting.keys_of(CHECKS)
    nodes = build.names(2)
    checks = [one for one in CHECKS if one.expects]
    others = [one for one in CHECKS if not one.expects and one.via in (None, "ssh")]

    def named(
        machine: Machine, wishes: tuple[Expectation, ...], among: list[Check]
    ) -> dict[str, tuple[str, ...]]:
        store = machines.fleet([machine] * 2)
        store.cluster["wanted"] = Expectations(wishes=wishes)
        groups = diagnose(judge(among, nodes, store))
        return {group.key: group.culprits for group in groups if group.status.value not in ("pass", "skip")}

    for machine in known:
        watched = RecordedExpectations()
        store = machines.fleet([machine] * 2)
        store.cluster["wanted"] = watched
        judge(checks, nodes, store)
        values = {key: {*had.values()} for key, had in watched.compared.items()}
        wishes = tuple(
            Expectation(key=key, of=of, any_of=(value,), place="expect.toml:1")
            for (key, of), had in values.items()
            for value in had
            if value and len(had) == 1 and learning.fits(value, kinds[key])
        )
        assert named(machine, wishes, checks) == {}, machine.name
        for fault in set(machine.faults) - BETWEEN_NODES:
            wanted = NAMED_AS.get(fault, fault)
            # What needs no expectation, as its bound is a constant, is for the other checks.
            hits = [
                culprits
                for among in (checks, others)
                for key, culprits in named(machine.broken(fault), wishes, among).items()
                if key.startswith(wanted)
            ]
            assert tuple(nodes) in hits, (machine.name, fault)


def test_no_listed_node_is_told(tmp_path: Path) -> None:
    path = tmp_path / "expect.toml"
    path.write_text('[[nodes]]\nnodes = "x[1-4]"\ngpu.count = 8\n')
    wanted = expecting.read(path, CHECKS, TARGETS)
    assert expecting.unused(wanted) == ["expect.toml:3 expects something of nodes of which none is listed"]
