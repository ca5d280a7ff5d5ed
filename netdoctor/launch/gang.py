"""`netdoctor plan --gang`: an init container for each pod of a job, in which all meet before any starts.

Text in, text out; no cluster is asked. `gang_kinds` says who is in a gang.
"""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from netdoctor.errors import InputError
from netdoctor.launch.gang_kinds import KINDS, TIMEOUT_S, File, Gang, GangOptions, Member, kind_of
from netdoctor.launch.gang_room import room
from netdoctor.launch.manifests import flag_of, is_null, items, mapping, text_of
from netdoctor.launch.shell import comment
from netdoctor.text import clean, listing

NAME = "netdoctor-gang"
SECRET = "NETDOCTOR_MEET_SECRET"  # noqa: S105  # the name of a variable
_COPIED = ("workingDir", "envFrom", "volumeMounts", "volumeDevices", "securityContext")


def add_gang(name: str, text: str, options: GangOptions, nodes: tuple[str, bytes] | None = None) -> str:
    """The manifests, with comments above them, and an init container in each pod template of a gang.

    name: of the file, for messages. nodes: name and content of kubectl's list of nodes (and pods), for the
    gangs to find room on. Raises InputError, with the line where it is known.
    """
    file = File(name, text, options)
    known = [one for one in file.objects if kind_of(one) in KINDS]
    if not known:
        kinds = listing([kind.partition(" ")[2] for kind in KINDS], len(KINDS))
        raise InputError(f"{file.name}: no training job in it; expected one of {kinds}")
    gangs = [gang for one in known if (gang := KINDS[kind_of(one)](file, one)) is not None]
    pattern = options.container
    if pattern is not None and not any(fnmatchcase(one, pattern) for one in file.containers):
        names = listing(dict.fromkeys(clean(one, 60) for one in file.containers), 20)
        raise InputError(f"--container {clean(pattern, 60)}: no container is called so; there are {names}")
    lines = [_put(file, gang) for gang in gangs] or ["no pod has another one to meet: nothing is changed"]
    if gangs:
        file.remark(f"netdoctor has to be in the image of {NAME}")
    remarks = [*file.remarks, *(room(*nodes, gangs) if nodes is not None else ())]
    lines += [f"note: {one}" for one in remarks]
    lines += dict.fromkeys(f"once, before kubectl apply: {_secret_command(gang)}" for gang in gangs)
    return "".join(f"{comment(line)}\n" for line in lines) + file.text()


def _secret_command(gang: Gang) -> str:
    namespace = f" -n {gang.namespace}" if gang.namespace else ""
    create = f"kubectl create secret generic {gang.secret}{namespace} --from-file=secret=/dev/stdin"
    return f"openssl rand -hex 16 | {create}"


def _put(file: File, gang: Gang) -> str:
    """Put the container into the pods of a gang. Returns what is said of it."""
    for member in gang.members:
        before = member.pod.get("initContainers")
        others = [] if is_null(before) else before
        if not isinstance(others, list):
            raise InputError(f"{file.name}: {gang.title}: initContainers is not a list")
        others = [one for one in others if text_of(mapping(one).get("name")) != NAME]
        found = _init_container(file.options, gang, member)
        if "image" not in found:
            file.remark(f"the image is not known: --image, or write it below `name: {NAME}`")
        member.pod["initContainers"] = [found, *others]
        file.remarks += [one for one in _host_network(file, gang, member.pod) if one not in file.remarks]
    names = listing(dict.fromkeys(clean(text_of(one.container.get("name")), 60) for one in gang.members))
    where = f"{gang.head}:{file.options.port}, in init container {NAME}"
    return f"{gang.title}: {gang.count} pods meet at {where}, before container {names} starts in any of them"


def _host_network(file: File, gang: Gang, pod: dict[str, Any]) -> Iterator[str]:
    if flag_of(pod.get("hostNetwork")):
        yield f"{gang.title}: hostNetwork: port {file.options.port} has to be free on the nodes (--port N)"
        policy = pod.get("dnsPolicy")
        if is_null(policy) or policy == "ClusterFirst":
            pod["dnsPolicy"] = "ClusterFirstWithHostNet"
            yield f"{gang.title}: dnsPolicy is ClusterFirstWithHostNet now, to find the first pod by its name"


def _init_container(options: GangOptions, gang: Gang, member: Member) -> dict[str, Any]:
    words = ["netdoctor", "gate", "--gang", f"{gang.head}:{options.port}", "--tasks", str(gang.count)]
    words += ["--timeout", str(TIMEOUT_S)]
    if member.rank:
        # $((…)) is no reference of Kubernetes' own: what is in it is no variable's name.
        line = f'exec {" ".join(words)} --rank "$(({member.rank}))" --no-save -- true'
        command = ["sh", "-c", line]
    else:
        # In so many words: variables of another launcher may be in the image.
        command = [*words, "--rank", "$(JOB_COMPLETION_INDEX)", "--no-save", "--", "true"]
    trainer, source = member.trainer, member.container
    found: dict[str, Any] = {"name": NAME}
    if image := options.image or text_of(trainer.get("image")) or text_of(source.get("image")):
        found["image"] = image
    found |= {"imagePullPolicy": source["imagePullPolicy"]} if "imagePullPolicy" in source else {}
    found |= {"command": command, "env": _variables(options, gang, member)}
    found |= {key: source[key] for key in _COPIED if not is_null(source.get(key))}
    if resources := _resources(mapping(source.get("resources")), mapping(trainer.get("resourcesPerNode"))):
        found["resources"] = resources
    return found


def _resources(container: Mapping[str, Any], trainer: Mapping[str, Any]) -> dict[str, Any]:
    """The container's, and name by name a TrainJob's instead (trainer 2.3, MergeResourceRequirements)."""
    found = {**container, **trainer}
    for key in ("limits", "requests"):
        if both := {**mapping(container.get(key)), **mapping(trainer.get(key))}:
            found[key] = both
    return found


def _variables(options: GangOptions, gang: Gang, member: Member) -> list[Any]:
    """The container's that are asked for, in their order, and ours; ours win over those of the same name."""
    paths = {"NODE_NAME": "spec.nodeName", **member.variables}
    ours: dict[str, Any] = {
        name: {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in paths.items()
    }
    reference = {"name": gang.secret, "key": "secret"}
    ours[SECRET] = {"name": SECRET, "valueFrom": {"secretKeyRef": reference}}
    found: dict[str, Any] = {}
    for one in (*items(member.container.get("env")), *items(member.trainer.get("env"))):
        name = text_of(one.get("name"))
        if name in ours or any(fnmatchcase(name, pattern) for pattern in options.env_globs):
            found[name] = ours.get(name, one)
    return list({**found, **ours}.values())
