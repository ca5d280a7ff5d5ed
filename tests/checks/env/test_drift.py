"""Sessions that differ between nodes, and what is left of looking for a fault."""

import pytest

from netdoctor.checks.env.drift import env_drift
from netdoctor.facts.expected import Expectation, Expectations, RecordedExpectations
from netdoctor.facts.software import EnvFacts
from netdoctor.model import Finding, Status

from ..build import address, causes, env, hosts, job, name, names, nets


def run(*sessions: dict[str, str], **of_job: str) -> list[Finding]:
    count = len(sessions)
    envs = {node: env(**one) for node, one in zip(names(count), sessions, strict=True)}
    setting = job(count, env=of_job, env_from=dict.fromkeys(of_job, "train.env:4"))
    return list(env_drift(envs, hosts(count), nets(count), setting))


def odd(name: str, *values: str) -> dict[str, set[str]]:
    return causes(run(*({name: value} if value else {} for value in values)))


@pytest.mark.parametrize(
    "values",
    [
        {"HF_HOME": ("/data/hf",) * 3},
        {"LD_LIBRARY_PATH": ("/a:/b", "/a/:/b:", ":/a:/b:/a")},
        {"TORCHINDUCTOR_CACHE_DIR": tuple(f"/scratch/{name(i)}/cache" for i in (1, 2, 3))},
        {"UCX_TCP_BRIDGE": tuple(f"{address(i)}:4000" for i in (1, 2, 3))},
        {"NCCL_SOCKET_IFNAME": ("eth0", "eth1", "")},
        {"NCCL_IB_HCA": ("mlx5_0", "mlx5_1", "")},
        {"CUDA_VISIBLE_DEVICES": ("0", "1", "2")},
        {"NCCL_ALGO": ("Ring", "Tree", "")},
        {"RANK": ("0", "1", "2")},
        {"PATH": ("/a", "/b", "/c")},
        {"OMP_NUM_THREADS": ("", "", "")},
        {"TORCH;reboot": ("1", "2", "3")},
    ],
)
def test_silent(values: dict[str, tuple[str, ...]]) -> None:
    assert not run(*({key: texts[i] for key, texts in values.items()} for i in range(3)))


def test_who_has_another_value() -> None:
    assert odd("HF_HOME", "/data", "/data", "/tmp") == {"env-differs-hf-home": {"n3"}}
    assert odd("OMP_NUM_THREADS", "8", "8", "") == {"env-differs-omp-num-threads": {"n3"}}
    assert odd("HF_TOKEN", "set", "set", "") == {"env-differs-hf-token": {"n3"}}
    assert odd("PYTHONPATH", "", "", "/home/joe/lib") == {"env-differs-pythonpath": {"n3"}}
    assert odd("CUDA_HOME", "/a", "/b") == {"env-differs-cuda-home": {"n1", "n2"}}
    # Of two nodes the one that sets it is the one to look at.
    assert odd("TORCH_HOME", "", "/data") == {"env-differs-torch-home": {"n2"}}
    assert odd("HF_HOME", "/data/n1", "/data/n2", "/data/other") == {"env-differs-hf-home": {"n3"}}
    assert odd("HF_HOME", "/data/n10", "/data/n2", "/data/n3") == {"env-differs-hf-home": {"n1"}}


def test_a_search_path_says_which_folder() -> None:
    (finding,) = run(*({"LD_LIBRARY_PATH": path} for path in ("/a:/b", "/a:/b", "/opt/nccl:/a")))
    assert finding.status is Status.WARN
    assert "(+/opt/nccl, -/b)" in finding.summary
    assert finding.cause
    assert [c.shell for fix in finding.cause.fixes for c in fix.commands] == ["export LD_LIBRARY_PATH=/a:/b"]


def test_what_the_job_sets_is_the_same_everywhere() -> None:
    assert not run({"HF_HOME": "/a"}, {"HF_HOME": "/b"}, {}, HF_HOME="/c")


def test_a_node_with_another_environment_is_one_finding() -> None:
    usual = {f"TORCH_X{i}": "1" for i in range(8)}
    assert causes(run(usual, usual, {})) == {"env-other": {"n3"}}
    assert len(run(usual, usual, dict(list(usual.items())[:4]))) == 4


LEFT = (
    ("CUDA_LAUNCH_BLOCKING", "1", "0"),
    ("TORCH_DISTRIBUTED_DEBUG", "DETAIL", "INFO"),
    ("TORCH_CPP_LOG_LEVEL", "INFO", "WARNING"),
    ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1", ""),
    ("TORCHDYNAMO_DISABLE", "1", "true"),
    ("TORCH_NCCL_BLOCKING_WAIT", "Yes", "on"),
    ("PYTHONDEVMODE", "1", ""),
)


