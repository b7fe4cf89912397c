"""Arrays for the length of a call."""

from typing import NamedTuple

import numpy as np
import pytest

import cistern


class Field(NamedTuple):
    u: object
    v: object


def test_calls_with_arrays_and_returns_the_result(pool):
    def work(a, b, c):
        a.fill(1), b.fill(2), c.fill(3)
        assert a.dtype == np.float64 and b.dtype == np.float32 and c.shape == (3,)
        return a.sum() + b.sum() + c.sum()

    assert cistern.with_arrays(work, pool, (2, 2), ((2, 3), "f4"), 3) == 4 + 12 + 9
    assert pool.stats().lent_buffers.now == 0


def test_nests_are_one_block(pool):
    def work(nest, other):
        assert isinstance(nest, list) and nest[1]["x"].shape == (3, 4)
        arrays = [nest[0], nest[1]["x"], nest[1]["y"]]
        for mark, array in enumerate(arrays):
            array[...] = mark
            assert array.ctypes.data % 64 == 0
        assert [set(a.ravel()) for a in arrays] == [{0}, {1}, {2}]
        assert pool.stats().lent_buffers.now == 2
        assert other[0].dtype == np.int8 and other[1].shape == ()

    cistern.with_arrays(
        work, pool, [5, {"x": ((3, 4), "i2"), "y": cistern.shape(2, dtype="c16")}], ((7, "i1"), ())
    )
    assert pool.stats().lent_buffers.now == 0


def test_gives_back_when_the_function_or_a_spec_fails(pool):
    def fail(a):
        raise RuntimeError

    with pytest.raises(RuntimeError):
        cistern.with_arrays(fail, pool, 1000)
    for bad, error in [
        ((3, -1), ValueError),
        ("text", TypeError),
        (2.5, TypeError),
        ([4, -1], ValueError),
        (((3, 4), object), TypeError),
    ]:
        with pytest.raises(error):
            cistern.with_arrays(fail, pool, 1000, bad)
    assert pool.stats().lent_buffers.now == 0
    with pytest.raises(ValueError, match=f"\\(3, {2**62}\\)"):
        cistern.with_arrays(fail, pool, [10, (3, 2**62)])
    blocks = cistern.Pool(fit="fixed:8000")
    with pytest.raises(ValueError, match="8008"):
        cistern.with_arrays(fail, blocks, 1000, 1000, 1001)
    assert blocks.stats().lent_buffers.now == 0
    with pytest.raises(TypeError):
        cistern.with_arrays(3, pool)
    with pytest.raises(TypeError):
        cistern.with_arrays(fail, "pool")


def test_like_other_arrays(pool):
    field = Field(np.ones((3, 4), "f4"), [np.ones(5, "i8"), {"k": np.ones((2, 2), "c8")}])

    def work(a, like):
        assert a.shape == (7,) and a.dtype == np.uint8
        assert isinstance(like, Field) and like.u.dtype == np.float32
        assert like.v[0].shape == (5,) and like.v[1]["k"].dtype == np.complex64
        return True

    assert cistern.with_arrays_like(work, pool, np.zeros(7, "u1"), field)
    assert pool.stats().lent_buffers.now == 0


def test_index_ranges(pool):
    (a,) = pool.arrays(cistern.shape(range(-1, 3), 2))
    a.fill(0)
    a[-1, 0] = 5
    a[2] = 7
    assert a[-1, 0] == 5 and a.array[0, 0] == 5 and a.array[3].tolist() == [7, 7]
    assert a[0:2].shape == (2, 2) and a.shape == (4, 2) and "range(-1, 3)" in repr(a)
    for outside in (3, -2, (0, 2), (0, 0, 0)):
        with pytest.raises(IndexError):
            a[outside]
    (empty,) = pool.arrays(cistern.shape(range(4, 4)))
    assert len(empty) == 0
    with pytest.raises(ValueError):
        pool.arrays(cistern.shape(range(0, 10, 2)))


def test_arrays_unpack(pool):
    u, v, w = pool.arrays((3, 4), ((3, 4), "f4"), [2, 3], dtype="i4")
    assert u.dtype == np.int32 and v.dtype == np.float32 and [x.shape for x in w] == [(2,), (3,)]
