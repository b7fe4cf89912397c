/* Everything in cistern.h, from C: what works, and that each misuse is an error with a message. */

#define _POSIX_C_SOURCE 200809L

#include <cistern/cistern.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int failures = 0;

#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            fprintf(stderr, "%s:%d: %s (last error %d: %s)\n", __FILE__, __LINE__, #condition, \
                    (int)cistern_last_error_code(), cistern_last_error());                     \
            ++failures;                                                                        \
        }                                                                                      \
    } while (0)

/* The last call failed with this code, and the message has this part. */
static int failed(cistern_status code, const char* part) {
    return cistern_last_error_code() == code && strstr(cistern_last_error(), part) != NULL;
}
static int succeeded(void) {
    return cistern_last_error_code() == CISTERN_OK && *cistern_last_error() == '\0';
}

static cistern_stats stats_of(cistern_pool pool) {
    cistern_stats stats;
    memset(&stats, 0xFF, sizeof stats);
    CHECK(cistern_pool_stats(pool, &stats, sizeof stats) == CISTERN_OK);
    CHECK(stats.size == sizeof stats);
    return stats;
}

static int all_zero(const void* data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) {
        if (((const char*)data)[i] != 0) return 0;
    }
    return 1;
}

static void versions_are_those_of_the_header(void) {
    CHECK(cistern_abi_version() == CISTERN_ABI_VERSION);
    CHECK(strlen(cistern_version()) >= 5);
}

static void a_buffer_is_lent_and_given_back(void) {
    cistern_pool pool = cistern_pool_create(NULL);
    CHECK(pool != 0 && succeeded());

    cistern_buffer buffer = cistern_acquire(pool, 1000);
    CHECK(buffer != 0);
    char* data = cistern_buffer_data(buffer);
    CHECK(data != NULL);
    CHECK(cistern_buffer_size(buffer) == 1000);
    CHECK(cistern_buffer_capacity(buffer) >= 1000);
    memset(data, 1, 1000);
    CHECK(stats_of(pool).lent_bytes.now >= 1000);
    CHECK(cistern_release(buffer) == CISTERN_OK);

    cistern_buffer again = cistern_acquire_zeroed(pool, 1000);
    CHECK(again != buffer);
    CHECK(cistern_buffer_data(again) == data);
    CHECK(all_zero(data, 1000));
    CHECK(cistern_release(again) == CISTERN_OK);

    cistern_stats stats = stats_of(pool);
    CHECK(stats.acquires == 2 && stats.hits == 1 && stats.misses == 1 && stats.releases == 2);
    CHECK(stats.lent_buffers.now == 0 && stats.lent_buffers.peak == 1);
    CHECK(stats.missed_bytes >= 1000);
    CHECK(cistern_pool_destroy(pool) == CISTERN_OK);
}

static void zero_bytes_are_a_buffer_without_data(void) {
    cistern_pool pool = cistern_pool_create(NULL);
    cistern_buffer nothing = cistern_acquire(pool, 0);
    CHECK(nothing != 0);
    CHECK(cistern_buffer_data(nothing) == NULL && succeeded());
    CHECK(cistern_buffer_size(nothing) == 0 && succeeded());
    CHECK(cistern_buffer_capacity(nothing) == 0 && succeeded());
    CHECK(cistern_release(nothing) == CISTERN_OK);
    CHECK(cistern_release(nothing) == CISTERN_INVALID_HANDLE);
    nothing = cistern_try_acquire(pool, 0);
    CHECK(nothing != 0);
    CHECK(cistern_release(nothing) == CISTERN_OK);
    CHECK(cistern_pool_destroy(pool) == CISTERN_OK);
}

static void buffers_outlive_their_pool(void) {
    cistern_pool pool = cistern_pool_create(NULL);
    cistern_buffer buffer = cistern_acquire(pool, 5000);
    CHECK(cistern_pool_destroy(pool) == CISTERN_OK);

    memset(cistern_buffer_data(buffer), 7, cistern_buffer_size(buffer));

    CHECK(cistern_release(buffer) == CISTERN_OK);
}

