/* A libnvidia-ml.so.1 whose answers come from a mapped file; see layout.py for the bytes.
 *
 * The structures that callers pass are those of NVML's interface; only what nvidia-ml-py asks
 * for is here. Every call can be told to fail, to take its time, or never to come back. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "layout.h"

#define EXPORT __attribute__((visibility("default")))

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    ARGUMENT_VERSION_MISMATCH = 25,
};

struct field_cell { uint64_t bits; uint32_t is_there; uint16_t type; uint16_t code; };
struct metric_cell { double value; uint32_t is_there; uint32_t code; };
struct user { uint64_t pid; uint64_t memory; };

struct gpu {
    char uuid[96];
    char name[96];
    char serial[32];
    char mig_uuids[MOST_MIGS][96];
    uint32_t domain, bus, device;
    uint32_t lost_code;
    uint32_t user_count;
    uint32_t mig_count;
    struct user users[MOST_USERS];
    int64_t numbers[MOST_NUMBERS];
    uint32_t codes[MOST_CALLS];
    struct metric_cell metrics[MOST_METRICS];
    struct field_cell fields[MOST_LINKS][MOST_FIELDS];
};

struct call { uint64_t asked; uint32_t code, delay_us, hanging, unused; };
struct event { uint64_t type, data; uint32_t gpu, unused; };

struct state {
    uint32_t changed;
    uint32_t gpu_count;
    uint32_t driver_code;
    uint32_t loads;   /* of the driver: what was initialised before the last one is void */
    uint32_t handles; /* generation of the handles */
    uint32_t later_ms; /* by how much the driver's clock is ahead */
    char driver[80];
    struct call calls[MOST_CALLS];
    uint64_t events_sent;
    struct event events[MOST_EVENTS];
    struct gpu gpus[MOST_GPUS];
};

static volatile struct state *state;
static char mapped_path[4096];
static uint32_t initialised; /* loads + 1 at nvmlInit; 0: never */

EXPORT uint64_t holdfast_fake_nvml_state_size(void) { return sizeof(struct state); }

static int map_state(void) {
    const char *path = getenv("HOLDFAST_FAKE_NVML");
    if (!path || strlen(path) >= sizeof mapped_path) return DRIVER_NOT_LOADED;
    if (state && !strcmp(path, mapped_path)) return SUCCESS;
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return DRIVER_NOT_LOADED;
    struct stat found;
    void *at = MAP_FAILED;
    if (!fstat(file, &found) && found.st_size >= (off_t)sizeof(struct state))
        at = mmap(NULL, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (at == MAP_FAILED) return DRIVER_NOT_LOADED;
    if (state) munmap((void *)state, sizeof(struct state));
    state = at;
    strcpy(mapped_path, path);
    return SUCCESS;
}

/* Whoever drives this wakes us (state.py) on these alone: elsewhere we look 20 times a second. */
#if defined(__x86_64__) || defined(__aarch64__)
#define MOST_WAIT_MS 1000
#else
#define MOST_WAIT_MS 50
#endif

/* Until something changes, or `ms` are over. A real driver sleeps as long: one that looked up every
   50 ms would cost more than all that is measured around it. */
static void await_change(uint32_t seen, long ms) {
    if (ms > MOST_WAIT_MS) ms = MOST_WAIT_MS;
    struct timespec limit = {ms / 1000, ms % 1000 * 1000000L};
    syscall(SYS_futex, &state->changed, FUTEX_WAIT, seen, &limit, NULL, 0);
}

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000L + now.tv_nsec / 1000000L;
}

static void behave(int call, uint32_t who) {
    volatile struct call *told = &state->calls[call];
    __atomic_fetch_add(&told->asked, 1, __ATOMIC_RELAXED);
    for (;;) {
        uint32_t seen = __atomic_load_n(&state->changed, __ATOMIC_ACQUIRE);
        if (!(told->hanging & who)) break;
        await_change(seen, 50);
    }
    if (told->delay_us) {
        struct timespec delay = {told->delay_us / 1000000, (told->delay_us % 1000000) * 1000L};
        nanosleep(&delay, NULL);
    }
}

/* What every call begins with: 0, or what it must return. */
static int enter(int call) {
    if (!state) return UNINITIALIZED;
    behave(call, ~0u);
    if (state->driver_code) return state->driver_code;
    if (initialised != state->loads + 1) return UNINITIALIZED;
    return state->calls[call].code;
}

