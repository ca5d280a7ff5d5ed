from netdoctor.checks.net.proxy import net_proxy
from netdoctor.model import Finding, Status

from ..build import cause, causes, env, job, names
from ..build_ray import rays

PROXY = {"http_proxy": "http://***@proxy.example.org:3128"}
ALL = "10.0.0.1,10.0.0.2,10.0.0.3"


def judged(
    job_env: dict[str, str] | None = None, launcher: str | None = "ray", **on_n2: str
) -> list[Finding]:
    """What is said of three nodes, of which n2 has these variables in its session."""
    envs = {n: env(**(on_n2 if n == "n2" else {})) for n in names(3)}
    return list(net_proxy(envs, job(3, env=job_env or {}, launcher=launcher), None))


def test_who_is_captured() -> None:
    for job_env, session, nodes in (
        ({}, {}, set()),
        ({}, PROXY, {"n2"}),
        (PROXY, {}, {*names(3)}),
        ({**PROXY, "no_proxy": ALL}, {}, set()),
        ({**PROXY, "no_proxy": "10.0.0.0/24"}, {}, set()),
        ({**PROXY, "NO_PROXY": "10.0.0.1"}, {}, {*names(3)}),
        ({"https_proxy": "p:1"}, {}, set()),
        ({}, {**PROXY, "no_proxy": "*"}, set()),
    ):
        findings = judged(job_env, **session)
        assert causes(findings) == ({"proxy-captures": nodes} if nodes else {}), (job_env, session)
        assert {one.status for one in findings} <= {Status.WARN}


def test_only_where_something_speaks_http_between_nodes() -> None:
    assert [one.status for one in judged(PROXY, "torchrun")] == [Status.SKIP]
    assert causes(judged({**PROXY, "PET_RDZV_BACKEND": "etcd-v2"}, "torchrun"))
    envs = {n: env() for n in names(3)}
    assert causes(net_proxy(envs, job(3, env=PROXY, packages=("vllm",)), None))
    assert causes(net_proxy(envs, job(3, env=PROXY), rays(3)))


def test_the_fix_names_the_nodes() -> None:
    (fix,) = cause(judged(PROXY), "proxy-captures").fixes
    shell = f'export no_proxy="${{no_proxy:+$no_proxy,}}{ALL}"; export NO_PROXY="$no_proxy"'
    assert [one.shell for one in fix.commands] == [shell]
