"""What NVML says of each GPU, through pynvml: the part of group `gpu` for nodes that have the library."""

import ctypes

from . import procs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Optional

MAX_GPUS = 64
MAX_PROCESSES = 64
MAX_NVLINKS = 36

# NVML_FI_DEV_* of nvml.h that fill a field of facts.gpu.Gpu; all are asked for at once. Those of links here
# are totals over the links of a GPU.
_FIELDS = {
    29: "retired_pages",  # for single bit errors
    30: "retired_pages",  # for double bit errors
    31: "retired_pending",
    38: "nvlink_crc_errors",  # of flow control
    45: "nvlink_crc_errors",  # of data
    52: "nvlink_replays",
    59: "nvlink_recoveries",
    94: "pcie_replays",
    194: "slowdown_margin_c",
    196: "operating_margin_c",
    230: "recovery",
}
# The same of one link, whose number is the field's scope: a counter of Gpu.link_errors. Blackwell (NVLink 5)
# has given up the first three for those of its own. [change log of NVML, R570]
_LINK_FIELDS = {161: "replays", 162: "recoveries", 163: "crc_errors"}
_LINK5_FIELDS = {214: "failed_recoveries", 215: "recovery_events", 219: "bit_errors"}
_LINK_SPEED, _LINK_POWER = 164, 167
_LOW_POWER = 1
_BLACKWELL = 10  # major number of its compute capability
# nvmlNvLinkErrorCounter_t, for drivers that do not know the fields.
_LINK_COUNTERS = ("replays", "recoveries", "crc_errors", "crc_errors")
_DOUBLE, _BITS = 0, {1: 32, 5: 32, 6: 16}  # of nvmlValue_t, by nvmlValueType_t; else all 64
_GRAPHICS, _MEMORY = 0, 2  # nvmlClockType_t
_SLOWDOWN, _OPERATING = 1, 3  # nvmlTemperatureThresholds_t

# nvmlReturn_t
_NO_PERMISSION, _CORRUPTED_INFOROM = 4, 14
_STATES = {4: "no_permission", 9: "no_driver", 12: "no_library", 18: "mismatch"}
# What a device can say that concerns the device and not the one question.
_DEVICE_FAULTS = (4, 10, 11, 15, 16, 17, 999)
# The same of questions that not every board, driver and user gets an answer to, and the fields of such.
_DEVICE_LOST = (15, 16)
_OPTIONAL = frozenset((
    "ecc_uncorrected_ever", "banks_without_spare", "pcie_width_most", "pcie_generation_now",
    "temperature_c", "margin_c", "slowdown_c", "operating_c",
))  # fmt: skip