static void *handle_of(uint32_t index) {
    return (void *)(uintptr_t)(((uintptr_t)state->handles << 16) + 0x1000 + index);
}

static int index_of(void *handle, uint32_t *index) {
    uintptr_t bits = (uintptr_t)handle;
    if (bits >> 16 != state->handles || (bits & 0xffff) < 0x1000) return INVALID_ARGUMENT;
    *index = (bits & 0xffff) - 0x1000;
    return *index < MOST_GPUS * (1 + MOST_MIGS) ? SUCCESS : INVALID_ARGUMENT;
}

/* The same for a call about a GPU. MIG devices come after all GPUs. */
static int enter_device(int call, void *handle, struct gpu **gpu, int *mig) {
    if (!state) return UNINITIALIZED;
    uint32_t index;
    int known = index_of(handle, &index);
    uint32_t owner = known ? 0 : index < MOST_GPUS ? index : (index - MOST_GPUS) / MOST_MIGS;
    behave(call, known ? ~0u : 1u << owner);
    if (state->driver_code) return state->driver_code;
    if (initialised != state->loads + 1) return UNINITIALIZED;
    if (index_of(handle, &index)) return INVALID_ARGUMENT;
    *gpu = (struct gpu *)&state->gpus[owner];
    *mig = index < MOST_GPUS ? -1 : (int)((index - MOST_GPUS) % MOST_MIGS);
    if ((*gpu)->lost_code) return (*gpu)->lost_code;
    if (state->calls[call].code) return state->calls[call].code;
    return (*gpu)->codes[call];
}

static int enter_gpu(int call, void *handle, struct gpu **gpu) {
    int mig = -1;
    int refused = enter_device(call, handle, gpu, &mig);
    return refused ? refused : mig < 0 ? SUCCESS : NOT_SUPPORTED;
}

static int copied(char *into, uint32_t length, const char *text) {
    if (strlen(text) + 1 > length) return INSUFFICIENT_SIZE;
    strcpy(into, text);
    return SUCCESS;
}

#define ABOUT_A_GPU(function)                                   \
    struct gpu *gpu;                                            \
    int refused = enter_gpu(CALL_##function, device, &gpu);     \
    if (refused) return refused;

#define TELLS(function, type, number)                           \
    EXPORT int function(void *device, type *told) {             \
        ABOUT_A_GPU(function)                                   \
        *told = (type)gpu->numbers[NUMBER_##number];            \
        return SUCCESS;                                         \
    }

/* Library and system */

static int initialise(int call) {
    int unmapped = map_state();
    if (unmapped) return unmapped;
    behave(call, ~0u);
    if (state->driver_code) return state->driver_code;
    if (state->calls[call].code) return state->calls[call].code;
    initialised = state->loads + 1;
    return SUCCESS;
}

EXPORT int nvmlInit_v2(void) { return initialise(CALL_nvmlInit_v2); }

EXPORT int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return initialise(CALL_nvmlInitWithFlags);
}

EXPORT int nvmlShutdown(void) {
    int refused = enter(CALL_nvmlShutdown);
    if (!refused) initialised = 0;
    return refused;
}

EXPORT const char *nvmlErrorString(int code) {
    static __thread char text[64];
    snprintf(text, sizeof text, "code %d of the fake driver", code);
    return text;
}

EXPORT int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    int refused = enter(CALL_nvmlSystemGetDriverVersion);
    return refused ? refused : copied(version, length, (char *)state->driver);
}

EXPORT int nvmlSystemGetNVMLVersion(char *version, unsigned length) {
    int refused = enter(CALL_nvmlSystemGetNVMLVersion);
    return refused ? refused : copied(version, length, (char *)state->driver);
}

EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    int refused = enter(CALL_nvmlSystemGetCudaDriverVersion_v2);
    if (!refused) *version = 12080;
    return refused;
}

/* Devices and what they are */

EXPORT int nvmlDeviceGetCount_v2(unsigned *count) {
    int refused = enter(CALL_nvmlDeviceGetCount_v2);
    if (!refused) *count = state->gpu_count;
    return refused;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    int refused = enter(CALL_nvmlDeviceGetHandleByIndex_v2);
    if (refused) return refused;
    if (index >= state->gpu_count) return INVALID_ARGUMENT;
    if (state->gpus[index].codes[CALL_nvmlDeviceGetHandleByIndex_v2])
        return state->gpus[index].codes[CALL_nvmlDeviceGetHandleByIndex_v2];
    *device = handle_of(index);
    return SUCCESS;
}

EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    int refused = enter(CALL_nvmlDeviceGetHandleByUUID);
    if (refused) return refused;
    for (uint32_t i = 0; i < state->gpu_count; i++) {
        struct gpu *gpu = (struct gpu *)&state->gpus[i];
        if (!strcmp(uuid, gpu->uuid)) return *device = handle_of(i), SUCCESS;
        for (uint32_t m = 0; m < gpu->mig_count; m++)
            if (!strcmp(uuid, gpu->mig_uuids[m]))
                return *device = handle_of(MOST_GPUS + i * MOST_MIGS + m), SUCCESS;
    }
    return NOT_FOUND;
}

static void bus_id(struct gpu *gpu, char *text, size_t length, int digits) {
    snprintf(text, length, "%0*X:%02X:%02X.0", digits, gpu->domain, gpu->bus & 255,
             gpu->device & 255);
}

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *wanted, void **device) {
    int refused = enter(CALL_nvmlDeviceGetHandleByPciBusId_v2);
    if (refused) return refused;
    for (uint32_t i = 0; i < state->gpu_count; i++) {
        char longer[32], shorter[32];
        bus_id((struct gpu *)&state->gpus[i], longer, sizeof longer, 8);
        bus_id((struct gpu *)&state->gpus[i], shorter, sizeof shorter, 4);
        if (!strcasecmp(wanted, longer) || !strcasecmp(wanted, shorter))
            return *device = handle_of(i), SUCCESS;
    }
    return NOT_FOUND;
}

EXPORT int nvmlDeviceGetIndex(void *device, unsigned *index) {
    ABOUT_A_GPU(nvmlDeviceGetIndex)
    *index = (unsigned)(gpu - (struct gpu *)state->gpus);
    return SUCCESS;
}

EXPORT int nvmlDeviceGetName(void *device, char *name, unsigned length) {
    struct gpu *gpu;
    int mig, refused = enter_device(CALL_nvmlDeviceGetName, device, &gpu, &mig);
    return refused ? refused : copied(name, length, gpu->name);
}

EXPORT int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
    struct gpu *gpu;
    int mig, refused = enter_device(CALL_nvmlDeviceGetUUID, device, &gpu, &mig);
    if (refused) return refused;
    return copied(uuid, length, mig < 0 ? gpu->uuid : gpu->mig_uuids[mig]);
}

EXPORT int nvmlDeviceGetSerial(void *device, char *serial, unsigned length) {
    ABOUT_A_GPU(nvmlDeviceGetSerial)
    return copied(serial, length, gpu->serial);
}

struct pci_info {
    char short_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
};

EXPORT int nvmlDeviceGetPciInfo_v3(void *device, struct pci_info *told) {
    ABOUT_A_GPU(nvmlDeviceGetPciInfo_v3)
    memset(told, 0, sizeof *told);
    told->domain = gpu->domain;
    told->bus = gpu->bus;
    told->device = gpu->device;
    told->device_id = 0x233010de;
    bus_id(gpu, told->id, sizeof told->id, 8);
    char shorter[32];
    bus_id(gpu, shorter, sizeof shorter, 4);
    memcpy(told->short_id, shorter, 15);
    return SUCCESS;
}

/* What they do */

EXPORT int nvmlDeviceGetUtilizationRates(void *device, unsigned *told) {
    ABOUT_A_GPU(nvmlDeviceGetUtilizationRates)
    told[0] = (unsigned)gpu->numbers[NUMBER_busy_percent];
    told[1] = (unsigned)gpu->numbers[NUMBER_memory_busy_percent];
    return SUCCESS;
}

EXPORT int nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *told) {
    ABOUT_A_GPU(nvmlDeviceGetTemperature)
    if (sensor) return INVALID_ARGUMENT;
    *told = (unsigned)gpu->numbers[NUMBER_temperature];
    return SUCCESS;
}

struct temperature { unsigned version, sensor; int value; };

EXPORT int nvmlDeviceGetTemperatureV(void *device, struct temperature *told) {
    ABOUT_A_GPU(nvmlDeviceGetTemperatureV)
    if (told->version != (1u << 24 | sizeof *told)) return ARGUMENT_VERSION_MISMATCH;
    if (told->sensor) return INVALID_ARGUMENT;
    told->value = (int)gpu->numbers[NUMBER_temperature];
    return SUCCESS;
}

