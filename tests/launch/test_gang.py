"""`plan --gang`: what API servers take, in which every pod of a job is one number of a gang, and no other."""

import io
import os
import random
import re
import shlex
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from netdoctor import cli
from netdoctor.cli import environ
from netdoctor.errors import InputError
from netdoctor.launch.gang import NAME, SECRET, add_gang
from netdoctor.launch.gang_kinds import JOB_INDEX, JOBSET, REPLICA, GangOptions
from netdoctor.launch.manifests import read, write
from tests.hostile import HOSTILE, each_of
from tests.launch.gangs import (
    CONTAINER,
    ISTIO,
    SAMPLES,
    documents,
    expand,
    gates,
    item,
    job,
    job_spec,
    jobset,
    objects,
    of,
    pod_templates,
    pytorch_job,
    replicated,
    runtime,
    train_job,
    validate,
)

SERVICE = """\
apiVersion: v1
kind: Service
metadata: {name: train}
spec:
  clusterIP: None
  selector: {job-name: train}
"""
BALANCED = SERVICE.replace("clusterIP: None", "type: ClusterIP")
TWO = job_spec("2")
BEHIND = "dependsOn: [{name: m, status: Ready}]\n"
A, B = replicated("a", TWO), replicated("b", TWO, BEHIND)
M = replicated("m", job_spec("1", ISTIO), BEHIND.replace("name: m", "name: a"))


def named(name: str) -> str:
    return SERVICE.replace("{name: train}", f"{{name: {name}}}")


def made(text: str, **options: Any) -> str:
    return add_gang("job.yaml", text, GangOptions(**options))


def body(text: str) -> str:
    return "".join(line for line in text.splitlines(True) if not line.startswith("#"))


def head(text: str) -> str:
    return text.removesuffix(body(text))


@pytest.mark.parametrize("name", SAMPLES)
def test_the_api_takes_what_is_made_of_each_kind(name: str) -> None:
    text = made(SAMPLES[name])
    assert gates(text)
    for one in objects(text):
        validate(one)
        places = [template["spec"] for template in pod_templates(one)]
        places += [one["spec"]] if one["kind"] not in ("List", "PyTorchJob", "ConfigMap") else []
        for place in places:
            place["unheard"] = 1
            with pytest.raises(ValueError, match="unheard"):
                validate(one)
            del place["unheard"]


@pytest.mark.parametrize("name", SAMPLES)
def test_twice_is_once(name: str) -> None:
    once = made(SAMPLES[name])
    twice = made(once)
    assert body(twice) == body(once)
    assert made(twice) == twice


