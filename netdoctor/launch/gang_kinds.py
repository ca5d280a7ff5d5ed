"""Who is in a gang of pods, how many, and where its first one is found: by each kind of training job.

What the controllers do is read from their sources:

- an Indexed Job gives JOB_COMPLETION_INDEX to init containers, too, and its pods the hostname JOB-INDEX
  (kubernetes, pkg/controller/job/indexed_job_utils.go and the API's text of completionMode);
- a JobSet makes its jobs Indexed, labels the pods, and has a headless Service that publishes the addresses of
  pods that are not ready (kubernetes-sigs/jobset 0.7 to 0.12, jobset_webhook.go, jobset_controller.go);
- Kubeflow Trainer 2 makes a JobSet of the TrainJob's name, with numNodes pods in the replicated job that has
  the trainer's label (kubeflow/trainer 2.0 to 2.3, pkg/runtime/core, pkg/runtime/framework/plugins);
- the training operator publishes no pod that is not ready, and RANK is for containers alone (1.9,
  pkg/controller.v1/common/service.go, pytorch/envvar.go): a PyTorchJob gets a Service for its first pod, and
  the rank from a label.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from netdoctor.errors import InputError
from netdoctor.launch.manifests import Map, flag_of, is_null, items, mapping, number_of, read, text_of, write
from netdoctor.text import clean, listing

PORT = 29600
TIMEOUT_S = 600
PODS_MAX = 100_000  # of an Indexed Job
JOB_INDEX, JOBSET, REPLICA = "NETDOCTOR_JOB_INDEX", "NETDOCTOR_JOBSET_NAME", "NETDOCTOR_REPLICA_INDEX"
ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
TRAINER_API = "trainer.kubeflow.org/v1alpha1"
TRAIN_JOB = f"{TRAINER_API} TrainJob"
RUNTIMES = ("TrainingRuntime", "ClusterTrainingRuntime")
# What the API takes: RFC 1123 for hostnames and namespaces, RFC 1035 for Services; room for -gang.
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SERVICE = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9]([a-z0-9.-]{0,245}[a-z0-9])?")
_IS_LABEL = "a DNS label: small letters, digits and -, at most 63"
_NOT_INDEXED = "pods without a number cannot meet; set completionMode: Indexed"


@dataclass(frozen=True, slots=True)
class GangOptions:
    container: str | None = None  # pattern of the name of the container that trains
    env_globs: tuple[str, ...] = ("*",)
    image: str | None = None
    port: int = PORT


@dataclass(frozen=True, slots=True)
class Member:
    """A pod template whose pods are of the gang."""

    pod: dict[str, Any]
    container: Mapping[str, Any]
    rank: str = ""  # shell arithmetic; empty where gate finds it by itself
    variables: Mapping[str, str] = field(default_factory=dict)  # name: path of a field of the pod
    trainer: Mapping[str, Any] = field(
        default_factory=dict
    )  # what a TrainJob has in place of the container's


@dataclass(frozen=True, slots=True)
class Gang:
    title: str
    members: list[Member]
    head: str  # name of the first pod
    count: int
    secret: str
    namespace: str


class File:
    """The objects of one file, and what is to be said of them."""

    def __init__(self, name: str, text: str, options: GangOptions) -> None:
        self.name, self.options = clean(name, 300), options
        self.documents = read(name, text)
        self.objects: list[Map] = []
        self.tops: dict[int, Map] = {}  # the document that an object is in, by the object's id
        for document in self.documents:
            is_list = text_of(document.get("kind")).endswith("List") and "items" in document
            for one in items(document["items"]) if is_list else [document]:
                self.objects.append(one)
                self.tops[id(one)] = document
        self.services: list[
            tuple[int, Map]
        ] = []  # new ones, each with the id of the document that it precedes
        self.remarks: list[str] = []
        self.containers: list[str] = []  # names of all of which one may train

    def of_kinds(self, *kinds: str) -> list[Map]:
        return [one for one in self.objects if kind_of(one) in kinds]

    def wrong(self, one: Any, text: str, part: Any = None) -> InputError:
        """What is wrong with an object, with its line, or with that of a part."""
        line = getattr(part, "line", 0) or one.line
        return InputError(clean(f"{self.name}:{line}: {title_of(one)}: {text}", 900))

    def remark(self, text: str) -> None:
        if text not in self.remarks:
            self.remarks.append(text)

    def add_service(self, name: str, before: Map, selector: Mapping[str, str]) -> None:
        metadata = {"name": name}
        if namespace := namespace_of(before):
            metadata["namespace"] = namespace
        spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": dict(selector)}
        service = Map(apiVersion="v1", kind="Service", metadata=metadata, spec=spec)
        self.objects.append(service)
        self.services.append((id(self.tops[id(before)]), service))

    def text(self) -> str:
        """YAML of all, each new Service before the document that needs it."""
        return write(
            one
            for document in self.documents
            for one in (*(new for top, new in self.services if top == id(document)), document)
        )


def kind_of(one: Mapping[str, Any]) -> str:
    return f"{text_of(one.get('apiVersion'))} {text_of(one.get('kind'))}"


def name_of(one: Mapping[str, Any]) -> str:
    return text_of(mapping(one.get("metadata")).get("name"))


def namespace_of(one: Mapping[str, Any]) -> str:
    return text_of(mapping(one.get("metadata")).get("namespace"))


def title_of(one: Mapping[str, Any]) -> str:
    """``Job train``."""
    return clean(f"{text_of(one.get('kind'))} {name_of(one)}", 100)


def _names(file: File, one: Map, pattern: re.Pattern[str], expected: str) -> tuple[str, str]:
    """(name, namespace), as they may stand in commands and addresses."""
    name = name_of(one)
    if not name:
        raise file.wrong(one, "metadata.name is missing: addresses are made of it, and generateName has none")
    if not pattern.fullmatch(name):
        raise file.wrong(one, f"metadata.name has to be {expected}")
    return name, _namespace(file, one)


def _namespace(file: File, one: Map) -> str:
    namespace = namespace_of(one)
    if namespace and not _LABEL.fullmatch(namespace):
        raise file.wrong(one, f"metadata.namespace has to be {_IS_LABEL}")
    return namespace


def _number(file: File, one: Map, where: Mapping[str, Any], key: str, default: int = 1) -> int:
    value = where.get(key)
    number = default if is_null(value) else number_of(value)
    if number is None or number > PODS_MAX:
        raise file.wrong(one, f"{key} has to be a whole number up to {PODS_MAX}", where)
    return number


def _inner(job: Mapping[str, Any]) -> Mapping[str, Any]:
    """The spec that is in the template of a replicated job, or of a Job."""
    return mapping(mapping(job.get("template")).get("spec"))


def _training(
    file: File, one: Map, template: Any, default: str = ""
) -> tuple[dict[str, Any], Mapping[str, Any] | None]:
    """(spec of the pods, their container that trains); no container where --container matches none.

    default: which one it is where no --container is given.
    """
    pod = mapping(mapping(template).get("spec"))
    containers = items(pod.get("containers"))
    if not containers:
        raise file.wrong(one, "a pod template without containers", template)
    names = [text_of(container.get("name")) for container in containers]
    file.containers += names
    pattern = file.options.container
    if pattern is None and default in names:
        return pod, containers[names.index(default)]
    matched = [i for i, name in enumerate(names) if pattern is None or fnmatchcase(name, pattern)]
    if len(matched) > 1:
        several = listing(clean(names[i], 60) for i in matched)
        raise file.wrong(one, f"containers {several}: which one trains? Name it with --container", pod)
    return pod, containers[matched[0]] if matched else None


def _pod_count(file: File, one: Map, spec: Mapping[str, Any], default: str) -> int:
    """How many pods an Indexed Job has at once. default: its completionMode where none is given."""
    count = _number(file, one, spec, "parallelism")
    if (text_of(spec.get("completionMode")) or default) != "Indexed":
        raise file.wrong(one, _NOT_INDEXED, spec)
    completions = _number(file, one, spec, "completions", 1 if count == 1 else 0)
    if completions != count:
        text = f"parallelism is {count} and completions {completions or 'none'}; all pods have to run at once"
        raise file.wrong(one, f"{text}, so set both to the number of nodes", spec)
    return count


def _alone(file: File, one: Map) -> None:
    file.remark(f"{title_of(one)} has no two pods at once, and is left as it is")


def _left_out(file: File, one: Map) -> None:
    pattern = clean(file.options.container or "", 60)
    file.remark(f"{title_of(one)} has no container {pattern}, and is left as it is")


def _remark_retries(file: File, one: Map, spec: Mapping[str, Any]) -> None:
    """A pod that is made again finds nobody: the others train."""
    value = spec.get("backoffLimit")
    limit = "6" if is_null(value) else clean(str(value), 20)
    if limit != "0":
        file.remark(
            f"{title_of(one)}: backoffLimit is {limit}; a pod that is made again alone waits {TIMEOUT_S} s "
            "for others that train already, and fails; with 0 the first failure ends the job"
        )


def _job(file: File, job: Map) -> Gang | None:
    spec = mapping(job.get("spec"))
    if _number(file, job, spec, "parallelism") < 2:
        containers = items(_inner(spec).get("containers"))
        file.containers += [text_of(one.get("name")) for one in containers]
        _alone(file, job)
        return None
    count = _pod_count(file, job, spec, "NonIndexed")
    name, namespace = _names(file, job, _LABEL, _IS_LABEL)
    if len(f"{name}-{count - 1}") > 63:
        raise file.wrong(job, f"metadata.name is too long: with -{count - 1} it may have 63 characters")
    pod, container = _training(file, job, spec.get("template"))
    if container is None:
        _left_out(file, job)
        return None
    _remark_retries(file, job, spec)
    labels = mapping(mapping(mapping(spec.get("template")).get("metadata")).get("labels"))
    labels = {**labels, "job-name": name, "batch.kubernetes.io/job-name": name}
    head = f"{name}-0.{_service(file, job, pod, name, labels)}"
    return Gang(title_of(job), [Member(pod, container)], head, count, f"{name}-gang", namespace)


def _service(file: File, job: Map, pod: dict[str, Any], name: str, labels: Mapping[str, str]) -> str:
    """The headless Service of a Job's pods, of the file or a new one; the pods name it as their subdomain."""
    here = [one for one in file.of_kinds("v1 Service") if namespace_of(one) == namespace_of(job)]
    services = {name_of(one): mapping(one.get("spec")) for one in here}
    fitting = [one for one, spec in services.items() if _selects(spec, labels)]
    subdomain = text_of(pod.get("subdomain"))
    if subdomain in services and subdomain not in fitting:
        fault = "is not headless (clusterIP: None), or does not select its pods"
        raise file.wrong(job, f"subdomain {clean(subdomain, 70)}: the Service of that name {fault}", pod)
    free = [one for one in (name, f"{name}-gang") if one not in services]
    chosen = subdomain or (name if name in fitting else next(iter([*fitting, *free]), ""))
    if not _SERVICE.fullmatch(chosen):
        fault = "a Service's name has at most 63 small letters, digits and -, the first one a letter"
        raise file.wrong(job, f"{fault}; give the pod template a subdomain of that kind", pod)
    if chosen not in fitting:
        file.add_service(chosen, job, {"job-name": name})
        file.remark(f"Service {chosen} is added: it leads to pods that are not ready yet")
    elif flag_of(services[chosen].get("publishNotReadyAddresses")) is not True:
        services[chosen]["publishNotReadyAddresses"] = True
        file.remark(f"Service {chosen}: publishNotReadyAddresses is true now: pods that meet are not ready")
    pod["subdomain"] = chosen
    return chosen