EXPORT int nvmlDeviceGetTemperatureThreshold(void *device, unsigned which, unsigned *told) {
    ABOUT_A_GPU(nvmlDeviceGetTemperatureThreshold)
    if (which > 3) return INVALID_ARGUMENT;
    *told = (unsigned)gpu->numbers[NUMBER_shutdown_temperature + which];
    return SUCCESS;
}

struct margin { unsigned version; int value; };

EXPORT int nvmlDeviceGetMarginTemperature(void *device, struct margin *told) {
    ABOUT_A_GPU(nvmlDeviceGetMarginTemperature)
    if (told->version != (1u << 24 | sizeof *told)) return ARGUMENT_VERSION_MISMATCH;
    told->value = (int)gpu->numbers[NUMBER_temperature_margin];
    return SUCCESS;
}

/* The older call counts what the driver keeps for itself as used. */
EXPORT int nvmlDeviceGetMemoryInfo(void *device, uint64_t *told) {
    ABOUT_A_GPU(nvmlDeviceGetMemoryInfo)
    told[0] = gpu->numbers[NUMBER_memory_total];
    told[2] = gpu->numbers[NUMBER_memory_used] + gpu->numbers[NUMBER_memory_reserved];
    told[1] = told[0] - told[2];
    return SUCCESS;
}

struct memory { unsigned version; uint64_t total, reserved, free, used; };

EXPORT int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory *told) {
    ABOUT_A_GPU(nvmlDeviceGetMemoryInfo_v2)
    if (told->version != (2u << 24 | sizeof *told)) return ARGUMENT_VERSION_MISMATCH;
    told->total = gpu->numbers[NUMBER_memory_total];
    told->reserved = gpu->numbers[NUMBER_memory_reserved];
    told->used = gpu->numbers[NUMBER_memory_used];
    told->free = told->total - told->reserved - told->used;
    return SUCCESS;
}

TELLS(nvmlDeviceGetPowerUsage, unsigned, power_milliwatts)
TELLS(nvmlDeviceGetEnforcedPowerLimit, unsigned, power_limit_milliwatts)
TELLS(nvmlDeviceGetTotalEnergyConsumption, uint64_t, energy_millijoules)
TELLS(nvmlDeviceGetCurrentClocksEventReasons, uint64_t, event_reasons)
TELLS(nvmlDeviceGetCurrentClocksThrottleReasons, uint64_t, event_reasons)
TELLS(nvmlDeviceGetPerformanceState, unsigned, performance_state)
TELLS(nvmlDeviceGetRetiredPagesPendingStatus, unsigned, retirement_pending)
TELLS(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, pcie_generation)
TELLS(nvmlDeviceGetCurrPcieLinkWidth, unsigned, pcie_width)
TELLS(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, pcie_generation_most)
TELLS(nvmlDeviceGetMaxPcieLinkWidth, unsigned, pcie_width_most)
TELLS(nvmlDeviceGetPcieReplayCounter, unsigned, pcie_replays)
TELLS(nvmlDeviceGetPersistenceMode, unsigned, persistence_mode)
TELLS(nvmlDeviceGetSupportedEventTypes, uint64_t, event_types)

EXPORT int nvmlDeviceGetClockInfo(void *device, unsigned kind, unsigned *told) {
    ABOUT_A_GPU(nvmlDeviceGetClockInfo)
    if (kind > 3) return INVALID_ARGUMENT;
    *told = (unsigned)gpu->numbers[NUMBER_graphics_clock + kind];
    return SUCCESS;
}

EXPORT int nvmlDeviceGetMaxClockInfo(void *device, unsigned kind, unsigned *told) {
    ABOUT_A_GPU(nvmlDeviceGetMaxClockInfo)
    if (kind > 3) return INVALID_ARGUMENT;
    *told = (unsigned)gpu->numbers[NUMBER_graphics_clock_most + kind];
    return SUCCESS;
}

/* Samples the link for 20 ms, as the real one does: nobody should ask every second. */
EXPORT int nvmlDeviceGetPcieThroughput(void *device, unsigned direction, unsigned *told) {
    ABOUT_A_GPU(nvmlDeviceGetPcieThroughput)
    struct timespec sampling = {0, 20000000L};
    nanosleep(&sampling, NULL);
    if (direction > 1) return INVALID_ARGUMENT;
    *told = 1000;
    return SUCCESS;
}