/* Calls everything that takes a pool with a handle that names none. */
static void check_refused_as_a_pool(cistern_pool bad, const char* why) {
    cistern_stats stats;
    cistern_limits limits;
    memset(&limits, 0, sizeof limits);
    limits.size = sizeof limits;
    char text[64] = "as it was", block[64];
    size_t given_back = 77;
    CHECK(cistern_pool_destroy(bad) == CISTERN_INVALID_HANDLE);
    CHECK(failed(CISTERN_INVALID_HANDLE, why));
    CHECK(cistern_acquire(bad, 8) == 0 && failed(CISTERN_INVALID_HANDLE, why));
    CHECK(cistern_acquire_zeroed(bad, 8) == 0 && failed(CISTERN_INVALID_HANDLE, why));
    CHECK(cistern_acquire_typed(bad, 8, 1) == 0 && failed(CISTERN_INVALID_HANDLE, why));
    CHECK(cistern_try_acquire(bad, 8) == 0 && failed(CISTERN_INVALID_HANDLE, why));
    CHECK(cistern_trim(bad, 0, &given_back) == CISTERN_INVALID_HANDLE && given_back == 77);
    CHECK(cistern_pool_limits(bad, &limits, sizeof limits) == CISTERN_INVALID_HANDLE);
    CHECK(cistern_set_limits(bad, &limits) == CISTERN_INVALID_HANDLE);
    CHECK(cistern_adopt(bad, block, sizeof block, NULL, NULL) == CISTERN_INVALID_HANDLE);
    CHECK(cistern_on_out_of_memory(bad, NULL, NULL) == CISTERN_INVALID_HANDLE);
    CHECK(cistern_pool_stats(bad, &stats, sizeof stats) == CISTERN_INVALID_HANDLE);
    CHECK(cistern_pool_stats_json(bad, text, sizeof text) == 0);
    CHECK(failed(CISTERN_INVALID_HANDLE, why));
    CHECK(cistern_pool_explain(bad, text, sizeof text) == 0);
    CHECK(cistern_pool_explain_json(bad, text, sizeof text) == 0);
    CHECK(strcmp(text, "as it was") == 0);
    CHECK(cistern_malloc(bad, 8) == NULL && failed(CISTERN_INVALID_HANDLE, why));
    CHECK(cistern_aligned_alloc(bad, 64, 8) == NULL && failed(CISTERN_INVALID_HANDLE, why));
    CHECK(cistern_calloc(bad, 8, 8) == NULL && failed(CISTERN_INVALID_HANDLE, why));
    CHECK(cistern_realloc(bad, NULL, 8) == NULL && failed(CISTERN_INVALID_HANDLE, why));
    CHECK(cistern_free(bad, NULL) == CISTERN_INVALID_HANDLE);
    CHECK(cistern_usable_size(bad, block) == 0 && failed(CISTERN_INVALID_HANDLE, why));
}

static void check_refused_as_a_buffer(cistern_buffer bad, const char* why) {
    CHECK(cistern_release(bad) == CISTERN_INVALID_HANDLE && failed(CISTERN_INVALID_HANDLE, why));
    CHECK(cistern_buffer_data(bad) == NULL && failed(CISTERN_INVALID_HANDLE, why));
    CHECK(cistern_buffer_size(bad) == 0 && failed(CISTERN_INVALID_HANDLE, why));
    CHECK(cistern_buffer_capacity(bad) == 0 && failed(CISTERN_INVALID_HANDLE, why));
}

static void bad_handles_are_errors(void) {
    cistern_pool stale_pool = cistern_pool_create(NULL), pool = cistern_pool_create(NULL);
    cistern_buffer stale_buffer = cistern_acquire(pool, 64);
    CHECK(cistern_pool_destroy(stale_pool) == CISTERN_OK);
    CHECK(cistern_release(stale_buffer) == CISTERN_OK);
    cistern_pool new_pool = cistern_pool_create(NULL); /* likely where the stale one was */
    cistern_buffer buffer = cistern_acquire(pool, 64);

    check_refused_as_a_pool(0, "null");
    check_refused_as_a_pool(stale_pool, "a pool that was destroyed");
    check_refused_as_a_pool(buffer, "names a buffer, not a pool");
    check_refused_as_a_pool(UINT64_MAX / 2 - 2, "never given out");
    check_refused_as_a_pool((UINT64_C(1) << 62) + (pool & 0x3FFFFFFF), "never given out");
    check_refused_as_a_buffer(0, "null");
    check_refused_as_a_buffer(stale_buffer, "a buffer that was released");
    check_refused_as_a_buffer(pool, "names a pool, not a buffer");
    check_refused_as_a_buffer(2, "never given out");
    check_refused_as_a_buffer((UINT64_C(1) << 62) + (buffer & 0x3FFFFFFF), "never given out");

    CHECK(cistern_buffer_size(buffer) == 64);
    CHECK(cistern_release(buffer) == CISTERN_OK);
    CHECK(cistern_pool_destroy(new_pool) == CISTERN_OK);
    CHECK(cistern_pool_destroy(pool) == CISTERN_OK);
}

static void the_default_pool_stays(void) {
    cistern_pool pool = cistern_default_pool();
    CHECK(pool != 0 && pool == cistern_default_pool());
    CHECK(cistern_pool_destroy(pool) == CISTERN_INVALID_ARGUMENT);
    CHECK(failed(CISTERN_INVALID_ARGUMENT, "default pool"));
    cistern_buffer buffer = cistern_acquire(pool, 100);
    CHECK(buffer != 0 && cistern_release(buffer) == CISTERN_OK);
}

static cistern_options default_options(void) {
    cistern_options options;
    memset(&options, 0xFF, sizeof options);
    CHECK(cistern_options_init(&options, sizeof options) == CISTERN_OK);
    return options;
}

