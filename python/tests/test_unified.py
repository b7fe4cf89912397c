"""UnifiedBuffer and MemoryPool."""

import asyncio
import pickle

import numpy as np
import pytest

import cistern
from cistern import BufferState, MemoryPool, UnifiedBuffer

without_device = pytest.mark.skipif(cistern.cuda_available(), reason="there is a CUDA device")


def test_states_are_numbered_from_one():
    assert [(s.name, s.value) for s in BufferState] == [
        ("UNINITIALIZED", 1),
        ("HOST_ONLY", 2),
        ("DEVICE_ONLY", 3),
        ("SYNCHRONIZED", 4),
        ("HOST_DIRTY", 5),
        ("DEVICE_DIRTY", 6),
    ]


def test_a_new_buffer_has_a_shape_and_no_memory():
    buffer = UnifiedBuffer((3, 4))
    assert (buffer.shape, buffer.dtype, buffer.size, buffer.nbytes) == ((3, 4), np.float32, 12, 48)
    assert buffer.state is BufferState.UNINITIALIZED and not buffer.is_allocated
    assert UnifiedBuffer(5).shape == (5,) and UnifiedBuffer([2, 3]).shape == (2, 3)
    assert len(UnifiedBuffer((7, 2))) == 7


@pytest.mark.parametrize(
    "use",
    [
        lambda b: b.host,
        lambda b: b.device,
        lambda b: b[0],
        lambda b: b.__setitem__(0, 1),
        lambda b: b.mark_host_dirty(),
        lambda b: b.mark_device_dirty(),
        lambda b: b.to_numpy(),
        lambda b: b.copy_to(np.zeros(3)),
        lambda b: b.host_writable(),
        lambda b: b.sync_to_device(),
        lambda b: b.sync_to_host(),
        lambda b: asyncio.run(b.ensure_on_device()),
        lambda b: asyncio.run(b.ensure_on_host()),
    ],
)
def test_using_an_unallocated_buffer(use):
    freed = UnifiedBuffer(3).allocate()
    freed.free()
    for buffer in (UnifiedBuffer(3), freed):
        with pytest.raises(cistern.BufferNotAllocatedError, match="not been allocated"):
            use(buffer)


@without_device
def test_states_follow_the_writes():
    buffer = UnifiedBuffer(3)
    assert buffer.allocate() is buffer and buffer.state is BufferState.HOST_ONLY
    assert buffer.device is buffer.host
    buffer.host[0] = 1
    assert buffer.state is BufferState.HOST_ONLY
    buffer[0] = 2
    assert buffer.state is BufferState.HOST_DIRTY and buffer[0] == 2
    buffer.synchronize()
    assert buffer.state is BufferState.HOST_ONLY
    buffer.mark_device_dirty()
    assert buffer.state is BufferState.DEVICE_DIRTY
    buffer.host
    assert buffer.state is BufferState.HOST_ONLY
    buffer.host_writable()[1] = 5
    assert buffer.state is BufferState.HOST_DIRTY
    asyncio.run(buffer.ensure_on_device())
    buffer.free()
    assert buffer.state is BufferState.UNINITIALIZED and not buffer.is_allocated


def test_copies():
    buffer = UnifiedBuffer((2, 2), np.int32)
    buffer.copy_from(np.array([[1, 2], [3, 4]], np.int32))
    out = np.zeros((2, 2), np.int32)
    buffer.copy_to(out)
    copy = buffer.to_numpy()
    buffer.zeros()
    assert out.tolist() == copy.tolist() == [[1, 2], [3, 4]] and not buffer.host.any()
    assert buffer.fill(7) is buffer and np.asarray(buffer).sum() == 28
    with pytest.raises(ValueError, match=r"\(3,\)"):
        buffer.copy_from(np.zeros(3, np.int32))
    with pytest.raises(ValueError):
        buffer.copy_to(np.zeros((3, 3), np.int32))
    with pytest.raises(TypeError):
        buffer.copy_to([0, 0])
    other = UnifiedBuffer((2, 2), np.int32)
    other.copy_from(buffer)
    assert other[1, 1] == 7 and "HOST_DIRTY" in repr(other)


@pytest.mark.parametrize(
    "shape, dtype, error",
    [
        (-1, "f4", ValueError),
        (2.5, "f4", TypeError),
        (3, object, TypeError),
        (3, "nonsense", TypeError),
    ],
)
def test_bad_buffers(shape, dtype, error):
    with pytest.raises(error):
        UnifiedBuffer(shape, dtype)
    pool = MemoryPool()
    with pytest.raises(error):
        pool.acquire(shape, dtype)
    assert pool.stats()["total_acquired"] == 0


