"""Group `host`: identity and size of the machine."""

import os

from .. import runtime, wire
from ..system import files, procs, sockets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Optional

FQDN_WAIT_S = 1.5
LAB_FILE = "/run/netdoctor-lab.json"

# What vendors write into the firmware's tables, and their clouds.
_VENDORS = {"amazon ec2": "aws", "google": "gcp"}
_VENDORS.update((name, name) for name in ("alibaba", "digitalocean", "hetzner", "openstack", "nebius"))


def os_name(root: str) -> str:
    """Return PRETTY_NAME of os-release: ``Debian GNU/Linux 12 (bookworm)``; empty where there is none."""
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        values = {}
        for line in (files.text_or_none(files.under(root, path), 16384) or "").splitlines():
            key, _, value = line.partition("=")
            values[key.strip()] = value.strip().strip("\"'")
        if values.get("PRETTY_NAME") or values.get("NAME"):
            return (values.get("PRETTY_NAME") or values["NAME"])[:200]
    return ""


def memory(root: str) -> "dict[str, Optional[int]]":
    """Return what the facts of the host say of /proc/meminfo; its "kB" are KiB."""
    found = {}
    for line in (files.text_or_none(files.under(root, "/proc/meminfo"), 16384) or "").splitlines():
        key, _, rest = line.partition(":")
        number = rest.split()[:1]
        if number and number[0].isdigit():
            found[key] = int(number[0]) * 1024
    return {
        "memory_total_bytes": found.get("MemTotal", 0),
        "memory_available_bytes": found.get("MemAvailable", found.get("MemFree", 0)),
        "cma_total_bytes": found.get("CmaTotal"),
        "cma_free_bytes": found.get("CmaFree"),
    }


def container(root: str, environ: "Mapping[str, str]") -> "Optional[str]":
    """Return which kind of container this is, or None."""
    exists = os.path.exists
    # A login through sshd in a pod does not inherit the pod's environment; the mounted secret is still there.
    if "KUBERNETES_SERVICE_HOST" in environ or exists(
        files.under(root, "/var/run/secrets/kubernetes.io/serviceaccount")
    ):
        return "kubernetes"
    manager = files.text_or_none(files.under(root, "/run/systemd/container")) or ""
    if not manager:
        # Readable for root only: "container=lxc".
        for item in (files.text_or_none(files.under(root, "/proc/1/environ"), 65536) or "").split("\0"):
            if item.startswith("container="):
                manager = item[len("container=") :]
    if manager.startswith("lxc"):
        return "lxc"
    if manager.startswith(("docker", "podman")):
        return manager.split()[0]
    # Such a file is also in a virtual machine that was made from an image.
    for mark, kind in (("/run/.containerenv", "podman"), ("/.dockerenv", "docker")):
        if exists(files.under(root, mark)) and not own_root(root):
            return kind
    groups = files.text_or_none(files.under(root, "/proc/1/cgroup"), 16384) or ""
    marks = (("kubepods", "kubernetes"), ("libpod", "podman"), ("docker", "docker"), ("lxc", "lxc"))
    return next((kind for mark, kind in marks if mark in groups), None)


def own_root(root: str) -> bool:
    """Return whether this is a machine's own root: the kernel's threads show, and nothing is laid over it."""
    from ..system import mounts

    if procs.comm(2, root) != "kthreadd":
        return False
    found = mounts.mount_of("/", mounts.read_mounts(root))
    return found is not None and found.root == "/" and "overlay" not in found.kind


def cloud(root: str) -> "Optional[str]":
    """Return a hint from the firmware tables: ``aws``, ``gcp``, ``azure``, ``oci``…, or None."""

    def dmi(name: str) -> str:
        return (files.text_or_none(files.under(root, "/sys/class/dmi/id/" + name)) or "").lower()

    if "oraclecloud" in dmi("chassis_asset_tag"):
        return "oci"
    vendor, product = dmi("sys_vendor"), dmi("product_name")
    if vendor.startswith("microsoft") and product.startswith("virtual machine"):
        # Hyper-V at home says the same, without Azure's asset tag.
        return "azure" if dmi("chassis_asset_tag").startswith("7783-7084-3265") else None
    for mark, name in _VENDORS.items():
        if mark in vendor or (name == "gcp" and "google compute engine" in product):
            return name
    return "aws" if dmi("bios_vendor").startswith("amazon ec2") else None


def lab(root: str) -> "tuple[bool, list[str]]":
    """Return whether netdoctor's lab made this node, and which hardware it pretends."""
    text = files.text_or_none(files.under(root, LAB_FILE))
    if text is None:
        return False, []
    try:
        content = wire.loads(text)
    except (ValueError, RecursionError):
        return True, []
    if not isinstance(content, dict):
        return True, []
    fakes = content.get("fake")
    return bool(content.get("lab", True)), [str(f) for f in fakes] if isinstance(fakes, list) else []


def fqdn(hostname: str) -> str:
    """Return socket.getfqdn(), or the plain name when the resolver takes too long."""
    try:
        return str(runtime.bounded(lambda: _getfqdn(hostname), FQDN_WAIT_S))
    except Exception:  # slow or broken lookups are the business of group `resolve`
        return hostname


def _getfqdn(hostname: str) -> str:
    """Return the first of a host's names that has a dot. [cpython Lib/socket.py getfqdn]"""
    try:
        # In bytes: of text Python would ask for the form that IDNA gives it, and load the tables for that.
        encoded = hostname.encode("utf-8", "surrogateescape")  # type: Any
        name, aliases, _ = sockets.raw.gethostbyaddr(encoded)
    except OSError:
        return hostname
    return next((one for one in [name, *aliases] if "." in one), name)


def collect(args: "dict[str, Any]", root: str = "/") -> "dict[str, Any]":
    """Return facts.host.HostFacts."""
    uname = os.uname()
    connection = os.environ.get("SSH_CONNECTION", "").split()
    shares_machine, fakes = lab(root)

    def small(path: str) -> "Optional[str]":
        return files.text_or_none(files.under(root, path), 256) or None

    found = {
        "hostname": uname.nodename,
        "fqdn": fqdn(uname.nodename),
        "machine_id": small("/etc/machine-id"),
        "boot_id": small("/proc/sys/kernel/random/boot_id"),
        "product_uuid": small("/sys/class/dmi/id/product_uuid"),
        "os_name": os_name(root),
        "kernel": uname.release,
        "arch": uname.machine,
        "user": procs.user_name(os.getuid()),
        "uid": os.getuid(),
        "cpu_count": os.cpu_count() or 1,
        "container": container(root, os.environ),
        "cloud": cloud(root),
        "ssh_server_address": connection[2] if len(connection) == 4 else None,
        "shares_machine": shares_machine,
        "pretended": fakes,
    }  # type: dict[str, Any]
    found.update(memory(root))
    return found
