"""Faults of pretended HCAs and GPUs."""

from __future__ import annotations

import time
from posixpath import normpath

from netdoctor.lab import guest, hardware
from netdoctor.lab import node as nodes
from netdoctor.lab.fault import Fault, Files, end_guest, keep, require
from netdoctor.lab.service import Site
from netdoctor.lab.state import Active, State
from netdoctor.lab.system import LabError

# --- HCAs -----------------------------------------------------------------------------------------


def chosen(site: Site, active: Active) -> list[int]:
    """The HCAs of the fault, by a name such as mlx5_1, ``last`` or ``all``; notes names for its text."""
    word = active.params["hca"]
    names = [hardware.hca_name(i) for i in range(site.state.hcas)]
    if word not in ("all", "last", *names):
        raise LabError(f"hca={word!r}: these nodes have {', '.join(names)}")
    found = names if word == "all" else [names[-1] if word == "last" else word]
    active.undo["hcas"] = ", ".join(found)
    return [names.index(name) for name in found]


_EMPTY_GID = hardware.long_gid("0" * 16, "0" * 16)
# What a fault writes into files of an HCA, below its folder; parameters are filled in, None removes one.
HCA_FILES: dict[str, dict[str, str | None]] = {
    "hca-down": {"ports/1/state": "1: DOWN", "ports/1/phys_state": "3: Disabled"},
    "hca-init": {"ports/1/state": "2: INIT", "ports/1/sm_lid": "0x0", "ports/1/lid": "0x0"},
    "hca-rate": {"ports/1/rate": "{rate}"},
    "hca-pcie": {"../../current_link_width": "{width}"},
    "hca-file": {"{file}": "{value}"},
    "hca-numa": {"../../numa_node": "{numa}"},
    "hca-fw": {"fw_ver": "{version}"},
    "hca-gid": {
        **{f"ports/1/gids/{row}": _EMPTY_GID for row in (2, 3)},
        **{f"ports/1/gid_attrs/{kind}/{row}": None for kind in ("types", "ndevs") for row in (2, 3)},
    },
}
DOWN_INFINIBAND: dict[str, str | None] = {"ports/1/sm_lid": "0x0", "ports/1/rate": "10 Gb/sec (4X SDR)"}


def changed_files(site: Site, active: Active) -> Files:
    """Paths and texts of the files that the fault changes."""
    values = HCA_FILES[active.fault]
    if active.fault == "hca-down" and site.state.link_layer != "Ethernet":
        values = values | DOWN_INFINIBAND
    files: Files = {}
    for i in chosen(site, active):
        for name, value in values.items():
            path = normpath(f"{hardware.hca_folder(i)}/{name.format_map(active.params)}")
            files[path] = None if value is None else value.format_map(active.params) + "\n"
    return files


def hca_values(site: Site, active: Active) -> None:
    """Write the files that the fault changes as all faults in force have them."""
    if active.fault == "hca-gid" and site.state.link_layer != "Ethernet":
        raise LabError("hca-gid needs HCAs on Ethernet; these are on InfiniBand")
    if active.fault == "hca-file":
        require(active, "file", r"(\w+/)*\w+", ": write a file of the HCA's folder, ports/1/sm_lid")
    tree = hardware.healthy(site.state, active.node)
    files: Files = {path: tree.files.get(path) for path in changed_files(site, active)}
    for other in site.state.active(active.node):
        if other.fault in HCA_FILES:
            files |= {path: text for path, text in changed_files(site, other).items() if path in files}
    nodes.write(site.state, active.node, files)


def hca_missing(site: Site, active: Active) -> None:
    files: Files = {}
    for i in chosen(site, active):
        files[f"/sys/class/infiniband/{hardware.hca_name(i)}"] = None
        files[f"/sys/class/infiniband_verbs/uverbs{i}"] = None
        files[f"/dev/infiniband/uverbs{i}"] = None
    nodes.write(site.state, active.node, files)


