"""Release of Ray and patch of its Python, compared across the cluster."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from netdoctor.check import check
from netdoctor.checks._shared.parity import differing
from netdoctor.facts.expected import Expectations
from netdoctor.facts.ray import RayFacts
from netdoctor.model import Cause, Evidence, Finding, Fix, Status, run, seen

RELEASE = Cause("ray-version", "Ray differs between {nodes}")
PYTHON = Cause("ray-python", "Ray's Python differs between {nodes}")
COMMIT = Cause("ray-commit", "Ray is built from a different commit on {nodes}")


@check(
    source="https://github.com/ray-project/ray/blob/ray-2.44.1/python/ray/_private/utils.py",
    expects={"ray.version": str},
)
def ray_version(nodes: Mapping[str, RayFacts], expect: Expectations | None = None) -> Iterator[Finding]:
    """Ray and the Python of its workers have the same version on every node, including the patch number.

    Looks at:
        The raylet on each node: version and commit of its Ray (``ray/_version.py``), and the version of
        the Python with which it starts workers.

    Matters because:
        Ray compares its release and the Python patch number when a node or a driver joins
        (``check_version_info``), and ends it with "Version mismatch". If a node joined anyway, for
        example from another image, workers may not be able to read each other's pickles and messages.

    Fix:
        Use one image or one virtual environment for all nodes; then ``ray stop`` and ``ray start`` there.
    """

    def evidence(node: str) -> Evidence:
        ray = nodes[node]
        return seen(
            f"the raylet of {ray.python}", f"Ray {ray.version} ({ray.commit}), Python {ray.python_version}"
        )

    def as_elsewhere(what: str) -> Callable[[str, str], Fix]:
        return lambda _, version: run(
            f"install {what} {version}, then ray stop and ray start", effect="next launch"
        )

    versions = {node: ray.version for node, ray in nodes.items()}
    options: dict[str, Any] = {"key": "ray.version", "expect": expect, "report_equal": True}
    yield from differing(versions, "Ray", RELEASE, evidence_of=evidence, fixes=as_elsewhere("Ray"), **options)
    pythons = {node: ray.python_version for node, ray in nodes.items()}
    yield from differing(pythons, "Ray's Python", PYTHON, evidence_of=evidence, fixes=as_elsewhere("Python"))
    # Of one release: wheels of a nightly, or a patched build.
    commits = {node: ray.commit[:12] for node, ray in nodes.items() if ray.commit}
    if len({ray.version for ray in nodes.values()}) == 1:
        yield from differing(commits, "Ray's commit", COMMIT, status=Status.WARN, evidence_of=evidence)
