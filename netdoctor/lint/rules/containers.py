"""Containers: what they share with their host, and what they do not."""

import re
from collections.abc import Iterator

import msgspec

from netdoctor.lint.documents import Item
from netdoctor.lint.files import Config, Dockerfile, Shell
from netdoctor.lint.launches import TORCH, Launch
from netdoctor.lint.model import Found, Kind, Severity, rule
from netdoctor.lint.rules.torch import nodes_of, several

RUN = "https://docs.docker.com/reference/cli/docker/container/run/"
NETWORK = "https://docs.docker.com/engine/network/drivers/host/"
BUILD = "https://docs.docker.com/reference/dockerfile/"
COMPOSE = "https://docs.docker.com/reference/compose-file/services/"
K8S = "https://kubernetes.io/docs/concepts/"
# With two, NCCL and a small data loader have room in 64 MB.
MANY_GPUS = 4
# Ports that other nodes want of a node of a job: ssh, Ray, torch.
SHM = "/dev/shm"  # noqa: S108  compared only
JOB_PORTS = frozenset({"22", "6379", "29400", "29500"})
LAUNCHERS = (*TORCH, "accelerate", "deepspeed", "ray", "mpirun")


def _has_gpus(launch: Launch) -> bool:
    return launch.has("gpus") or "nvidia" in launch.texts("runtime")


def _published(text: str) -> str:
    """The container's port of ``9001:22`` or ``127.0.0.1:9001:22/tcp``."""
    return text.partition("/")[0].rpartition(":")[2]


@rule(Severity.WARNING, Shell, Kind.SHELL, RUN)
def docker_shm(shell: Shell) -> Iterator[Found]:
    """A container's shared memory is given once, and is enough.

    What happens:
        With --ipc=host the container has the host's /dev/shm, and --shm-size is ignored. Without either it
        has 64 MB: NCCL between the GPUs of a node and data loaders end with a bus error or "No space left on
        device".
    Write instead:
        --ipc=host, or --shm-size=16g.
    Wrong:
        docker run --gpus all --network host --ipc=host --shm-size=10gb image sleep infinity
    Right:
        docker run --gpus all --network host --ipc=host image sleep infinity
    """
    for launch in shell.launches_of("docker", closed=True):
        ipc, size = launch.get("ipc"), launch.get("shm-size")
        if ipc is not None and ipc.text == "host" and size is not None:
            yield Found(
                size.position,
                f"--ipc=host wins: --shm-size={size} is ignored, the host's /dev/shm counts",
                "one of the two",
            )
        elif ipc is None and size is None and _has_gpus(launch) and _starts_many(shell, launch):
            if any(SHM in text for text in launch.texts("volume", "tmpfs", "mount")):
                continue
            yield Found(
                launch.position,
                "no --ipc=host and no --shm-size: /dev/shm has 64 MB, and NCCL and data loaders end with a "
                "bus error",
                "--ipc=host",
            )


def _starts_many(shell: Shell, docker: Launch) -> bool:
    """Whether what runs in the container is a launcher of several processes."""
    for launch in shell.launches_of(*LAUNCHERS):
        if docker in launch.starters:
            count = launch.number("nproc-per-node")
            return count is None or count > 1
    return False


@rule(Severity.ERROR, Shell, Kind.SHELL, NETWORK)
def container_network(shell: Shell) -> Iterator[Found]:
    """A container that is a node of a job has the network of its host.

    What happens:
        On Docker's own bridge only the published ports are reachable. ssh answers, but the rendezvous, Ray's
        workers and every port of NCCL, which are chosen at random, do not; and each container calls itself
        172.17.0.x, which is another machine for its peers.
    Write instead:
        --network host; sshd in the container then needs a port of its own.
    Wrong:
        docker run -dit --gpus all -p 9001:22 --ipc=host --name train image
    Right:
        docker run -dit --gpus all --network host --ipc=host --name train image
    """
    for launch in shell.launches_of("docker", closed=True):
        network = launch.get("network", "net")
        if network is not None and network.text not in ("bridge", "default", "none"):
            continue
        published = [w for w in launch.all("publish") if _published(w.text or "") in JOB_PORTS]
        inner = [one for one in shell.launches_of(*TORCH) if launch in one.starters and several(one)]
        if inner and not published:
            yield Found(
                launch.position,
                f"no --network: {nodes_of(inner[0])} nodes, and none of them reaches a container on Docker's "
                "bridge",
                "--network host",
            )
        if published and _has_gpus(launch):
            port = _published(published[0].text or "")
            yield Found(
                published[0].position,
                f"port {port} is published, and no other: what peers dial besides, Ray's and NCCL's random "
                "ports, does not reach a container on Docker's bridge, which calls itself 172.17.0.x",
                "--network host",
            )