def heal_hca_missing(site: Site, active: Active) -> None:
    tree = hardware.healthy(site.state, active.node)
    links: dict[str, str] = {}
    files: Files = {}
    for i in chosen(site, active):
        verbs = f"/sys/class/infiniband_verbs/uverbs{i}"
        files |= {path: text for path, text in tree.files.items() if path.startswith(verbs + "/")}
        for link in (f"/sys/class/infiniband/{hardware.hca_name(i)}", f"{verbs}/device"):
            links[link] = tree.links[link]
    nodes.write(site.state, active.node, files)
    make_nodes(site, active.node, links, verbs_devices(site, active))


def verbs_devices(site: Site, active: Active) -> list[str]:
    return [f"/dev/infiniband/uverbs{i}" for i in chosen(site, active)]


def hca_no_device(site: Site, active: Active) -> None:
    nodes.write(site.state, active.node, dict.fromkeys(verbs_devices(site, active)))


def heal_hca_no_device(site: Site, active: Active) -> None:
    make_nodes(site, active.node, {}, verbs_devices(site, active))


def make_nodes(site: Site, node: str, links: dict[str, str], devices: list[str]) -> None:
    """Links and device nodes; the devices have the numbers of /dev/null."""
    for path, target in links.items():
        nodes.do(site.state, node, ["ln", "-sfn", target, path])
    for path in devices:
        script = '[ -e "$1" ] || mknod -m 666 "$1" c 1 3'
        nodes.do(site.state, node, ["sh", "-euc", script, "sh", path])


def hca_errors(site: Site, active: Active) -> None:
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


def heal_hca_errors(site: Site, active: Active) -> None:
    end_guest(site, active)
    if "path" in active.undo:
        nodes.write(site.state, active.node, {active.undo["path"]: "0\n"})


# --- GPUs -----------------------------------------------------------------------------------------


# What NVML answers with a fault in force. {gpu} is its GPU, or each GPU in turn when it names none, or all.
GPU_VALUES = {
    "gpu-lost": {"{gpu}.lost": "1"},
    "gpu-mismatch": {"init": "18"},
    "gpu-driver": {"driver": "{version}", "nvml": "12.{version}", "cuda": "{cuda}"},
    "gpu-process": {"{gpu}.processes": "{inner}:{memory}"},
    "gpu-ecc": {
        "{gpu}.ecc10": "{count}", "{gpu}.ecc11": "{count}",
        "{gpu}.remap_uncorrected": "1", "{gpu}.remap_pending": "1",
    },
    "gpu-throttle": {"{gpu}.throttle": "{reasons}", "{gpu}.clock0": "1095", "{gpu}.clock1": "1095"},
    "gpu-nvlink": {"{gpu}.nvlinks_down": "{links}"},
    "gpu-xid": {"{gpu}.recovery": "{recovery}"},
    "gpu-fabric": {"{gpu}.fabric_state": "{state}", "{gpu}.fabric_status": "{status}"},
    "gpu-pcie": {"{gpu}.pcie_width": "{width}"},
}  # fmt: skip


def gpu_values(state: State, node: str) -> dict[str, str]:
    """What NVML answers with all faults in force."""
    values = hardware.gpu_values(state, node)
    for active in state.active(node):
        answers = GPU_VALUES.get(active.fault, {})
        gpu = active.params.get("gpu", "all")
        for one in range(state.gpus) if gpu == "all" else [gpu]:
            if active.fault == "gpu-mode":  # the user's own names, which may hold dots: not a template
                filled = {f"{one}.{key}": value for key, value in active.params.items()}
            else:
                words = {**active.params, **active.undo, "gpu": one}
                filled = {key.format_map(words): value.format_map(words) for key, value in answers.items()}
            values |= {key: value for key, value in filled.items() if value}
    values["count"] = str(max(0, state.gpus - len(state.active(node, "gpu-missing"))))
    return values


def gpu_folder(i: int) -> str:
    return f"/sys/devices/{hardware.GPU_ROOT.format(i=i)}/{hardware.gpu_bus(i)}"


