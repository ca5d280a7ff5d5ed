/* Stand-in for libnvidia-ml.so.1, for nodes of the netdoctor lab: there is no GPU behind it.
 *
 * Answers come from lines "key=value" of /etc/netdoctor-lab-gpus, read anew by each nvmlInit: "init", "driver",
 * "cuda", "count", and "0.name", "0.uuid", … for GPU 0. A query without an answer there returns "not
 * supported"; "0.lost=1" makes every query of that GPU fail. Types and numbers as in NVIDIA's public
 * nvml.h; functions not defined here are reported by nvidia-ml-py as "function not found", as with
 * an old driver. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef FILE_NAME
#define FILE_NAME "/etc/netdoctor-lab-gpus"
#endif
#define MAX_GPUS 16
#define MAX_PROCESSES 64

enum {
  OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, TOO_SMALL = 7,
  DRIVER_NOT_LOADED = 9, CORRUPTED_INFOROM = 14, LOST = 15, MISMATCH = 18, UNKNOWN = 999
};

typedef unsigned int u32;
typedef unsigned long long u64;
typedef struct { int index; } gpu_t;
typedef gpu_t *dev_t_;

static gpu_t gpus[MAX_GPUS];
static char text[65536];
static int initialized;
/* Those that a device cgroup does not keep from this process: NVML numbers no others. */
static int shown[MAX_GPUS], count;

/* Where the line of each key begins, by the key's hash; a real driver does not search either. */
#define SLOTS 8192
static const char *lines[SLOTS];
static int any_grows, any_link; /* whether a key ends in _per_s, or is of one link */

static u32 slot(const char *key, size_t n) {
  u32 hash = 2166136261u; /* FNV-1a */
  for (size_t i = 0; i < n; i++)
    hash = (hash ^ (unsigned char)key[i]) * 16777619u;
  return hash % SLOTS;
}

/* Of lines with one key the first counts. */
static void note(void) {
  memset(lines, 0, sizeof lines);
  any_grows = strstr(text, "_per_s=") != NULL;
  any_link = 0;
  for (const char *at = text; !any_link && (at = strstr(at, ".link")) != NULL; at++)
    any_link = at[5] >= '0' && at[5] <= '9';
  int room = SLOTS / 2;
  for (const char *line = text; *line && room--;) {
    size_t length = strcspn(line, "\n"), n = strcspn(line, "=\n");
    u32 at = slot(line, n);
    while (lines[at] && (strncmp(lines[at], line, n) || lines[at][n] != '='))
      at = (at + 1) % SLOTS;
    if (!lines[at] && n < length)
      lines[at] = line;
    line += length + (line[length] != 0);
  }
}

/* Value of a key, copied to `out`; 0 when there is none. */
static int get(const char *key, char *out, size_t size) {
  size_t n = strlen(key);
  for (u32 at = slot(key, n); lines[at]; at = (at + 1) % SLOTS)
    if (!strncmp(lines[at], key, n) && lines[at][n] == '=') {
      const char *value = lines[at] + n + 1;
      size_t length = strcspn(value, "\n");
      if (length >= size)
        length = size - 1;
      memcpy(out, value, length);
      out[length] = 0;
      return 1;
    }
  return 0;
}

static u64 number(const char *key, u64 otherwise) {
  char value[128];
  return get(key, value, sizeof value) ? strtoull(value, NULL, 0) : otherwise;
}

static const char *of(dev_t_ d, const char *name) {
  static __thread char key[96];
  snprintf(key, sizeof key, "%d.%s", d->index, name);
  return key;
}

typedef struct { u32 pid; u64 memory; u32 gpu_instance, compute_instance; } process_t;

/* "7 (python3) S 1 ...": one that has ended stays as Z until it is waited for. */
static int lives(int pid) {
  char path[64], line[512] = "";
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  FILE *file = fopen(path, "r");
  if (!file)
    return 0;
  char *state = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
  fclose(file);
  return state && state[1] && state[2] != 'Z' && state[2] != 'X';
}

/* Those of "0.processes=4711:1073741824,4712:0" that live: a process that has ended holds no GPU. */
static u32 running(dev_t_ d, process_t *out) {
  char value[2048] = "";
  get(of(d, "processes"), value, sizeof value);
  u32 n = 0;
  char *rest = value;
  for (char *word; (word = strsep(&rest, ",")) != NULL && n < MAX_PROCESSES;) {
    int pid = atoi(word);
    if (!lives(pid))
      continue;
    char *colon = strchr(word, ':');
    out[n++] = (process_t){(u32)pid, colon ? strtoull(colon + 1, NULL, 0) : 0, ~0u, ~0u};
  }
  return n;
}

