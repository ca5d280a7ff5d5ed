"""Manifests of training jobs, and what API servers take of them: official models, and no others' fields."""

from importlib import import_module
from typing import Any

import pytest
import yaml

RELEASE = "1.31"
# Of kubeflow-trainer-api, which Kubeflow generates from its own API and JobSet's.
MODELS = {
    "JobSet": ("jobset_v1alpha2_job_set", "JobsetV1alpha2JobSet"),
    "TrainingRuntime": ("trainer_v1alpha1_training_runtime", "TrainerV1alpha1TrainingRuntime"),
    "ClusterTrainingRuntime": (
        "trainer_v1alpha1_cluster_training_runtime",
        "TrainerV1alpha1ClusterTrainingRuntime",
    ),
    "TrainJob": ("trainer_v1alpha1_train_job", "TrainerV1alpha1TrainJob"),
}
CONTAINER = """\
- name: train
  image: registry.example/train:1
  imagePullPolicy: Always
  command: [torchrun, "--log=$(LOGS)"]
  workingDir: /job
  env:
    - {name: NCCL_DEBUG, value: "1"}
    - {name: LOGS, value: /logs}
  envFrom:
    - configMapRef: {name: settings}
  resources: {limits: {nvidia.com/gpu: 8}}
  securityContext: {capabilities: {add: [IPC_LOCK]}}
  volumeMounts:
    - {name: shm, mountPath: /dev/shm}
"""
ISTIO = "- {name: istio, image: 'istio:1'}\n"
ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step: trainer"


def below(key: str, text: str) -> str:
    """``key:`` with a text under it."""
    return f"{key}:\n" + "".join(f"  {line}\n" for line in text.splitlines())


def item(text: str) -> str:
    """One of a list."""
    return "- " + below("", text).removeprefix(":\n").removeprefix("  ")


def of(name: str) -> str:
    """The container that trains, called otherwise."""
    return CONTAINER.replace("name: train\n", f"name: {name}\n")


def template(containers: str = CONTAINER, more: str = "restartPolicy: Never\n") -> str:
    volumes = "volumes: [{name: shm, emptyDir: {}}]\n"
    return below("template", below("spec", more + volumes + below("containers", containers)))


def job_spec(pods: str = "8", containers: str = CONTAINER, pod_more: str = "") -> str:
    head = f"completionMode: Indexed\nparallelism: {pods}\ncompletions: {pods}\nbackoffLimit: 0\n"
    return head + template(containers, f"restartPolicy: Never\n{pod_more}")


def job(spec: str = job_spec(), name: str = "train", more: str = "") -> str:
    return f"apiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}{more}}}\n" + below("spec", spec)


def replicated(name: str, spec: str, more: str = "") -> str:
    return item(f"name: {name}\n{more}" + below("template", below("spec", spec)))


def jobset(jobs: str, more: str = "", name: str = "set") -> str:
    head = f"apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {{name: {name}}}\n"
    return head + below("spec", more + below("replicatedJobs", jobs))


def runtime(kind: str = "TrainingRuntime", nodes: str = "4", policy: str = "torch: {}") -> str:
    data = replicated("data", template("- {name: data, image: data}\n"))
    node = below("template", f"metadata: {{labels: {{{ANCESTOR}}}}}\n" + below("spec", template(of("node"))))
    node = item(f"name: node\ndependsOn: [{{name: data, status: Complete}}]\n{node}")
    jobs = below("template", below("spec", below("replicatedJobs", data + node)))
    head = f"apiVersion: trainer.kubeflow.org/v1alpha1\nkind: {kind}\nmetadata: {{name: torch-4}}\n"
    return head + below("spec", f"mlPolicy: {{numNodes: {nodes}, {policy}}}\n{jobs}")


def train_job(trainer: str = "numNodes: 6", kind: str = ", kind: TrainingRuntime", more: str = "") -> str:
    head = f"apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {{name: tuned{more}}}\n"
    return head + below("spec", f"runtimeRef: {{name: torch-4{kind}}}\ntrainer: {{{trainer}}}\n")


def pytorch_job(workers: str = "7", more: str = "", master: bool = True) -> str:
    pods = template(of("pytorch") + ISTIO, "")
    roles = below("Master", f"replicas: 1\n{pods}") if master else ""
    roles += below("Worker", f"replicas: {workers}\n{pods}")
    head = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: old}\n"
    return head + below("spec", more + below("pytorchReplicaSpecs", roles))