def test_pods_of_a_job_meet_as_their_container_is_started() -> None:
    fetch = {"name": "fetch", "image": "fetch:1"}
    text = made(job(job_spec(pod_more=f"initContainers: [{fetch}]\n")))
    service, found = objects(text)
    pods = found["spec"]["template"]["spec"]
    assert service["metadata"]["name"] == pods["subdomain"] == "train"
    selector = {"job-name": "train"}
    assert service["spec"] == {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector}
    gate, other = pods["initContainers"]
    (container,) = pods["containers"]
    assert other == fetch
    assert gate.pop("name") == NAME
    assert gate.pop("command") == [
        "netdoctor", "gate", "--gang", "train-0.train:29600", "--tasks", "8", "--timeout", "600",
        "--rank", "$(JOB_COMPLETION_INDEX)", "--no-save", "--", "true",
    ]  # fmt: skip
    *copied, node, secret = gate.pop("env")
    assert copied == container["env"]
    assert node == {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    reference = {"secretKeyRef": {"name": "train-gang", "key": "secret"}}
    assert secret == {"name": SECRET, "valueFrom": reference}
    assert gate == {key: value for key, value in container.items() if key not in ("name", "command", "env")}
    assert container == yaml.safe_load(CONTAINER)[0]
    assert "8 pods meet at train-0.train:29600" in head(text)
    command = "openssl rand -hex 16 | kubectl create secret generic train-gang --from-file=secret=/dev/stdin"
    assert f"# once, before kubectl apply: {command}\n" in head(text)


def test_options_are_followed() -> None:
    more = "    - {name: NODE_NAME, value: mine}\n    - {name: MINE, value: $(NODE_NAME)}\n"
    spec = job_spec(containers=CONTAINER.replace("  envFrom", f"{more}  envFrom") + ISTIO)
    text = made(job(spec), container="tr*", env_globs=("NCCL_*", "M*"), image="gated:1", port=77)
    (gate,) = gates(text)
    assert gate["image"] == "gated:1"
    assert "train-0.train:77" in gate["command"]
    # Ours stands where theirs stood, so that what refers to it still finds it.
    assert [one["name"] for one in gate["env"]] == ["NCCL_DEBUG", "NODE_NAME", "MINE", SECRET]
    assert gate["env"][1]["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}


@pytest.mark.parametrize(
    ("service", "more", "chosen", "count"),
    [
        pytest.param(SERVICE, "", "train", 1, id="used"),
        pytest.param(named("other"), "", "other", 1, id="of another name"),
        pytest.param(BALANCED, "", "train-gang", 2, id="not headless"),
        pytest.param(SERVICE.replace("job-name: t", "job-name: r"), "", "train-gang", 2, id="of other pods"),
        pytest.param(named("train, namespace: b"), "", "train", 2, id="elsewhere"),
        pytest.param("", "subdomain: mine\n", "mine", 1, id="subdomain"),
    ],
)
def test_a_service_of_the_file_is_taken_where_it_leads_to_the_pods(
    service: str, more: str, chosen: str, count: int
) -> None:
    text = made(documents(service, job(job_spec(pod_more=more))))
    services = [one for one in objects(text) if one["kind"] == "Service"]
    assert len(services) == count
    used = next(one for one in services if one["metadata"] == {"name": chosen})
    assert used["spec"]["publishNotReadyAddresses"] is True
    (pods,) = (one["spec"]["template"]["spec"] for one in objects(text) if one["kind"] == "Job")
    assert pods["subdomain"] == chosen
    assert f"train-0.{chosen}:29600" in gates(text)[0]["command"]
    assert ("is true now" if count == 1 and service else "is added") in head(text)


def test_a_gang_of_a_namespace_has_its_service_and_secret_there() -> None:
    text = made(job(more=", namespace: ml"))
    assert objects(text)[0]["metadata"] == {"name": "train", "namespace": "ml"}
    assert "kubectl create secret generic train-gang -n ml --from-file" in head(text)


def test_host_network_finds_names_and_says_that_a_port_is_taken() -> None:
    text = made(SAMPLES["host network"], port=4000)
    assert objects(text)[1]["spec"]["template"]["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert "port 4000 has to be free on the nodes" in head(text)
    own = made(job(job_spec(pod_more="hostNetwork: true\ndnsPolicy: Default\n")))
    assert objects(own)[1]["spec"]["template"]["spec"]["dnsPolicy"] == "Default"


def test_a_jobset_has_its_own_service() -> None:
    text = made(SAMPLES["jobset of one"])
    assert [one["kind"] for one in objects(text)] == ["JobSet"]
    (gate,) = gates(text)
    assert gate["command"][:6] == ["netdoctor", "gate", "--gang", "set-node-0-0.set:29600", "--tasks", "4"]
    assert gate["command"][0] != "sh"


def test_replicated_jobs_of_a_jobset_are_one_gang_of_what_matches() -> None:
    text = made(SAMPLES["jobset of three"])
    assert "12 pods meet at set-lead-0-0.net:29600" in head(text)
    (found,) = objects(text)
    network = {"enableDNSHostnames": True, "publishNotReadyAddresses": True, "subdomain": "net"}
    assert found["spec"]["network"] == network
    assert head(text).count("is true now") == 2
    for gate in gates(text):
        paths = {one["name"]: one["valueFrom"] for one in gate["env"] if "valueFrom" in one}
        path = "metadata.labels['jobset.sigs.k8s.io/job-index']"
        assert paths[JOB_INDEX] == {"fieldRef": {"fieldPath": path}}
    store = replicated("store", job_spec("1", of("store")))
    text = made(jobset(store + replicated("node", TWO, "replicas: 2\n")), container="train")
    assert "4 pods meet at set-node-0-0.set:29600" in head(text)
    assert len(gates(text)) == 1


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "pods"),
    [
        ("jobset of three", [[(0, 0)], list(product(range(2), range(4))), [(0, j) for j in range(3)]]),
        ("pytorch job", [[(0, 0)], [(i, 0) for i in range(7)]]),
        ("pytorch job of workers", [[(i, 0) for i in range(3)]]),
    ],
)
def test_each_number_is_one_pods(name: str, pods: list[list[tuple[int, int]]], tmp_path: Path) -> None:
    """By a real sh, behind what a kubelet does to the words."""
    (tmp_path / "netdoctor").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "netdoctor").chmod(0o755)
    ranks = []
    for gate, members in zip(gates(made(SAMPLES[name])), pods, strict=True):
        for index, completion in members:
            env = {JOB_INDEX: str(index), REPLICA: str(index), "JOB_COMPLETION_INDEX": str(completion)}
            words = [expand(word, env) for word in gate["command"]]
            path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
            done = subprocess.run(
                words, env=env | path, capture_output=True, text=True, check=True, timeout=30
            )
            words = done.stdout.splitlines()
            ranks.append(int(words[words.index("--rank") + 1]))
            assert words[-3:] == ["--no-save", "--", "true"]
            assert words[words.index("--tasks") + 1] == str(sum(map(len, pods)))
    assert ranks == list(range(len(ranks)))