@rule(Severity.WARNING, Shell, Kind.SHELL, RUN)
def container_rdma(shell: Shell) -> Iterator[Found]:
    r"""A container that is to use InfiniBand has its devices, and may lock memory.

    What happens:
        Without /dev/infiniband, or with the memory that Docker allows to be locked, NCCL finds no HCA that it
        can use and silently uses TCP: the job runs ten times slower.
    Write instead:
        --device /dev/infiniband --ulimit memlock=-1 --cap-add IPC_LOCK.
    Wrong:
        docker run --gpus all --network host --ipc=host -e NCCL_IB_HCA=mlx5_0 image sleep infinity
    Right:
        docker run --gpus all --network host --ipc=host --device /dev/infiniband --ulimit memlock=-1 \
            -e NCCL_IB_HCA=mlx5_0 image sleep infinity
    """
    for launch in shell.launches_of("docker", closed=True):
        if not _has_gpus(launch):
            continue
        wants = [
            text
            for text in launch.texts("env")
            if re.match(r"NCCL_IB_HCA=|NCCL_IB_DISABLE=0|NCCL_NET=IB|NCCL_IB_GID_INDEX=", text)
        ]
        is_node = any(_published(text) == "22" for text in launch.texts("publish"))
        devices = launch.texts("device", "volume")
        has_device = launch.has("privileged") or any(
            d.startswith(("/dev/infiniband", "/dev:")) or d == "/dev" for d in devices
        )
        locks = any(text.startswith("memlock") for text in launch.texts("ulimit"))
        if (wants or is_node) and not has_device:
            why = f"{wants[0]}, but" if wants else "a node of a job, but"
            yield Found(
                launch.position,
                f"{why} no /dev/infiniband in the container: NCCL falls back to TCP without a message",
                "--device /dev/infiniband --ulimit memlock=-1",
            )
        elif has_device and not locks and any(d.startswith("/dev/infiniband") for d in devices):
            yield Found(
                launch.position,
                "/dev/infiniband without --ulimit memlock=-1: registering memory fails with ENOMEM where "
                "Docker's limit is low",
                "--ulimit memlock=-1",
            )


@rule(Severity.WARNING, Dockerfile, Kind.DOCKERFILE, BUILD)
def docker_run_export(dockerfile: Dockerfile) -> Iterator[Found]:
    """Variables that a container needs are set with ENV.

    What happens:
        Each RUN has its own shell. Its exports and limits end with it, and do not exist when the
        container runs.
    Write instead:
        ENV NAME=value; limits belong to docker run --ulimit.
    Wrong:
        FROM ubuntu:24.04
        RUN export NCCL_DEBUG=INFO
    Right:
        FROM ubuntu:24.04
        ENV NCCL_DEBUG=INFO
    """
    for position, rest in dockerfile.instructions_of("RUN"):
        match = re.fullmatch(r"\s*export\s+([A-Za-z_]\w*)=(\S*)\s*", rest)
        if match:
            yield Found(
                position,
                f"{match[1]} is gone at the end of this RUN: containers do not have it",
                f"ENV {match[1]}={match[2]}",
            )
        elif re.fullmatch(r"\s*ulimit\s+.*", rest):
            yield Found(
                position, "the limit is gone at the end of this RUN", "docker run --ulimit memlock=-1"
            )