static int check(dev_t_ d) {
  if (!initialized)
    return UNINITIALIZED;
  if (d < gpus || d >= gpus + MAX_GPUS)
    return INVALID;
  return number(of(d, "lost"), 0) ? LOST : OK;
}

static int string(dev_t_ d, const char *name, char *out, u32 size) {
  int code = check(d);
  if (code)
    return code;
  return get(of(d, name), out, size) ? OK : NOT_SUPPORTED;
}

static int read32(dev_t_ d, const char *name, u32 *out) {
  char value[128];
  int code = string(d, name, value, sizeof value);
  if (!code)
    *out = (u32)strtoull(value, NULL, 0);
  return code;
}

static int read64(dev_t_ d, const char *name, u64 *out) {
  char value[128];
  int code = string(d, name, value, sizeof value);
  if (!code)
    *out = strtoull(value, NULL, 0);
  return code;
}

int nvmlInitWithFlags(u32 flags) {
  FILE *file = fopen(FILE_NAME, "r");
  (void)flags;
  if (!file)
    return DRIVER_NOT_LOADED;
  text[fread(text, 1, sizeof text - 1, file)] = 0;
  fclose(file);
  note();
  for (int i = 0; i < MAX_GPUS; i++)
    gpus[i].index = i;
  count = 0;
  for (int i = 0; i < (int)number("count", 0) && i < MAX_GPUS; i++) {
    char path[64];
    snprintf(path, sizeof path, "/dev/nvidia%d", i);
    /* As the real one (580.159 on an H100): GPUs that cannot be opened are not counted. Off lab nodes there are
     * no device nodes at all. */
    if (!access(path, R_OK | W_OK) || (errno == ENOENT && access("/dev/nvidiactl", F_OK)))
      shown[count++] = i;
  }
  int code = (int)number("init", OK);
  if (!code && access("/dev/nvidiactl", R_OK | W_OK) && errno == EACCES)
    code = NO_PERMISSION;
  initialized = code == OK;
  return code;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlInit(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) {
  int code = initialized ? OK : UNINITIALIZED;
  initialized = 0;
  return code;
}

const char *nvmlErrorString(int code) {
  switch (code) {
  case OK: return "Success";
  case UNINITIALIZED: return "Uninitialized";
  case INVALID: return "Invalid Argument";
  case NOT_SUPPORTED: return "Not Supported";
  case NOT_FOUND: return "Not Found";
  case TOO_SMALL: return "Insufficient Size";
  case DRIVER_NOT_LOADED: return "Driver Not Loaded";
  case CORRUPTED_INFOROM: return "Corrupted infoROM";
  case LOST: return "GPU is lost";
  case MISMATCH: return "Driver/library version mismatch";
  default: return "Unknown Error";
  }
}

static int global(const char *key, char *out, u32 size) {
  if (!initialized)
    return UNINITIALIZED;
  return get(key, out, size) ? OK : NOT_SUPPORTED;
}
int nvmlSystemGetDriverVersion(char *out, u32 n) { return global("driver", out, n); }
int nvmlSystemGetNVMLVersion(char *out, u32 n) { return global("nvml", out, n); }
int nvmlSystemGetCudaDriverVersion(int *out) {
  char value[64];
  int code = global("cuda", value, sizeof value);
  if (!code)
    *out = atoi(value);
  return code;
}
int nvmlSystemGetCudaDriverVersion_v2(int *out) { return nvmlSystemGetCudaDriverVersion(out); }
int nvmlSystemGetProcessName(u32 pid, char *out, u32 size) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%u/comm", pid);
  FILE *file = fopen(path, "r");
  if (!file)
    return NOT_FOUND;
  size_t n = fread(out, 1, size - 1, file);
  fclose(file);
  out[n && out[n - 1] == '\n' ? n - 1 : n] = 0;
  return OK;
}

int nvmlDeviceGetCount_v2(u32 *out) {
  if (!initialized)
    return UNINITIALIZED;
  *out = (u32)count;
  return OK;
}
int nvmlDeviceGetCount(u32 *out) { return nvmlDeviceGetCount_v2(out); }
int nvmlDeviceGetHandleByIndex_v2(u32 i, dev_t_ *out) {
  if (!initialized)
    return UNINITIALIZED;
  if (i >= (u32)count)
    return INVALID;
  *out = &gpus[shown[i]];
  return check(*out);
}
int nvmlDeviceGetHandleByIndex(u32 i, dev_t_ *out) { return nvmlDeviceGetHandleByIndex_v2(i, out); }