def test_a_runtime_does_not_know_the_name_of_its_job_and_asks_for_it() -> None:
    text = made(SAMPLES["runtime"])
    (gate,) = gates(text)
    sources = {one["name"]: one.get("valueFrom") for one in gate["env"]}
    path = "metadata.labels['jobset.sigs.k8s.io/jobset-name']"
    assert sources[JOBSET] == {"fieldRef": {"fieldPath": path}}
    # What the trainer itself makes MASTER_ADDR of: kubeflow/trainer, plugins/torch/torch.go.
    words = [expand(word, {JOBSET: "tuned"}) for word in gate["command"]]
    assert words[3:6] == ["tuned-node-0-0.tuned:29600", "--tasks", "4"]
    assert "in the namespace of each TrainJob" in head(text)
    data, node = pod_templates(objects(text))
    assert "initContainers" not in data["spec"]
    assert node["spec"]["initContainers"] == [gate]


def test_a_train_job_says_how_many_and_what_its_container_has() -> None:
    trainer = (
        "numNodes: 6, image: 'mine:2', env: [{name: LOGS, value: /mine}], "
        "resourcesPerNode: {limits: {cpu: 4}, requests: {cpu: 2}}"
    )
    (gate,) = gates(made(documents(runtime(nodes="1"), train_job(trainer))))
    assert gate["command"][5] == "6"
    assert gate["image"] == "mine:2"
    assert {"name": "LOGS", "value": "/mine"} in gate["env"]
    assert gate["resources"] == {"limits": {"nvidia.com/gpu": 8, "cpu": 4}, "requests": {"cpu": 2}}
    differ = made(documents(runtime(), train_job("image: a"), train_job("image: b")))
    assert gates(differ)[0]["image"] == "registry.example/train:1"
    assert "the TrainJobs differ" in head(differ)
    spaces = made(SAMPLES["runtime of all"])
    assert "secret generic torch-4-gang -n ml " in head(spaces)
    # Another runtime's job says nothing of this one.
    other = made(documents(runtime("ClusterTrainingRuntime"), train_job("numNodes: 3"), runtime(nodes="2")))
    assert [gate["command"][5] for gate in gates(other)] == ["4", "3"]


