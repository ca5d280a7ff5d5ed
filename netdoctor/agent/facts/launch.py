"""Group `launch`: what a launcher needs on a node, and the container image of a job, where they are named.

Programs are looked for on the PATH of this session, which is no login shell's, and beside the job's
interpreter. Images are read from the stores of docker and podman, as files; their programs are not run.
"""

import os
import sys

from .. import runtime
from ..system import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Optional

# By launcher; orted, prted and hydra_pmi_proxy are what mpirun starts on the other nodes.
PROGRAMS = {
    "torchrun": ("torchrun",),
    "accelerate": ("accelerate",),
    "ray": ("ray",),
    "srun": ("srun",),
    "mpirun": ("mpirun", "orted", "prted", "hydra_pmi_proxy"),
    "pdsh": ("pdsh",),
    "deepspeed": ("deepspeed", "pdsh"),
}
VERSION = {"mpirun": "--version", "srun": "--version", "pdsh": "-V"}
STORE_CAP = 4 << 20
_DOCKER = "/var/lib/docker/image/overlay2/repositories.json"
_PODMAN = ("/var/lib/containers/storage", "~/.local/share/containers/storage")


def program(name: str, root: str) -> "dict[str, Optional[str]]":
    """Return facts.launching.Program."""
    path = runtime.find_tool(name, os.environ.get("PATH", ""), root)
    next_to_python = runtime.find_tool(name, os.path.dirname(sys.executable or ""), root)
    output = ""
    if path is not None and name in VERSION and root == "/":
        result = runtime.run_tool([path, VERSION[name]], 5.0)
        output = (result.out or result.err)[:400]
    return {"name": name, "path": path, "beside": next_to_python, "said": output}


def toolkit(root: str) -> "list[str]":
    """Return what gives containers NVIDIA's GPUs: docker's configuration, the toolkit, CDI files."""
    found = []
    text = files.text_or_none(files.under(root, "/etc/docker/daemon.json"), 65536)
    if text:
        import json

        try:
            runtimes = json.loads(text).get("runtimes")
        except (ValueError, AttributeError, RecursionError):
            runtimes = None
        if isinstance(runtimes, dict) and "nvidia" in runtimes:
            found.append("/etc/docker/daemon.json")
    for name in ("nvidia-ctk", "nvidia-container-runtime", "nvidia-container-cli"):
        here = runtime.find_tool(name, "/usr/bin:/usr/local/bin:/usr/local/nvidia/toolkit", root)
        if here is not None:
            found.append(here)
    for folder in ("/etc/cdi", "/var/run/cdi"):
        names = files.names(files.under(root, folder))
        found += [os.path.join(folder, name) for name in names if "nvidia" in name]
    return found[:16]


def spellings(image: str) -> "list[str]":
    """Return the names that stores have for an image: ``pytorch`` is docker.io/library/pytorch:latest."""
    name, at, digest = image.partition("@")
    last = name.rpartition("/")[2]
    full = name if at or ":" in last else name + ":latest"
    first = full.partition("/")[0]
    names = [full]
    if "/" not in full:
        names += ["docker.io/library/" + full, "localhost/" + full]
    elif "." not in first and ":" not in first and first != "localhost":
        names.append("docker.io/" + full)
    return [one + at + digest for one in names]


def _stored(root: str) -> "Iterator[tuple[str, Any]]":
    """Yield (store's file, its content); an OSError in place of content that cannot be read."""
    import json

    stores = [_DOCKER] + [folder + "/overlay-images/images.json" for folder in _PODMAN]
    for file in stores:
        path = os.path.expanduser(file)
        try:
            yield path, json.loads(files.read_text(files.under(root, path), STORE_CAP))
        except FileNotFoundError:
            continue
        except OSError as e:
            yield path, e
        except (ValueError, RecursionError):
            yield path, OSError("it is not JSON, or larger than expected")


def image(name: str, root: str) -> "tuple[dict[str, str], list[str], list[str]]":
    """Return ({store: id or digest of the image}, stores that were read, those that could not be)."""
    accepted = spellings(name)
    found = {}
    unread = []
    stores = []
    for path, content in _stored(root):
        if isinstance(content, OSError):
            unread.append(path + ": " + files.errno_name(content))
            continue
        stores.append(path)
        if isinstance(content, dict):
            # {"Repositories": {"pytorch": {"pytorch:2.6": "sha256:…", "pytorch@sha256:…": "sha256:…"}}}
            for tags in (content.get("Repositories") or {}).values():
                for one in accepted if isinstance(tags, dict) else ():
                    if isinstance(tags.get(one), str):
                        found[path] = tags[one][:100]
        elif isinstance(content, list):
            # [{"id": "…", "digest": "sha256:…", "names": ["docker.io/library/pytorch:2.6"]}]
            for entry in content:
                names = entry.get("names") if isinstance(entry, dict) else None
                if isinstance(names, list) and any(one in names for one in accepted):
                    found[path] = str(entry.get("digest") or entry.get("id"))[:100]
    return found, stores, unread


def collect(args: "dict[str, Any]", root: str = "/") -> "dict[str, Any]":
    """Return facts.launching.LaunchFacts. args: {"launcher": name or None, "image": name or None}."""
    launcher, image_name = args.get("launcher"), args.get("image")
    if launcher not in PROGRAMS and not image_name:
        detail = "no launcher and no image was named (--launcher, --image)"
        raise runtime.Unavailable("not_applicable", detail)
    images, stores, unread = image(str(image_name)[:400], root) if image_name else ({}, [], [])
    return {
        "programs": [program(name, root) for name in PROGRAMS.get(str(launcher), ())],
        "pdsh_rcmd": os.environ.get("PDSH_RCMD_TYPE"),
        "runtimes": [
            name for name in ("docker", "podman") if runtime.find_tool(name, os.environ.get("PATH", ""), root)
        ],
        "toolkit": toolkit(root) if image_name else [],
        "images": images,
        "stores": stores,
        "unread": unread,
    }