@without_device
def test_the_very_same_buffer_comes_back():
    pool = MemoryPool()
    buffer = pool.acquire((4, 4))
    buffer.fill(3)
    pool.release(buffer)
    assert pool.pool_size == 1 and pool.total_bytes == 64
    assert pool.acquire((4, 4), np.float64) is not buffer
    assert pool.acquire(16) is not buffer
    again = pool.acquire((4, 4))
    assert again is buffer and again.state is BufferState.HOST_ONLY and again[0, 0] == 3
    assert pool.stats() == {
        "pool_size": 0,
        "total_acquired": 4,
        "total_released": 1,
        "cache_hits": 1,
        "cache_misses": 3,
    }


def test_a_freed_buffer_comes_back_allocated():
    pool = MemoryPool()
    buffer = pool.acquire(4)
    buffer.free()
    pool.release(buffer)
    assert pool.acquire(4).is_allocated


def test_releasing_wrongly_changes_nothing():
    pool, other = MemoryPool(), MemoryPool()
    buffer = pool.acquire(4)
    with pytest.raises(ValueError, match="not lent by this pool"):
        other.release(buffer)
    pool.release(buffer)
    before = pool.stats()
    with pytest.raises(ValueError, match="released already"):
        pool.release(buffer)
    with pytest.raises(ValueError):
        pool.release(UnifiedBuffer(4))
    with pytest.raises(TypeError):
        pool.release(np.zeros(4))
    assert pool.stats() == before and other.stats()["total_released"] == 0


def test_limits_of_the_cache():
    pool = MemoryPool(max_pool_size=2, max_buffer_size=100)
    buffers = [pool.acquire(n) for n in (1, 2, 3, 1000)]
    for buffer in buffers:
        pool.release(buffer)
    assert pool.pool_size == 2 and pool.total_bytes == 20
    assert pool.acquire(1) is not buffers[0] and pool.acquire(3) is buffers[2]
    assert MemoryPool(max_pool_size=0).pool_size == 0
    for bad in ({"max_pool_size": -1}, {"max_buffer_size": -1}):
        with pytest.raises(ValueError):
            MemoryPool(**bad)
    with pytest.raises(TypeError):
        MemoryPool(max_pool_size="many")


def test_a_block_releases_also_when_it_raises():
    pool = MemoryPool()
    with pytest.raises(RuntimeError):
        with pool.buffer((2, 2), np.float64) as buffer:
            assert buffer.is_allocated
            raise RuntimeError
    assert pool.pool_size == 1
    pool.clear()
    assert pool.pool_size == 0 and pool.stats()["total_released"] == 1


@without_device
def test_the_older_surface():
    statistics = cistern.PoolStatistics(used_bytes=1 << 20, total_bytes=4 << 20, n_free_blocks=3)
    assert (statistics.free_bytes, statistics.utilization) == (3 << 20, 0.25)
    assert (statistics.used_mb, statistics.total_mb) == (1.0, 4.0)
    assert cistern.PoolStatistics(0, 0, 0).utilization == 0.0
    pool = MemoryPool()
    assert not pool.enabled and pool.get_stats() == cistern.PoolStatistics(0, 0, 0)
    pool.enable()
    assert pool.enabled
    pool.disable()
    pool.set_limit(1)
    with pytest.raises(MemoryError):
        pool.acquire(1 << 20)
    pool.set_limit(None)
    pool.release(pool.acquire(1 << 20))
    assert pool.get_stats().used_mb >= 4.0 and pool.get_pinned_stats().total_bytes == 0
    pool.free_all_blocks()
    assert pool.get_stats().total_bytes == 0
    with pytest.raises(ValueError):
        pool.set_limit(-1)
    shared = cistern.configure_memory_pool(enable=True)
    assert shared is cistern.get_memory_pool() and shared.enabled


@without_device
def test_pinned_says_once_that_it_is_not():
    import cistern.unified

    cistern.unified._said_pinned = False
    with pytest.warns(RuntimeWarning, match="page-locked"):
        UnifiedBuffer(3, pinned=True)
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert UnifiedBuffer(3, pinned=True).allocate().pinned


def test_prints_and_pickles():
    pool = pickle.loads(pickle.dumps(MemoryPool(3)))
    assert repr(pool).startswith("MemoryPool(enabled=False") and "<table>" in pool._repr_html_()