def test_a_pytorch_job_gets_a_way_to_its_first_pod() -> None:
    service, found = objects(made(SAMPLES["pytorch job"]))
    labels = {"job-name": "old", "replica-type": "master", "replica-index": "0"}
    assert service["spec"]["selector"] == {
        f"training.kubeflow.org/{key}": value for key, value in labels.items()
    }
    assert service["spec"]["publishNotReadyAddresses"] is True
    path = "metadata.labels['training.kubeflow.org/replica-index']"
    for template in pod_templates(found):
        (gate,) = template["spec"]["initContainers"]
        assert f"--gang {service['metadata']['name']}:29600 --tasks 8" in gate["command"][2]
        paths = {one["name"]: one["valueFrom"] for one in gate["env"] if "valueFrom" in one}
        assert paths[REPLICA] == {"fieldRef": {"fieldPath": path}}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(job(job_spec("1")), "Job train has no two pods", id="job"),
        pytest.param(jobset(replicated("a", job_spec("1"))), "JobSet set has no two pods", id="jobset"),
        pytest.param(runtime(nodes="1"), "numNodes of mlPolicy, or of a TrainJob", id="runtime"),
        pytest.param(pytorch_job("1", master=False), "PyTorchJob old has no two pods", id="pytorch"),
        pytest.param(pytorch_job("0", master=False), "PyTorchJob old", id="none"),
    ],
)
def test_one_pod_meets_nobody_and_is_left_as_it_is(text: str, says: str) -> None:
    found = made(text)
    assert says in head(found)
    assert "nothing is changed" in head(found)
    assert objects(found) == objects(text)


def test_jobs_that_the_pattern_leaves_out_stay_as_they_are() -> None:
    text = made(documents(job(), job(job_spec(containers=of("eval")), name="eval")), container="train")
    assert len(gates(text)) == 1
    assert "Job eval has no container train, and is left as it is" in head(text)


def test_a_job_that_makes_pods_anew_has_a_note() -> None:
    text = made(job(job_spec().replace("backoffLimit: 0\n", "")))
    assert "backoffLimit is 6" in head(text)
    assert "backoffLimit" not in head(made(job()))
    most = str(2**31 - 1)  # what JobSet's in-place restart asks for
    assert f"backoffLimit is {most}" in head(made(job(job_spec().replace("Limit: 0", f"Limit: {most}"))))


def test_an_image_that_nobody_names_is_asked_for() -> None:
    text = made(job(job_spec(containers="- name: train\n  command: [x]\n")))
    assert "the image is not known: --image" in head(text)
    assert "image" not in gates(text)[0]