static void options_have_the_defaults_of_cpp(void) {
    cistern_options options = default_options();
    CHECK(options.size == sizeof options && options.name == NULL);
    CHECK(options.fit == CISTERN_ELASTIC && options.evict == CISTERN_EVICT_OLDEST);
    CHECK(options.alignment == 64 && options.max_waste == 0.25);
    CHECK(options.max_bytes == CISTERN_NO_LIMIT && options.max_idle_age_ms == CISTERN_FOREVER);
    CHECK(options.max_idle_bytes > 0 && options.max_idle_bytes < CISTERN_NO_LIMIT);
    CHECK(options.separate_types == 0 && options.wipe_on_release == 0);
}

static void options_reach_the_pool(void) {
    cistern_options options = default_options();
    options.name = "solver";
    options.fit = CISTERN_EXACT_FIT;
    options.evict = CISTERN_EVICT_LARGEST;
    options.alignment = 4096;
    options.wipe_on_release = 1;
    options.max_idle_buffers = 3;
    cistern_pool pool = cistern_pool_create(&options);
    CHECK(pool != 0);

    cistern_buffer buffer = cistern_acquire(pool, 5000);
    CHECK((uintptr_t)cistern_buffer_data(buffer) % 4096 == 0);
    memset(cistern_buffer_data(buffer), 1, 5000);
    CHECK(cistern_release(buffer) == CISTERN_OK);
    buffer = cistern_acquire(pool, 5000);
    CHECK(all_zero(cistern_buffer_data(buffer), 5000));
    CHECK(cistern_release(buffer) == CISTERN_OK);

    cistern_limits limits;
    CHECK(cistern_pool_limits(pool, &limits, sizeof limits) == CISTERN_OK);
    CHECK(limits.max_idle_buffers == 3 && limits.max_idle_bytes == options.max_idle_bytes);
    char text[4096];
    CHECK(cistern_pool_explain(pool, text, sizeof text) > 0);
    CHECK(strstr(text, "solver") != NULL && strstr(text, "ExactFit") != NULL);
    CHECK(cistern_pool_destroy(pool) == CISTERN_OK);
}

#define CHECK_REFUSED(field, value, part)                                                    \
    do {                                                                                     \
        cistern_options refused = default_options();                                         \
        refused.fit = CISTERN_BEST_FIT;                                                      \
        refused.field = (value);                                                             \
        CHECK(cistern_pool_create(&refused) == 0 && failed(CISTERN_INVALID_ARGUMENT, part)); \
    } while (0)

static void options_without_sense_are_refused(void) {
    CHECK_REFUSED(fit, 4, "no such fit: 4");
    CHECK_REFUSED(fit, -1, "no such fit: -1");
    CHECK_REFUSED(evict, 3, "eviction: 3");
    CHECK_REFUSED(max_waste, 1.5, "1.5");
    CHECK_REFUSED(alignment, 48, "48");
    CHECK_REFUSED(alignment, 0, "0");
    CHECK_REFUSED(max_idle_age_ms, -5, "-5 ms");
    CHECK_REFUSED(separate_types, 2, "separate_types is neither 0 nor 1: 2");
    CHECK_REFUSED(wipe_on_release, -1, "wipe_on_release is neither 0 nor 1: -1");
    CHECK_REFUSED(size, 0, "size is not that of a cistern_options: 0 B");
    CHECK_REFUSED(size, SIZE_MAX, "size is not that of a cistern_options");

    cistern_options options;
    CHECK(cistern_options_init(NULL, sizeof options) == CISTERN_INVALID_ARGUMENT);
    CHECK(cistern_options_init(&options, 8) == CISTERN_INVALID_ARGUMENT);
    CHECK(cistern_options_init(&options, SIZE_MAX) == CISTERN_INVALID_ARGUMENT);
    CHECK(cistern_options_fixed_blocks(NULL, sizeof options, 8) == CISTERN_INVALID_ARGUMENT);
    CHECK(cistern_options_typed_best_fit(NULL, sizeof options) == CISTERN_INVALID_ARGUMENT);
}

/* What a later header may have. */
struct longer_options {
    cistern_options now;
    uint64_t later;
};

static void longer_structs_of_later_headers_work(void) {
    struct longer_options options;
    memset(&options, 0xFF, sizeof options);
    CHECK(cistern_options_init(&options.now, sizeof options) == CISTERN_OK);
    CHECK(options.later == 0 && options.now.size == sizeof options);
    cistern_pool pool = cistern_pool_create(&options.now);
    CHECK(pool != 0);

    options.later = 1;
    CHECK(cistern_pool_create(&options.now) == 0);
    CHECK(failed(CISTERN_INVALID_ARGUMENT, "does not know"));
    CHECK(cistern_pool_destroy(pool) == CISTERN_OK);
}

