/* Heat that spreads along a rod: each step borrows its scratch array from a pool. */

#include <cistern/cistern.h>
#include <stdio.h>
#include <string.h>

enum { cells = 1000, steps = 200 };

static void step(const double* u, double* next) {
    for (int i = 0; i < cells; ++i) {
        const double left = u[i > 0 ? i - 1 : i], right = u[i < cells - 1 ? i + 1 : i];
        next[i] = u[i] + 0.25 * (left - 2 * u[i] + right);
    }
}

int main(void) {
    cistern_pool pool = cistern_pool_create(NULL);
    cistern_buffer rod = cistern_acquire_zeroed(pool, cells * sizeof(double));
    double* u = cistern_buffer_data(rod);
    if (u == NULL) {
        fprintf(stderr, "%s\n", cistern_last_error());
        return 1;
    }
    u[cells / 2] = 1;

    for (int i = 0; i < steps; ++i) {
        cistern_buffer scratch = cistern_acquire(pool, cells * sizeof(double));
        double* next = cistern_buffer_data(scratch);
        step(u, next);
        memcpy(u, next, cells * sizeof(double));
        cistern_release(scratch); /* the next step gets the same bytes */
    }

    double heat = 0, warmest = 0;
    for (int i = 0; i < cells; ++i) {
        heat += u[i];
        if (u[i] > warmest) warmest = u[i];
    }
    cistern_stats stats;
    cistern_pool_stats(pool, &stats, sizeof stats);
    printf("heat %.4f, warmest cell %.4f after %d steps\n", heat, warmest, steps);
    printf("%d buffers: %d hits, %d misses\n", (int)stats.acquires, (int)stats.hits,
           (int)stats.misses);

    cistern_release(rod);
    if (cistern_release(rod) != CISTERN_OK) puts("a second release is an error");
    return cistern_pool_destroy(pool) == CISTERN_OK ? 0 : 1;
}