@rule(Severity.ERROR, Dockerfile, Kind.DOCKERFILE, BUILD)
def docker_exec_form(dockerfile: Dockerfile) -> Iterator[Found]:
    """Variables of a command are expanded by a shell.

    What happens:
        CMD and ENTRYPOINT in brackets start the program without a shell: it gets the text $NODE_RANK itself,
        and ends because that is not a number.
    Write instead:
        CMD without brackets, or ["bash", "-c", "exec torchrun … $NODE_RANK …"].
    Wrong:
        FROM ubuntu:24.04
        CMD ["torchrun", "--nnodes", "2", "--node-rank", "$NODE_RANK", "train.py"]
    Right:
        FROM ubuntu:24.04
        CMD ["bash", "-c", "exec torchrun --nnodes 2 --node-rank $NODE_RANK --master-addr node0 train.py"]
    """
    for position, rest in dockerfile.instructions_of("CMD", "ENTRYPOINT"):
        try:
            words = msgspec.json.decode(rest, type=list[str])
        except msgspec.MsgspecError:
            continue
        if any(word.rpartition("/")[2] in ("bash", "sh", "zsh", "dash") for word in words[:2]):
            continue
        literal = next((word for word in words if re.search(r"\$\{?[A-Za-z_]\w*\}?", word)), None)
        if literal is not None:
            yield Found(
                position,
                f"no shell is started here: the program gets the text {literal} itself",
                '["bash", "-c", "exec …"]',
            )


@rule(Severity.ERROR, Dockerfile, Kind.DOCKERFILE, BUILD)
def docker_env_spaces(dockerfile: Dockerfile) -> Iterator[Found]:
    """ENV has no spaces around its =.

    What happens:
        ENV NAME = value is the old form without =: the value is "= value".
    Write instead:
        ENV NAME=value.
    Wrong:
        FROM ubuntu:24.04
        ENV MASTER_PORT = 29500
    Right:
        FROM ubuntu:24.04
        ENV MASTER_PORT=29500
    """
    for position, rest in dockerfile.instructions_of("ENV"):
        if match := re.match(r"([A-Za-z_]\w*)\s+=\s*(\S*)", rest):
            yield Found(
                position, f"the value of {match[1]} becomes '= {match[2]}'", f"ENV {match[1]}={match[2]}"
            )


# --- compose --------------------------------------------------------------------------------------


def _services(config: Config) -> Iterator[tuple[str, Item]]:
    for document in config.documents_of(Kind.COMPOSE):
        yield from document.pairs("services")


def _uses_gpus(service: Item) -> bool:
    devices = service.list("deploy", "resources", "reservations", "devices")
    reserved = any("gpu" in [c.text for c in (d.get("capabilities") or d).list()] for d in devices)
    return reserved or service.get("gpus") is not None or service.text_at("runtime") == "nvidia"


@rule(Severity.WARNING, Config, Kind.COMPOSE, COMPOSE)
def compose_shm(config: Config) -> Iterator[Found]:
    """A service's shared memory is given once.

    What happens:
        With ipc: host the container has the host's /dev/shm, and shm_size is ignored.
    Write instead:
        ipc: host, or shm_size: 16gb.
    Wrong:
        services:
          train:
            image: train
            ipc: host
            shm_size: 10gb
    Right:
        services:
          train:
            image: train
            ipc: host
    """
    for name, service in _services(config):
        size = service.get("shm_size")
        if size is not None and service.text_at("ipc") == "host":
            yield Found(size.position, f"{name}: ipc: host wins, shm_size is ignored", "one of the two")


