"""Faults of pretended HCAs and GPUs."""

from __future__ import annotations

import re
import time
from posixpath import normpath

from netdoctor.lab import guest, hardware
from netdoctor.lab import node as nodes
from netdoctor.lab.fault import Fault, end_guest, keep
from netdoctor.lab.service import Site
from netdoctor.lab.state import Active, State
from netdoctor.lab.system import LabError

HIDDEN = "/run/netdoctor-lab/hidden"


# --- HCAs -----------------------------------------------------------------------------------------


def chosen(site: Site, active: Active) -> list[int]:
    """Which HCAs are meant: a name such as mlx5_1, ``last`` or ``all``."""
    word = active.params["hca"]
    names = [hardware.hca_name(i) for i in range(site.state.hcas)]
    if word == "all":
        return list(range(len(names)))
    if word == "last":
        return [len(names) - 1]
    if word not in names:
        raise LabError(f"hca={word!r}: these nodes have {', '.join(names)}")
    return [names.index(word)]


def port_values(state: State, active: Active, i: int) -> dict[str, str | None]:
    """Files of one HCA that the fault changes, below its folder; None removes one."""
    p = active.params
    if active.fault == "hca-down":
        values: dict[str, str | None] = {
            "ports/1/state": "1: DOWN\n", "ports/1/phys_state": "3: Disabled\n"
        }  # fmt: skip
        if state.link_layer != "Ethernet":
            values |= {"ports/1/sm_lid": "0x0\n", "ports/1/rate": "10 Gb/sec (4X SDR)\n"}
        return values
    if active.fault == "hca-init":
        return {"ports/1/state": "2: INIT\n", "ports/1/sm_lid": "0x0\n", "ports/1/lid": "0x0\n"}
    if active.fault == "hca-rate":
        return {"ports/1/rate": p["rate"] + "\n"}
    if active.fault == "hca-pcie":
        return {"../../current_link_width": p["width"] + "\n"}
    if active.fault == "hca-file":
        if not re.fullmatch(r"(\w+/)*\w+", p["file"]):
            raise LabError(f"file={p['file']!r}: write a file of the HCA's folder, ports/1/sm_lid")
        return {p["file"]: p["value"] + "\n"}
    if active.fault == "hca-numa":
        return {"../../numa_node": p["numa"] + "\n"}
    if active.fault == "hca-fw":
        return {"fw_ver": p["version"] + "\n"}
    empty = hardware.long_gid("0" * 16, "0" * 16) + "\n"
    gone: dict[str, str | None] = {}
    for row in (2, 3):
        gone |= {
            f"ports/1/gids/{row}": empty,
            f"ports/1/gid_attrs/types/{row}": None,
            f"ports/1/gid_attrs/ndevs/{row}": None,
        }
    return gone


def hca_values(site: Site, active: Active) -> list[str]:
    if active.fault == "hca-gid" and site.state.link_layer != "Ethernet":
        raise LabError("hca-gid needs HCAs on Ethernet; these are on InfiniBand")
    which = chosen(site, active)
    files: dict[str, str | bytes | None] = {}
    for i in which:
        folder = hardware.hca_folder(i)
        for name, value in port_values(site.state, active, i).items():
            files[normpath(f"{folder}/{name}")] = value
    nodes.write(site.state, active.node, files)
    said = {
        "hca-down": "is DOWN, physically Disabled",
        "hca-init": "stays in INIT: no subnet manager has configured it",
        "hca-rate": f"runs at {active.params.get('rate')}",
        "hca-numa": f"is on NUMA node {active.params.get('numa')}",
        "hca-pcie": f"has {active.params.get('width')} PCIe lanes",
        "hca-file": f"has {active.params.get('value')} in {active.params.get('file')}",
        "hca-fw": f"has firmware {active.params.get('version')}",
        "hca-gid": "has no RoCE v2 GID of an IPv4 address",
    }
    names = ", ".join(hardware.hca_name(i) for i in which)
    return [f"{active.node}: {names} {said[active.fault]} (pretended)"]