LABEL = "has to be a DNS label"
NUMBER = "parallelism has to be a whole number up to 100000"
NOT_INDEXED = "pods without a number cannot meet; set completionMode: Indexed"
RUNTIME = "is not in the file; add it behind a line of ---, best under a new name: kubectl get"
BRACKETS = "[" * 30 + "%s" + "]" * 30
WRONG = {
    "not indexed": (
        job(job_spec().replace("Mode: Indexed", "Mode: NonIndexed")),
        f"job.yaml:5: Job train: {NOT_INDEXED}",
    ),
    "no mode": (job(job_spec().replace("completionMode: Indexed\n", "")), NOT_INDEXED),
    "unequal": (job().replace("completions: 8", "completions: 9"), "parallelism is 8 and completions 9"),
    "half": (job().replace("  completions: 8\n", ""), "parallelism is 8 and completions none"),
    "word": (job(job_spec("eight")), NUMBER),
    "text": (job(job_spec("'8'")), NUMBER),
    "many": (job(job_spec("1000000")), NUMBER),
    "digits": (job(job_spec("9" * 30)), NUMBER),
    "no name": (job().replace("{name: train}", "{generateName: train-}"), "metadata.name is missing"),
    "no label": (job(name="a.b"), f"metadata.name {LABEL}"),
    "long": (job(name="a" * 62), "with -7 it may have 63"),
    "digit": (job(name="3d"), "the first one a letter; give the pod template a subdomain"),
    "namespace": (job(more=", namespace: A"), f"metadata.namespace {LABEL}"),
    "containers": (
        job(job_spec(containers=CONTAINER + ISTIO)),
        "job.yaml:11: Job train: containers train and istio: which one trains? Name it with --container",
    ),
    "no containers": (job(job_spec(containers="[]")), "a pod template without containers"),
    "subdomain": (
        documents(BALANCED, job(job_spec(pod_more="subdomain: train\n"))),
        "subdomain train: the Service of that name is not headless",
    ),
    "init": (job(job_spec(pod_more="initContainers: {a: b}\n")), "initContainers is not a list"),
    "in order": (
        jobset(A + replicated("b", TWO), "startupPolicy: {startupPolicyOrder: InOrder}\n"),
        "InOrder: b starts after a, and they would wait for each other",
    ),
    "behind": (jobset(A + B.replace("name: m", "name: a")), "b starts after a (dependsOn)"),
    "set not indexed": (jobset(A.replace("Mode: Indexed", "Mode: NonIndexed")), NOT_INDEXED),
    "set long": (jobset(replicated("a" * 60, TWO)), f"a pod's name {LABEL}"),
    "set nameless": (jobset(A.replace("- name: a\n", "- nam: a\n")), f"a pod's name {LABEL}"),
    "network": (jobset(A, "network: {subdomain: A.b}\n"), f"network.subdomain {LABEL}"),
    "no trainer": (runtime().replace("step: trainer", "step: other"), "0 of its replicatedJobs have"),
    "mpi": (runtime(policy="mpi: {}"), "mlPolicy.mpi: the launcher starts when nodes are ready"),
    "no runtime": (train_job(), f"{RUNTIME} trainingruntime torch-4 -o yaml"),
    "other": (documents(train_job(kind=""), runtime()), f"{RUNTIME} clustertrainingruntime torch-4 -o yaml"),
    "odd": (train_job(kind=", kind: $(id)"), "one of TrainingRuntime and ClusterTrainingRuntime"),
    "differ": (
        documents(runtime(), train_job(), train_job("numNodes: 2")),
        "its TrainJobs have 2 and 6 nodes; each needs a runtime of its own",
    ),
    "space": (documents(runtime(), train_job(more=", namespace: $(id)")), f"metadata.namespace {LABEL}"),
    "elastic": (pytorch_job(more="elasticPolicy: {minReplicas: 1}\n"), "lets the number of pods change"),
    "taken": (
        documents(named("old-gang"), pytorch_job()),
        "job.yaml:1: Service old-gang: PyTorchJob old needs that name",
    ),
    "none": (
        SERVICE,
        "no training job in it; expected one of Job, JobSet, TrainingRuntime, ClusterTrainingRuntime, "
        "TrainJob and PyTorchJob",
    ),
    "empty": ("", "no training job"),
    "a list": ("- a\n", "job.yaml:1: not a Kubernetes object"),
    "not YAML": (job() + "\n{{ .Values }}: [\n", "not YAML"),
    "tag": (job() + "x: !vault a\n", "Kubernetes knows no tag !vault"),
    "object": ("a: !!python/object:os.system {}\n", "Kubernetes knows no tag"),
    "binary": ("a: !!binary aGk=\n", "Kubernetes knows no tag"),
    "other tag": ("a: !!int b\n", "b is not what its tag says"),
    "twice": ("kind: Job\nkind: Job\n", "job.yaml:2: kind is given twice"),
    "key": ("? [a]\n: b\n", "job.yaml:1: a key that is not text"),
    "circle": ("a: &a [*a]\n", "job.yaml:1: an alias to what encloses it"),
    "no anchor": ("a: *b\n", "an alias to what encloses it, or to nothing"),
    "deep": ("[" * 61 + "]" * 61, "nested more than 60 deep"),
    "aliases": (f"a: &a {BRACKETS % 'x'}\nb: {BRACKETS % '*a'}\n", "job.yaml:2: nested more than 60"),
    "NUL": ("a: \0\n", "not YAML"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_a_gang_is_refused_in_words(name: str) -> None:
    text, says = WRONG[name]
    with pytest.raises(InputError) as caught:
        made(text)
    assert says in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_job_between_two_of_a_gang_binds_them() -> None:
    with pytest.raises(InputError, match=r"m starts after a \(dependsOn\)"):
        made(jobset(A + M + B), container="*")
    with pytest.raises(InputError, match=r"b starts after a \(dependsOn\)"):
        made(jobset(A + M + B), container="train")
    # What starts after all of them holds nobody up.
    assert "2 pods" in head(made(jobset(A + M), container="train"))


def test_a_pattern_that_matches_nothing_names_what_there_is() -> None:
    for text in (job(), job(job_spec("1"))):
        with pytest.raises(InputError, match=r"--container x: no container is called so; there are train$"):
            made(text, container="x")
    with pytest.raises(InputError, match="containers train and trial: which one trains"):
        made(job(job_spec(containers=CONTAINER + of("trial"))), container="tr*")


def test_aliases_are_bounded_and_shared_parts_are_changed_by_themselves() -> None:
    for first, inner in (("[x, x]", "[%s]"), ("{x: 1}", "{<<: [%s]}")):
        lines = [f"a{i}: &a{i} {inner % ', '.join([f'*a{i - 1}'] * 9)}" for i in range(1, 9)]
        with pytest.raises(InputError, match=r"job.yaml:\d+: more than 100000 values"):
            made("\n".join([f"a0: &a0 {first}", *lines]))
    shared = A.replace("template:\n        spec:", "template: &pods\n        spec:")
    assert shared != A
    other = item("name: b\ntemplate: {spec: {completions: 3, parallelism: 3, template: *pods}}\n")
    first, second = (gate["command"][2] for gate in gates(made(jobset(shared + other))))
    assert "$((0 + " in first
    assert "$((2 + " in second


def test_scalars_go_out_as_they_came_in() -> None:
    """Go's YAML reads some otherwise than PyYAML does."""
    words = (
        "12:30", "1e3", '"1e3"', "y", "'y'", '"n"', "0644", "0o644", "'0o644'", "1_000", "2026-01-01",
        "yes", '"yes"', "null", '"null"', "=", ".5", "0x1f", '""', '"# c"', '"a: b"', "'it''s'",
        '"é\\u2028"', '"\\a"',
    )  # fmt: skip
    lines = [f"- {word}" for word in words]
    again = write(read("f", "kind: X\nlist:\n" + "\n".join(lines) + "\n"))
    assert [re.sub(r"\\L", r"\\u2028", line) for line in again.splitlines()[2:]] == lines
    blocks = "kind: X\na: |\n  x\n   y\n\n  # $(X)\nc: |+\n  kept\n\nb: |2-\n    lead\n"
    assert write(read("f", blocks)) == blocks
    for text in (blocks, "kind: X\na: >-\n  one\n  two\n\n  three\nb: plain\n  goes on\n\n  still\n"):
        assert yaml.safe_load(write(read("f", text))) == yaml.safe_load(text)


@each_of(HOSTILE)
def test_hostile_names_stay_in_their_place(attack: str) -> None:
    name = yaml.safe_dump(HOSTILE[attack], width=10**6).splitlines()[0]
    texts = [
        job(job_spec(containers=of(name))), job(name=name), job(more=f", namespace: {name}"),
        job(job_spec(pod_more=f"subdomain: {name}\n")), jobset(replicated(name, TWO)), jobset(A, name=name),
        documents(runtime(), train_job(more=f", namespace: {name}")), job(job_spec("1"), name=name),
        documents(runtime(), train_job(kind=f", kind: {name}")), job(job_spec(name)), f"kind: {name}\n",
    ]  # fmt: skip
    refused: list[str] = []
    for text in texts:
        try:
            found = made(text)
        except InputError as error:
            refused.append(str(error))
        else:
            lines = head(found).splitlines()
            assert all(map(str.isprintable, lines)), text
            assert len(lines) <= 6, text
            assert gates(found) or "nothing is changed" in head(found), text
    with pytest.raises(InputError) as caught:
        add_gang(HOSTILE[attack], "", GangOptions(container=HOSTILE[attack]))
    assert all(map(str.isprintable, [*refused, str(caught.value)]))


def places(value: Any) -> list[tuple[Any, Any]]:
    """(mapping or list, key or number) of all there is in it."""
    pairs = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    below = [place for _, inner in pairs if isinstance(inner, dict | list) for place in places(inner)]
    return [*((value, key) for key, _ in pairs), *below]


KEYS = sorted({key for text in SAMPLES.values() for _, key in places(objects(text)) if isinstance(key, str)})
LEAVES = st.none() | st.booleans() | st.integers(-3, 10**12) | st.floats(allow_nan=False)
LEAVES |= st.sampled_from(["Indexed", "None", "a", "node", "", *KEYS])
ANYTHING = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=20,
)


@given(st.sampled_from(sorted(SAMPLES)), st.integers(0, 2**32), st.lists(ANYTHING, min_size=1, max_size=4))
def test_whatever_stands_where_is_refused_or_written(name: str, seed: int, values: list[Any]) -> None:
    """A sample with anything in the place of some of its values."""
    drawn = random.Random(seed)
    found = objects(SAMPLES[name])
    for value in values:
        holder, key = drawn.choice(
            [(one, key) for one, key in places(found) if key not in ("apiVersion", "kind")]
        )
        holder[key] = value
    refusal = text = ""
    try:
        text = made(yaml.safe_dump_all(found))
    except InputError as error:
        refusal = str(error)
    assert refusal.isprintable()
    assert not text or body(made(text)) == body(text)


def run(*line: str) -> int:
    return cli.run(["plan", *line])


def test_from_a_file_and_from_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_bytes(b"\xef\xbb\xbf" + job().encode())
    options = ["--image", "gated:1", "--port", "77", "--env-glob", "NCCL_*", "--env-glob", "X*"]
    assert run("--gang", str(tmp_path / "job.yaml"), *options, "--container", "t*") == 0
    text = capsys.readouterr().out
    assert text == made(job(), image="gated:1", port=77, env_globs=("NCCL_*", "X*"), container="t*")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(job().encode())))
    assert run("--gang", "-") == 0
    assert capsys.readouterr().out == made(job())