@rule(Severity.ERROR, Config, Kind.COMPOSE, COMPOSE)
def compose_network(config: Config) -> Iterator[Found]:
    """A service that is a node of a job has the network of its host.

    What happens:
        On a bridge only the published ports are reachable from other machines; those of NCCL are chosen at
        random. ssh and the rendezvous answer, and the first collective hangs.
    Write instead:
        network_mode: host.
    Wrong:
        services:
          train:
            image: train
            gpus: all
            ports:
              - "9001:22"
              - "29500:29500"
    Right:
        services:
          train:
            image: train
            gpus: all
            network_mode: host
    """
    for name, service in _services(config):
        ports, mode = service.get("ports"), service.text_at("network_mode")
        if ports is None:
            continue
        if mode == "host":
            yield Found(
                ports.position,
                f"{name}: ports beside network_mode: host; Compose refuses that or ignores them",
                "no ports",
            )
            continue
        if not _uses_gpus(service) or mode is not None or service.get("networks") is not None:
            continue
        for port in ports.list():
            text = port.text_at("target") or port.text or ""
            if _published(text) in JOB_PORTS:
                yield Found(
                    port.position,
                    f"{name}: port {_published(text)} is published, and NCCL's random ports are not: peers "
                    "on other machines do not reach the container",
                    "network_mode: host",
                )
                break


# --- Kubernetes -----------------------------------------------------------------------------------


def _pods(config: Config, leave: str = "") -> Iterator[Item]:
    """The specification of each pod that has containers; not of kinds that begin with `leave`."""
    for document in config.documents_of(Kind.KUBERNETES):
        if leave and (document.text_at("kind") or "").startswith(leave):
            continue
        for item in document.walk():
            if item.is_map and item.list("containers"):
                yield item


@rule(Severity.ERROR, Config, Kind.KUBERNETES, f"{K8S}configuration/")
def k8s_env_type(config: Config) -> Iterator[Found]:
    """Values of variables in a manifest are texts.

    What happens:
        A number or true without quotes is refused by the API server: "cannot unmarshal number into Go struct
        field EnvVar.value of type string". Nothing is created.
    Write instead:
        Quotes: value: "29500".
    Wrong:
        apiVersion: v1
        kind: Pod
        metadata: {name: train}
        spec:
          containers:
            - name: train
              image: train
              env:
                - name: MASTER_PORT
                  value: 29500
    Right:
        apiVersion: v1
        kind: Pod
        metadata: {name: train}
        spec:
          containers:
            - name: train
              image: train
              env:
                - name: MASTER_PORT
                  value: "29500"
    """
    for pod in _pods(config):
        for container in pod.list("containers"):
            for entry in container.list("env"):
                value = entry.get("value")
                if (
                    value is not None
                    and value.tag in ("int", "float", "bool")
                    and "{{" not in (value.text or "")
                ):
                    what = {"bool": "true and false are not text"}.get(value.tag, "a number is not text")
                    yield Found(
                        value.position,
                        f"{entry.text_at('name')}: {what}, and the API server refuses the manifest",
                        f'value: "{value.text}"',
                    )


@rule(
    Severity.WARNING, Config, Kind.KUBERNETES, f"{K8S}services-networking/dns-pod-service/#pod-s-dns-policy"
)
def k8s_dns(config: Config) -> Iterator[Found]:
    """A pod on its host's network resolves names of the cluster.

    What happens:
        With hostNetwork a pod asks the resolver of its node, which does not know services: MASTER_ADDR, where
        it is the name of one, does not resolve.
    Write instead:
        dnsPolicy: ClusterFirstWithHostNet.
    Wrong:
        apiVersion: v1
        kind: Pod
        metadata: {name: train}
        spec:
          hostNetwork: true
          containers:
            - name: train
              image: train
              env:
                - {name: MASTER_ADDR, value: train-0.train}
    Right:
        apiVersion: v1
        kind: Pod
        metadata: {name: train}
        spec:
          hostNetwork: true
          dnsPolicy: ClusterFirstWithHostNet
          containers:
            - name: train
              image: train
              env:
                - {name: MASTER_ADDR, value: train-0.train}
    """
    for pod in _pods(config):
        host = pod.get("hostNetwork")
        if host is None or host.text != "true" or pod.get("dnsPolicy") is not None:
            continue
        addresses = [
            entry.text_at("value") or ""
            for container in pod.list("containers")
            for entry in container.list("env")
            if entry.text_at("name") in ("MASTER_ADDR", "RAY_ADDRESS")
        ]
        operator = any(d.text_at("kind") in ("PyTorchJob", "MPIJob") for d in config.documents)
        if operator or any(re.fullmatch(r"[a-z][\w-]*-\d+(\.[\w.-]+)?", text) for text in addresses):
            yield Found(
                host.position,
                "names of services do not resolve with the node's resolver",
                "dnsPolicy: ClusterFirstWithHostNet",
            )


