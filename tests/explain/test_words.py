"""Words: what `explain WORD` knows, and how it is shown."""

import json
import os
import re
from functools import cache
from pathlib import Path

import pytest

from netdoctor.cli import run
from netdoctor.engine.registry import load_builtin
from netdoctor.explain import pages
from netdoctor.explain.glossary import KINDS, TYPES, Word, entries, find
from netdoctor.explain.near import Near, Value, status, values
from netdoctor.facts.software import ConfFile, EnvFacts, Job
from netdoctor.model import Status
from netdoctor.rules import variables
from netdoctor.store import Store
from tests.hostile import HOSTILE

DEMO = str(Path(__file__).parents[2] / "docs" / "demo-report.json")
# Every variable and option that people's guides to multi-node training name, and what launchers set.
GUIDES = """
 MASTER_ADDR MASTER_PORT WORLD_SIZE RANK LOCAL_RANK NCCL_DEBUG NCCL_SOCKET_IFNAME NCCL_IB_DISABLE
NCCL_IB_HCA GLOO_SOCKET_IFNAME CUDA_VISIBLE_DEVICES SLURM_JOB_NODELIST SLURM_NTASKS SLURM_PROCID
SLURM_NNODES --nnodes --nproc_per_node --node_rank --master_addr --master_port --rdzv_id --rdzv_backend
--rdzv_endpoint --use_env --nodes --ntasks-per-node --gres --time --address --num-gpus --gpus --ipc
--shm-size -p pdsh DeepSpeed LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE
ROLE_NAME TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT OMP_NUM_THREADS SLURM_NODEID SLURM_LOCALID
SLURM_GPUS_ON_NODE SLURM_JOB_GPUS OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_SIZE
PMI_RANK MPI_LOCALRANKID ACCELERATE_USE_FSDP RAY_ADDRESS NCCL_IB_GID_INDEX NCCL_P2P_DISABLE NCCL_P2P_LEVEL
NCCL_NET NCCL_NET_PLUGIN NCCL_DEBUG_SUBSYS TP_SOCKET_IFNAME UCX_NET_DEVICES UCX_TLS FI_PROVIDER
TORCH_NCCL_BLOCKING_WAIT TORCH_NCCL_TRACE_BUFFER_SIZE TORCH_DISTRIBUTED_DEBUG CUDA_HOME PATH LD_LIBRARY_PATH
VIRTUAL_ENV CONDA_PREFIX HF_HOME HF_TOKEN HF_HUB_OFFLINE PET_NNODES PET_NODE_RANK ranks node_rank rendezvous
ddp env:// rank worker Xid SXid
""".split()  # noqa: SIM905  a list of words reads better so


@cache
def glossary() -> pages.Glossary:
    return pages.Glossary(load_builtin())


def test_every_word_of_the_guides_is_known():
    missing = [word for word in GUIDES if not glossary().look_up(word)]
    assert not missing


def test_entries_are_whole():
    checks = load_builtin()
    names = [word.name for word in entries()]
    assert len(names) == len(set(names))
    for word in entries():
        assert word.source, word.name
        assert word.what.endswith((".", ")")), word.name
        assert word.kind in KINDS, word.name
        assert word.type in TYPES, word.name
        assert set(word.checks) <= set(checks), word.name
        assert word.kind != "option" or word.program, word.name
        for other in word.see:
            assert glossary().look_up(other), f"{word.name} sends to {other}"


def test_every_page_fits_a_screen():
    many = Near(
        name="r.json of today",
        nodes=[f"gpu{n}" for n in range(40)],
        letters={check: {f"gpu{n}": "X!?b-."[n % 6] for n in range(40)} for check in load_builtin()},
        gpus={f"gpu{n}": 8 for n in range(40)},
        store=logins({f"gpu{n}": EnvFacts(variables=dict.fromkeys(LONG, f"{n}" * 90)) for n in range(40)}),
    )
    for word in (*entries(), *glossary().words.values()):
        alone = pages.text(word, glossary()).splitlines()
        assert len(alone) <= pages.HEIGHT, word.name
        assert not any("…" in line for line in alone) or word.kind in ("check", "cause"), word.name
        told = len(word.checks) > 2 or word.name in LONG or len(alone) > 18
        for lines in (alone, pages.text(word, glossary(), many).splitlines() if told else alone):
            assert len(lines) <= pages.HEIGHT, word.name
            assert max(map(len, lines)) <= pages.WIDTH, word.name


def test_what_a_word_may_be_is_cut_where_the_line_is_wider_than_the_screen():
    word = find("NCCL_DEBUG")[0]
    line = f"  {word.name}: {word.what}"
    assert pages.choice("x", [word], len(line)).splitlines()[1] == line
    cut = pages.choice("x", [word], len(line) - 1).splitlines()[1]
    assert cut.endswith(" …")
    assert len(cut) < len(line)


