#ifndef CISTERN_CISTERN_H
#define CISTERN_CISTERN_H
/* Cistern from C, and from every language that can call C.
 *
 *     cistern_pool pool = cistern_pool_create(NULL);
 *     cistern_buffer buffer = cistern_acquire(pool, 1 << 20);
 *     if (buffer == 0) puts(cistern_last_error());
 *     double* values = cistern_buffer_data(buffer);
 *     cistern_release(buffer);
 *     cistern_pool_destroy(pool);
 *
 * Handles are numbers that are never given out twice; 0 is none. One that is null, stale, or names
 * something else is an error, not a crash. Functions return a cistern_status, or null or 0 where they
 * fail; the reason is in cistern_last_error(). An error changes nothing. Everything may be called from
 * every thread. docs/c_api.md tells more.
 */

#include <stddef.h>
#include <stdint.h>

#define CISTERN_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* --- Versions and errors ------------------------------------------------------------------------ */

/* Rises when a program that was compiled with an older header could no longer run. Functions and
 * fields at the end of structs are added without. */
#define CISTERN_ABI_VERSION 1

/* Return those of the library actually linked: CISTERN_ABI_VERSION, and "major.minor.patch". */
CISTERN_API int cistern_abi_version(void);
CISTERN_API const char* cistern_version(void);

typedef enum cistern_status {
    CISTERN_OK = 0,
    CISTERN_OUT_OF_MEMORY = 1,    /* the memory, or a limit of the pool, has no room left */
    CISTERN_INVALID_ARGUMENT = 2, /* a value that makes no sense; the message names it */
    CISTERN_INVALID_HANDLE = 3,   /* null, stale, never given out, or of another kind */
    CISTERN_UNAVAILABLE = 4,      /* does not exist here; the message says why */
    CISTERN_DEVICE_ERROR = 5,
    CISTERN_NO_ROOM = 6, /* the caller's room for a text is too small; nothing was written */
    CISTERN_INTERNAL_ERROR = 7
} cistern_status;

/* Return what became of this thread's last call: CISTERN_OK and "" if it succeeded. The text stays
 * until the next call. Never null. */
CISTERN_API cistern_status cistern_last_error_code(void);
CISTERN_API const char* cistern_last_error(void);

/* --- Handles ------------------------------------------------------------------------------------ */

typedef uint64_t cistern_pool;
typedef uint64_t cistern_buffer; /* bytes on loan */
typedef uint64_t cistern_keyed;  /* one growing buffer per name */

/* --- Options ------------------------------------------------------------------------------------ */

#define CISTERN_NO_LIMIT SIZE_MAX
#define CISTERN_FOREVER INT64_MAX

enum {                         /* cistern_options.fit: which idle bytes may serve a request */
       CISTERN_ELASTIC = 0,    /* split and coalesce */
       CISTERN_EXACT_FIT = 1,  /* only a block of exactly these bytes */
       CISTERN_BEST_FIT = 2,   /* the smallest that leaves at most max_waste of itself unused */
       CISTERN_FIXED_BLOCK = 3 /* every block has block_bytes; more is an error */
};

enum { /* cistern_options.evict: which idle bytes go first */
       CISTERN_EVICT_OLDEST = 0,
       CISTERN_EVICT_SMALLEST = 1,
       CISTERN_EVICT_LARGEST = 2
};

/* Structs go with their sizeof, so that they can grow: always fill this one with a function below. */
typedef struct cistern_options {
    size_t size;      /* of this struct, as the caller knows it */
    const char* name; /* copied; null is "" */
    int32_t fit;
    int32_t evict;
    double max_waste;   /* of CISTERN_BEST_FIT: from 0 to 1 */
    size_t block_bytes; /* of CISTERN_FIXED_BLOCK */
    size_t alignment;
    size_t max_bytes; /* lent and idle together */
    size_t max_idle_bytes;
    size_t max_idle_buffers;
    size_t max_buffer_bytes; /* a larger buffer is never kept */
    int64_t max_idle_age_ms;
    int32_t
        separate_types; /* 1: idle bytes of one type never serve another (cistern_acquire_typed) */
    int32_t wipe_on_release; /* 1: zero every byte a user gave back */
} cistern_options;

/* Fill in the defaults, those of fixed blocks of `block_bytes`, or those of the best fit per type that
 * keeps at most 100 MiB. `size` is sizeof(cistern_options). */
CISTERN_API cistern_status cistern_options_init(cistern_options* options, size_t size);
CISTERN_API cistern_status cistern_options_fixed_blocks(cistern_options* options, size_t size,
                                                        size_t block_bytes);
CISTERN_API cistern_status cistern_options_typed_best_fit(cistern_options* options, size_t size);

/* --- Pools -------------------------------------------------------------------------------------- */

/* Makes a pool on host memory; cistern_pool_create_on makes others. Null options are the defaults. Returns 0 on error. */
CISTERN_API cistern_pool cistern_pool_create(const cistern_options* options);
/* Ends the handle. Idle bytes go at once; buffers on loan stay valid and are released as ever. Free
 * what cistern_malloc lent before: afterwards there is no pool to give it back to. */
