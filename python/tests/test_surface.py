"""Names, defaults and kinds of error that users of the replaced pools rely on, one by one."""

import asyncio
import inspect
import threading
import warnings

import numpy as np
import pytest

import cistern
import cistern.compat.pydotcompute.core.memory_pool as their_pools
import cistern.compat.pydotcompute.core.unified_buffer as their_buffers
from cistern.compat.pycsa import BufferPool
from cistern.compat.pydotcompute import exceptions

GIBIBYTE = 1024**3
REQUIRED = inspect.Parameter.empty


def parameters(function):
    """{name: default}, with a star before the names that are keywords only."""
    return {
        ("*" if p.kind is p.KEYWORD_ONLY else "") + name: p.default
        for name, p in inspect.signature(function).parameters.items()
        if name != "self" and not name.startswith("_")
    }


@pytest.fixture(params=[cistern.UnifiedBuffer, their_buffers.UnifiedBuffer], ids=["own", "compat"])
def buffer_class(request):
    return request.param


@pytest.fixture
def their_pool():
    their_pools.MemoryPool._instance = None
    yield their_pools.MemoryPool()
    their_pools.MemoryPool._instance = None


@pytest.mark.parametrize(
    "function, expected",
    [
        (
            cistern.KeyedPool.get_or_create,
            {"key": REQUIRED, "shape": REQUIRED, "dtype": np.float64},
        ),
        (BufferPool.get_or_create, {"key": REQUIRED, "shape": REQUIRED, "dtype": np.float64}),
        (
            cistern.MemoryPool,
            {"max_pool_size": 100, "max_buffer_size": GIBIBYTE, "*pool": None},
        ),
        (
            cistern.MemoryPool.acquire,
            {"shape": REQUIRED, "dtype": np.float32, "*pinned": False},
        ),
        (cistern.MemoryPool.buffer, {"shape": REQUIRED, "dtype": np.float32, "*pinned": False}),
        (cistern.UnifiedBuffer, {"shape": REQUIRED, "dtype": np.float32, "*pinned": False}),
        (their_buffers.UnifiedBuffer, {"shape": REQUIRED, "dtype": np.float32, "*pinned": False}),
        (cistern.UnifiedBuffer.allocate, {"*host": True, "*device": True}),
        (
            their_pools.configure_memory_pool,
            {"initial_size_mb": 0, "max_size_mb": None, "enable": True},
        ),
        (
            cistern.PoolStatistics,
            {"used_bytes": REQUIRED, "total_bytes": REQUIRED, "n_free_blocks": REQUIRED},
        ),
    ],
)
def test_arguments_and_defaults(function, expected):
    assert parameters(function) == expected


def test_the_keyed_pool_is_true_and_has_no_length():
    for pool in (cistern.KeyedPool(), BufferPool()):
        assert pool and not hasattr(pool, "__len__") and not hasattr(pool, "__bool__")


def test_private_attributes_of_the_memory_pool(their_pool):
    kind = their_pools.MemoryPool
    assert kind._instance is their_pool and their_pool._initialized is True
    assert (their_pool._enabled, their_pool._cuda_available) == (False, cistern.cuda_available())
    assert (their_pool._initial_size_mb, their_pool._max_size_mb) == (0, None)
    kind._instance = None
    other = kind(initial_size_mb=16, max_size_mb=64)
    assert (other._initial_size_mb, other._max_size_mb) == (16, 64) and other is not their_pool
    assert (
        kind(initial_size_mb=5) is other and other._initial_size_mb == 16
    )  # only the first counts
    other.enable()
    assert other._enabled and other.enabled
    other.set_limit(32)
    assert other._max_size_mb == 32
    other.set_limit(None)
    assert other._max_size_mb is None


def test_private_attributes_of_the_buffer(buffer_class):
    buffer = buffer_class(3)
    assert (buffer._pinned, buffer._cuda_available) == (False, cistern.cuda_available())