struct process { unsigned pid; uint64_t memory; unsigned gpu_instance, compute_instance; };

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count,
                                                   struct process *told) {
    ABOUT_A_GPU(nvmlDeviceGetComputeRunningProcesses_v3)
    unsigned room = *count;
    *count = gpu->user_count;
    if (!gpu->user_count) return SUCCESS;
    if (!told || room < gpu->user_count) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < gpu->user_count; i++)
        told[i] = (struct process){(unsigned)gpu->users[i].pid, gpu->users[i].memory, ~0u, ~0u};
    return SUCCESS;
}

/* What is wrong with them */

EXPORT int nvmlDeviceGetEccMode(void *device, unsigned *current, unsigned *pending) {
    ABOUT_A_GPU(nvmlDeviceGetEccMode)
    *current = *pending = (unsigned)gpu->numbers[NUMBER_ecc_mode];
    return SUCCESS;
}

EXPORT int nvmlDeviceGetTotalEccErrors(void *device, unsigned kind, unsigned scope,
                                       uint64_t *told) {
    ABOUT_A_GPU(nvmlDeviceGetTotalEccErrors)
    if (kind > 1 || scope > 1) return INVALID_ARGUMENT;
    *told = gpu->numbers[NUMBER_ecc_corrected_volatile + 2 * scope + kind];
    return SUCCESS;
}

struct sram_status {
    unsigned version;
    uint64_t aggregate_parity, aggregate_sec_ded, aggregate_corrected;
    uint64_t volatile_parity, volatile_sec_ded, volatile_corrected;
    uint64_t buckets[5];
    unsigned is_threshold_exceeded;
};

EXPORT int nvmlDeviceGetSramEccErrorStatus(void *device, struct sram_status *told) {
    ABOUT_A_GPU(nvmlDeviceGetSramEccErrorStatus)
    if (told->version != (1u << 24 | sizeof *told)) return ARGUMENT_VERSION_MISMATCH;
    told->aggregate_parity = told->volatile_parity = gpu->numbers[NUMBER_sram_uncorrected];
    told->aggregate_sec_ded = told->volatile_sec_ded = 0;
    told->aggregate_corrected = told->volatile_corrected = gpu->numbers[NUMBER_sram_corrected];
    memset(told->buckets, 0, sizeof told->buckets);
    told->is_threshold_exceeded = (unsigned)gpu->numbers[NUMBER_sram_threshold_exceeded];
    return SUCCESS;
}

EXPORT int nvmlDeviceGetRemappedRows(void *device, unsigned *correctable, unsigned *uncorrectable,
                                     unsigned *pending, unsigned *failed) {
    ABOUT_A_GPU(nvmlDeviceGetRemappedRows)
    *correctable = (unsigned)gpu->numbers[NUMBER_remapped_correctable];
    *uncorrectable = (unsigned)gpu->numbers[NUMBER_remapped_uncorrectable];
    *pending = (unsigned)gpu->numbers[NUMBER_remap_pending];
    *failed = (unsigned)gpu->numbers[NUMBER_remap_failure];
    return SUCCESS;
}

EXPORT int nvmlDeviceGetRowRemapperHistogram(void *device, unsigned *told) {
    ABOUT_A_GPU(nvmlDeviceGetRowRemapperHistogram)
    for (int i = 0; i < 5; i++) told[i] = (unsigned)gpu->numbers[NUMBER_banks_max + i];
    return SUCCESS;
}

EXPORT int nvmlDeviceGetRetiredPages(void *device, unsigned cause, unsigned *count,
                                     uint64_t *addresses) {
    ABOUT_A_GPU(nvmlDeviceGetRetiredPages)
    if (cause > 1) return INVALID_ARGUMENT;
    unsigned room = *count;
    *count = (unsigned)gpu->numbers[NUMBER_retired_correctable + cause];
    if (!*count) return SUCCESS;
    if (!addresses || room < *count) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *count; i++) addresses[i] = 0x1000 * (i + 1);
    return SUCCESS;
}

EXPORT int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *told) {
    ABOUT_A_GPU(nvmlDeviceGetNvLinkState)
    if (link >= MOST_LINKS || !gpu->fields[link][165].is_there) return INVALID_ARGUMENT;
    *told = (unsigned)gpu->fields[link][165].bits;
    return SUCCESS;
}

