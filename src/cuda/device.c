/* cuda/device.c - opens GPUs, and enters and leaves their contexts (cuda/device.h).
 *
 * In: device numbers. Out: opened devices, with their properties from the driver.
 *
 * The calling thread may have another context current (the host uses CUDA as well, or there are
 * several devices): every call of the backend interface makes its device's context current and
 * restores the previous one, also on failure. So the host's streams, allocations and errors stay
 * its own. After a fork the child has no device: every call fails, and none reaches the driver. */
#include "device.h"

#include <stdio.h>
#include <string.h>

#include "../base/os.h"
#include "dialect.h"

static struct {
    tci_mutex lock; /* while a device is opened */
    bool is_lost;   /* in a child made by fork */
    bool is_used;   /* some device is open */
    const tci_cu *cu;
    tci_cuda_device devices[TCI_CUDA_DEVICES];
} tci_cuda = {.lock = TCI_MUTEX_INIT};

static _Thread_local char tci_cuda_error[512];

/* ---- failures ---- */

TCI_FN tc_status tci_cuda_say(const char *what, const char *detail)
{
    snprintf(tci_cuda_error, sizeof(tci_cuda_error), "%s%s%s", what, detail[0] ? ": " : "", detail);
    return TC_ERR_BACKEND;
}

TCI_FN tc_status tci_cuda_check(int code, const char *what)
{
    const char *name = NULL;
    if (code == 0) {
        return TC_OK;
    }
    tci_cuda.cu->error_name(code, &name);
    return tci_cuda_say(what, name ? name : "an unknown error");
}

TCI_FN const char *tci_cuda_last_error(void *user)
{
    (void)user;
    return tci_cuda_error;
}

/* ---- contexts ---- */

TCI_FN const tci_cu *tci_cuda_driver(void)
{
    return tci_cuda.cu;
}

TCI_FN tci_cuda_device *tci_cuda_get(int index)
{
    return index >= 0 && index < TCI_CUDA_DEVICES ? &tci_cuda.devices[index] : NULL;
}

TCI_FN tci_cuda_device *tci_cuda_of(void *user)
{
    return user ? user : &tci_cuda.devices[0];
}

TCI_FN tc_status tci_cuda_check_process(void)
{
    return tci_cuda.is_lost
               ? tci_cuda_say("this process was made by fork, and its parent used the GPU before",
                              "CUDA does not survive a fork")
               : TC_OK;
}

TCI_FN tci_cuda_stay tci_cuda_enter(const tci_cuda_device *d)
{
    tci_cuda_stay in = {d, tci_cuda.cu, d->context, tci_cuda_check_process()};
    if (!in.status) {
        in.status = tci_cuda_check(in.cu->context_get(&in.before), "cuCtxGetCurrent");
    }
    if (!in.status && in.before != d->context) {
        in.status = tci_cuda_check(in.cu->context_set(d->context), "cuCtxSetCurrent");
    }
    return in;
}

TCI_FN tc_status tci_cuda_leave(const tci_cuda_stay *in, tc_status status)
{
    if (!in->status && in->before != in->d->context) {
        in->cu->context_set(in->before);
    }
    return in->status ? in->status : status;
}

static void tci_cuda_after_fork(void)
{
    tci_cuda.is_lost = tci_cuda.is_used;
    for (int i = 0; i < TCI_CUDA_DEVICES && tci_cuda.is_lost; i++) {
        tc_backend_target *t = &tci_cuda.devices[i].target;
        t->usable = false;
        snprintf(t->why, sizeof(t->why),
                 "CUDA does not survive a fork of a process that used the GPU");
    }
}

TCI_FN void tci_cuda_keep_over_fork(void)
{
    tci_os_keep_over_fork(&tci_cuda.lock, tci_cuda_after_fork);
}

/* ---- opening ---- */

static tc_status tci_cuda_open(tci_cuda_device *d, int device)
{
    const tci_cu *cu = tci_cuda.cu;
    tc_status status = tci_cuda_check(cu->context_retain(&d->context, device),
                                      "cuDevicePrimaryCtxRetain");
    tci_cuda.is_used = tci_cuda.is_used || !status;
    if (status) {
        return status;
    }
    tci_cuda_stay in = tci_cuda_enter(d);
    return TCI_CUDA_DO(&in, cu->stream_create(&d->stream, 1), "cuStreamCreate");
}

static int tci_cuda_attribute(int which, int device)
{
    int value = 0;
    return tci_cuda.cu->device_attribute(&value, which, device) ? 0 : TCI_MAX(value, 0);
}

