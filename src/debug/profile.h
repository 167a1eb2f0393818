/* debug/profile.h - profiling records in memory: per-thread ring buffers, program records, and the
 * sessions that read them. When off, a hook costs one load. */
#ifndef TCI_DEBUG_PROFILE_H
#define TCI_DEBUG_PROFILE_H

#include "../api/debug.h"
#include "../base/os.h"
#include "../base/str.h"

struct tci_run_step;

/* X(id, category): kinds of records. */
#define TCI_RECORD_ROWS(X)                                                                         \
    X(RUN, "run")         /* item: 1 of the init section */                                        \
    X(KERNEL, "kernel")   /* item: the step; of the host */                                        \
    X(PART, "part")       /* of a kernel, by another thread of the pool */                         \
    X(LAUNCH, "launch")   /* the host gives a kernel to a device */                                \
    X(DEVICE, "device")   /* the device runs it: on the track of its queue */                      \
    X(GRAPH, "graph")     /* the device runs a recorded graph: all kernels of a run */             \
    X(SHARE, "share")     /* of a GRAPH a kernel, by its share of an unrecorded run; no record */  \
    X(COMM, "communication") /* item: the step that waits; from its start, or the wait before */   \
    X(PHASE, "compile")   /* item: a label; of a compile, or a process of the compiler */          \
    X(MARK, "mark")       /* item: a label */                                                      \
    X(STEP, "step")       /* item: its number */
typedef enum tci_record_kind {
#define TCI_ROW(id, category) TCI_RECORD_##id,
    TCI_RECORD_ROWS(TCI_ROW)
#undef TCI_ROW
        TCI_RECORD_KINDS
} tci_record_kind;

typedef struct tci_record {
    int64_t begin_ns, end_ns;
    uint32_t program; /* 1 + its number in the profile; 0: none */
    int32_t item;
    uint32_t flow; /* of a LAUNCH and its DEVICE or GRAPH; 0: none */
    uint8_t kind;
    uint16_t track; /* of a DEVICE and a GRAPH: 1 + the number of the queue in the profile */
} tci_record;

enum { TCI_PROFILE_RECORDS = 1, TCI_PROFILE_LOGS = 2 }; /* bits of tci_profile_watch */

#ifndef TC_NO_DEBUG
/* 0: runs are not recorded, and the hooks below must not be called. */
TCI_FN int tci_profile_watch(void);
/* A record of this thread. No lock and no I/O but at the first record of a thread or program. */
TCI_FN void tci_profile_add(tci_record_kind kind, const struct tc_program *f, int32_t item,
                            int64_t begin_ns, int64_t end_ns);
/* The record as it is but for its program, which is f's; f NULL: that too. */
TCI_FN void tci_profile_put(const struct tc_program *f, tci_record record);
/* The number of f in the profile that records; 0: none does, or there is no memory. */
TCI_FN uint32_t tci_profile_program_of(const struct tc_program *f);
/* The number of a device's queue (NULL: its own) there. */
TCI_FN uint16_t tci_profile_track_of(const char *device, const void *queue);
/* A kernel of an unrecorded run of program `number` took so long; and the run has ended. */
TCI_FN void tci_profile_share(uint32_t number, int32_t item, int64_t ns);
TCI_FN void tci_profile_shares_end(struct tc_program *f);
/* True if the shares of f are known to the profile that records. */
TCI_FN bool tci_profile_has_shares(const struct tc_program *f);
TCI_FN uint32_t tci_profile_flow(void);      /* a new number */
TCI_FN bool tci_profile_times_devices(void); /* the profile that records wants that */
/* The same of a phase of a compile, by its name. */
TCI_FN void tci_profile_phase(const char *name, int64_t begin_ns, int64_t end_ns);
/* TC_LOG=kernels: a step ran. */
TCI_FN void tci_profile_log(const struct tc_program *f, int step, int64_t ns);
/* Role of the calling thread for track names: static text, and a number (0: none). */
TCI_FN void tci_profile_role(const char *role, int number);
/* TC_TRACE, and TC_LOG=kernels. False: the file cannot be written. */
TCI_FN bool tci_profile_trace(const char *path);
TCI_FN void tci_profile_log_kernels(void);
/* tc_shutdown's part: writes the trace. */
TCI_FN void tci_profile_flush(void);
TCI_FN bool tci_profile_exists(void); /* some profile has labels that must stay */
#else
#define tci_profile_watch() 0
#define tci_profile_add(kind, f, item, begin_ns, end_ns)                                           \
    ((void)(f), (void)(begin_ns), (void)(end_ns))
#define tci_profile_shares_end(f) ((void)0)
#define tci_profile_has_shares(f) false
#define tci_profile_flow() 0u
#define tci_profile_phase(name, begin_ns, end_ns) ((void)(begin_ns), (void)(end_ns))
#define tci_profile_log(f, step, ns) ((void)(ns))
#define tci_profile_role(role, number) ((void)(role), (void)(number))
#define tci_profile_trace(path) false
#define tci_profile_log_kernels() ((void)0)
#define tci_profile_flush() ((void)0)
#define tci_profile_exists() false
#endif