static void fixed_blocks_have_one_size(void) {
    cistern_options options;
    CHECK(cistern_options_fixed_blocks(&options, sizeof options, 4096) == CISTERN_OK);
    cistern_pool pool = cistern_pool_create(&options);
    cistern_buffer buffer = cistern_acquire(pool, 100);
    CHECK(cistern_buffer_capacity(buffer) == 4096);
    CHECK(cistern_acquire(pool, 4097) == 0);
    CHECK(failed(CISTERN_INVALID_ARGUMENT, "larger than a block"));
    CHECK(cistern_try_acquire(pool, 4097) == 0);
    CHECK(cistern_last_error_code() == CISTERN_INVALID_ARGUMENT);
    CHECK(stats_of(pool).lent_buffers.now == 1);
    CHECK(cistern_release(buffer) == CISTERN_OK);
    CHECK(cistern_pool_destroy(pool) == CISTERN_OK);
}

static void types_are_kept_apart_where_asked(void) {
    cistern_options options;
    CHECK(cistern_options_typed_best_fit(&options, sizeof options) == CISTERN_OK);
    CHECK(options.max_idle_bytes == (size_t)100 << 20);
    cistern_pool pool = cistern_pool_create(&options);
    CHECK(cistern_release(cistern_acquire_typed(pool, 4096, 1)) == CISTERN_OK);
    CHECK(cistern_release(cistern_acquire_typed(pool, 4096, 2)) == CISTERN_OK);
    CHECK(stats_of(pool).misses == 2);
    CHECK(cistern_release(cistern_acquire_typed(pool, 4096, 1)) == CISTERN_OK);
    CHECK(stats_of(pool).hits == 1);
    CHECK(cistern_pool_destroy(pool) == CISTERN_OK);
}

static void running_out_is_an_error(void) {
    cistern_options options = default_options();
    options.max_bytes = 65536;
    options.name = "small";
    cistern_pool pool = cistern_pool_create(&options);
    cistern_buffer buffer = cistern_acquire(pool, 40000);

    CHECK(cistern_acquire(pool, 40000) == 0 && failed(CISTERN_OUT_OF_MEMORY, "small"));
    CHECK(cistern_acquire_zeroed(pool, 40000) == 0 && failed(CISTERN_OUT_OF_MEMORY, "small"));
    CHECK(cistern_try_acquire(pool, 40000) == 0 && failed(CISTERN_OUT_OF_MEMORY, "40000 B"));
    CHECK(cistern_acquire(pool, (size_t)-5) == 0 && failed(CISTERN_OUT_OF_MEMORY, ""));
    CHECK(cistern_try_acquire(pool, (size_t)-5) == 0 && failed(CISTERN_OUT_OF_MEMORY, ""));
    CHECK(cistern_malloc(pool, (size_t)-5) == NULL && failed(CISTERN_OUT_OF_MEMORY, ""));
    CHECK(cistern_malloc(pool, SIZE_MAX / 2) == NULL && failed(CISTERN_OUT_OF_MEMORY, ""));
    CHECK(cistern_calloc(pool, SIZE_MAX / 2, 3) == NULL);
    CHECK(failed(CISTERN_OUT_OF_MEMORY, "9223372036854775807 x 3 B"));
    CHECK(cistern_aligned_alloc(pool, 4096, SIZE_MAX) == NULL);
    CHECK(failed(CISTERN_OUT_OF_MEMORY, ""));

    CHECK(cistern_buffer_size(buffer) == 40000 && succeeded());
    CHECK(cistern_release(buffer) == CISTERN_OK);
    CHECK(cistern_pool_destroy(pool) == CISTERN_OK);
}

struct reserve {
    cistern_buffer buffer;
    size_t missing;
};

static void give_up_reserve(size_t bytes, void* context) {
    struct reserve* reserve = context;
    reserve->missing = bytes;
    cistern_release(reserve->buffer);
    cistern_release(0); /* an error in here is not one of the request */
}

static void a_callback_may_make_room(void) {
    cistern_options options = default_options();
    options.max_bytes = 65536;
    cistern_pool pool = cistern_pool_create(&options);
    struct reserve reserve = {cistern_acquire(pool, 40000), 0};
    CHECK(cistern_on_out_of_memory(pool, give_up_reserve, &reserve) == CISTERN_OK);
    CHECK(cistern_on_out_of_memory(pool, NULL, NULL) == CISTERN_INVALID_ARGUMENT);

    cistern_buffer buffer = cistern_acquire(pool, 50000);

    CHECK(buffer != 0 && succeeded());
    CHECK(reserve.missing > 0);
    CHECK(cistern_release(buffer) == CISTERN_OK);
    CHECK(cistern_pool_destroy(pool) == CISTERN_OK);
}