def test_only_a_paragraph_longer_than_its_room_is_cut():
    share = (pages.HEIGHT - 2) // 2
    long, fits = " ".join(["x" * 60] * (share + 5)), " ".join(["y" * 60] * share)
    word = Word(name="w", kind="status", group="g", what=long, by=fits, source="s")
    lines = pages.text(word, glossary()).splitlines()
    assert [line.strip(" x") for line in lines if "x" in line] == [*[""] * (share - 1), "…"]
    assert sum(line.endswith("y") for line in lines) == share


LONG = ("NCCL_SOCKET_IFNAME", "MASTER_ADDR", "CUDA_VISIBLE_DEVICES")


def logins(envs: dict[str, EnvFacts], job: Job | None = None) -> Store:
    store = Store()
    for node, env in envs.items():
        store.put("env", node, env)
    if job:
        store.cluster["job"] = job
    return store


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        ("--nproc_per_node", ["--nproc-per-node"]),
        ("nproc-per-node", ["--nproc-per-node"]),
        ("NCCL_DEBUG=INFO", ["NCCL_DEBUG"]),
        ("nccl_debug", ["NCCL_DEBUG"]),
        ("-9", ["signal 9 SIGKILL"]),
        ("SIGKILL", ["signal 9 SIGKILL"]),
        ("exitcode -9", ["signal 9 SIGKILL"]),
        ("exitcode: 137", ["exit code 137"]),
        ("137", ["exit code 137", "vendor err 137 0x89", "Xid 137"]),
        ("Xid (79)", ["Xid 79"]),
        ("status=12", ["ibv_wc_status 12 IBV_WC_RETRY_EXC_ERR"]),
        ("vendor_err=129", ["vendor err 129 0x81"]),
        ("IBV_WC_RETRY_EXC_ERR", ["ibv_wc_status 12 IBV_WC_RETRY_EXC_ERR"]),
        ("cudaErrorSystemNotReady", ["CUDA error 802 cudaErrorSystemNotReady"]),
        ("TORCH_NCCL_NAN_CHECK", ["TORCH_NCCL_"]),
        ("rdma_gid", ["rdma.gid"]),
        ("UNKNOWN", ["unknown"]),
        ("firewall_blocked", ["firewall_blocked"]),
        ("uneven data", ["mismatched_collectives"]),
        ("NVLink", ["NVLink"]),
        ("NVSwitch", ["Fabric Manager"]),
        ("29500", ["MASTER_PORT"]),
        ("NCCL_NO_SUCH_THING", []),
        ("", []),
    ],
)
def test_finds(typed: str, names: list[str]):
    assert [word.name for word in glossary().look_up(typed)] == names


def test_words_that_belong_together_are_one():
    names = ["NCCL_DEBUG", "Xid 79", "vendor err 129", "CUDA error 802", "nosuch"]
    typed = " ".join(names).split(" ")
    assert [text for text, _ in glossary().split(typed)] == names


def test_statuses_and_checks_are_the_models_own():
    for one in Status:
        assert glossary().look_up(one.value)[0].what == one.meaning
    for name, check in load_builtin().items():
        assert glossary().look_up(name)[0].what == check.title


def test_what_rules_know_is_known_here_and_alike():
    names = variables.INTEGERS | set(variables.WORDS) | variables.MUST_BE_EQUAL | set(variables.RANKS)
    inner = {"NCCL_IB_MERGE_VFS", "NCCL_LAUNCH_MODE_PARALLEL"}  # in no documentation of NCCL
    assert not [name for name in names - inner if not find(name)]
    for name, spelled in variables.WORDS.items():
        numbers = [str(n) for n in range(6)] if name in variables.NUMBERS_TOO else []
        assert sorted(find(name)[0].allowed) == sorted([*spelled, *numbers])


def test_every_option_of_torchrun_is_known():
    python = os.environ.get("NETDOCTOR_TEST_TORCH_PYTHON")
    if not python:
        pytest.skip("NETDOCTOR_TEST_TORCH_PYTHON names no interpreter with torch")
    folder = Path(python).parent.parent / "lib"
    source = next(folder.glob("python3*/site-packages/torch/distributed/run.py")).read_text()
    options = set(re.findall(r'^\s+"(--[a-z][a-z-]+)",$', source, re.MULTILINE))
    assert len(options) > 20
    assert not [option for option in options if option not in {word.name for word in find(option)}]