def test_what_plan_writes_for_kubernetes_becomes_a_gang(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "hosts.txt").write_text("gpu1\ngpu2\ngpu3\n")
    line = [str(tmp_path / "hosts.txt"), "--launcher", "k8s", "--nproc", "8", "--script", "train.py $(X)"]
    assert run(*line, "--image", "registry.example/train:1") == 0
    plain = capsys.readouterr().out
    (tmp_path / "job.yaml").write_text(plain)
    assert run("--gang", str(tmp_path / "job.yaml")) == 0
    text = capsys.readouterr().out
    service, found = objects(text)
    for one in (service, found):
        validate(one)
    assert service == objects(plain)[0]
    assert "--tasks 3" in " ".join(gates(text)[0]["command"])
    # Without what was put in it is what it was.
    del found["spec"]["template"]["spec"]["initContainers"]
    assert found == objects(plain)[1]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (["gpu1", "--gang", "F"], "leave HOSTS out"),
        (["--gang", "F", "--last"], "leave --last out"),
        (["--gang", "F", "--tp", "2", "--launcher", "k8s"], "leave --launcher and --tp out"),
        (["--gang", "F", "--from-env"], "leave --from-env out"),
        (["--container", "a", "gpu1"], "--container, --env-glob and --nodes go with --gang FILE"),
        (["--env-glob", "a", "gpu1"], "--container, --env-glob and --nodes go with --gang FILE"),
        (["--gang", "F.yam"], "no such file or directory; did you mean"),
        (["--gang", "."], "is a directory"),
        (["--gang", "latin.yaml"], "latin.yaml:2: not UTF-8 text"),
        (["--gang", "large.yaml"], "larger than 1 MiB"),
    ],
)
def test_bad_lines_end_with_2_and_a_sentence(
    line: list[str],
    says: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("F").write_text(job())
    Path("F.yaml").write_text(job())
    Path("latin.yaml").write_bytes("a: b\nc: é\n".encode("latin-1"))
    Path("large.yaml").write_bytes(b"#" * (1024 * 1024 + 1))
    assert run(*line) == 2
    out, err = capsys.readouterr()
    assert not out
    assert says in err
    assert "Traceback" not in err


@pytest.mark.parametrize("name", SAMPLES)
def test_gate_knows_the_words(name: str) -> None:
    for gate in gates(made(SAMPLES[name])):
        command = gate["command"]
        if command[0] == "sh":
            command = shlex.split(re.sub(r"\$\(\(.*\)\)", "3", command[2]).removeprefix("exec "))
        # As the kubelet does it.
        command = ["3" if word == "$(JOB_COMPLETION_INDEX)" else word for word in command]
        assert command[-2:] == ["--", "true"]
        args = cli.build_parser("gate").parse_args(command[1:-2])
        assert (args.gang, args.timeout, args.no_save) == (command[3], 600, True)
        assert args.rank == 3


def test_gate_takes_our_variables_for_no_options() -> None:
    sub = next(one for one in cli.build_parser("gate")._actions if one.dest == "command")
    names = dict.fromkeys((JOB_INDEX, JOBSET, REPLICA, SECRET), "1")
    assert environ.take(sub.choices["gate"], [], names) == []