/* The driver's properties of the device; unknown ones stay 0. */
static void tci_cuda_machine(int device, tc_machine *m)
{
    enum {                           /* CU_DEVICE_ATTRIBUTE_... */
           TCI_CU_SHARED = 8,        /* MAX_SHARED_MEMORY_PER_BLOCK */
           TCI_CU_WARP = 10,         /* WARP_SIZE */
           TCI_CU_CLOCK = 13,        /* CLOCK_RATE, kHz */
           TCI_CU_PROCESSORS = 16,   /* MULTIPROCESSOR_COUNT */
           TCI_CU_MEMORY_CLOCK = 36, /* MEMORY_CLOCK_RATE, kHz */
           TCI_CU_BUS = 37,          /* GLOBAL_MEMORY_BUS_WIDTH, bits */
           TCI_CU_CACHE = 38,        /* L2_CACHE_SIZE */
           TCI_CU_REGISTERS = 82,    /* MAX_REGISTERS_PER_MULTIPROCESSOR */
           TCI_CU_SHARED_MOST = 97   /* MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */
    };
    m->processors = tci_cuda_attribute(TCI_CU_PROCESSORS, device);
    m->ghz = tci_cuda_attribute(TCI_CU_CLOCK, device) * 1e-6;
    m->registers = tci_cuda_attribute(TCI_CU_REGISTERS, device);
    m->cache_bytes[2] = tci_cuda_attribute(TCI_CU_CACHE, device);
    double bytes = tci_cuda_attribute(TCI_CU_BUS, device) / 8; /* twice a clock */
    m->memory_gbs = 2e-6 * bytes * tci_cuda_attribute(TCI_CU_MEMORY_CLOCK, device);
    m->subgroup = tci_cuda_attribute(TCI_CU_WARP, device);
    m->shared_bytes = tci_cuda_attribute(TCI_CU_SHARED, device);
    m->shared_most = tci_cuda_attribute(TCI_CU_SHARED_MOST, device);
}

/* The tensor cores of warps; on Hopper for what its WGMMA units do not take (cuda/wgmma_gemm.c).
 * f16 multiply-adds per cycle of an SM, from NVIDIA's papers on the architectures: 512 for Turing
 * (TU102), 1024 for A100 (GA100), 512 for GA102 and AD102; newer GPUs, which have other units too,
 * as A100. f64 is no faster than on SIMT threads except on the large ones. */
static void tci_cuda_warps(int capability, tc_backend_target *t)
{
    bool hopper = capability / 10 == 9, large = capability == 80 || capability / 10 == 10;
    if (capability < 75) {
        return;
    }
    t->warp_unit = TC_WARP_BYTES | (hopper ? 0 : TC_WARP_HALVES) |
                   (hopper || capability < 80 ? 0 : TC_WARP_SINGLES) |
                   (hopper || large ? TC_WARP_DOUBLES : 0);
    t->machine.matrix_flops = hopper ? 0 : large ? 2048 : 1024;
}

/* Fills its target; usable only when everything works. */
static void tci_cuda_detect(tci_cuda_device *d)
{
    enum { TCI_CU_MAJOR = 75, TCI_CU_MINOR = 76 }; /* COMPUTE_CAPABILITY_... */
    tc_backend_target *t = &d->target;
    const char *why = "";
    int device = 0, driver = 0;
    tci_cuda.cu = tci_cu_get(&why);
    if (!tci_cuda.cu) {
        snprintf(t->why, sizeof(t->why), "no CUDA driver: %.100s", why);
        return;
    }
    const tci_cu *cu = tci_cuda.cu;
    tc_status status = tci_cuda_check(cu->init(0), "cuInit");
    if (!status) {
        status = tci_cuda_check(cu->device_get(&device, d->index), "cuDeviceGet");
    }
    if (!status) {
        cu->driver_version(&driver);
        status = tci_cuda_open(d, device);
    }
    if (status) {
        snprintf(t->why, sizeof(t->why), "%.120s", tci_cuda_error);
        return;
    }
    int major = tci_cuda_attribute(TCI_CU_MAJOR, device);
    int minor = tci_cuda_attribute(TCI_CU_MINOR, device);
    tci_cuda_machine(device, &t->machine);
    int processors = t->machine.processors;
    t->matrix_units = major == 9 && cu->tensor_map && cu->place_map ? processors : 0;
    tci_cuda_warps(10 * major + minor, t);
    snprintf(t->features, sizeof(t->features), "cuda sm_%d%d, %d processors, driver %d", major,
             minor, processors, driver);
    t->usable = true;
}

TCI_FN tc_status tci_cuda_target(void *user, int vector_bits, tc_backend_target *target)
{
    tci_cuda_device *d = tci_cuda_of(user);
    (void)vector_bits;
    pthread_mutex_lock(&tci_cuda.lock);
    if (!d->known) {
        d->known = true;
        d->index = (int)(d - tci_cuda.devices);
        d->target.vector_bytes = TCI_CUDA_THREAD_BYTES;
        d->target.block_threads = TCI_CUDA_MAX_THREADS;
        if (!tci_cuda_check_process()) {
            tci_cuda_detect(d);
        }
    }
    *target = d->target;
    pthread_mutex_unlock(&tci_cuda.lock);
    return TC_OK;
}