static void trim_and_limits_take_effect_at_once(void) {
    cistern_pool pool = cistern_pool_create(NULL);
    CHECK(cistern_release(cistern_acquire(pool, 100000)) == CISTERN_OK);
    CHECK(stats_of(pool).idle_bytes.now >= 100000);
    size_t given_back = 0;
    CHECK(cistern_trim(pool, 0, &given_back) == CISTERN_OK && given_back >= 100000);
    CHECK(cistern_trim(pool, 0, NULL) == CISTERN_OK);
    CHECK(stats_of(pool).idle_bytes.now == 0);

    cistern_limits limits;
    CHECK(cistern_pool_limits(pool, &limits, sizeof limits) == CISTERN_OK);
    limits.max_idle_bytes = 0;
    CHECK(cistern_set_limits(pool, &limits) == CISTERN_OK);
    CHECK(cistern_release(cistern_acquire(pool, 100000)) == CISTERN_OK);
    CHECK(stats_of(pool).idle_bytes.now == 0);
    CHECK(stats_of(pool).evicted_for_max_idle_bytes == stats_of(pool).evictions);

    limits.max_bytes = 1000;
    limits.max_idle_bytes = 2000;
    CHECK(cistern_set_limits(pool, &limits) == CISTERN_INVALID_ARGUMENT);
    limits.max_idle_bytes = 0;
    limits.max_idle_age_ms = -1;
    CHECK(cistern_set_limits(pool, &limits) == CISTERN_INVALID_ARGUMENT);
    limits.size = 1;
    CHECK(cistern_set_limits(pool, &limits) == CISTERN_INVALID_ARGUMENT);
    CHECK(cistern_set_limits(pool, NULL) == CISTERN_INVALID_ARGUMENT);
    CHECK(cistern_pool_limits(pool, NULL, sizeof limits) == CISTERN_INVALID_ARGUMENT);
    CHECK(cistern_pool_limits(pool, &limits, 1) == CISTERN_INVALID_ARGUMENT);
    CHECK(cistern_pool_limits(pool, &limits, sizeof limits) == CISTERN_OK);
    CHECK(limits.max_bytes == CISTERN_NO_LIMIT);
    CHECK(cistern_pool_destroy(pool) == CISTERN_OK);
}

static void count_deletion(void* data, void* context) {
    (void)data;
    ++*(int*)context;
}

static void adopted_bytes_are_lent_and_let_go(void) {
    static _Alignas(64) char bytes[4096];
    int deleted = 0;
    cistern_options options = default_options();
    options.fit = CISTERN_EXACT_FIT;
    cistern_pool pool = cistern_pool_create(&options);
    CHECK(cistern_adopt(pool, NULL, 64, count_deletion, &deleted) == CISTERN_INVALID_ARGUMENT);
    CHECK(cistern_adopt(pool, bytes, 65, count_deletion, &deleted) == CISTERN_INVALID_ARGUMENT);
    CHECK(cistern_adopt(pool, bytes + 1, 64, count_deletion, &deleted) == CISTERN_INVALID_ARGUMENT);
    CHECK(cistern_adopt(pool, bytes, 4096, NULL, NULL) == CISTERN_INVALID_ARGUMENT);

    CHECK(cistern_adopt(pool, bytes, 4096, count_deletion, &deleted) == CISTERN_OK);
    cistern_buffer buffer = cistern_acquire(pool, 4096);
    CHECK(cistern_buffer_data(buffer) == bytes);
    CHECK(cistern_release(buffer) == CISTERN_OK);
    CHECK(deleted == 0);
    CHECK(cistern_pool_destroy(pool) == CISTERN_OK);
    CHECK(deleted == 1);
}

static void texts_fit_or_say_what_they_take(void) {
    cistern_pool pool = cistern_pool_create(NULL);
    size_t (*texts[])(cistern_pool, char*, size_t) = {cistern_pool_stats_json, cistern_pool_explain,
                                                      cistern_pool_explain_json};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; ++i) {
        char small[4] = "abc", text[8192];
        const size_t bytes = texts[i](pool, NULL, 0);
        CHECK(bytes > 1 && bytes < sizeof text && succeeded());
        CHECK(texts[i](pool, small, sizeof small) == bytes && failed(CISTERN_NO_ROOM, "room 4 B"));
        CHECK(strcmp(small, "abc") == 0);
        CHECK(texts[i](pool, text, bytes - 1) == bytes && failed(CISTERN_NO_ROOM, "does not fit"));
        CHECK(texts[i](pool, text, bytes) == bytes && succeeded());
        CHECK(strlen(text) == bytes - 1);
        CHECK(texts[i](pool, NULL, 10) == 0 && failed(CISTERN_INVALID_ARGUMENT, "text is null"));
    }
    cistern_stats stats;
    CHECK(cistern_pool_stats(pool, NULL, sizeof stats) == CISTERN_INVALID_ARGUMENT);
    CHECK(cistern_pool_stats(pool, &stats, 8) == CISTERN_INVALID_ARGUMENT);
    CHECK(cistern_pool_destroy(pool) == CISTERN_OK);
}

