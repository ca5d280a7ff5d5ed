from typing import Any

from netdoctor.checks.env.login import env_login
from netdoctor.facts.host import Session
from netdoctor.facts.launching import ShellFacts
from netdoctor.facts.software import EnvFacts
from netdoctor.model import Finding, Status

from ..build import cause, job

MODULE = {"LD_LIBRARY_PATH": "/opt/cuda/lib64:/usr/lib", "NCCL_IB_HCA": "mlx5"}
NONE_OF_A_JOB = (
    "PATH", "CONDA_PREFIX", "VIRTUAL_ENV", "RANK", "MASTER_PORT", "SLURM_JOB_ID", "PYTHONSTARTUP"
)  # fmt: skip
TOOLS = {"python3": "/opt/conda/bin/python3", "nvcc": "/opt/cuda/bin/nvcc"}


def judged(shell: dict[str, Any], env: dict[str, str] | None = None, **said: Any) -> list[Finding]:
    session = said.pop("session", None)
    own = {"python3": "/usr/bin/python3"}
    facts = ShellFacts(**{"shell": "/bin/bash", "own_tools": own, **shell})
    return list(env_login(facts, EnvFacts(variables=env or {}), job(**said), session))


def test_what_only_a_login_has() -> None:
    for shell, env, names in (
        ({}, {}, set()),
        ({"variables": {"LD_LIBRARY_PATH": "/usr/lib"}}, {"LD_LIBRARY_PATH": "/usr/lib:/more"}, set()),
        ({"variables": MODULE}, {"LD_LIBRARY_PATH": "/usr/lib"}, {"LD_LIBRARY_PATH", "NCCL_IB_HCA"}),
        ({"variables": MODULE}, MODULE, set()),
        ({"variables": {"NCCL_DEBUG": ""}}, {}, {"NCCL_DEBUG"}),
        ({"variables": {"NCCL_DEBUG": "INFO"}}, {"NCCL_DEBUG": "WARN"}, {"NCCL_DEBUG"}),
        ({"variables": {"HF_TOKEN": "set"}}, {}, {"HF_TOKEN"}),
        ({"variables": dict.fromkeys(NONE_OF_A_JOB, "/x")}, {}, set()),
        ({"tools": TOOLS}, {}, {"python3", "nvcc"}),
        ({"tools": {"python3": "/usr/bin/python3"}}, {}, set()),
    ):  # fmt: skip
        findings = judged(shell, env, launcher="pdsh")
        assert bool(findings) is bool(names), (shell, env)
        for finding in findings:
            assert finding.status is Status.WARN
            assert all(name in finding.summary for name in names)
    # The job sets it, or names its interpreter.
    own = job(env=MODULE, env_from=dict.fromkeys(MODULE, "job.env:1"), launcher="pdsh")
    assert list(env_login(ShellFacts(shell="/bin/bash", variables=MODULE), EnvFacts(), own, None)) == []
    named = Session(outcome="ok", interpreter="/opt/conda/bin/python3")
    assert judged({"tools": {"python3": "/x/python3"}}, launcher="pdsh", session=named) == []


def test_it_matters_to_who_starts_ranks_by_ssh() -> None:
    for launcher, status in (
        ("pdsh", Status.WARN), ("deepspeed", Status.WARN), ("mpirun", Status.WARN), (None, Status.WARN),
        ("torchrun", Status.PASS), ("srun", Status.PASS), ("ray", Status.PASS), ("accelerate", Status.PASS),
    ):  # fmt: skip
        (finding,) = judged({"variables": MODULE}, launcher=launcher)
        assert finding.status is status
        if status is Status.WARN:
            assert finding.cause is not None
            assert (finding.cause.confidence == "certain") is (launcher is not None)


def test_the_line_of_bashrc_is_named_and_no_word_of_the_node_is_run() -> None:
    findings = judged({"variables": MODULE, "guard": 6}, launcher="pdsh")
    own, look = cause(findings, "env-login-only").fixes
    assert "above line 6 of ~/.bashrc" in own.text
    assert look.commands[0].shell.startswith("bash -l -i -c env ")
    odd = judged({"shell": "/bin/$(reboot)", "variables": MODULE}, launcher="pdsh")
    assert cause(odd, "env-login-only").fixes[1].commands[0].shell.startswith("sh -l -i -c env ")


def test_a_shell_that_says_nothing_is_unknown() -> None:
    assert judged({"error": "no answer in 10 s"})[0].status is Status.UNKNOWN
    assert judged({"error": "fish is not asked"})[0].status is Status.SKIP


def test_only_a_value_that_is_cut_ends_in_dots() -> None:
    for value, shown in (("x" * 200, "x" * 200), ("x" * 201, "x" * 200 + "…")):
        (finding,) = judged({"variables": {"NCCL_DEBUG_FILE": value}}, launcher="pdsh")
        assert finding.expected == f"NCCL_DEBUG_FILE: {shown}"
