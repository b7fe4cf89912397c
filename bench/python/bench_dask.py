"""The cells workload on Dask: four worker processes that keep their pools, against a pool per cell.

    python bench/python/bench_dask.py     # about a minute; needs distributed

A cell asks for `coeff` (rows differ from cell to cell), for `gram`, and for a part of `coeff` again,
as the users of the keyed pool do. Counts are taken after a warm-up. In the end a worker is killed in
the middle, and every result has to arrive all the same.
"""

import argparse
import os
import signal
import sys
import time

import numpy as np
from distributed import Client, LocalCluster

import cistern.dask

WORKERS, COLUMNS = 4, 100


def cell(rows, per_cell=False):
    """Returns the result, and how many requests were hits and how many there were, if per_cell."""
    pool = cistern.KeyedPool() if per_cell else cistern.dask.keyed_pool()
    coeff = pool.get_or_create("coeff", (rows, COLUMNS))
    coeff[...] = 1.0 + rows % 3
    gram = pool.get_or_create("gram", (COLUMNS, COLUMNS))
    np.matmul(coeff.T, coeff, out=gram)
    result = float(gram[0, 0])
    part = pool.get_or_create("coeff", (int(0.43 * rows), 20))
    part[...] = result
    counts = pool.get_stats().values() if per_cell else ()
    return result, sum(c["hits"] for c in counts), sum(sum(c.values()) for c in counts)


def expected(rows):
    return rows * (1.0 + rows % 3) ** 2


def totals(client):
    keys = cistern.dask.gather_stats(client)["total"].values()
    return sum(c["hits"] for c in keys), sum(sum(c.values()) for c in keys)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=2000)
    options = parser.parse_args()
    rng = np.random.default_rng(1)
    rows = [int(n) for n in rng.integers(1200, 8000, options.cells)]
    cluster = LocalCluster(
        n_workers=WORKERS, threads_per_worker=1, processes=True, dashboard_address=None
    )
    with cluster, Client(cluster) as client:
        client.register_plugin(cistern.dask.PoolPlugin(max_bytes=1 << 30))
        client.gather(client.map(cell, [8000] * 10 * WORKERS, pure=False))  # warm-up
        rates = {}
        for name, per_cell in (("a pool per cell", True), ("a pool per worker", False)):
            before = totals(client)
            start = time.perf_counter()
            results = client.gather(client.map(cell, rows, per_cell=per_cell, pure=False))
            seconds = time.perf_counter() - start
            if per_cell:
                hits, requests = sum(r[1] for r in results), sum(r[2] for r in results)
            else:
                hits, requests = (now - then for now, then in zip(totals(client), before))
            rates[name] = hits / requests
            right = [r[0] for r in results] == [expected(n) for n in rows]
            print(f"{name:<18} {seconds:6.2f} s  hit rate {hits / requests:.1%}  right: {right}")

        futures = client.map(cell, rows, pure=False)
        while sum(future.done() for future in futures) < len(rows) // 4:
            time.sleep(0.01)
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        results = client.gather(futures)
        kept = [r[0] for r in results] == [expected(n) for n in rows]
        print(f"a worker killed in the middle: {len(results)} results, right: {kept}")
    sys.exit(0 if kept and rates["a pool per worker"] >= 0.95 else 1)


if __name__ == "__main__":
    main()