static int find(const char *name, const char *wanted, dev_t_ *out) {
  char value[128];
  if (!initialized)
    return UNINITIALIZED;
  for (int i = 0; i < count; i++)
    if (get(of(&gpus[shown[i]], name), value, sizeof value) && !strcasecmp(value, wanted)) {
      *out = &gpus[shown[i]];
      return check(*out);
    }
  return NOT_FOUND;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, dev_t_ *out) { return find("uuid", uuid, out); }
int nvmlDeviceGetHandleBySerial(const char *serial, dev_t_ *out) { return find("serial", serial, out); }
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, dev_t_ *out) { return find("bus", bus, out); }

#define STRING(function, key) \
  int function(dev_t_ d, char *out, u32 n) { return string(d, key, out, n); }
#define UINT(function, key) \
  int function(dev_t_ d, u32 *out) { return read32(d, key, out); }
#define ULONG(function, key) \
  int function(dev_t_ d, u64 *out) { return read64(d, key, out); }

STRING(nvmlDeviceGetName, "name")
STRING(nvmlDeviceGetUUID, "uuid")
STRING(nvmlDeviceGetSerial, "serial")
STRING(nvmlDeviceGetVbiosVersion, "vbios")
STRING(nvmlDeviceGetBoardPartNumber, "part")
STRING(nvmlDeviceGetInforomImageVersion, "inforom")
/* "0.inforom_corrupt=1": its checksums do not fit */
int nvmlDeviceValidateInforom(dev_t_ d) {
  char version[32];
  int code = string(d, "inforom", version, sizeof version);
  return code ? code : number(of(d, "inforom_corrupt"), 0) ? CORRUPTED_INFOROM : OK;
}
STRING(nvmlDeviceGetGspFirmwareVersion, "gsp")