/* Fields, many in one call */

struct field {
    uint32_t id, scope;
    int64_t timestamp, latency;
    uint32_t type;
    int code;
    uint64_t bits;
};

static struct field_cell *cell_of(struct gpu *gpu, uint32_t id, uint32_t scope) {
    static struct field_cell none;
    if (id >= MOST_FIELDS) return &none;
    /* NVLink's throughput of all links together: kept apart, under the last link. */
    if (scope == ~0u) return &gpu->fields[MOST_LINKS - 1][id];
    return scope < MOST_LINKS ? &gpu->fields[scope][id] : &none;
}

EXPORT int nvmlDeviceGetFieldValues(void *device, int count, struct field *told) {
    ABOUT_A_GPU(nvmlDeviceGetFieldValues)
    for (int i = 0; i < count; i++) {
        struct field_cell *cell = cell_of(gpu, told[i].id, told[i].scope);
        told[i].code = cell->code ? cell->code : cell->is_there ? SUCCESS : NOT_SUPPORTED;
        told[i].timestamp = now_ms() * 1000;
        told[i].latency = 1;
        if (told[i].code) continue;
        told[i].type = cell->type;
        told[i].bits = cell->bits;
    }
    return SUCCESS;
}

/* GPM: two samples, and what happened between them */

struct sample { struct gpu *gpu; long at_ms; };
struct metric {
    unsigned id;
    int code;
    double value;
    const char *short_name, *long_name, *unit;
};
struct metrics {
    unsigned version, count;
    struct sample *earlier, *later;
    struct metric told[];
};

EXPORT int nvmlGpmQueryDeviceSupport(void *device, unsigned *told) {
    ABOUT_A_GPU(nvmlGpmQueryDeviceSupport)
    told[1] = (unsigned)gpu->numbers[NUMBER_gpm_supported];
    return SUCCESS;
}

EXPORT int nvmlGpmSampleAlloc(struct sample **sample) {
    int refused = enter(CALL_nvmlGpmSampleAlloc);
    if (!refused) *sample = calloc(1, sizeof **sample);
    return refused;
}

EXPORT int nvmlGpmSampleFree(struct sample *sample) {
    int refused = enter(CALL_nvmlGpmSampleFree);
    if (!refused) free(sample);
    return refused;
}

EXPORT int nvmlGpmSampleGet(void *device, struct sample *sample) {
    ABOUT_A_GPU(nvmlGpmSampleGet)
    if (!sample) return INVALID_ARGUMENT;
    if (!gpu->numbers[NUMBER_gpm_supported]) return NOT_SUPPORTED;
    *sample = (struct sample){gpu, now_ms() + state->later_ms};
    return SUCCESS;
}

/* Samples of less than 100 ms tell nothing that can be relied on: here, not a number. */
EXPORT int nvmlGpmMetricsGet(struct metrics *asked) {
    int refused = enter(CALL_nvmlGpmMetricsGet);
    if (refused) return refused;
    if (asked->version != 1) return ARGUMENT_VERSION_MISMATCH;
    struct sample *earlier = asked->earlier, *later = asked->later;
    if (!earlier || !later || !earlier->gpu || earlier->gpu != later->gpu) return INVALID_ARGUMENT;
    if (earlier->gpu->lost_code) return earlier->gpu->lost_code;
    if (earlier->gpu->codes[CALL_nvmlGpmMetricsGet])
        return earlier->gpu->codes[CALL_nvmlGpmMetricsGet];
    for (unsigned i = 0; i < asked->count; i++) {
        static struct metric_cell none;
        struct metric *told = &asked->told[i];
        struct metric_cell *cell =
            told->id < MOST_METRICS ? &earlier->gpu->metrics[told->id] : &none;
        told->code = cell->code ? (int)cell->code : cell->is_there ? SUCCESS : NOT_SUPPORTED;
        if (told->code) continue;
        told->value = later->at_ms - earlier->at_ms >= 100 ? cell->value : 0.0 / 0.0;
    }
    return SUCCESS;
}

/* Parts of a GPU, and what it is a part of */

EXPORT int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
    ABOUT_A_GPU(nvmlDeviceGetMigMode)
    *current = (unsigned)gpu->numbers[NUMBER_mig_mode];
    *pending = (unsigned)gpu->numbers[NUMBER_mig_mode_pending];
    return SUCCESS;
}