def text_of(value: "Any") -> str:
    """Return NVML text: bytes in old pynvml, str in new."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def code_of(error: BaseException) -> "Optional[int]":
    """Return the nvmlReturn_t of a pynvml exception."""
    value = getattr(error, "value", None)
    return value if isinstance(value, int) else None


def processes(nvml: "Any", handle: "Any") -> "list[dict[str, Any]]":
    """Return facts.gpu.GpuProcess rows; compute clients only."""
    found = []
    for row in list(nvml.nvmlDeviceGetComputeRunningProcesses(handle))[:MAX_PROCESSES]:
        known = procs.describe(int(row.pid))
        memory = getattr(row, "usedGpuMemory", None)
        found.append(
            {
                "pid": int(row.pid),
                "name": known["name"],
                "user": known["user"],
                "age_s": known["age_s"],
                "left_over": procs.is_left_over(int(row.pid)),
                # 2^64 - 1 stands for "not available"
                "memory_bytes": int(memory) if memory is not None and memory < 1 << 63 else None,
            }
        )
    return found


def nvlinks(nvml: "Any", handle: "Any") -> "dict[str, Any]":
    """Return how many NVLinks a device has, how many of them are active, and which are not."""
    down, count = [], 0
    for link in range(MAX_NVLINKS):
        try:
            active = nvml.nvmlDeviceGetNvLinkState(handle, link)
        except nvml.NVMLError as e:
            if code_of(e) in _DEVICE_FAULTS:
                raise
            break  # not supported at all, or past the last one
        count += 1
        if not active:
            down.append(link)
    return {"nvlinks": count, "nvlinks_active": count - len(down), "nvlinks_down": down}


def answers(nvml: "Any", handle: "Any", pairs: "list[tuple[int, int]]") -> "Iterator[tuple[int, int, int]]":
    """Yield (field, scope, value) of those fields that the driver answers. pairs: fields and scopes."""
    for one in nvml.nvmlDeviceGetFieldValues(handle, pairs):
        if one.nvmlReturn == 0:
            # Older pynvml knows no member for each type.
            mask = (1 << _BITS.get(one.valueType, 64)) - 1
            value = int(one.value.dVal) if one.valueType == _DOUBLE else one.value.ullVal & mask
            yield one.fieldId, one.scopeId, value


def fields(nvml: "Any", handle: "Any", links: int, of_links: "dict[int, str]") -> "dict[str, Any]":
    """Return what the driver answers of _FIELDS, and of the links, by the fields of facts.gpu.Gpu."""
    found = {}  # type: dict[str, Any]
    errors, speeds = {}, {}  # type: dict[str, dict[int, int]], dict[int, int]
    by_link = [(field, link) for field in (*of_links, _LINK_SPEED) for link in range(links)]
    for field, link, value in answers(nvml, handle, [(field, 0) for field in _FIELDS] + by_link):
        if field == _LINK_SPEED:
            speeds[link] = value
        elif field in of_links:
            if value >> 63 == 0:  # more stands for "not available"
                counts = errors.setdefault(of_links[field], {})
                if value:
                    counts[link] = value
        elif _FIELDS[field].endswith("_c"):  # below 0, and not always said to be signed
            found[_FIELDS[field]] = (value + (1 << 31)) % (1 << 32) - (1 << 31)
        elif value >> 63 == 0:
            found[_FIELDS[field]] = found.get(_FIELDS[field], 0) + value
    if "retired_pending" in found:
        found["retired_pending"] = bool(found["retired_pending"])
    if links and not errors:
        errors = older_counts(nvml, handle, links)
    if errors:
        found["link_errors"] = {name: sorted(counts.items()) for name, counts in errors.items()}
    return dict(found, **link_speeds(nvml, handle, {link: speed for link, speed in speeds.items() if speed}))


def older_counts(nvml: "Any", handle: "Any", links: int) -> "dict[str, dict[int, int]]":
    """Return what a driver before R510 counts of each link; nothing for newer drivers."""
    errors = {}  # type: dict[str, dict[int, int]]
    for link in range(links):
        for counter, name in enumerate(_LINK_COUNTERS):
            try:
                value = nvml.nvmlDeviceGetNvLinkErrorCounter(handle, link, counter)
            except nvml.NVMLError:
                continue
            counts = errors.setdefault(name, {})
            if value:
                counts[link] = counts.get(link, 0) + value
        if not errors:
            break
    return errors


def link_speeds(nvml: "Any", handle: "Any", speeds: "dict[int, int]") -> "dict[str, Any]":
    """Return the speed of most links, MB/s, and of those that have another, unless they sleep."""
    if not speeds:
        return {}
    values = list(speeds.values())
    typical = max(values, key=lambda speed: (values.count(speed), speed))
    others = {link: speed for link, speed in speeds.items() if speed != typical}
    if others:
        for _, link, power in answers(nvml, handle, [(_LINK_POWER, link) for link in others]):
            if power == _LOW_POWER:
                del others[link]
    return {"nvlink_mbyte_s": typical, "nvlinks_other_mbyte_s": sorted(others.items())}


def inforom(nvml: "Any", handle: "Any") -> "dict[str, Any]":
    """Return the version of the board's InfoROM, and whether its checksums fit."""
    found = {"inforom": text_of(nvml.nvmlDeviceGetInforomImageVersion(handle))}  # type: dict[str, Any]
    try:
        nvml.nvmlDeviceValidateInforom(handle)
        found["inforom_valid"] = True
    except nvml.NVMLError as e:
        if code_of(e) == _CORRUPTED_INFOROM:
            found["inforom_valid"] = False
    return found