static void bare_pointers_work_as_in_stdlib(void) {
    cistern_pool pool = cistern_pool_create(NULL);
    char* data = cistern_malloc(pool, 100);
    CHECK(data != NULL && cistern_usable_size(pool, data) >= 100);
    memset(data, 5, 100);
    data = cistern_realloc(pool, data, 100000);
    CHECK(data != NULL && data[0] == 5 && data[99] == 5);
    CHECK(cistern_usable_size(pool, data) >= 100000);
    CHECK(cistern_realloc(pool, data, 99999) == data);
    data = cistern_realloc(pool, data, 10);
    CHECK(data != NULL && data[9] == 5);
    data = cistern_realloc(pool, data, 0);
    CHECK(data != NULL);
    CHECK(cistern_free(pool, data) == CISTERN_OK);

    char* zeros = cistern_calloc(pool, 100, 10);
    CHECK(zeros != NULL && all_zero(zeros, 1000));
    CHECK(cistern_free(pool, zeros) == CISTERN_OK);
    for (size_t alignment = 1; alignment <= 65536; alignment *= 2) {
        char* aligned = cistern_aligned_alloc(pool, alignment, 300);
        CHECK(aligned != NULL && (uintptr_t)aligned % alignment == 0);
        CHECK(cistern_usable_size(pool, aligned) >= 300);
        memset(aligned, 9, 300);
        aligned = cistern_realloc(pool, aligned, 300000);
        CHECK(aligned != NULL && aligned[0] == 9 && aligned[299] == 9);
        CHECK(cistern_free(pool, aligned) == CISTERN_OK);
    }
    char* fresh = cistern_realloc(pool, NULL, 50);
    CHECK(fresh != NULL && cistern_free(pool, fresh) == CISTERN_OK);
    char* nothing = cistern_malloc(pool, 0);
    CHECK(nothing != NULL && cistern_free(pool, nothing) == CISTERN_OK);
    CHECK(cistern_free(pool, NULL) == CISTERN_OK);
    CHECK(stats_of(pool).lent_buffers.now == 0);
    CHECK(cistern_pool_destroy(pool) == CISTERN_OK);
}

static void pointers_that_are_not_lent_are_errors(void) {
    char local[64];
    cistern_options options = default_options();
    options.max_bytes = 1 << 20;
    cistern_pool pool = cistern_pool_create(&options), other = cistern_pool_create(NULL);
    char *freed = cistern_malloc(pool, 64), *foreign = cistern_malloc(other, 64);
    CHECK(cistern_free(pool, freed) == CISTERN_OK);
    char* mine = cistern_malloc(pool, 1000);
    mine[0] = 3;

    CHECK(cistern_free(pool, local) == CISTERN_INVALID_ARGUMENT);
    CHECK(failed(CISTERN_INVALID_ARGUMENT, "nothing is lent at this address: 0x"));
    CHECK(cistern_free(pool, mine + 8) == CISTERN_INVALID_ARGUMENT);
    CHECK(cistern_free(pool, foreign) == CISTERN_INVALID_ARGUMENT);
    CHECK(failed(CISTERN_INVALID_ARGUMENT, "belongs to another pool: 0x"));
    CHECK(cistern_realloc(pool, local, 10) == NULL);
    CHECK(cistern_realloc(pool, foreign, 10) == NULL);
    CHECK(failed(CISTERN_INVALID_ARGUMENT, "another pool"));
    CHECK(cistern_usable_size(pool, local) == 0);
    CHECK(cistern_usable_size(pool, foreign) == 0);
    CHECK(cistern_usable_size(pool, NULL) == 0 && failed(CISTERN_INVALID_ARGUMENT, "null"));
    CHECK(cistern_aligned_alloc(pool, 48, 64) == NULL && failed(CISTERN_INVALID_ARGUMENT, "48"));
    CHECK(cistern_aligned_alloc(pool, 0, 64) == NULL && failed(CISTERN_INVALID_ARGUMENT, "0"));
    CHECK(cistern_realloc(pool, mine, 2 << 20) == NULL && failed(CISTERN_OUT_OF_MEMORY, ""));
    CHECK(mine[0] == 3);

    CHECK(cistern_free(pool, mine) == CISTERN_OK);
    CHECK(cistern_free(pool, mine) == CISTERN_INVALID_ARGUMENT);
    CHECK(cistern_free(other, foreign) == CISTERN_OK);
    CHECK(cistern_pool_destroy(pool) == CISTERN_OK);
    CHECK(cistern_pool_destroy(other) == CISTERN_OK);
}