def heal_hca_values(site: Site, active: Active) -> None:
    tree = hardware.healthy(site.state, active.node)
    files: dict[str, str | bytes | None] = {}
    for i in chosen(site, active):
        folder = hardware.hca_folder(i)
        for name in port_values(site.state, active, i):
            path = normpath(f"{folder}/{name}")
            files[path] = tree.files.get(path)
    nodes.write(site.state, active.node, files)
    for other in site.state.active(active.node):
        if other is not active and other.fault in OF_VALUES:
            hca_values(site, other)


OF_VALUES = ("hca-file", "hca-down", "hca-init", "hca-rate", "hca-fw", "hca-gid", "hca-pcie", "hca-numa")


def hca_missing(site: Site, active: Active) -> list[str]:
    which = chosen(site, active)
    files: dict[str, str | bytes | None] = {}
    for i in which:
        files[f"/sys/class/infiniband/{hardware.hca_name(i)}"] = None
        files[f"/sys/class/infiniband_verbs/uverbs{i}"] = None
        files[f"/dev/infiniband/uverbs{i}"] = None
    nodes.write(site.state, active.node, files)
    names = ", ".join(hardware.hca_name(i) for i in which)
    return [f"{active.node}: no RDMA device {names}; its PCI function is there (pretended)"]


def heal_hca_missing(site: Site, active: Active) -> None:
    tree = hardware.healthy(site.state, active.node)
    links: dict[str, str] = {}
    devices: list[str] = []
    files: dict[str, str | bytes | None] = {}
    for i in chosen(site, active):
        verbs = f"/sys/class/infiniband_verbs/uverbs{i}"
        link = f"/sys/class/infiniband/{hardware.hca_name(i)}"
        links[link] = tree.links[link]
        files |= {path: text for path, text in tree.files.items() if path.startswith(verbs + "/")}
        links[f"{verbs}/device"] = tree.links[f"{verbs}/device"]
        devices.append(f"/dev/infiniband/uverbs{i}")
    nodes.write(site.state, active.node, files)
    place(site, active.node, links, devices)


def hca_no_device(site: Site, active: Active) -> list[str]:
    which = chosen(site, active)
    nodes.write(site.state, active.node, {f"/dev/infiniband/uverbs{i}": None for i in which})
    names = ", ".join(hardware.hca_name(i) for i in which)
    return [f"{active.node}: nothing in /dev/infiniband for {names} (pretended)"]


def heal_hca_no_device(site: Site, active: Active) -> None:
    place(site, active.node, {}, [f"/dev/infiniband/uverbs{i}" for i in chosen(site, active)])


def place(site: Site, node: str, links: dict[str, str], devices: list[str]) -> None:
    """Links and device nodes; the devices have the numbers of /dev/null."""
    for path, target in links.items():
        nodes.do(site.state, node, ["ln", "-sfn", target, path])
    for path in devices:
        script = '[ -e "$1" ] || mknod -m 666 "$1" c 1 3'
        nodes.do(site.state, node, ["sh", "-euc", script, "sh", path])


def hca_errors(site: Site, active: Active) -> list[str]:
    p = active.params
    (i,) = chosen(site, active)
    files = hardware.healthy(site.state, active.node).files
    folder = f"{hardware.hca_folder(i)}/ports/1/"
    path = next((one for one in files if one.startswith(folder) and one.endswith("/" + p["counter"])), None)
    if path is None or not p["per_s"].isdigit():
        raise LabError(f"counter={p['counter']!r}, per_s={p['per_s']!r}: no such counter, or no number")
    request = {"kind": "count", "name": "counting", "path": path, "per_s": int(p["per_s"])}
    keep(site, active, guest.start(request, nodes.pid(site.state, active.node)))
    active.undo["path"] = path
    return [f"{active.node}: {hardware.hca_name(i)} counts {p['per_s']} {p['counter']} a second (pretended)"]