def sram(nvml: "Any", handle: "Any") -> "dict[str, Any]":
    """Return whether errors of the chip's own memory are beyond what NVIDIA's field diagnostic allows."""
    status = nvml.c_nvmlEccSramErrorStatus_v1_t()
    try:
        nvml.nvmlDeviceGetSramEccErrorStatus(handle, ctypes.byref(status))
    except nvml.NVMLError as e:
        if code_of(e) == _NO_PERMISSION:
            return {"sram_refused": True}
        raise
    return {"sram_exceeded": bool(status.bThresholdExceeded)}


def application_clocks(nvml: "Any", handle: "Any") -> "dict[str, Any]":
    """Return what application clocks are set to, and their default: graphics and memory, MHz."""
    now, default = nvml.nvmlDeviceGetApplicationsClock, nvml.nvmlDeviceGetDefaultApplicationsClock
    return {
        "clocks_set_mhz": [int(now(handle, _GRAPHICS)), int(now(handle, _MEMORY))],
        "clocks_default_mhz": [int(default(handle, _GRAPHICS)), int(default(handle, _MEMORY))],
    }


def fabric_info(nvml: "Any", handle: "Any") -> "Any":
    """Return nvmlGpuFabricInfo_t of a GPU: state, and status where that is complete."""
    info = nvml.c_nvmlGpuFabricInfoV_t()
    nvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
    return info


class _Gpu(object):
    """One device that is asked: each question on its own, the first fault of the device as `error`."""

    def __init__(self, nvml: "Any", handle: "Any", row: "dict[str, Any]") -> None:
        self.nvml = nvml
        self.handle = handle
        self.row = row  # facts.gpu.Gpu

    def ask(self, question: "Callable[[], Any]", faults: "tuple[int, ...]" = _DEVICE_FAULTS) -> "Any":
        """Return an answer, None where there is none. faults: codes that are the device's."""
        try:
            return question()
        except self.nvml.NVMLError as e:
            if code_of(e) in faults:
                self.row.setdefault("error", str(e))
        except (AttributeError, TypeError, ValueError, UnicodeDecodeError):
            pass  # a pynvml that does not know the function
        return None

    def add(self, part: "Callable[..., dict[str, Any]]", *args: "Any") -> None:
        """Add the fields that part(nvml, handle, *args) returns."""
        self.row.update(self.ask(lambda: part(self.nvml, self.handle, *args), _DEVICE_LOST) or {})

    def put(self, field: str, name: str, convert: "Callable[[Any], Any]" = int, *args: int) -> None:
        """Put what nvmlDeviceGetNAME answers into a field."""
        faults = _DEVICE_LOST if field in _OPTIONAL else _DEVICE_FAULTS
        value = self.ask(
            lambda: convert(getattr(self.nvml, "nvmlDeviceGet" + name)(self.handle, *args)), faults
        )
        if value is not None:
            self.row[field] = value

    def count(self) -> None:
        """NVLinks, and all fields: which ones there are depends on the generation."""
        nvml, handle, row = self.nvml, self.handle, self.row
        capability = self.ask(lambda: tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle)))
        if capability is not None:
            row["compute_capability"] = "%d.%d" % capability
        row.update(self.ask(lambda: nvlinks(nvml, handle)) or {})
        of_links = _LINK5_FIELDS if capability and capability[0] >= _BLACKWELL else _LINK_FIELDS
        self.add(fields, row.get("nvlinks", 0), of_links)

    def memory_errors(self) -> None:
        """Errors of its memory, and the rows that were remapped."""
        # Uncorrected errors since the driver was loaded, and ever.
        self.put("ecc_uncorrected", "TotalEccErrors", int, 1, 0)
        self.put("ecc_uncorrected_ever", "TotalEccErrors", int, 1, 1)
        self.add(sram)
        rows = self.ask(lambda: self.nvml.nvmlDeviceGetRemappedRows(self.handle))
        if rows is not None:
            self.row.update(remap_pending=bool(rows[2]), remap_failed=bool(rows[3]))
            self.put("banks_without_spare", "RowRemapperHistogram", lambda banks: int(banks.none))

    def fabric(self) -> None:
        """Its state in an NVLink domain, and which one."""
        fabric = self.ask(lambda: fabric_info(self.nvml, self.handle))
        if fabric is not None:
            self.row.update(fabric_state=int(fabric.state), fabric_status=int(fabric.status))
            uuid = bytes(bytearray(fabric.clusterUuid))
            if any(uuid):  # several nodes share it
                self.row["nvlink_domain"] = "%s.%d" % (uuid.hex(), fabric.cliqueId)


