"""NumPy itself takes its memory from a pool."""

import asyncio
import gc
import threading

import numpy as np
import pytest

import cistern

LARGE = 100_000


def test_arrays_from_a_size_on_are_pooled(pool):
    with cistern.numpy_pool(pool, min_bytes=1000) as serving:
        assert serving is pool
        small, exact, large = np.empty(999, "u1"), np.empty(1000, "u1"), np.ones(LARGE)
    outside = np.ones(LARGE)
    assert [cistern.is_pooled(a) for a in (small, exact, large, outside)] == [
        False,
        True,
        True,
        False,
    ]
    assert exact.ctypes.data % 64 == 0
    assert cistern.is_pooled(large[3:]) and not cistern.is_pooled("text")


def test_arrays_outlive_the_block_and_the_pool():
    with cistern.numpy_pool(cistern.Pool(), min_bytes=1000):
        small, large = np.arange(10), np.arange(LARGE)
    gc.collect()
    assert small.sum() == 45 and large.sum() == LARGE * (LARGE - 1) // 2


def test_temporaries_are_pooled(pool):
    with cistern.numpy_pool(pool):
        a = np.ones(LARGE)
        for _ in range(5):
            b = (a * 2 + 1) / (a + 3)
    assert pool.stats().acquires >= 10 and pool.stats().hit_rate > 0.4
    del a, b
    assert pool.stats().lent_buffers.now == 0


def test_zeros_are_zero_also_on_used_bytes(pool):
    with cistern.numpy_pool(pool):
        for _ in range(3):
            zeros = np.zeros(LARGE)
            assert not zeros.any()
            zeros[...] = 7
            del zeros
    assert pool.stats().hits == 2


@pytest.mark.parametrize(
    "sizes", [(10, 500, 20), (10, 5000, 200_000, 400_000, 3000, 10), (5000, 0, 5000)]
)
def test_resize_across_the_threshold(pool, sizes):
    with cistern.numpy_pool(pool, min_bytes=4096):
        array = np.arange(sizes[0], dtype="f8")
        expected = array.copy()
        for size in sizes[1:]:
            array.resize(size, refcheck=False)
            expected.resize(size, refcheck=False)
            assert np.array_equal(array, expected)
    del array
    del expected
    assert pool.stats().lent_buffers.now == 0


def test_small_arrays_keep_their_own_bytes(pool):
    with cistern.numpy_pool(pool):
        for size in (1, 2, 15, 16, 17, 100, 1000, 1007, 1008, 1023):
            arrays = [np.full(size, mark, "u1") for mark in range(20)]  # more than are kept
            assert len({array.ctypes.data for array in arrays}) == 20
            assert all((array == mark).all() for mark, array in enumerate(arrays))
            addresses = {array.ctypes.data for array in arrays}
            del arrays
            again = np.zeros(size, "u1")
            assert not again.any() and again.ctypes.data in addresses
    assert pool.stats().acquires == 0


def test_growing_readers(pool, tmp_path):
    path = tmp_path / "numbers.txt"
    path.write_text("\n".join(map(str, range(20_000))))
    with cistern.numpy_pool(pool, min_bytes=1000):
        assert np.array_equal(np.fromiter(iter(range(50_000)), float), np.arange(50_000))
        assert np.array_equal(np.loadtxt(path), np.arange(20_000))
        assert np.array_equal(np.fromstring(path.read_text(), sep="\n"), np.arange(20_000))


def test_errors_leave_the_old_handler(pool):
    with pytest.raises(RuntimeError):
        with cistern.numpy_pool(pool):
            raise RuntimeError
    assert not cistern.is_pooled(np.ones(LARGE))


def test_nesting(pool):
    other = cistern.Pool()
    block = cistern.numpy_pool(pool)
    with block:
        with cistern.numpy_pool(other):
            with block:
                np.ones(LARGE)
            np.ones(LARGE)
        np.ones(LARGE)
    assert pool.stats().acquires == 2 and other.stats().acquires == 1


def test_enable_and_disable(pool):
    assert cistern.enable_numpy(pool) is pool
    kept = np.ones(LARGE)
    assert cistern.is_pooled(kept)
    cistern.disable_numpy()
    assert not cistern.is_pooled(np.ones(LARGE)) and kept.sum() == LARGE


def test_the_setting_belongs_to_the_context(pool):
    seen = []
    with cistern.numpy_pool(pool):
        thread = threading.Thread(target=lambda: seen.append(cistern.is_pooled(np.ones(LARGE))))
        thread.start()
        thread.join()
    assert seen == [False]

    async def inside():
        with cistern.numpy_pool(pool):
            await asyncio.sleep(0.01)
            return cistern.is_pooled(np.ones(LARGE))

    async def outside():
        await asyncio.sleep(0.005)
        return cistern.is_pooled(np.ones(LARGE))

    async def both():
        return await asyncio.gather(inside(), outside())

    assert asyncio.run(both()) == [True, False]


def test_out_of_memory_is_numpys_memory_error():
    with cistern.numpy_pool(cistern.Pool(max_bytes=1 << 20, max_idle_bytes=1 << 20)):
        with pytest.raises(MemoryError):
            np.empty(1 << 20)
        with pytest.raises(MemoryError):
            np.zeros(1 << 20)
        array = np.ones(60_000)
        with pytest.raises(MemoryError):
            array.resize(1 << 20, refcheck=False)
        assert array.sum() == 60_000


def test_object_and_string_arrays_stay_right(pool):
    with cistern.numpy_pool(pool, min_bytes=100):
        objects = np.empty(10_000, object)
        assert objects[0] is None
        objects[:] = [str(i) for i in range(10_000)]
        assert objects[9_999] == "9999" and np.sort(objects)[0] == "0"


def test_pooled_decorates_and_blocks(pool):
    @cistern.pooled(pool=pool)
    def work(n):
        """Docs."""
        return cistern.is_pooled(np.ones(n))

    @cistern.pooled
    def plain():
        return cistern.is_pooled(np.ones(LARGE))

    @cistern.pooled(pool=pool)
    async def later():
        await asyncio.sleep(0)
        return cistern.is_pooled(np.ones(LARGE))

    @cistern.pooled(pool=pool)
    def items():
        got = yield cistern.is_pooled(np.ones(LARGE))
        yield got

    assert work(LARGE) and not work(10) and work.__doc__ == "Docs." and plain()
    assert asyncio.run(later())
    generator = items()
    assert next(generator) and not cistern.is_pooled(np.ones(LARGE))
    assert generator.send(5) == 5
    with cistern.pooled(pool=pool) as block:
        assert block is pool and cistern.is_pooled(np.ones(LARGE))
    with pytest.raises(TypeError):
        cistern.pooled(3)


def test_wrong_arguments(pool):
    with pytest.raises(ValueError):
        cistern.numpy_pool(pool, min_bytes=-1)
    with pytest.raises(TypeError, match="min_bytes is an integer"):
        cistern.numpy_pool(pool, min_bytes=None)
    with pytest.raises(TypeError):
        cistern.numpy_pool("pool")