def driver_files(state: State, node: str) -> Files:
    """The driver's own traces with all faults in force."""
    tree = hardware.healthy(state, node)
    if state.active(node, "gpu-no-driver"):
        modules = [f"/sys/module/nvidia{name}" for name in ("", "_uvm", "_peermem")]
        devices = [path for path in tree.devices if path.startswith("/dev/nvidia")]
        drivers = [f"{gpu_folder(i)}/driver" for i in range(state.gpus)]
        return dict.fromkeys(["/proc/driver/nvidia", hardware.NVML_FILE, *modules, *devices, *drivers])
    files: Files = {
        path: text
        for path, text in tree.files.items()
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
    nodes.write(state, node, driver_files(state, node))
    if state.active(node, "gpu-no-driver"):
        return
    tree = hardware.healthy(state, node)
    present = state.gpus - len(state.active(node, "gpu-missing"))
    links: dict[str, str] = {}
    for i in range(state.gpus):
        function = f"/sys/bus/pci/devices/{hardware.gpu_bus(i)}"
        if i < present:
            links |= {path: tree.links[path] for path in (function, f"{gpu_folder(i)}/driver")}
        else:
            nodes.write(state, node, {function: None, f"/dev/nvidia{i}": None})
    missing = [f"/dev/nvidia{i}" for i in range(present, 16)]
    devices = [path for path in tree.devices if path.startswith("/dev/nvidia") and path not in missing]
    make_nodes(site, node, links, devices)
    drivers = state.active(node, "gpu-driver")
    version = drivers[-1].params["version"] if drivers else hardware.DRIVER
    script = (
        'cd "$1"; for f in libnvidia-ml.so.*.*; do [ "$f" = "libnvidia-ml.so.$2" ] || '
        'mv -f "$f" "libnvidia-ml.so.$2"; done; ln -sfn "libnvidia-ml.so.$2" libnvidia-ml.so.1'
    )
    nodes.do(state, node, ["sh", "-euc", script, "sh", nodes.library_folder(), version])


def gpu(site: Site, active: Active) -> None:
    p = active.params
    every = active.fault == "gpu-nvlink" and p["gpu"] == "all"
    if "gpu" in p and not every and not (p["gpu"].isdigit() and int(p["gpu"]) < site.state.gpus):
        raise LabError(f"gpu={p['gpu']!r}: these nodes have GPUs 0 to {site.state.gpus - 1}")
    if active.fault == "gpu-mode":
        active.undo["settings"] = ", ".join(f"{name}={value}" for name, value in p.items())
    if active.fault == "gpu-xid":
        active.undo["at"] = time.monotonic()
    for name in ("memory", "count", "links", "cuda", "code", "recovery", "state", "status"):
        if name in p:
            require(active, name, "[0-9]*", " is not a number")
    if active.fault == "gpu-process":
        request = {"kind": "sleep", "name": p["name"], "title": p["title"], "user": p["user"]}
        keep(site, active, guest.start(request, nodes.pid(site.state, active.node)))
        active.undo["inner"] = inner_pid(active.undo["pid"])
    set_gpus(site, active.node)


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


def hca_fault(name: str, summary: str, text: str, **params: str) -> Fault:
    text = f"{{node}}: {{hcas}} {text} (simulated)"
    return Fault(name, summary, text, hca_values, params={"hca": "last", **params}, key=("hca",), needs="hca")


def gpu_fault(name: str, summary: str, text: str, /, **params: str) -> Fault:
    return Fault(name, summary, f"{{node}}: {text} (simulated)", gpu, heal_gpu, params, needs="gpu")


FAULTS = (
    Fault(
        "hca-missing", "an HCA has no RDMA device",
        "{node}: no RDMA device {hcas}; its PCI function is there (simulated)",
        hca_missing, heal_hca_missing, {"hca": "last"}, ("hca",), needs="hca",
    ),
    Fault(
        "hca-no-device", "an HCA has no device in /dev/infiniband",
        "{node}: nothing in /dev/infiniband for {hcas} (simulated)",
        hca_no_device, heal_hca_no_device, {"hca": "last"}, ("hca",), needs="hca",
    ),
    hca_fault("hca-down", "an HCA port is down", "is DOWN, physically Disabled"),
    hca_fault(
        "hca-init", "an HCA port waits for a subnet manager",
        "stays in INIT: no subnet manager has configured it",
    ),
    hca_fault("hca-rate", "an HCA port is slower", "runs at {rate}", rate="200 Gb/sec (2X NDR)"),
    Fault(
        "hca-file", "a file of an HCA says something else",
        "{node}: {hcas} has {value} in {file} (simulated)", hca_values, None,
        {"hca": "last", "file": "ports/1/sm_lid", "value": "0x9"}, ("hca", "file"),
        needs="hca",
    ),
    hca_fault("hca-fw", "an HCA has other firmware", "has firmware {version}", version="28.33.0800"),
    hca_fault("hca-pcie", "an HCA has fewer PCIe lanes", "has {width} PCIe lanes", width="8"),
    hca_fault("hca-numa", "an HCA is on another NUMA node", "is on NUMA node {numa}", numa="1"),
    Fault(
        "hca-errors", "a counter of an HCA port grows",
        "{node}: {hcas} counts {per_s} {counter} a second (simulated)", hca_errors, heal_hca_errors,
        {"hca": "last", "counter": "symbol_error", "per_s": "50"}, ("hca", "counter"), needs="hca",
    ),
    hca_fault(
        "hca-gid", "an HCA has no RoCE v2 GID of an IPv4 address", "has no RoCE v2 GID of an IPv4 address"
    ),
    gpu_fault("gpu-missing", "one GPU less", "has one GPU less"),
    gpu_fault("gpu-lost", "a GPU has fallen off the bus", "GPU {gpu} fell off the bus", gpu="0"),
    gpu_fault(
        "gpu-mismatch", "driver and library out of step",
        "driver and NVML library are of different versions", version=hardware.OTHER_DRIVER,
    ),
    gpu_fault("gpu-no-driver", "the GPUs have no driver", "the GPUs have no driver"),
    gpu_fault(
        "gpu-driver", "another driver version", "has driver {version}",
        version=hardware.OTHER_DRIVER, cuda="12020",
    ),
    gpu_fault(
        "gpu-process", "somebody's process is on a GPU", "somebody's {name} uses GPU {gpu}",
        gpu="0", user="nobody", name="python3", title="python3 train.py", memory="21474836480",
    ),
    gpu_fault(
        "gpu-ecc", "a GPU has uncorrectable memory errors",
        "GPU {gpu} has {count} uncorrectable memory errors", gpu="0", count="3",
    ),
    gpu_fault(
        "gpu-throttle", "a GPU runs below its clock", "GPU {gpu} is throttled", gpu="0", reasons="0x40"
    ),
    gpu_fault(
        "gpu-nvlink", "NVLinks of a GPU are down", "GPU {gpu} has {links} NVLinks down", gpu="0", links="2"
    ),
    gpu_fault(
        "gpu-xid", "the driver reported an error of a GPU", "the driver reports Xid {code} of GPU {gpu}",
        gpu="0", code="95", recovery="",
        text="pid=4711, name=python3, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No",
    ),
    gpu_fault(
        "gpu-fabric", "the GPUs have not joined their NVLink fabric",
        "the GPUs are in fabric state {state}, status {status}", state="2", status="0",
    ),
    Fault(
        "gpu-mode", "NVML answers otherwise: NAME=VALUE", "{node}: the GPUs have {settings} (simulated)",
        gpu, heal_gpu, free=True, needs="gpu",
    ),
    gpu_fault("gpu-no-peermem", "nvidia-peermem is not loaded", "nvidia-peermem is not loaded"),
    gpu_fault(
        "gpu-pcie", "a GPU has fewer PCIe lanes", "GPU {gpu} has {width} PCIe lanes", gpu="0", width="8"
    ),
)  # fmt: skip