def documents(*texts: str) -> str:
    return "---\n".join(texts)


SAMPLES = {
    "job": job(),
    "job beside others": documents("kind: ConfigMap\napiVersion: v1\nmetadata: {name: settings}\n", job()),
    "jobset of one": jobset(replicated("node", job_spec("4"))),
    "jobset of three": jobset(
        replicated("lead", job_spec("1"))
        + replicated("node", job_spec("4"), "replicas: 2\n")
        + replicated("last", job_spec("3").replace("completionMode: Indexed\n", "")),
        "network: {enableDNSHostnames: false, publishNotReadyAddresses: false, subdomain: net}\n",
    ),
    "runtime": runtime(),
    "runtime of a train job": documents(train_job(), runtime(nodes="1")),
    "runtime of all": documents(
        runtime("ClusterTrainingRuntime"), train_job("image: other", "", ", namespace: ml")
    ),
    "pytorch job": pytorch_job(),
    "pytorch job of workers": pytorch_job("3", master=False),
    "host network": job(job_spec(pod_more="hostNetwork: true\n")),
    "list": "apiVersion: v1\nkind: List\n" + below("items", item(job())),
}


def objects(text: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(text) if one]


def validate(one: dict[str, Any]) -> None:
    """Raise ValueError where an API server would not take it, a field that it does not know included."""
    if one["kind"] == "List":
        for inner in one["items"]:
            validate(inner)
    elif one["kind"] in (*MODELS, "PyTorchJob"):  # of a PyTorchJob its pods
        for found in pod_templates(one):
            _of_kubernetes({"apiVersion": "v1", "kind": "PodTemplate", "template": found})
    else:
        _of_kubernetes(one)
    if one["kind"] in MODELS:
        module, name = MODELS[one["kind"]]
        pytest.importorskip("kubeflow_trainer_api", reason="of the group dev")
        model = getattr(import_module(f"kubeflow_trainer_api.models.{module}"), name)
        if lost := differing(one, model.from_dict(one).to_dict()):
            raise ValueError(f"not known: {lost}")


def _of_kubernetes(one: dict[str, Any]) -> None:
    known = pytest.importorskip("kubernetes_validate", reason="of the group dev")
    try:
        known.validate(one, RELEASE, strict=True)
    except known.ValidationError as error:
        raise ValueError(f"{list(error.path)}: {error.message}") from None


def differing(data: Any, known: Any, path: str = "") -> list[str]:
    """Where a model has lost something."""
    if isinstance(data, dict) and isinstance(known, dict):
        pairs = [(value, known.get(key), f"{path}.{key}") for key, value in data.items()]
    elif isinstance(data, list) and isinstance(known, list) and len(data) == len(known):
        pairs = [(a, b, f"{path}[{i}]") for i, (a, b) in enumerate(zip(data, known, strict=True))]
    else:
        return [] if data == known or not (data or known) else [path]
    return [lost for pair in pairs for lost in differing(*pair)]


def pod_templates(one: Any) -> list[dict[str, Any]]:
    """Each mapping with a pod's spec in it, wherever it is."""
    if isinstance(one, list):
        return [found for inner in one for found in pod_templates(inner)]
    if not isinstance(one, dict):
        return []
    if isinstance(one.get("spec"), dict) and "containers" in one["spec"]:
        return [one]
    return [found for inner in one.values() for found in pod_templates(inner)]


def gates(text: str) -> list[dict[str, Any]]:
    """The init containers that were put in, in order."""
    return [
        container
        for found in pod_templates(objects(text))
        for container in found["spec"].get("initContainers", [])
        if container["name"] == "netdoctor-gang"
    ]


def expand(text: str, env: dict[str, str]) -> str:
    """``$(NAME)`` as a kubelet fills it in: third_party/forked/golang/expansion of Kubernetes."""
    found, i = "", 0
    while i < len(text):
        if text.startswith("$$", i):
            found, i = found + "$", i + 2
        elif text.startswith("$(", i) and (end := text.find(")", i)) > 0:
            name = text[i + 2 : end]
            found, i = found + env.get(name, f"$({name})"), end + 1
        else:
            found, i = found + text[i], i + 1
    return found