CISTERN_API cistern_status cistern_pool_destroy(cistern_pool pool);
/* Returns the process's pool, the same as in C++. It cannot be destroyed. */
CISTERN_API cistern_pool cistern_default_pool(void);

/* Gives idle bytes back to the system until at most `keep_idle_bytes` are left. `given_back`, unless
 * null, receives how many went. */
CISTERN_API cistern_status cistern_trim(cistern_pool pool, size_t keep_idle_bytes,
                                        size_t* given_back);

typedef struct cistern_limits {
    size_t size;
    size_t max_bytes;
    size_t max_idle_bytes;
    size_t max_idle_buffers;
    size_t max_buffer_bytes;
    int64_t max_idle_age_ms;
} cistern_limits;

/* Reads the limits in force. `size` is sizeof(cistern_limits). */
CISTERN_API cistern_status cistern_pool_limits(cistern_pool pool, cistern_limits* limits,
                                               size_t size);
/* Takes effect at once: evicts what is above. Fill the struct with cistern_pool_limits first. */
CISTERN_API cistern_status cistern_set_limits(cistern_pool pool, const cistern_limits* limits);

/* Gives the pool bytes that it did not allocate; it lends them and calls `deleter(data, context)` when
 * it lets them go. Both address and size are multiples of the pool's alignment. */
CISTERN_API cistern_status cistern_adopt(cistern_pool pool, void* data, size_t bytes,
                                         void (*deleter)(void* data, void* context), void* context);
/* Adds a function to call, with the bytes that are missing, before a request fails. It may release
 * buffers of any pool. */
CISTERN_API cistern_status cistern_on_out_of_memory(cistern_pool pool,
                                                    void (*callback)(size_t bytes, void* context),
                                                    void* context);

/* --- Buffers ------------------------------------------------------------------------------------ */

/* Lends at least `bytes` bytes, with whatever the last user left in them. Returns 0 on error. Zero
 * bytes are a buffer whose data is null. */
CISTERN_API cistern_buffer cistern_acquire(cistern_pool pool, size_t bytes);
/* The same, and every byte is zero. */
CISTERN_API cistern_buffer cistern_acquire_zeroed(cistern_pool pool, size_t bytes);
/* The same where running out is expected: fails without the search for who holds what. */
CISTERN_API cistern_buffer cistern_try_acquire(cistern_pool pool, size_t bytes);
/* The same for elements of a type, named by any number the caller likes; 0 is no type. It matters
 * where the pool separates types. */
CISTERN_API cistern_buffer cistern_acquire_typed(cistern_pool pool, size_t bytes, uint64_t type);
/* Gives a buffer back, on any thread, also after its pool was destroyed. */
CISTERN_API cistern_status cistern_release(cistern_buffer buffer);

CISTERN_API void* cistern_buffer_data(cistern_buffer buffer);
CISTERN_API size_t cistern_buffer_size(cistern_buffer buffer);
/* Returns the bytes of the block. Those beyond the size are not the holder's to use. */
CISTERN_API size_t cistern_buffer_capacity(cistern_buffer buffer);

/* --- Statistics --------------------------------------------------------------------------------- */

typedef struct cistern_gauge {
    uint64_t now, peak;
} cistern_gauge;

/* docs/stats.md explains every number. */
typedef struct cistern_stats {
    size_t size; /* the bytes that were filled in */
    uint64_t acquires, hits, misses, grows, releases, evictions, failures;
    uint64_t evicted_for_max_bytes, evicted_for_max_idle_bytes, evicted_for_max_idle_buffers,
        evicted_for_max_buffer_bytes, evicted_for_max_idle_age;
    uint64_t moves, moved_bytes, missed_bytes;
    cistern_gauge lent_buffers, lent_bytes, idle_buffers, idle_bytes, held_bytes, waste_bytes;
} cistern_stats;

/* Reads the statistics. `size` is sizeof(cistern_stats). */
CISTERN_API cistern_status cistern_pool_stats(cistern_pool pool, cistern_stats* stats, size_t size);

/* Write a text into `room` bytes at `text`: the statistics as JSON, and what is held and why, for
 * people or as JSON. Return the bytes that it takes with its closing zero, 0 on error. Too little
 * room is CISTERN_NO_ROOM; a null `text` with no room only asks how much it takes now. */
CISTERN_API size_t cistern_pool_stats_json(cistern_pool pool, char* text, size_t room);
CISTERN_API size_t cistern_pool_explain(cistern_pool pool, char* text, size_t room);
CISTERN_API size_t cistern_pool_explain_json(cistern_pool pool, char* text, size_t room);

/* --- Bare pointers, for allocator hooks --------------------------------------------------------- */

/* As their namesakes in <stdlib.h>, at multiples of 64 bytes. Null on error. Zero bytes are a pointer
 * that can be freed. `alignment` is a power of two. */