static void keyed_buffers_grow(void) {
    cistern_keyed keyed = cistern_keyed_create(NULL);
    CHECK(keyed != 0 && succeeded());

    char* data = cistern_keyed_get(keyed, "coeff", 1000);
    CHECK(data != NULL);
    memset(data, 4, 1000);
    CHECK(cistern_keyed_get(keyed, "coeff", 10) == data);
    data = cistern_keyed_get(keyed, "coeff", 100000);
    CHECK(data != NULL && data[0] == 4 && data[999] == 4);
    CHECK(cistern_keyed_get(keyed, "gram", 64) != NULL);

    cistern_key_stats stats;
    CHECK(cistern_keyed_stats(keyed, "coeff", &stats, sizeof stats) == CISTERN_OK);
    CHECK(stats.size == sizeof stats && stats.hits == 1 && stats.misses == 1 && stats.grows == 1);
    CHECK(cistern_keyed_stats(keyed, NULL, &stats, sizeof stats) == CISTERN_OK);
    CHECK(stats.hits == 1 && stats.misses == 2 && stats.grows == 1);
    CHECK(cistern_keyed_stats(keyed, "unknown", &stats, sizeof stats) == CISTERN_OK);
    CHECK(stats.hits == 0 && stats.misses == 0 && stats.grows == 0);
    size_t bytes = 0;
    CHECK(cistern_keyed_memory_bytes(keyed, "coeff", &bytes) == CISTERN_OK && bytes >= 100000);
    CHECK(cistern_keyed_memory_bytes(keyed, NULL, &bytes) == CISTERN_OK && bytes >= 100064);
    CHECK(cistern_keyed_clear(keyed) == CISTERN_OK);
    CHECK(cistern_keyed_memory_bytes(keyed, NULL, &bytes) == CISTERN_OK && bytes == 0);

    CHECK(cistern_keyed_get(keyed, NULL, 10) == NULL && failed(CISTERN_INVALID_ARGUMENT, "key"));
    CHECK(cistern_keyed_get(keyed, "a", (size_t)-1) == NULL && failed(CISTERN_OUT_OF_MEMORY, ""));
    CHECK(cistern_keyed_stats(keyed, "a", NULL, sizeof stats) == CISTERN_INVALID_ARGUMENT);
    CHECK(cistern_keyed_stats(keyed, "a", &stats, 1) == CISTERN_INVALID_ARGUMENT);
    CHECK(cistern_keyed_memory_bytes(keyed, "a", NULL) == CISTERN_INVALID_ARGUMENT);
    CHECK(cistern_keyed_destroy(keyed) == CISTERN_OK);
}

static void check_refused_as_a_keyed_pool(cistern_keyed bad, const char* why) {
    cistern_key_stats stats;
    size_t bytes = 77;
    CHECK(cistern_keyed_destroy(bad) == CISTERN_INVALID_HANDLE);
    CHECK(failed(CISTERN_INVALID_HANDLE, why));
    CHECK(cistern_keyed_get(bad, "key", 8) == NULL && failed(CISTERN_INVALID_HANDLE, why));
    CHECK(cistern_keyed_stats(bad, "key", &stats, sizeof stats) == CISTERN_INVALID_HANDLE);
    CHECK(cistern_keyed_memory_bytes(bad, NULL, &bytes) == CISTERN_INVALID_HANDLE && bytes == 77);
    CHECK(cistern_keyed_clear(bad) == CISTERN_INVALID_HANDLE);
}

static void keyed_pools_are_checked_too(void) {
    cistern_keyed stale = cistern_keyed_create(NULL);
    cistern_pool pool = cistern_pool_create(NULL);
    CHECK(cistern_keyed_destroy(stale) == CISTERN_OK);
    check_refused_as_a_keyed_pool(0, "null");
    check_refused_as_a_keyed_pool(stale, "a keyed pool that was destroyed");
    check_refused_as_a_keyed_pool(pool, "names a pool, not a keyed pool");
    check_refused_as_a_keyed_pool(UINT64_MAX, "never given out");

    cistern_keyed_options options;
    CHECK(cistern_keyed_options_init(NULL, sizeof options) == CISTERN_INVALID_ARGUMENT);
    CHECK(cistern_keyed_options_init(&options, sizeof options) == CISTERN_OK);
    options.same_key = 2;
    CHECK(cistern_keyed_create(&options) == 0);
    CHECK(failed(CISTERN_INVALID_ARGUMENT, "no such same_key: 2"));
    options.same_key = CISTERN_SAME_KEY_ERROR;
    options.pool = stale;
    CHECK(cistern_keyed_create(&options) == 0 && failed(CISTERN_INVALID_HANDLE, "not a pool"));
    CHECK(cistern_pool_destroy(pool) == CISTERN_OK);
}

static void* get_key(void* context) {
    return cistern_keyed_get(*(cistern_keyed*)context, "key", 100);
}

static void a_second_thread_gets_an_error_or_its_own(void) {
    cistern_pool pool = cistern_pool_create(NULL);
    cistern_keyed_options options;
    CHECK(cistern_keyed_options_init(&options, sizeof options) == CISTERN_OK);
    options.pool = pool;
    for (int own = 0; own < 2; ++own) {
        options.same_key = own ? CISTERN_SAME_KEY_OWN_BUFFER : CISTERN_SAME_KEY_ERROR;
        cistern_keyed keyed = cistern_keyed_create(&options);
        void *mine = cistern_keyed_get(keyed, "key", 100), *other = NULL;
        CHECK(mine != NULL && stats_of(pool).lent_buffers.now == 1);
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, get_key, &keyed) == 0);
        CHECK(pthread_join(thread, &other) == 0);
        CHECK(other != mine && (other != NULL) == own);
        CHECK(cistern_keyed_destroy(keyed) == CISTERN_OK);
        CHECK(stats_of(pool).lent_buffers.now == 0);
    }
    CHECK(cistern_pool_destroy(pool) == CISTERN_OK);
}

