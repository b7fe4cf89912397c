"""Pools that live as long as a Dask worker.

client.register_plugin(cistern.dask.PoolPlugin(max_bytes=4 << 30))

def cell(rows):                       # a task
    coeff = cistern.dask.keyed_pool().get_or_create("coeff", (rows, 4033))
    ...

print(cistern.dask.gather_stats(client))
"""

from typing import Any

from distributed import WorkerPlugin, get_worker

from . import InvalidArgument, KeyedPool, MemoryPool, Pool
from .pool import _limit

_NAME = "cistern"


class PoolPlugin(WorkerPlugin):
    """Gives each worker its pools for its lifetime, under one memory budget.

    max_bytes: what the pools of one worker hold at most, lent and idle; by default `share` of the
    worker's memory limit. options: further arguments of cistern.Pool. Each thread of a worker has
    its own buffers in the keyed pool.
    """

    name = _NAME

    def __init__(self, max_bytes: int | None = None, *, share: float = 0.8, **options: Any) -> None:
        if not 0 < share <= 1:
            raise InvalidArgument(
                f"share is a part of the worker's memory, above 0 up to 1: {share!r}"
            )
        self._max_bytes = _limit("max_bytes", max_bytes)
        self._share = share
        self._options = options
        Pool(**options)  # raises here, not on the workers, if the options make no sense

    def setup(self, worker: Any) -> None:
        """Makes the worker's pools."""
        budget = self._max_bytes
        if budget is None:
            limit = getattr(getattr(worker, "memory_manager", None), "memory_limit", None)
            budget = int(limit * self._share) if limit else None
        options = {"name": f"worker {worker.address}", **self._options}
        if budget is not None:
            options["max_bytes"] = budget
            options.setdefault("max_idle_bytes", budget)
        pool = Pool(**options)
        worker._cistern = {
            "pool": pool,
            "keyed": KeyedPool(pool, same_key="own_buffer"),
            "memory": MemoryPool(pool=pool),
        }

    def teardown(self, worker: Any) -> None:
        """Gives what is idle back; arrays that tasks still hold stay valid."""
        pools = worker.__dict__.pop("_cistern", None)
        if pools is not None:
            pools["keyed"].clear()
            pools["memory"].clear()
            pools["pool"].trim()


def _pools(worker=None):
    worker = get_worker() if worker is None else worker
    try:
        return worker._cistern
    except AttributeError:
        raise InvalidArgument(
            "this worker has no pools: call client.register_plugin(cistern.dask.PoolPlugin()) first"
        ) from None


def pool() -> Pool:
    """Returns the Pool of the worker that runs this task."""
    return _pools()["pool"]


def keyed_pool() -> KeyedPool:
    """Returns the KeyedPool of the worker that runs this task."""
    return _pools()["keyed"]


def memory_pool() -> MemoryPool:
    """Returns the MemoryPool of the worker that runs this task."""
    return _pools()["memory"]


def _stats_of(dask_worker):
    pools = _pools(dask_worker)
    return {
        "pool": pools["pool"].stats().as_dict(),
        "keys": pools["keyed"].get_stats(),
        "memory": pools["memory"].stats(),
    }


def gather_stats(client: Any) -> dict[str, Any]:
    """Returns {worker: {"pool", "keys", "memory"}}, and under "total" the keys of all workers."""
    workers = client.run(_stats_of)
    total: dict[str, dict[str, int]] = {}
    for stats in workers.values():
        for key, counts in stats["keys"].items():
            into = total.setdefault(key, dict.fromkeys(counts, 0))
            for name, count in counts.items():
                into[name] += count
    return {**workers, "total": total}