EXPORT int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count) {
    ABOUT_A_GPU(nvmlDeviceGetMaxMigDeviceCount)
    *count = MOST_MIGS - 1;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **mig) {
    ABOUT_A_GPU(nvmlDeviceGetMigDeviceHandleByIndex)
    if (index >= MOST_MIGS) return INVALID_ARGUMENT;
    if (index >= gpu->mig_count || !gpu->mig_uuids[index][0]) return NOT_FOUND;
    *mig = handle_of(MOST_GPUS + (uint32_t)(gpu - (struct gpu *)state->gpus) * MOST_MIGS + index);
    return SUCCESS;
}

/* The state is one byte in the C interface; what lies beside it is whatever was there. */
struct fabric {
    unsigned version;
    uint8_t cluster[16];
    int status;
    uint32_t clique;
    uint8_t state, beside[3];
    uint32_t health_mask;
    uint8_t health_summary;
};

EXPORT int nvmlDeviceGetGpuFabricInfoV(void *device, struct fabric *told) {
    ABOUT_A_GPU(nvmlDeviceGetGpuFabricInfoV)
    int is_third = told->version == (3u << 24 | 40);
    if (!is_third && told->version != (2u << 24 | 36)) return ARGUMENT_VERSION_MISMATCH;
    memset(told->cluster, 7, sizeof told->cluster);
    memset(told->beside, 0xa5, sizeof told->beside);
    told->status = (int)gpu->numbers[NUMBER_fabric_status];
    told->clique = 0;
    told->state = (uint8_t)gpu->numbers[NUMBER_fabric_state];
    told->health_mask = (uint32_t)gpu->numbers[NUMBER_fabric_health_mask];
    if (is_third) told->health_summary = (uint8_t)gpu->numbers[NUMBER_fabric_health_summary];
    return SUCCESS;
}

/* Events */

struct event_set { uint64_t seen; uint64_t wanted[MOST_GPUS]; };
struct event_data { void *device; uint64_t type, data; unsigned gpu_instance, compute_instance; };

EXPORT int nvmlEventSetCreate(struct event_set **set) {
    int refused = enter(CALL_nvmlEventSetCreate);
    if (refused) return refused;
    *set = calloc(1, sizeof **set);
    (*set)->seen = state->events_sent;
    return SUCCESS;
}

EXPORT int nvmlDeviceRegisterEvents(void *device, uint64_t types, struct event_set *set) {
    ABOUT_A_GPU(nvmlDeviceRegisterEvents)
    if (types & ~(uint64_t)gpu->numbers[NUMBER_event_types]) return NOT_SUPPORTED;
    set->wanted[gpu - (struct gpu *)state->gpus] |= types;
    return SUCCESS;
}

static int next_event(struct event_set *set, struct event_data *told) {
    uint64_t sent = __atomic_load_n(&state->events_sent, __ATOMIC_ACQUIRE);
    if (sent - set->seen > MOST_EVENTS) set->seen = sent - MOST_EVENTS;
    while (set->seen < sent) {
        struct event found = ((struct state *)state)->events[set->seen++ % MOST_EVENTS];
        if (found.gpu >= MOST_GPUS || !(set->wanted[found.gpu] & found.type)) continue;
        *told = (struct event_data){handle_of(found.gpu), found.type, found.data, ~0u, ~0u};
        return 1;
    }
    return 0;
}

EXPORT int nvmlEventSetWait_v2(struct event_set *set, struct event_data *told, unsigned limit_ms) {
    int refused = enter(CALL_nvmlEventSetWait_v2);
    long until_ms = now_ms() + limit_ms;
    while (!refused) {
        uint32_t seen = __atomic_load_n(&state->changed, __ATOMIC_ACQUIRE);
        if (next_event(set, told)) return SUCCESS;
        long left_ms = until_ms - now_ms();
        if (left_ms <= 0) return TIMEOUT;
        await_change(seen, left_ms);
        if (state->driver_code) return state->driver_code;
        if (initialised != state->loads + 1) return UNINITIALIZED;
        refused = state->calls[CALL_nvmlEventSetWait_v2].code;
    }
    return refused;
}

EXPORT int nvmlEventSetFree(struct event_set *set) {
    int refused = enter(CALL_nvmlEventSetFree);
    if (!refused) free(set);
    return refused;
}