def heal_hca_errors(site: Site, active: Active) -> None:
    end_guest(site, active)
    if "path" in active.undo:
        nodes.write(site.state, active.node, {active.undo["path"]: "0\n"})


# --- GPUs -----------------------------------------------------------------------------------------


def gpu_values(state: State, node: str) -> dict[str, str]:
    """What NVML answers with all faults in force."""
    values = hardware.gpu_values(state, node)
    count = state.gpus
    for active in state.active(node):
        gpu = active.params.get("gpu", "0")
        if active.fault == "gpu-missing":
            count -= 1
        elif active.fault == "gpu-lost":
            values[f"{gpu}.lost"] = "1"
        elif active.fault == "gpu-mismatch":
            values["init"] = "18"
        elif active.fault == "gpu-driver":
            values["driver"], values["nvml"] = active.params["version"], "12." + active.params["version"]
            values["cuda"] = active.params["cuda"]
        elif active.fault == "gpu-process":
            values[f"{gpu}.processes"] = f"{active.undo['inner']}:{active.params['memory']}"
        elif active.fault == "gpu-ecc":
            values[f"{gpu}.ecc10"] = values[f"{gpu}.ecc11"] = active.params["count"]
            values[f"{gpu}.remap_uncorrected"] = values[f"{gpu}.remap_pending"] = "1"
        elif active.fault == "gpu-throttle":
            values[f"{gpu}.throttle"] = active.params["reasons"]
            values[f"{gpu}.clock0"] = values[f"{gpu}.clock1"] = "1095"
        elif active.fault == "gpu-nvlink":
            for one in range(state.gpus) if gpu == "all" else [gpu]:
                values[f"{one}.nvlinks_down"] = active.params["links"]
        elif active.fault == "gpu-xid" and active.params["recovery"]:
            values[f"{gpu}.recovery"] = active.params["recovery"]
        elif active.fault == "gpu-mode":
            for one in range(state.gpus):
                values |= {f"{one}.{key}": value for key, value in active.params.items()}
        elif active.fault == "gpu-fabric":
            for one in range(state.gpus):
                values[f"{one}.fabric_state"] = active.params["state"]
                values[f"{one}.fabric_status"] = active.params["status"]
        elif active.fault == "gpu-pcie":
            values[f"{gpu}.pcie_width"] = active.params["width"]
    values["count"] = str(max(0, count))
    return values


def driver_files(state: State, node: str) -> dict[str, str | bytes | None]:
    """The driver's own traces with all faults in force."""
    files: dict[str, str | bytes | None] = {}
    if state.active(node, "gpu-no-driver"):
        files["/proc/driver/nvidia"] = None
        files["/sys/module/nvidia"] = None
        files["/sys/module/nvidia_uvm"] = None
        files["/sys/module/nvidia_peermem"] = None
        files[hardware.NVML_FILE] = None
        for path in hardware.healthy(state, node).devices:
            if path.startswith("/dev/nvidia"):
                files[path] = None
        for i in range(state.gpus):
            files[f"/sys/devices/{hardware.GPU_ROOT.format(i=i)}/{hardware.gpu_bus(i)}/driver"] = None
        return files
    files |= {
        path: text
        for path, text in hardware.healthy(state, node).files.items()
        if path.startswith(("/proc/driver/nvidia", "/sys/module/nvidia"))
    }
    if state.active(node, "gpu-no-peermem"):
        files["/sys/module/nvidia_peermem"] = None
        del files["/sys/module/nvidia_peermem/version"]
    for active in state.active(node):
        if active.fault in ("gpu-mismatch", "gpu-driver"):
            version = active.params["version"]
            files["/proc/driver/nvidia/version"] = hardware.version_text(version)
            files["/sys/module/nvidia/version"] = version + "\n"
    files[hardware.NVML_FILE] = hardware.render(gpu_values(state, node))
    files[hardware.KERNEL_LOG] = kernel_log(state, node)
    return files


