"""Pools on Dask workers: several processes, one budget each, a worker killed in the middle."""

import os
import signal
import time

import numpy as np
import pytest

import cistern

distributed = pytest.importorskip("distributed")
import cistern.dask  # noqa: E402

COLUMNS = 50


def cell(rows):
    """A cell as the keyed pool's users have it: three requests, the last a part of the first."""
    pool = cistern.dask.keyed_pool()
    coeff = pool.get_or_create("coeff", (rows, COLUMNS))
    coeff[...] = rows
    gram = pool.get_or_create("gram", (COLUMNS, COLUMNS))
    np.matmul(coeff.T, coeff, out=gram)
    result = float(gram[0, 0])
    small = pool.get_or_create("coeff", (rows // 2, 10))
    small[...] = 1
    time.sleep(0.005)
    return result


def expected(rows):
    return float(rows) ** 3


@pytest.fixture(scope="module")
def client():
    cluster = distributed.LocalCluster(
        n_workers=4,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        memory_limit="1GiB",
    )
    client = distributed.Client(cluster)
    yield client
    client.close()
    cluster.close()


def rate(counts):
    return counts["hits"] / sum(counts.values())


def test_workers_keep_their_pools(client):
    client.register_plugin(cistern.dask.PoolPlugin(max_bytes=256 << 20))
    rows = [200 + (37 * i) % 300 for i in range(80)]
    client.gather(client.map(cell, [500] * 16, pure=False))  # warm-up
    before = cistern.dask.gather_stats(client)["total"]

    results = client.gather(client.map(cell, rows, pure=False))

    assert results == [expected(n) for n in rows]
    after = cistern.dask.gather_stats(client)
    assert len(after) == 5
    for key, counts in after["total"].items():
        assert rate({name: counts[name] - before[key][name] for name in counts}) >= 0.95
    for worker, stats in after.items():
        if worker != "total":
            assert stats["pool"]["held_bytes"]["peak"] <= 256 << 20


def test_the_budget_holds(client):
    client.register_plugin(cistern.dask.PoolPlugin(max_bytes=8 << 20))
    with pytest.raises(MemoryError):
        client.submit(cell, 100_000, pure=False).result()
    assert client.submit(cell, 100, pure=False).result() == expected(100)


def test_a_killed_worker_loses_no_result(client):
    client.register_plugin(cistern.dask.PoolPlugin())
    rows = list(range(100, 300))
    futures = client.map(cell, rows, pure=False)
    time.sleep(0.1)
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)

    assert client.gather(futures) == [expected(n) for n in rows]
    client.wait_for_workers(4, timeout=30)


def test_options_are_checked_before_they_travel():
    with pytest.raises(ValueError):
        cistern.dask.PoolPlugin(max_bytes=-1)
    with pytest.raises(ValueError):
        cistern.dask.PoolPlugin(share=0)
    with pytest.raises(ValueError):
        cistern.dask.PoolPlugin(fit="worst")


def test_tasks_without_the_plugin_are_told(client):
    client.unregister_worker_plugin("cistern")
    with pytest.raises(ValueError, match="PoolPlugin"):
        client.submit(cell, 100, pure=False).result()