def test_errors_of_the_replaced_package():
    error = exceptions.BufferNotAllocatedError
    assert issubclass(error, exceptions.BufferError)
    assert issubclass(error, exceptions.PyDotComputeError)
    assert issubclass(error, cistern.BufferNotAllocatedError) and issubclass(error, ValueError)
    assert str(error()) == "Buffer has not been allocated. Call allocate() first."
    sync = exceptions.BufferSyncError("to_device", "no driver")
    assert (sync.direction, sync.cause) == ("to_device", "no driver") and "to_device" in str(sync)


def test_pools_lend_buffers_of_their_own_kind(their_pool):
    buffer = their_pool.acquire(4)
    assert type(buffer) is their_buffers.UnifiedBuffer
    their_pool.release(buffer)
    assert their_pool.acquire((4,)) is buffer


def test_an_integer_is_a_shape(buffer_class):
    for shape in (5, np.int64(5), (5,), [5]):
        assert buffer_class(shape).shape == (5,)
    assert buffer_class(()).shape == () and buffer_class(()).size == 1


def test_pinned_buffers_are_kept_apart():
    pool = cistern.MemoryPool()
    plain = pool.acquire(4)
    pool.release(plain)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pinned = pool.acquire(4, pinned=True)
    assert pinned is not plain and pinned.pinned
    pool.release(pinned)
    assert pool.acquire(4, pinned=True) is pinned and pool.acquire(4) is plain


@pytest.mark.parametrize("fill", [lambda b: b.zeros(), lambda b: b.fill(7)])
def test_filling_allocates_and_returns_the_buffer(buffer_class, fill):
    buffer = buffer_class((2, 3), np.int32)
    assert fill(buffer) is buffer and buffer.is_allocated
    assert buffer.state is cistern.BufferState.HOST_DIRTY
    assert set(buffer.host.ravel()) in ({0}, {7})


def test_both_sides_without_a_device(buffer_class):
    buffer = buffer_class(4).allocate(host=True, device=False)
    assert buffer.device is buffer.host
    assert asyncio.run(buffer.ensure_on_device()) is buffer.host
    assert asyncio.run(buffer.ensure_on_host()) is buffer.host
    copy = buffer.to_numpy()
    assert not np.shares_memory(copy, buffer.host)
    assert buffer.synchronize() is None and buffer_class(4).synchronize() is None
    assert buffer.free() is None and buffer.free() is None


def test_threads_share_a_memory_pool():
    pool = cistern.MemoryPool(max_pool_size=3)
    wrong = []

    def work(mark):
        for i in range(300):
            with pool.buffer(1 + i % 4, np.int64) as buffer:
                buffer.fill(mark)
                if not (buffer.host == mark).all():
                    wrong.append(mark)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = pool.stats()
    assert not wrong and stats["total_acquired"] == stats["total_released"] == 1800
    assert stats["cache_hits"] + stats["cache_misses"] == 1800 and pool.pool_size <= 3


def test_fixed_blocks_come_back_last_in_first_out():
    pool = cistern.Pool(fit="fixed:4096")
    first, second = pool.zeros(100), pool.empty(512)
    assert not second.any()  # fresh blocks are zero
    addresses = [first.ctypes.data, second.ctypes.data]
    second.fill(7)
    del first
    del second
    again = pool.empty(512)
    assert again.ctypes.data == addresses[1] and again[0] == 7  # reused ones are not
    assert pool.empty(1).ctypes.data == addresses[0]


def test_the_typed_best_fit_with_a_cap():
    pool = cistern.Pool(fit="best:1", separate_types=True, evict="smallest", max_idle_bytes=10_000)
    pool.empty(1000, "f8")
    assert pool.empty(10, "i8").nbytes == 80 and pool.stats().hits == 0
    pool.empty(10, "f8")
    assert pool.stats().hits == 1 and pool.stats().idle_bytes.now <= 10_000
    pool.set_limits(max_idle_bytes=0)
    assert pool.stats().idle_bytes.now == 0
    before = pool.stats().acquires
    pool.empty(0)
    assert pool.stats().acquires == before