/* Threads that use a pool until another destroys it. */
static void* use_until_destroyed(void* context) {
    const cistern_pool pool = *(const cistern_pool*)context;
    for (;;) {
        const cistern_buffer buffer = cistern_acquire(pool, 256);
        if (buffer == 0) break;
        memset(cistern_buffer_data(buffer), 1, 256);
        if (cistern_release(buffer) != CISTERN_OK) break;
        void* const data = cistern_malloc(pool, 64);
        if (data == NULL) break;
        if (cistern_free(pool, data) != CISTERN_OK) break;
    }
    return cistern_last_error_code() == CISTERN_INVALID_HANDLE ? context : NULL;
}

static void a_pool_may_be_destroyed_while_others_use_it(void) {
    for (int round = 0; round < 20; ++round) {
        cistern_pool pool = cistern_pool_create(NULL);
        pthread_t threads[3];
        void* result = NULL;
        for (int i = 0; i < 3; ++i) {
            CHECK(pthread_create(&threads[i], NULL, use_until_destroyed, &pool) == 0);
        }
        while (stats_of(pool).acquires < 100) {
        }
        CHECK(cistern_pool_destroy(pool) == CISTERN_OK);
        for (int i = 0; i < 3; ++i) {
            CHECK(pthread_join(threads[i], &result) == 0);
            CHECK(result == &pool);
        }
    }
}

/* A child of fork has usable tables, whatever other threads were doing. */
static void a_child_goes_on(void) {
    cistern_pool pool = cistern_pool_create(NULL);
    cistern_buffer buffer = cistern_acquire(pool, 64);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, use_until_destroyed, &pool) == 0);
    for (int round = 0; round < 20; ++round) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(60);
            void* data = cistern_malloc(pool, 100);
            const int works = cistern_release(buffer) == CISTERN_OK &&
                              cistern_release(buffer) == CISTERN_INVALID_HANDLE &&
                              cistern_release(cistern_acquire(pool, 256)) == CISTERN_OK &&
                              cistern_free(pool, data) == CISTERN_OK &&
                              cistern_pool_destroy(pool) == CISTERN_OK &&
                              cistern_pool_create(NULL) != 0;
            _exit(works ? 0 : 1);
        }
        int status = 1;
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    }
    CHECK(cistern_release(buffer) == CISTERN_OK);
    CHECK(cistern_pool_destroy(pool) == CISTERN_OK);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void* release_all(void* context) {
    cistern_buffer* const buffers = context;
    size_t released = 0;
    for (int i = 0; i < 1000; ++i) released += cistern_release(buffers[i]) == CISTERN_OK;
    return (void*)released;
}

static void of_two_threads_that_release_one_succeeds(void) {
    static cistern_buffer buffers[1000];
    cistern_pool pool = cistern_pool_create(NULL);
    for (int i = 0; i < 1000; ++i) buffers[i] = cistern_acquire(pool, 128);
    pthread_t threads[2];
    size_t released = 0;
    for (int i = 0; i < 2; ++i) {
        CHECK(pthread_create(&threads[i], NULL, release_all, buffers) == 0);
    }
    for (int i = 0; i < 2; ++i) {
        void* result = NULL;
        CHECK(pthread_join(threads[i], &result) == 0);
        released += (size_t)result;
    }
    CHECK(released == 1000);
    CHECK(stats_of(pool).lent_buffers.now == 0);
    CHECK(cistern_pool_destroy(pool) == CISTERN_OK);
}

static void* fail_once(void* context) {
    (void)context;
    return cistern_release(0) == CISTERN_OK ? NULL : (void*)cistern_last_error();
}

static void errors_belong_to_their_thread(void) {
    pthread_t thread;
    void* result = NULL;
    CHECK(cistern_default_pool() != 0);
    CHECK(pthread_create(&thread, NULL, fail_once, NULL) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(result != NULL && succeeded());
}

int main(void) {
    versions_are_those_of_the_header();
    a_buffer_is_lent_and_given_back();
    zero_bytes_are_a_buffer_without_data();
    buffers_outlive_their_pool();
    bad_handles_are_errors();
    the_default_pool_stays();
    options_have_the_defaults_of_cpp();
    options_reach_the_pool();
    options_without_sense_are_refused();
    longer_structs_of_later_headers_work();
    fixed_blocks_have_one_size();
    types_are_kept_apart_where_asked();
    running_out_is_an_error();
    a_callback_may_make_room();
    trim_and_limits_take_effect_at_once();
    adopted_bytes_are_lent_and_let_go();
    texts_fit_or_say_what_they_take();
    bare_pointers_work_as_in_stdlib();
    pointers_that_are_not_lent_are_errors();
    keyed_buffers_grow();
    keyed_pools_are_checked_too();
    a_second_thread_gets_an_error_or_its_own();
    a_pool_may_be_destroyed_while_others_use_it();
    a_child_goes_on();
    of_two_threads_that_release_one_succeeds();
    errors_belong_to_their_thread();
    if (failures != 0) return EXIT_FAILURE;
    puts("every check passed");
    return EXIT_SUCCESS;
}