def device(nvml: "Any", index: int, counters: bool = False) -> "dict[str, Any]":
    """Return facts.gpu.Gpu. counters: no more than who it is, and what it counts."""
    row = {"index": index}  # type: dict[str, Any]
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as e:
        row["error"] = str(e)
        return row
    gpu = _Gpu(nvml, handle, row)
    if counters:
        gpu.put("uuid", "UUID", text_of)
        gpu.count()
        return row
    gpu.put("name", "Name", text_of)
    gpu.put("uuid", "UUID", text_of)
    gpu.put("pci_bus_id", "PciInfo", lambda info: text_of(info.busId))
    memory = gpu.ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    if memory is not None:
        row.update(memory_total_bytes=int(memory.total), memory_used_bytes=int(memory.used))
    gpu.count()
    gpu.memory_errors()
    gpu.put("throttle_reasons", "CurrentClocksThrottleReasons")
    gpu.put("compute_mode", "ComputeMode")
    gpu.put("mig_enabled", "MigMode", lambda modes: bool(modes[0]))
    # The width stays when a GPU is idle; the generation does not, so the one that GPU and slot can do.
    gpu.put("pcie_width", "CurrPcieLinkWidth")
    gpu.put("pcie_width_most", "MaxPcieLinkWidth")
    gpu.put("pcie_generation", "MaxPcieLinkGeneration")
    gpu.put("pcie_generation_now", "CurrPcieLinkGeneration")
    gpu.fabric()
    gpu.put("vbios", "VbiosVersion", text_of)
    gpu.put("ecc_enabled", "EccMode", lambda modes: bool(modes[0]))
    gpu.put("power_limit_w", "PowerManagementLimit", lambda milliwatt: milliwatt / 1000.0)
    gpu.put("power_default_w", "PowerManagementDefaultLimit", lambda milliwatt: milliwatt / 1000.0)
    gpu.add(application_clocks)
    gpu.add(inforom)
    gpu.put("temperature_c", "Temperature", int, 0)
    gpu.put("margin_c", "MarginTemperature")
    if "margin_c" not in row:  # before Ada, limits are temperatures
        gpu.put("slowdown_c", "TemperatureThreshold", int, _SLOWDOWN)
        gpu.put("operating_c", "TemperatureThreshold", int, _OPERATING)
    gpu.put("persistence", "PersistenceMode", bool)
    found = gpu.ask(lambda: processes(nvml, handle))
    if found is not None:
        row["processes"] = found
    return row


def query(nvml: "Any", counters: bool = False) -> "dict[str, Any]":
    """Return the NVML part of facts.gpu.GpuFacts."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as e:
        code = code_of(e)
        state = _STATES.get(code if code is not None else -1, "error")
        return {"nvml": state, "nvml_code": code, "nvml_message": str(e)}
    found = {"nvml": "ok", "nvml_code": 0}  # type: dict[str, Any]
    try:
        try:
            found["driver_version"] = text_of(nvml.nvmlSystemGetDriverVersion())
        except nvml.NVMLError:
            pass
        try:
            number = int(nvml.nvmlSystemGetCudaDriverVersion())
            found["cuda_driver"] = "%d.%d" % (number // 1000, number % 1000 // 10)
        except (nvml.NVMLError, AttributeError):
            pass
        try:
            count = min(int(nvml.nvmlDeviceGetCount()), MAX_GPUS)
        except nvml.NVMLError as e:
            found.update(nvml="error", nvml_code=code_of(e), nvml_message=str(e))
            count = 0
        found["devices"] = [device(nvml, index, counters) for index in range(count)]
    finally:
        try:
            nvml.nvmlShutdown()
        except nvml.NVMLError:
            pass
    return found