def test_values_of_the_reader_are_folded():
    conf = ConfFile(path="/etc/nccl.conf", place="system", values={"NCCL_SOCKET_IFNAME": "eth0"})
    store = logins(
        {
            "n1": EnvFacts(),
            "n2": EnvFacts(variables={"NCCL_SOCKET_IFNAME": "ib0"}),
            "n3": EnvFacts(nccl_conf=(conf,)),
            "n4": EnvFacts(),
        }
    )
    near = Near(name="r", nodes=["n1", "n2", "n3", "n4"], store=store)
    said = [one.describe(4) for one in values(find("NCCL_SOCKET_IFNAME")[0], near)]
    assert said == ["unset on n[1,4]", "ib0 (login session) on n2", "eth0 (/etc/nccl.conf) on n3"]
    job = Job(env={"NCCL_SOCKET_IFNAME": "eth1"}, env_from={"NCCL_SOCKET_IFNAME": "train.env:4"})
    near = Near(name="r", nodes=near.nodes, store=logins({n: EnvFacts() for n in near.nodes}, job))
    assert [one.describe(4) for one in values(find("NCCL_SOCKET_IFNAME")[0], near)] == [
        "eth1 (train.env:4) on all 4 nodes"
    ]


@pytest.mark.parametrize("word", ["TORCH_NCCL_BLOCKING_WAIT", "TORCH_NCCL_"])
def test_a_value_under_another_name_than_the_one_asked_for_is_told_with_its_name(word: str):
    name = "NCCL_BLOCKING_WAIT" if word != "TORCH_NCCL_" else "TORCH_NCCL_DUMP_ON_TIMEOUT"
    near = Near(name="r", nodes=["n1"], store=logins({"n1": EnvFacts(variables={name: "1"})}))
    assert [one.describe(1) for one in values(find(word)[0], near)] == [f"{name}=1 (login session) on n1"]


def test_what_was_not_collected_has_no_value():
    near = Near(name="r", nodes=["n1"], store=Store())
    assert values(find("NCCL_DEBUG")[0], near) == []


def test_ranks_are_counted_where_gpus_are_known():
    near = Near(name="r", nodes=["a", "b"], gpus={"a": 8, "b": 8})
    said = [one.text for one in values(find("ranks")[0], near)]
    assert said[1] == "16 GPUs, 8 each: world size 16 with one process per GPU"
    assert len(values(find("ranks")[0], Near(name="r", nodes=["a", "b"], gpus={"a": 8}))) == 1


def test_results_are_told_worst_first():
    near = Near(name="r", nodes=["a", "b", "c"], letters={"net.ports": {"a": ".", "b": "X", "c": "."}})
    assert status("net.ports", near) == [
        Value(text="fail", nodes=("b",)),
        Value(text="pass", nodes=("a", "c")),
    ]
    assert "net.ports: fail on b" in pages.text(find("MASTER_PORT")[0], glossary(), near)
    alone = dict(pages.rows(find("MASTER_PORT")[0], glossary(), None))
    assert f"net.ports: {load_builtin()['net.ports'].title}" in alone["decides"]


def test_hostile_text_stays_inert(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    envs = {text: EnvFacts(variables={"NCCL_DEBUG": text}) for text in HOSTILE.values()}
    near = Near(name="r", nodes=list(envs), store=logins(envs))
    shown = pages.text(find("NCCL_DEBUG")[0], glossary(), near)
    for text in [*HOSTILE.values()][::20]:
        run(["explain", "--", f"x{text}"])
    captured = capsys.readouterr()
    for line in (shown + captured.out + captured.err).split("\n"):
        assert line.isprintable(), ascii(line)


def test_command(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["explain", "--nproc-per-node", "-p"]) == 0
    assert "option of torchrun" in (said := capsys.readouterr().out)
    assert "option of docker" in said
    assert run(["explain", "MASTER_ADR"]) == 3
    assert "near it: MASTER_ADDR" in capsys.readouterr().err
    assert run(["explain", "net.ports", "-o", "json", "--report", DEMO]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "netdoctor.words/1"
    assert told["words"][0]["here"][0] == {"value": "fail", "nodes": ["node2"]}
    assert run(["explain", "x", "-o", "json"]) == 3
    assert json.loads(capsys.readouterr().out)["unknown"][0]["word"] == "x"
    assert run(["explain", "RANK", "--report", "nosuch.json"]) == 2
    assert "nosuch.json" in capsys.readouterr().err
    assert run(["explain"]) == 0
    assert "NCCL_SOCKET_IFNAME" in capsys.readouterr().out
    (tmp_path / ".netdoctor").mkdir()
    (tmp_path / ".netdoctor" / "last.json").write_text("{")
    assert run(["explain", "RANK"]) == 0
    assert "the last report is left out" in capsys.readouterr().err
    assert run(["explain", "log", "--nnodes"]) == 2
    for options, said in (("--via slurm", "name it too"), ("--scan", "--scan HOSTS; without hosts")):
        capsys.readouterr()
        assert run(["explain", "log", "a.log", *options.split()]) == 2
        assert said in capsys.readouterr().err