def _selects(spec: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    selector = mapping(spec.get("selector"))
    is_headless = text_of(spec.get("clusterIP")) == "None"
    return is_headless and bool(selector) and all(labels.get(key) == value for key, value in selector.items())


def _jobset(file: File, jobset: Map) -> Gang | None:
    name, namespace = _names(file, jobset, _LABEL, _IS_LABEL)
    spec = mapping(jobset.get("spec"))
    members: list[Member] = []
    names: list[str] = []
    offset = replicas = 0
    for job in items(spec.get("replicatedJobs")):
        inner, job_name = _inner(job), text_of(job.get("name"))
        pod, container = _training(file, jobset, inner.get("template"))
        number = _number(file, jobset, job, "replicas")
        if container is None or not number:
            continue
        pods = _pod_count(file, jobset, inner, "Indexed")
        longest = f"{name}-{job_name}-{number - 1}-{pods - 1}"
        if not job_name or not _LABEL.fullmatch(longest):
            raise file.wrong(jobset, f"{clean(longest, 80)}: a pod's name has to be {_IS_LABEL}", job)
        rank = f"{offset} + {JOB_INDEX} * {pods} + JOB_COMPLETION_INDEX"
        members.append(
            Member(pod, container, rank, {JOB_INDEX: "metadata.labels['jobset.sigs.k8s.io/job-index']"})
        )
        names.append(job_name)
        offset, replicas = offset + number * pods, number
        _remark_retries(file, jobset, inner)
    if offset < 2:
        (_alone if members else _left_out)(file, jobset)
        return None
    if len(members) == replicas == 1:
        members = [Member(members[0].pod, members[0].container)]
    _check_order(file, jobset, spec, names)
    head = f"{name}-{names[0]}-0-0.{_subdomain(file, jobset, spec) or name}"
    return Gang(title_of(jobset), members, head, offset, f"{name}-gang", namespace)


def _subdomain(file: File, one: Map, spec: Mapping[str, Any]) -> str:
    """The subdomain of a JobSet's pods where it is given. Pods are to find each other unready."""
    network = mapping(spec.get("network"))
    for key in ("enableDNSHostnames", "publishNotReadyAddresses"):
        if flag_of(network.get(key)) is False:
            network[key] = True
            file.remark(f"{title_of(one)}: network.{key} is true now, for pods that meet are not ready")
    subdomain = text_of(network.get("subdomain"))
    if subdomain and not _SERVICE.fullmatch(subdomain):
        raise file.wrong(one, f"network.subdomain has to be {_IS_LABEL}, the first one a letter", network)
    return subdomain


def _check_order(file: File, one: Map, spec: Mapping[str, Any], names: list[str]) -> None:
    """Raise InputError where one replicated job of the gang starts when another one is ready."""
    if len(names) < 2:
        return
    more = "and they would wait for each other; take that out, or leave one of them out with --container"
    if text_of(mapping(spec.get("startupPolicy")).get("startupPolicyOrder")) == "InOrder":
        raise file.wrong(one, f"startupPolicyOrder InOrder: {names[1]} starts after {names[0]}, {more}", spec)
    needs = {
        text_of(job.get("name")): [text_of(need.get("name")) for need in items(job.get("dependsOn"))]
        for job in items(spec.get("replicatedJobs"))
    }
    for name in names:
        visited, left = {name}, list(needs[name])
        while left:
            need = left.pop()
            if need in names:
                raise file.wrong(one, f"{name} starts after {need} (dependsOn), {more}", spec)
            if need not in visited:
                visited.add(need)
                left += needs.get(need, [])


def _runtime(file: File, runtime: Map) -> Gang | None:
    name, namespace = _names(file, runtime, _DOMAIN, "small letters, digits, - and ., at most 247")
    spec = mapping(runtime.get("spec"))
    jobset, policy = mapping(mapping(spec.get("template")).get("spec")), mapping(spec.get("mlPolicy"))
    jobs = [job for job in items(jobset.get("replicatedJobs")) if _step(job) == "trainer"]
    if len(jobs) != 1:
        raise file.wrong(runtime, f"{len(jobs)} of its replicatedJobs have {ANCESTOR}: trainer, and not 1")
    inner, job_name = _inner(jobs[0]), text_of(jobs[0].get("name"))
    users = [one for one in file.of_kinds(TRAIN_JOB) if runtime_of(one) == (runtime["kind"], name)]
    trainers = [mapping(mapping(one.get("spec")).get("trainer")) for one in users]
    count = _node_count(file, runtime, policy, inner, trainers)
    pod, container = _training(file, runtime, inner.get("template"), "node")
    if container is None:
        _left_out(file, runtime)
        return None
    if count < 2:
        _alone(file, runtime)
        file.remark("how many nodes there are: numNodes of mlPolicy, or of a TrainJob in the same file")
        return None
    if not is_null(policy.get("mpi")):
        raise file.wrong(runtime, "mlPolicy.mpi: the launcher starts when nodes are ready; they cannot meet")
    if (text_of(inner.get("completionMode")) or "Indexed") != "Indexed":
        raise file.wrong(runtime, _NOT_INDEXED, inner)
    if not _LABEL.fullmatch(job_name):
        raise file.wrong(runtime, f"the name of a replicatedJob has to be {_IS_LABEL}", jobs[0])
    _remark_retries(file, runtime, inner)
    file.remark(f"{title_of(runtime)} is for TrainJobs of {count} nodes now, and for no others")
    if any(one != trainers[0] for one in trainers):
        file.remark("the TrainJobs differ: image, env and resources are those of the runtime")
        trainers = []
    namespaces = {namespace_of(one) for one in users} or {namespace}
    if len(namespaces) > 1 or namespaces == {""}:
        file.remark(f"Secret {name}-gang has to be in the namespace of each TrainJob")
    variables = {JOBSET: "metadata.labels['jobset.sigs.k8s.io/jobset-name']"}
    member = Member(pod, container, "", variables, trainers[0] if trainers else {})
    head = f"$({JOBSET})-{job_name}-0-0.{_subdomain(file, runtime, jobset) or f'$({JOBSET})'}"
    return Gang(title_of(runtime), [member], head, count, f"{name}-gang", min(namespaces))


def _node_count(
    file: File,
    runtime: Map,
    policy: Mapping[str, Any],
    job: Mapping[str, Any],
    trainers: Iterable[Mapping[str, Any]],
) -> int:
    """numNodes of the TrainJobs, which all have the same; of the runtime where they have none."""
    default = _number(file, runtime, policy or job, "numNodes" if policy else "parallelism")
    counts = {_number(file, runtime, trainer, "numNodes", default) for trainer in trainers} or {default}
    if len(counts) > 1:
        numbers = listing(map(str, sorted(counts)))
        raise file.wrong(runtime, f"its TrainJobs have {numbers} nodes; each needs a runtime of its own")
    return counts.pop()


def _step(job: Mapping[str, Any]) -> str:
    metadata = mapping(mapping(job.get("template")).get("metadata"))
    return text_of(mapping(metadata.get("labels")).get(ANCESTOR))


def runtime_of(train_job: Mapping[str, Any]) -> tuple[str, str]:
    """(kind, name) of the runtime that a TrainJob refers to."""
    reference = mapping(mapping(train_job.get("spec")).get("runtimeRef"))
    return text_of(reference.get("kind")) or "ClusterTrainingRuntime", text_of(reference.get("name"))


def _train_job(file: File, train_job: Map) -> None:
    """Its pods are those of its runtime, which has to be there."""
    _namespace(file, train_job)
    kind, name = runtime_of(train_job)
    if kind not in RUNTIMES or not _DOMAIN.fullmatch(name):
        raise file.wrong(train_job, f"spec.runtimeRef needs a name, and as kind one of {listing(RUNTIMES)}")
    if name not in map(name_of, file.of_kinds(f"{TRAINER_API} {kind}")):
        command = f"kubectl get {kind.lower()} {name} -o yaml"
        text = f"{kind} {name} has its pods, and is not in the file"
        raise file.wrong(train_job, f"{text}; add it behind a line of ---, best under a new name: {command}")


def _pytorch_job(file: File, job: Map) -> Gang | None:
    name, namespace = _names(file, job, _SERVICE, f"{_IS_LABEL}, the first one a letter")
    spec = mapping(job.get("spec"))
    roles = mapping(spec.get("pytorchReplicaSpecs"))
    members: list[Member] = []
    first, offset = "", 0
    for role in ("Master", "Worker"):
        if role not in roles:
            continue
        pod, container = _training(file, job, mapping(roles[role]).get("template"), "pytorch")
        count = _number(file, job, mapping(roles[role]), "replicas")
        if container is None or not count:
            continue
        variables = {REPLICA: "metadata.labels['training.kubeflow.org/replica-index']"}
        members.append(Member(pod, container, f"{offset} + {REPLICA}", variables))
        first, offset = first or role.lower(), offset + count
    if offset < 2:
        (_alone if members else _left_out)(file, job)
        return None
    elastic, workers = mapping(spec.get("elasticPolicy")), mapping(roles.get("Worker"))
    count = _number(file, job, workers, "replicas")
    if any(_number(file, job, elastic, key, count) != count for key in ("minReplicas", "maxReplicas")):
        raise file.wrong(job, "elasticPolicy lets the number of pods change; a gang has a fixed one", elastic)
    if len(service := f"{name}-gang") > 63:
        raise file.wrong(job, "metadata.name is too long: with -gang it may have 63 characters")
    labels = {"job-name": name, "replica-type": first, "replica-index": "0"}
    selector = {f"training.kubeflow.org/{key}": value for key, value in labels.items()}
    here = [one for one in file.of_kinds("v1 Service") if namespace_of(one) == namespace]
    found = next((one for one in here if name_of(one) == service), None)
    if found is None:
        file.add_service(service, job, selector)
    elif mapping(mapping(found.get("spec")).get("selector")) != selector:
        raise file.wrong(found, f"{title_of(job)} needs that name for its first pod; call this one otherwise")
    file.remark(f"Service {service} leads to its first pod, which is not ready yet")
    return Gang(title_of(job), members, service, offset, service, namespace)


KINDS: Mapping[str, Callable[[File, Map], Gang | None]] = {
    "batch/v1 Job": _job,
    "jobset.x-k8s.io/v1alpha2 JobSet": _jobset,
    **{f"{TRAINER_API} {kind}": _runtime for kind in RUNTIMES},
    TRAIN_JOB: _train_job,
    "kubeflow.org/v1 PyTorchJob": _pytorch_job,
}