def kernel_log(state: State, node: str) -> str:
    lines = [hardware.healthy(state, node).files[hardware.KERNEL_LOG]]
    for number, active in enumerate(state.active(node, "gpu-xid"), 1):
        p = active.params
        where = hardware.gpu_bus(int(p["gpu"])).partition(".")[0]
        message = f"NVRM: Xid (PCI:{where}): {p['code']}, {p['text']}"
        lines.append(hardware.record(number, active.undo["at"], message))
    return "".join(lines)


def set_gpus(site: Site, node: str) -> None:
    state = site.state
    files = driver_files(state, node)
    nodes.write(state, node, files)
    if state.active(node, "gpu-no-driver"):
        return
    tree = hardware.healthy(state, node)
    missing = len(state.active(node, "gpu-missing"))
    kept = state.gpus - missing
    links, devices = {}, []
    for i in range(state.gpus):
        bus = hardware.gpu_bus(i)
        function = f"/sys/bus/pci/devices/{bus}"
        folder = f"/sys/devices/{hardware.GPU_ROOT.format(i=i)}/{bus}"
        if i < kept:
            links[function] = tree.links[function]
            links[f"{folder}/driver"] = tree.links[f"{folder}/driver"]
        else:
            nodes.write(state, node, {function: None, f"/dev/nvidia{i}": None})
    devices = [
        path for path in tree.devices
        if path.startswith("/dev/nvidia") and path not in [f"/dev/nvidia{i}" for i in range(kept, 16)]
    ]  # fmt: skip
    place(site, node, links, devices)
    drivers = state.active(node, "gpu-driver")
    version = drivers[-1].params["version"] if drivers else hardware.DRIVER
    script = (
        'cd "$1"; for f in libnvidia-ml.so.*.*; do [ "$f" = "libnvidia-ml.so.$2" ] || '
        'mv -f "$f" "libnvidia-ml.so.$2"; done; ln -sfn "libnvidia-ml.so.$2" libnvidia-ml.so.1'
    )
    nodes.do(state, node, ["sh", "-euc", script, "sh", nodes.library_folder(), version])


def gpu(site: Site, active: Active) -> list[str]:
    p = active.params
    every = active.fault == "gpu-nvlink" and p["gpu"] == "all"
    if "gpu" in p and not every and not (p["gpu"].isdigit() and int(p["gpu"]) < site.state.gpus):
        raise LabError(f"gpu={p['gpu']!r}: these nodes have GPUs 0 to {site.state.gpus - 1}")
    if active.fault == "gpu-xid":
        active.undo["at"] = time.monotonic()
    for name in ("memory", "count", "links", "cuda", "code", "recovery", "state", "status"):
        if p.get(name) and not p[name].isdigit():
            raise LabError(f"{name}={p[name]!r} is not a number")
    if active.fault == "gpu-process":
        request = {"kind": "sleep", "name": p["name"], "title": p["title"], "user": p["user"]}
        keep(site, active, guest.start(request, nodes.pid(site.state, active.node)))
        active.undo["inner"] = inner_pid(active.undo["pid"])
    set_gpus(site, active.node)
    said = {
        "gpu-missing": "has one GPU less",
        "gpu-lost": f"GPU {p.get('gpu')} fell off the bus",
        "gpu-mismatch": "driver and NVML library are of different versions",
        "gpu-no-driver": "the GPUs have no driver",
        "gpu-driver": f"has driver {p.get('version')}",
        "gpu-process": f"somebody's {p.get('name')} uses GPU {p.get('gpu')}",
        "gpu-ecc": f"GPU {p.get('gpu')} has {p.get('count')} uncorrectable memory errors",
        "gpu-throttle": f"GPU {p.get('gpu')} is throttled",
        "gpu-nvlink": f"GPU {p.get('gpu')} has {p.get('links')} NVLinks down",
        "gpu-xid": f"the driver reports Xid {p.get('code')} of GPU {p.get('gpu')}",
        "gpu-fabric": f"the GPUs are in fabric state {p.get('state')}, status {p.get('status')}",
        "gpu-mode": f"the GPUs have {', '.join(f'{k}={v}' for k, v in p.items())}",
        "gpu-no-peermem": "nvidia-peermem is not loaded",
        "gpu-pcie": f"GPU {p.get('gpu')} has {p.get('width')} PCIe lanes",
    }
    return [f"{active.node}: {said[active.fault]} (pretended)"]


