"""What the pages have for Kubernetes is what its API takes: objects of known fields, that fit together."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from netdoctor import cli
from tests.scan.test_launch_pages import Block, blocks

REPO = Path(__file__).resolve().parents[2]
RELEASE = "1.31"
PAGE = "../engines.md"


def manifests() -> list[Block]:
    """Those of all pages that `blocks` can read."""
    pages = (PAGE, *(path.name for path in (REPO / "docs" / "launch").glob("*.md")))
    found = [block for page in pages for block in blocks(page) if block.kind == "yaml"]
    return [block for block in found if "\nkind: " in block.text]


def objects(text: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(text) if one]


@pytest.mark.parametrize("block", manifests(), ids=lambda block: block.name)
def test_the_api_takes_every_manifest(block: Block) -> None:
    validate = pytest.importorskip("kubernetes_validate")  # of the group dev
    for one in objects(block.text):
        validate.validate(one, RELEASE, strict=True)
        one.get("spec", one)["unheard"] = 1
        with pytest.raises(validate.ValidationError, match="unheard"):
            validate.validate(one, RELEASE, strict=True)


@pytest.mark.parametrize("more", [[], ["--any-nodes"]], ids=" ".join)
def test_the_api_takes_what_plan_writes(
    more: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    (tmp_path / "hosts.txt").write_text("gpu1\ngpu2\n")
    line = ["plan", str(tmp_path / "hosts.txt"), "--launcher", "k8s", "--nproc", "8", "--script", "train.py"]
    assert cli.run([*line, "--image", "registry.example/train:1", *more]) == 0
    kinds = []
    for one in objects(capsys.readouterr().out):
        validate.validate(one, RELEASE, strict=True)
        kinds.append(one["kind"])
    assert kinds == ["Service", "Job"]


def test_what_calls_finds_who_judges() -> None:
    """The Service leads to the judging pod and its port, and both have one secret."""
    found = {block.name: objects(block.text) for block in manifests()}
    (service, judge), (facts,) = found["meet-judge.yaml"], found["meet-facts.yaml"]
    template = judge["spec"]["template"]
    (judging,), (calling,) = template["spec"]["containers"], facts["spec"]["template"]["spec"]["containers"]
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    (port,), (open_port,) = service["spec"]["ports"], judging["ports"]
    assert port["port"] == open_port["containerPort"]
    assert judging["command"][:4] == ["netdoctor", "scan", "--meet", str(port["port"])]
    assert f" --meet {service['metadata']['name']}:{port['port']} " in calling["command"][2]
    count = facts["spec"]["completions"]
    assert judging["command"][judging["command"].index("--tasks") + 1] == str(count)
    assert facts["spec"]["parallelism"] == count
    for one in (judging, calling):
        given = {variable["name"]: variable["valueFrom"] for variable in one["env"]}
        assert given["NETDOCTOR_MEET_SECRET"] == {"secretKeyRef": {"name": "meet", "key": "secret"}}
