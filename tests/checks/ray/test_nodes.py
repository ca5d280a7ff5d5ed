import pytest

from netdoctor.checks.ray.nodes import ray_nodes
from netdoctor.facts.host import Login
from netdoctor.model import Status

from ..build import causes, node, said, session


def test_silent_where_an_actor_runs() -> None:
    assert said(ray_nodes(node(), session(transport="ray"))) == []
    (noisy,) = said(ray_nodes(node(), session(transport="ray", noise="Welcome")))
    assert noisy.status is Status.PASS


@pytest.mark.parametrize(
    ("outcome", "key", "status"),
    [
        (Login.NAME, "ray-unknown-node", Status.FAIL),
        (Login.UNREACHABLE, "ray-node-dead", Status.FAIL),
        (Login.SHELL, "ray-actor", Status.FAIL),
        (Login.INTERPRETER, "ray-interpreter", Status.FAIL),
        (Login.OLD_PYTHON, "ray-old-python", Status.FAIL),
        (Login.TIMEOUT, "ray-late", Status.UNKNOWN),
        (Login.CONTROL, "ray-driver", Status.UNKNOWN),
        (Login.KEX, "ray-driver", Status.UNKNOWN),  # of no Ray
    ],
)
def test_each_end_has_its_cause_and_rays_own_word(outcome: Login, key: str, status: Status) -> None:
    (finding,) = found = said(ray_nodes(node(), session(outcome=outcome, detail="Ray's word")))
    assert causes(found) == {key: {"n1"} if key != "ray-driver" else {"control"}}
    assert finding.status is status
    assert finding.summary == "Ray's word"