/* ---- what a profile is, for debug/timeline.c ---- */
typedef struct tci_profile_step {
    int32_t kernel;                /* its number among those of the program */
    char *name, *args;             /* the kernel; its arguments as members of a JSON object */
    char *from;                    /* "net.c:12 tc_cos, layer1" */
    double bytes, flops, best_ns;  /* best: no schedule is faster, by the model */
    int32_t forward;               /* of a step of a backward pass: the step of the same line; -1 */
    int64_t share_ns, share_calls; /* of the unrecorded runs that shares are taken from */
} tci_profile_step;
typedef struct tci_profile_program {
    char *name;
    tci_profile_step *steps;
    int n_steps;
    int64_t share_runs; /* unrecorded runs */
} tci_profile_program;
typedef struct tci_profile_track {
    const char *device; /* static text */
    const void *queue;
    int number; /* among the tracks of its device; 0: of the device's own queue */
} tci_profile_track;
typedef struct tci_profile_thread {
    uint64_t id;
    const char *role;
    int number;
    tci_record *records;
    int64_t n;
} tci_profile_thread;
struct tc_profile {
    tci_profile_program *programs;
    int n_programs, cap_programs;
    tci_profile_track *tracks;
    int n_tracks;
    tci_profile_thread *threads;
    int n_threads;
    int64_t begin_ns, end_ns, step_ns, dropped;
    int n_steps;
    bool ended;
    uint32_t epoch;
    struct tci_thread_errors *errors; /* under the lock of the process; NULL: no memory */
};

/* ---- the state of debug/profile_record.c, for debug/profile.c ---- */
enum {
    TCI_RING_CHUNK = 2048, /* records */
    TCI_RING_MARKS = 64,   /* marks within each other */
    TCI_RING_SEEN = 8      /* names that a thread knows the labels of */
};

typedef struct tci_ring {
    struct tci_ring *next;
    int busy, taken; /* atomic; taken: by a living thread */
    uint32_t epoch;  /* of the profile that the records are of */
    uint64_t id;
    const char *role;
    int number;
    tci_record **chunks;
    int n_chunks, cap_chunks;
    int chunk, at; /* where the next record goes */
    bool wrapped;
    int64_t dropped;
    struct {
        uint32_t label;
        int64_t begin_ns;
    } marks[TCI_RING_MARKS];
    int n_marks;
    struct {
        const char *text;
        uint32_t label;
    } seen[TCI_RING_SEEN];
} tci_ring;

typedef struct tci_profile_process {
    tci_mutex lock;
    int watch;       /* atomic: bits of tci_profile_watch */
    tc_profile *now; /* that records, or NULL */
    tci_ring *rings; /* atomic */
    uint32_t epoch, flow;
    int64_t budget; /* atomic: chunks that may still be made */
    int n_profiles, no_device;
    pthread_key_t key;
    bool has_key;
    /* Set by debug/profile.c: the number of a program in the profile that records (0: no memory),
     * and the line of a kernel that ran. */
    uint32_t (*note)(struct tc_program *f);
    void (*log)(const struct tc_program *f, int step, int64_t ns);
    void (*drain)(void); /* set by debug/device_spans.c: waits for devices, writes their records */
} tci_profile_process;
#ifndef TC_NO_DEBUG
TCI_FN tci_profile_process *tci_profile_state(void);
TCI_FN void tci_ring_restart(tci_ring *r, uint32_t epoch); /* of a thread that is not busy */

enum { TCI_TIMELINE_SHARED = 32 }; /* recorded runs of a program that are drawn with kernels */

/* ---- profiles, for debug/trace_at_exit.c ---- */
TCI_FN tc_profile *tci_profile_start(const tc_profile_options *o, tc_status *status);
TCI_FN tc_status tci_profile_stop(tc_profile *p);
TCI_FN void tci_profile_drop(tc_profile *p); /* ended */
/* Keeps the text for tc_error(p); returns why. */
TCI_FN tc_status tci_profile_refuse(const tc_profile *p, tc_status why, const char *op,
                                    const char *text);

TCI_FN const char *tci_record_category(tci_record_kind kind);
TCI_FN void tci_profile_json(tci_str *out, const tc_profile *p);

/* ---- idle time of a track (debug/idle_time.c), from its first kernel to its last ---- */
typedef struct tci_idle {
    bool is_device;
    int track;          /* of a device the number of its queue in the profile, else of a thread */
    int64_t busy_ns;    /* in kernels and collectives; the others have none: */
    int64_t in_runs_ns; /* between the kernels of a run, */
    int64_t in_compiles_ns;
    int64_t outside_ns; /* and outside of runs and compiles */
} tci_idle;
/* A row for each track with kernels, threads first; the caller frees them. NULL: no memory. */
TCI_FN tci_idle *tci_idle_measure(const tc_profile *p, int *n);
/* The idle share of that time, without what is in compiles. More than half: launch-bound. */
TCI_FN double tci_idle_share(const tci_idle *row);
#endif

#endif