@rule(Severity.NOTE, Config, Kind.KUBERNETES, f"{K8S}storage/volumes/#emptydir")
def k8s_shm(config: Config) -> Iterator[Found]:
    """A pod with several GPUs has more than 64 MB of shared memory.

    What happens:
        /dev/shm of a container has 64 MB. NCCL takes some 10 MB of it for each connection between GPUs that
        do not reach each other directly, data loaders take the rest: a bus error, or "No space left on
        device".
    Write instead:
        A volume emptyDir: {medium: Memory} that is mounted at /dev/shm.
    Wrong:
        apiVersion: v1
        kind: Pod
        metadata: {name: train}
        spec:
          containers:
            - name: train
              image: train
              resources: {limits: {nvidia.com/gpu: 8}}
    Right:
        apiVersion: v1
        kind: Pod
        metadata: {name: train}
        spec:
          containers:
            - name: train
              image: train
              resources: {limits: {nvidia.com/gpu: 8}}
              volumeMounts:
                - {name: shm, mountPath: /dev/shm}
          volumes:
            - name: shm
              emptyDir: {medium: Memory}
    """
    for pod in _pods(config, leave="Ray"):  # KubeRay mounts one by itself
        if pod.text_at("hostIPC") == "true":
            continue
        for container in pod.list("containers"):
            limits = container.get("resources", "limits") or container.get("resources", "requests")
            gpus = (limits.number_at("nvidia.com/gpu") if limits is not None else None) or 0
            paths = [
                (mount.text_at("mountPath") or "").rstrip("/") for mount in container.list("volumeMounts")
            ]
            if gpus >= MANY_GPUS and SHM not in paths:
                position = (container.get("resources") or container).position
                yield Found(
                    position,
                    f"{gpus} GPUs and 64 MB of /dev/shm: NCCL and data loaders may run out of it",
                    "emptyDir: {medium: Memory}",
                )


@rule(
    Severity.ERROR, Config, Kind.KUBERNETES, "kubeflow/training-operator pkg/apis, validation of PyTorchJob"
)
def k8s_pytorchjob(config: Config) -> Iterator[Found]:
    """A PyTorchJob has one master, and a container called pytorch.

    What happens:
        The operator refuses a job with more than one replica of its Master, and one whose template has no
        container of that name: nothing is started.
    Write instead:
        Master: replicas: 1; the rest are Workers.
    Wrong:
        apiVersion: kubeflow.org/v1
        kind: PyTorchJob
        metadata: {name: train}
        spec:
          pytorchReplicaSpecs:
            Master:
              replicas: 2
              template: {spec: {containers: [{name: pytorch, image: train}]}}
    Right:
        apiVersion: kubeflow.org/v1
        kind: PyTorchJob
        metadata: {name: train}
        spec:
          pytorchReplicaSpecs:
            Master:
              replicas: 1
              template: {spec: {containers: [{name: pytorch, image: train}]}}
            Worker:
              replicas: 1
              template: {spec: {containers: [{name: pytorch, image: train}]}}
    """
    for document in config.documents_of(Kind.KUBERNETES):
        if document.text_at("kind") != "PyTorchJob":
            continue
        for name, spec in document.pairs("spec", "pytorchReplicaSpecs"):
            replicas, containers = spec.get("replicas"), spec.get("template", "spec", "containers")
            if name == "Master" and replicas is not None and (replicas.number or 1) != 1:
                yield Found(
                    replicas.position,
                    f"{replicas.text} masters: the operator refuses the job",
                    "replicas: 1, and Workers",
                )
            if containers is not None and "pytorch" not in [c.text_at("name") for c in containers.list()]:
                yield Found(
                    containers.position,
                    f"{name}: no container is called pytorch: the operator refuses the job",
                    "name: pytorch",
                )