CISTERN_API void* cistern_malloc(cistern_pool pool, size_t bytes);
CISTERN_API void* cistern_aligned_alloc(cistern_pool pool, size_t alignment, size_t bytes);
CISTERN_API void* cistern_calloc(cistern_pool pool, size_t count, size_t bytes);
/* Null `data` is cistern_malloc; zero bytes do not free. On error `data` stays as it was. */
CISTERN_API void* cistern_realloc(cistern_pool pool, void* data, size_t bytes);
/* Null is nothing to do. What this pool did not lend, or was freed, is an error. */
CISTERN_API cistern_status cistern_free(cistern_pool pool, void* data);
/* Returns how many bytes at `data` the holder may use, 0 on error. */
CISTERN_API size_t cistern_usable_size(cistern_pool pool, const void* data);

/* --- CUDA --------------------------------------------------------------------------------------- */

enum { /* memories */
       CISTERN_HOST = 0,
       CISTERN_PINNED = 1, /* page-locked host memory */
       CISTERN_DEVICE = 2,
       CISTERN_MANAGED = 3
};

/* Returns 1 if there is a CUDA driver with a device, else 0. The driver is looked for at run time. */
CISTERN_API int cistern_cuda_available(void);
/* As cistern_pool_create and cistern_default_pool, on another memory; the device is a number from 0.
 * CISTERN_UNAVAILABLE where there is none; the message says why. */
CISTERN_API cistern_pool cistern_pool_create_on(int32_t memory, int32_t device,
                                                const cistern_options* options);
CISTERN_API cistern_pool cistern_default_pool_on(int32_t memory, int32_t device);

/* Lends in the order of a CUDA stream (cudaStream_t or CUstream; null is the default stream): the
 * buffer may be released while work on it is still running there. The stream may be destroyed at any
 * time. */
CISTERN_API cistern_buffer cistern_acquire_on(cistern_pool pool, size_t bytes, void* stream);
/* Says that work on another stream uses a buffer too: its bytes wait for that. */
CISTERN_API cistern_status cistern_also_used_on(cistern_buffer buffer, void* stream);

/* Bare pointers from the process's pool of a device, in stream order: with the signatures that
 * PyTorch's pluggable allocator asks for. Null on error; null and zero bytes are nothing to do. */
CISTERN_API void* cistern_cuda_malloc(ptrdiff_t bytes, int device, void* stream);
CISTERN_API void cistern_cuda_free(void* data, ptrdiff_t bytes, int device, void* stream);
CISTERN_API void cistern_cuda_used_on(void* data, void* stream);

/* Device memory between processes, over a connected Unix-domain socket (cistern/ipc.hpp tells the rules).
 * Keep the buffer lent while others use its bytes; the streams of two processes are not ordered.
 * cistern_open_shared receives what cistern_share sent in another process and maps it: returns the bytes,
 * null on error. `device`, unless null, receives the device's number in this process. The bytes stay,
 * whatever becomes of the process that sent them, until cistern_close_shared, which waits for the device's
 * work; null is nothing to do. */
CISTERN_API cistern_status cistern_share(cistern_buffer buffer, int socket);
CISTERN_API void* cistern_open_shared(int socket, size_t* bytes, int32_t* device);
CISTERN_API cistern_status cistern_close_shared(void* data);

/* --- Keyed pools -------------------------------------------------------------------------------- */

enum { /* cistern_keyed_options.same_key: what a second thread that asks for a key gets */
       CISTERN_SAME_KEY_ERROR = 0,
       CISTERN_SAME_KEY_OWN_BUFFER = 1
};

typedef struct cistern_keyed_options {
    size_t size;
    cistern_pool pool; /* where its buffers come from; 0 is a pool of its own */
    int32_t same_key;
} cistern_keyed_options;

typedef struct cistern_key_stats {
    size_t size; /* the bytes that were filled in */
    uint64_t hits, misses, grows;
} cistern_key_stats;

CISTERN_API cistern_status cistern_keyed_options_init(cistern_keyed_options* options, size_t size);
/* Null options are the defaults. Returns 0 on error. */
CISTERN_API cistern_keyed cistern_keyed_create(const cistern_keyed_options* options);
/* Ends the handle, and with it all that cistern_keyed_get returned. */
CISTERN_API cistern_status cistern_keyed_destroy(cistern_keyed keyed);
/* Returns the bytes of a key, which stay until the key grows or the pool is cleared. The first request
 * is a miss, one that fits a hit, one that does not a grow: what was there stays. Null on error. */
CISTERN_API void* cistern_keyed_get(cistern_keyed keyed, const char* key, size_t bytes);
/* Read what was counted for a key, or for all keys if it is null; zeros for one never asked for. */
CISTERN_API cistern_status cistern_keyed_stats(cistern_keyed keyed, const char* key,
                                               cistern_key_stats* stats, size_t size);
CISTERN_API cistern_status cistern_keyed_memory_bytes(cistern_keyed keyed, const char* key,
                                                      size_t* bytes);
/* Drops all buffers and counters. */
CISTERN_API cistern_status cistern_keyed_clear(cistern_keyed keyed);

#ifdef __cplusplus
}
#endif

#endif