def test_left_from_debugging() -> None:
    for variable, value, harmless in LEFT:
        key = f"env-left-{variable.lower().replace('_', '-')}"
        assert odd(variable, value, value) == {key: {"n1", "n2"}}
        assert odd(variable, value, "") == {key: {"n1"}}
        assert causes(run({}, {}, **{variable: value})) == {key: {"n1", "n2"}}
        assert causes(run({}, **{variable: value})) == {key: {"n1"}}
        assert not odd(variable, harmless, harmless)
    (finding,) = run({}, CUDA_LAUNCH_BLOCKING="1")
    assert finding.status is Status.WARN
    assert "(train.env:4) makes every kernel wait" in finding.summary


def test_without_facts_beside_it() -> None:
    envs: dict[str, EnvFacts] = {"n1": env(HF_HOME="/a"), "n2": env(HF_HOME="/a"), "n3": env()}
    assert causes(env_drift(envs, None, None, job())) == {"env-differs-hf-home": {"n3"}}


def test_what_is_expected_of_variables() -> None:
    def held(*sessions: dict[str, str], job_sets: dict[str, str] | None = None, **keys: str) -> set[str]:
        """Nodes and summaries; keys: ``value__HF_HOME="/a"``, ``set__HF_HOME="off"``."""
        wishes = tuple(
            Expectation(key=f"env.{key}.*", of=of, any_of=(typed,), place="e:1")
            for (key, _, of), typed in ((key.partition("__"), typed) for key, typed in keys.items())
        )
        count = len(sessions)
        envs = {node: env(**one) for node, one in zip(names(count), sessions, strict=True)}
        of_job = job_sets or {}
        setting = job(count, env=of_job, env_from=dict.fromkeys(of_job, "train.env:4"))
        found = env_drift(envs, hosts(count), nets(count), setting, Expectations(wishes=wishes))
        return {f"{f.target} {f.summary}" for f in found}

    one, other = {"HF_HOME": "/a"}, {"HF_HOME": "/b"}
    assert held(one, one, value__HF_HOME="/a") == set()
    assert held(other, {}, value__HF_HOME="/a") == {
        "n1 value of HF_HOME /b here, e:1 expects /a",
        "n2 value of HF_HOME (absent) here, e:1 expects /a",
    }
    assert held({}, value__HF_HOME="*") == {"n1 value of HF_HOME (absent) here, e:1 expects *"}
    # As a process of the job sees it; and typed values take the place of the majority.
    assert held({}, {}, job_sets={"HF_HOME": "/a"}, value__HF_HOME="/a") == set()
    assert held(one, one, other, value__HF_HOME="/?")
    assert held(one, one, other, value__HF_HOME="/*") == set()
    assert held(one, {}, set__HF_HOME="off") == {"n1 setting of HF_HOME on here, e:1 expects off"}
    assert held({"X": "1"}, {}, set__X="on") == {"n2 setting of X off here, e:1 expects on"}
    # What a job sets is not written down as what its nodes have.
    watched = RecordedExpectations()
    envs = {node: env(HF_HOME="/a") for node in names(2)}
    list(env_drift(envs, None, None, job(2, env={"OMP_NUM_THREADS": "8"}), watched))
    assert {of for key, of in watched.compared if key == "env.value.*"} == {"HF_HOME"}


@pytest.mark.parametrize(
    "name",
    ["PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "TORCH_LOGS", "NCCL_DEBUG_SUBSYS", "UCX_LOG_LEVEL"],
)
def test_what_only_a_log_shows_is_a_note(name: str) -> None:
    """And it is none of those that together make another environment."""
    (note,) = [one for one in run({name: "1"}, {}, {}) if one.status is Status.PASS]
    assert note.summary == f"{name} is unset on n2 and n3; 1 on n1: no effect on the job"
    assert not causes(run({name: "1"}, {}, {}))
    assert causes(run({name: "1", "OMP_NUM_THREADS": "4"}, {}, {})) == {"env-differs-omp-num-threads": {"n1"}}


@pytest.mark.parametrize("name", ["PYTHONPATH", "PYTHONHOME", "PYTHONNOUSERSITE", "TORCH_DISTRIBUTED_DEBUG"])
def test_what_changes_the_job_is_no_note(name: str) -> None:
    assert causes(run({name: "DETAIL"}, {}, {}))