int nvmlDeviceGetIndex(dev_t_ d, u32 *out) {
  int code = check(d);
  for (int i = 0; !code && i < count; i++)
    if (shown[i] == d->index)
      *out = (u32)i;
  return code;
}
UINT(nvmlDeviceGetMinorNumber, "minor")
UINT(nvmlDeviceGetBrand, "brand")
UINT(nvmlDeviceGetArchitecture, "architecture")
UINT(nvmlDeviceGetBoardId, "board")
UINT(nvmlDeviceGetModuleId, "module")
UINT(nvmlDeviceGetNumaNodeId, "numa")
UINT(nvmlDeviceGetPersistenceMode, "persistence")
UINT(nvmlDeviceGetComputeMode, "compute_mode")
UINT(nvmlDeviceGetPerformanceState, "pstate")
UINT(nvmlDeviceGetPowerState, "pstate")
UINT(nvmlDeviceGetPowerUsage, "power_mw")
UINT(nvmlDeviceGetPowerManagementLimit, "power_limit_mw")
UINT(nvmlDeviceGetPowerManagementDefaultLimit, "power_default_mw")
UINT(nvmlDeviceGetEnforcedPowerLimit, "power_limit_mw")
UINT(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_gen")
UINT(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
UINT(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_gen_max")
UINT(nvmlDeviceGetGpuMaxPcieLinkGeneration, "pcie_gen_max")
UINT(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max")
UINT(nvmlDeviceGetPcieSpeed, "pcie_speed_mbps")
UINT(nvmlDeviceGetPcieReplayCounter, "pcie_replays")
UINT(nvmlDeviceGetNumGpuCores, "cores")
UINT(nvmlDeviceGetMemoryBusWidth, "memory_bus_width")
UINT(nvmlDeviceGetDisplayMode, "display")
UINT(nvmlDeviceGetDisplayActive, "display")
UINT(nvmlDeviceGetFanSpeed, "fan")
UINT(nvmlDeviceGetRetiredPagesPendingStatus, "retired_pending")
UINT(nvmlDeviceGetMultiGpuBoard, "multi_gpu_board")
ULONG(nvmlDeviceGetCurrentClocksThrottleReasons, "throttle")
ULONG(nvmlDeviceGetCurrentClocksEventReasons, "throttle")
ULONG(nvmlDeviceGetSupportedClocksThrottleReasons, "throttle_supported")
ULONG(nvmlDeviceGetSupportedClocksEventReasons, "throttle_supported")
ULONG(nvmlDeviceGetTotalEnergyConsumption, "energy_mj")

int nvmlDeviceGetCudaComputeCapability(dev_t_ d, int *major, int *minor) {
  u32 a, b;
  int code = read32(d, "cc_major", &a);
  if (!code)
    code = read32(d, "cc_minor", &b);
  if (!code) {
    *major = (int)a;
    *minor = (int)b;
  }
  return code;
}

typedef struct {
  char legacy[16];
  u32 domain, bus, device, pci_device, pci_subsystem;
  char id[32];
} pci_t;
int nvmlDeviceGetPciInfo_v3(dev_t_ d, pci_t *out) {
  memset(out, 0, sizeof *out);
  int code = string(d, "bus", out->id, sizeof out->id);
  if (code)
    return code;
  sscanf(out->id, "%x:%x:%x", &out->domain, &out->bus, &out->device);
  snprintf(out->legacy, sizeof out->legacy, "%04x:%02x:%02x.0", out->domain, out->bus, out->device);
  out->pci_device = (u32)number(of(d, "pci_device"), 0);
  out->pci_subsystem = (u32)number(of(d, "pci_subsystem"), 0);
  return OK;
}
int nvmlDeviceGetPciInfo_v2(dev_t_ d, pci_t *out) { return nvmlDeviceGetPciInfo_v3(d, out); }

typedef struct { u64 total, free, used; } memory_t;
typedef struct { u32 version; u64 total, reserved, free, used; } memory2_t;
int nvmlDeviceGetMemoryInfo(dev_t_ d, memory_t *m) {
  int code = read64(d, "memory", &m->total);
  if (!code) {
    process_t all[MAX_PROCESSES];
    m->used = number(of(d, "memory_used"), 0);
    for (u32 i = running(d, all); i--;)
      m->used += all[i].memory;
    m->free = m->total - m->used;
  }
  return code;
}
int nvmlDeviceGetMemoryInfo_v2(dev_t_ d, memory2_t *m) {
  memory_t plain;
  int code = nvmlDeviceGetMemoryInfo(d, &plain);
  if (!code) {
    m->total = plain.total;
    m->reserved = 0;
    m->used = plain.used;
    m->free = plain.free;
  }
  return code;
}
int nvmlDeviceGetBAR1MemoryInfo(dev_t_ d, memory_t *m) {
  int code = read64(d, "bar1", &m->total);
  if (!code) {
    m->used = 1 << 20;
    m->free = m->total - m->used;
  }
  return code;
}

typedef struct { u32 gpu, memory; } rates_t;
int nvmlDeviceGetUtilizationRates(dev_t_ d, rates_t *r) {
  int code = read32(d, "utilization", &r->gpu);
  if (!code)
    r->memory = (u32)number(of(d, "utilization_memory"), 0);
  return code;
}

int nvmlDeviceGetTemperature(dev_t_ d, u32 sensor, u32 *out) {
  return sensor ? INVALID : read32(d, "temperature", out);
}
int nvmlDeviceGetTemperatureThreshold(dev_t_ d, u32 which, u32 *out) {
  char key[32];
  snprintf(key, sizeof key, "threshold%u", which);
  return read32(d, key, out);
}
static int clock_of(dev_t_ d, const char *kind, u32 type, u32 *out) {
  char key[32];
  snprintf(key, sizeof key, "%s%u", kind, type);
  return read32(d, key, out);
}
int nvmlDeviceGetClockInfo(dev_t_ d, u32 type, u32 *out) { return clock_of(d, "clock", type, out); }
int nvmlDeviceGetMaxClockInfo(dev_t_ d, u32 type, u32 *out) { return clock_of(d, "max_clock", type, out); }
int nvmlDeviceGetApplicationsClock(dev_t_ d, u32 type, u32 *out) { return clock_of(d, "set_clock", type, out); }
int nvmlDeviceGetDefaultApplicationsClock(dev_t_ d, u32 type, u32 *out) { return clock_of(d, "max_clock", type, out); }
/* nvmlMarginTemperature_v1_t */
typedef struct { u32 version; int margin; } margin_t;
int nvmlDeviceGetMarginTemperature(dev_t_ d, margin_t *out) { return read32(d, "margin", (u32 *)&out->margin); }
int nvmlDeviceGetPcieThroughput(dev_t_ d, u32 counter, u32 *out) {
  (void)counter;
  return read32(d, "pcie_kb_s", out);
}
int nvmlDeviceGetPowerManagementLimitConstraints(dev_t_ d, u32 *low, u32 *high) {
  int code = read32(d, "power_min_mw", low);
  return code ? code : read32(d, "power_default_mw", high);
}

int nvmlDeviceGetEccMode(dev_t_ d, u32 *current, u32 *pending) {
  int code = read32(d, "ecc", current);
  if (!code)
    *pending = (u32)number(of(d, "ecc_pending"), *current);
  return code;
}
/* kind 0 corrected, 1 uncorrected; counter 0 since driver load, 1 for life */
int nvmlDeviceGetTotalEccErrors(dev_t_ d, u32 kind, u32 counter, u64 *out) {
  char key[32];
  snprintf(key, sizeof key, "ecc%u%u", kind, counter);
  return kind > 1 || counter > 1 ? INVALID : read64(d, key, out);
}
int nvmlDeviceGetMemoryErrorCounter(dev_t_ d, u32 kind, u32 counter, u32 location, u64 *out) {
  (void)location;
  return nvmlDeviceGetTotalEccErrors(d, kind, counter, out);
}
int nvmlDeviceGetRemappedRows(dev_t_ d, u32 *corrected, u32 *uncorrected, u32 *pending, u32 *failed) {
  int code = read32(d, "remap_corrected", corrected);
  if (!code) {
    *uncorrected = (u32)number(of(d, "remap_uncorrected"), 0);
    *pending = (u32)number(of(d, "remap_pending"), 0);
    *failed = (u32)number(of(d, "remap_failed"), 0);
  }
  return code;
}
/* nvmlRowRemapperHistogramValues_t; "0.remap_none=1" banks without a spare row */
typedef struct { u32 max, high, partial, low, none; } banks_t;
int nvmlDeviceGetRowRemapperHistogram(dev_t_ d, banks_t *out) {
  memset(out, 0, sizeof *out);
  return read32(d, "remap_none", &out->none);
}
/* nvmlEccSramErrorStatus_v1_t */
typedef struct { u32 version; u64 counts[11]; u32 exceeded; } sram_t;
int nvmlDeviceGetSramEccErrorStatus(dev_t_ d, sram_t *out) { return read32(d, "sram_exceeded", &out->exceeded); }

/* nvmlFieldValue_t: "0.field94=3" is what NVML_FI_DEV_PCIE_REPLAY_COUNTER answers; "0.recovery", 230; "0.field52_per_s=5"
 * makes it grow. Of what is asked link by link (scope) "0.link7.field162=1" is NVLink 7's, "0.link.field162=0"
 * that of each link that has none of its own. */
typedef struct {
  u32 id, scope;
  long long timestamp, latency;
  u32 type, code;
  union {
    u32 number;
    u64 large;
  } value;
} field_t;
static int by_link(u32 id) {
  return (id >= 161 && id <= 168) || (id >= 201 && id <= 222) || (id >= 235 && id <= 250);
}
static int answer(dev_t_ d, const char *key, u64 *out) {
  char growing[64];
  int code = read64(d, key, out);
  if (!any_grows)
    return code;
  snprintf(growing, sizeof growing, "%s_per_s", key);
  u64 per_s = number(of(d, growing), 0);
  *out = (code ? 0 : *out) + per_s * (u64)time(NULL);
  return per_s ? OK : code;
}
int nvmlDeviceGetFieldValues(dev_t_ d, int count, field_t *fields) {
  int code = check(d);
  u32 links = code ? 0 : (u32)number(of(d, "nvlinks"), 0);
  for (int i = 0; !code && i < count; i++) {
    char key[32];
    field_t *one = fields + i;
    one->type = 3; /* unsigned long long */
    snprintf(key, sizeof key, "field%u", one->id);
    if (one->id == 230)
      one->code = (u32)answer(d, "recovery", &one->value.large);
    else if (one->id >= 193 && one->id <= 196) { /* degrees: a signed int in the lower half */
      one->type = 5;
      one->code = (u32)answer(d, key, &one->value.large);
      one->value.large &= 0xffffffff;
    } else if (!by_link(one->id))
      one->code = (u32)answer(d, key, &one->value.large);
    else if (one->scope >= links)
      one->code = links ? INVALID : NOT_SUPPORTED;
    else {
      snprintf(key, sizeof key, "link%u.field%u", one->scope, one->id);
      one->code = any_link ? (u32)answer(d, key, &one->value.large) : NOT_SUPPORTED;
      snprintf(key, sizeof key, "link.field%u", one->id);
      if (one->code)
        one->code = (u32)answer(d, key, &one->value.large);
    }
  }
  return code;
}
/* nvmlGpuFabricInfo_v2_t; "0.cluster=rack7" the domain that several nodes share, none without */
typedef struct {
  u32 version;
  unsigned char cluster[16];
  u32 status, clique;
  unsigned char state;
  u32 health;
} fabric_t;
int nvmlDeviceGetGpuFabricInfoV(dev_t_ d, fabric_t *out) {
  u32 state;
  int code = read32(d, "fabric_state", &state);
  if (!code) {
    out->state = (unsigned char)state;
    out->status = (u32)number(of(d, "fabric_status"), 0);
    out->clique = (u32)number(of(d, "clique"), 0);
    memset(out->cluster, 0, sizeof out->cluster);
    char cluster[sizeof out->cluster + 1] = "";
    get(of(d, "cluster"), cluster, sizeof cluster);
    memcpy(out->cluster, cluster, strlen(cluster));
  }
  return code;
}
int nvmlDeviceGetMigMode(dev_t_ d, u32 *current, u32 *pending) {
  int code = read32(d, "mig", current);
  if (!code)
    *pending = *current;
  return code;
}
int nvmlDeviceGetMaxMigDeviceCount(dev_t_ d, u32 *out) {
  int code = check(d);
  *out = 0;
  return code;
}
int nvmlDeviceIsMigDeviceHandle(dev_t_ d, u32 *out) {
  *out = 0;
  return check(d);
}

int nvmlDeviceGetComputeRunningProcesses_v3(dev_t_ d, u32 *count, process_t *out) {
  int code = check(d);
  if (code)
    return code;
  process_t all[MAX_PROCESSES];
  u32 room = *count, n = running(d, all);
  if (out)
    memcpy(out, all, (n < room ? n : room) * sizeof *out);
  *count = n;
  return n > room ? TOO_SMALL : OK;
}
int nvmlDeviceGetComputeRunningProcesses_v2(dev_t_ d, u32 *count, process_t *out) {
  return nvmlDeviceGetComputeRunningProcesses_v3(d, count, out);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(dev_t_ d, u32 *count, process_t *out) {
  (void)out;
  *count = 0;
  return check(d);
}
int nvmlDeviceGetGraphicsRunningProcesses_v2(dev_t_ d, u32 *count, process_t *out) {
  return nvmlDeviceGetGraphicsRunningProcesses_v3(d, count, out);
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(dev_t_ d, u32 *count, process_t *out) {
  return nvmlDeviceGetGraphicsRunningProcesses_v3(d, count, out);
}

/* "0.nvlinks=18" links, "0.nvlinks_down=2" of them inactive */
int nvmlDeviceGetNvLinkState(dev_t_ d, u32 link, u32 *active) {
  int code = check(d);
  u32 links = code ? 0 : (u32)number(of(d, "nvlinks"), 0);
  if (code)
    return code;
  if (link >= links)
    return links ? INVALID : NOT_SUPPORTED;
  *active = link >= (u32)number(of(d, "nvlinks_down"), 0);
  return OK;
}
int nvmlDeviceGetNvLinkVersion(dev_t_ d, u32 link, u32 *out) {
  u32 active;
  int code = nvmlDeviceGetNvLinkState(d, link, &active);
  return code ? code : read32(d, "nvlink_version", out);
}
/* nvmlNvLinkErrorCounter_t, which drivers before R510 answer by link: replays, recoveries, CRC errors twice;
 * "0.link7.counter1=1" */
int nvmlDeviceGetNvLinkErrorCounter(dev_t_ d, u32 link, u32 counter, u64 *out) {
  u32 active;
  char key[32];
  int code = nvmlDeviceGetNvLinkState(d, link, &active);
  snprintf(key, sizeof key, "link%u.counter%u", link, counter);
  *out = code ? 0 : number(of(d, key), 0);
  return code;
}
int nvmlDeviceGetTopologyCommonAncestor(dev_t_ a, dev_t_ b, u32 *out) {
  int code = check(a) ? check(a) : check(b);
  *out = a == b ? 0 : 50; /* another processor socket */
  return code;
}
int nvmlDeviceGetP2PStatus(dev_t_ a, dev_t_ b, u32 what, u32 *out) {
  (void)what;
  *out = 0;
  return check(a) ? check(a) : check(b);
}
int nvmlDeviceGetCpuAffinity(dev_t_ d, u32 n, unsigned long *set) {
  int code = check(d);
  for (u32 i = 0; i < n && !code; i++)
    set[i] = i ? 0 : 3;
  return code;
}