def inner_pid(pid: int) -> int:
    """The pid that a process has in its own namespace, which is what NVML reports there."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    return pid


def heal_gpu(site: Site, active: Active) -> None:
    end_guest(site, active)
    set_gpus(site, active.node)


def hca_fault(name: str, summary: str, **params: str) -> Fault:
    given = {"hca": "last", **params}
    return Fault(name, summary, hca_values, heal_hca_values, given, ("hca",), needs="hca")


def gpu_fault(name: str, summary: str, /, **params: str) -> Fault:
    return Fault(name, summary, gpu, heal_gpu, params, needs="gpu")


FAULTS = (
    Fault(
        "hca-missing", "an HCA has no RDMA device", hca_missing, heal_hca_missing,
        {"hca": "last"}, ("hca",), needs="hca",
    ),
    Fault(
        "hca-no-device", "an HCA has no device in /dev/infiniband", hca_no_device, heal_hca_no_device,
        {"hca": "last"}, ("hca",), needs="hca",
    ),
    hca_fault("hca-down", "an HCA port is down"),
    hca_fault("hca-init", "an HCA port waits for a subnet manager"),
    hca_fault("hca-rate", "an HCA port is slower", rate="200 Gb/sec (2X NDR)"),
    Fault(
        "hca-file", "a file of an HCA says something else", hca_values, heal_hca_values,
        {"hca": "last", "file": "ports/1/sm_lid", "value": "0x9"}, ("hca", "file"), needs="hca",
    ),
    hca_fault("hca-fw", "an HCA has other firmware", version="28.33.0800"),
    hca_fault("hca-pcie", "an HCA has fewer PCIe lanes", width="8"),
    hca_fault("hca-numa", "an HCA is on another NUMA node", numa="1"),
    Fault(
        "hca-errors", "a counter of an HCA port grows", hca_errors, heal_hca_errors,
        {"hca": "last", "counter": "symbol_error", "per_s": "50"}, ("hca", "counter"), needs="hca",
    ),
    hca_fault("hca-gid", "an HCA has no RoCE v2 GID of an IPv4 address"),
    gpu_fault("gpu-missing", "one GPU less"),
    gpu_fault("gpu-lost", "a GPU has fallen off the bus", gpu="0"),
    gpu_fault(
        "gpu-mismatch", "driver and library out of step", version=hardware.OTHER_DRIVER
    ),
    gpu_fault("gpu-no-driver", "the GPUs have no driver"),
    gpu_fault(
        "gpu-driver", "another driver version", version=hardware.OTHER_DRIVER, cuda="12020"
    ),
    gpu_fault(
        "gpu-process", "somebody's process is on a GPU", gpu="0", user="nobody", name="python3",
        title="python3 train.py", memory="21474836480",
    ),
    gpu_fault("gpu-ecc", "a GPU has uncorrectable memory errors", gpu="0", count="3"),
    gpu_fault("gpu-throttle", "a GPU runs below its clock", gpu="0", reasons="0x40"),
    gpu_fault("gpu-nvlink", "NVLinks of a GPU are down", gpu="0", links="2"),
    gpu_fault(
        "gpu-xid", "the driver reported an error of a GPU", gpu="0", code="95", recovery="",
        text="pid=4711, name=python3, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No",
    ),
    gpu_fault("gpu-fabric", "the GPUs have not joined their NVLink fabric", state="2", status="0"),
    Fault("gpu-mode", "NVML answers otherwise: NAME=VALUE", gpu, heal_gpu, {}, free=True, needs="gpu"),
    gpu_fault("gpu-no-peermem", "nvidia-peermem is not loaded"),
    gpu_fault("gpu-pcie", "a GPU has fewer PCIe lanes", gpu="0", width="8"),
)  # fmt: skip
