"""Arrays go to other libraries and come from them without a copy; memory returns when both let go."""

import numpy as np
import pytest

import cistern

DTYPES = ["b1", "i1", "u1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16"]


def lent(pool):
    return pool.stats().lent_buffers.now


def test_numpy_both_ways(pool):
    array = pool.full((3, 4), 2.0)
    shared = np.from_dlpack(array)
    assert np.shares_memory(shared, array)
    del array
    assert (shared == 2).all() and lent(pool) == 1
    del shared
    assert lent(pool) == 0
    other = np.arange(5.0)
    assert np.shares_memory(cistern.from_dlpack(other), other)
    copy = cistern.from_dlpack(other, pool)
    assert cistern.is_pooled(copy) and copy.tolist() == other.tolist()


def test_the_buffer_protocol_both_ways(pool):
    array = pool.zeros((3, 4), "f4")
    view = memoryview(array)
    del array
    assert (view.shape, view.format, view.nbytes) == ((3, 4), "f", 48) and lent(pool) == 1
    view[1, 2] = 5.0
    assert np.asarray(view)[1, 2] == 5
    view.release()
    del view
    assert lent(pool) == 0
    assert pool.copy(np.frombuffer(b"\1\2\3", "u1")).tolist() == [1, 2, 3]


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_shares_pooled_memory(pool, torch, dtype):
    array = pool.zeros((3, 4), dtype)

    tensor = torch.from_dlpack(array)

    assert tensor.shape == (3, 4) and tensor.data_ptr() == array.ctypes.data
    tensor[1, 2] = 1
    assert array[1, 2] == 1 and np.count_nonzero(array) == 1
    del array
    assert lent(pool) == 1 and tensor[1, 2] == 1
    del tensor
    assert lent(pool) == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_come_without_a_copy_or_into_a_pool(pool, torch, dtype):
    tensor = torch.from_dlpack(np.arange(12).reshape(3, 4).astype(dtype))

    shared = cistern.from_dlpack(tensor)
    copy = cistern.from_dlpack(tensor, pool)

    assert shared.ctypes.data == tensor.data_ptr() and shared.dtype == np.dtype(dtype)
    assert cistern.is_pooled(copy) and np.array_equal(copy, shared)
    tensor[0, 0] = 1
    assert shared[0, 0] == 1 and copy[0, 0] == 0
    address = shared.ctypes.data
    del tensor
    assert shared[0, 1] == 1 and shared.ctypes.data == address


def test_tensors_that_are_not_contiguous(pool, torch):
    tensor = torch.arange(12.0).reshape(3, 4).T[::2]
    assert np.array_equal(cistern.from_dlpack(tensor), tensor.numpy())
    copy = cistern.from_dlpack(tensor, pool)
    assert np.array_equal(copy, tensor.numpy()) and copy.flags.c_contiguous
    view = pool.full((4, 6), 3.0)[1:, ::2]
    assert torch.from_dlpack(view).tolist() == [[3.0] * 3] * 3


def test_what_torch_makes_from_numpy_under_the_handler(pool, torch):
    with cistern.numpy_pool(pool):
        tensor = torch.from_numpy(np.ones(100_000))
    assert lent(pool) == 1 and float((tensor * 2).sum()) == 200_000
    result = cistern.from_dlpack(tensor)
    del tensor
    assert lent(pool) == 1 and result.sum() == 100_000
    del result
    assert lent(pool) == 0


def test_a_tensor_that_torch_keeps_to_itself_is_refused_by_torch(torch):
    with pytest.raises((RuntimeError, BufferError), match="grad"):
        cistern.from_dlpack(torch.ones(3, requires_grad=True))


def test_what_is_no_array_is_refused():
    with pytest.raises(TypeError, match="'list'"):
        cistern.from_dlpack([1, 2, 3])
    with pytest.raises(TypeError, match="'int': 3"):
        cistern.from_dlpack(np.ones(3), pool=3)
