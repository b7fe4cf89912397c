"""CUDA memory from Python: arrays, limits, sharing, unified buffers. Needs a device."""

import ctypes
import gc
import multiprocessing
import os
import pickle
import re
from copy import copy as copy_of

import numpy
import pytest

import cistern
import cistern.cuda
from cuda_machine import needs_device, run


@pytest.mark.skipif(cistern.cuda.available(), reason="there is a CUDA device")
def test_without_a_device_the_error_says_why():
    with pytest.raises(cistern.Unavailable, match="CUDA"):
        cistern.cuda.empty(10)


def test_bad_shapes_and_dtypes_are_named():
    with pytest.raises(cistern.InvalidArgument, match="-1"):
        cistern.cuda.empty((2, -1))
    with pytest.raises(TypeError, match="object"):
        cistern.cuda.empty(2, object)
    for shape in (2.5, (3.9, 4), "34", (3, "4")):
        with pytest.raises(TypeError):
            cistern.cuda.empty(shape)
    with pytest.raises(cistern.InvalidArgument, match=str(2**40)):
        cistern.cuda.empty((2**40, 2**40))


@pytest.mark.parametrize("wrong", [-1, 2**64, 2.5, "x", None])
@pytest.mark.parametrize(
    "use",
    [
        lambda wrong: cistern.cuda.empty(3, stream=wrong),
        lambda wrong: cistern.cuda.empty(3, device=wrong),
        lambda wrong: cistern.cuda.stats(wrong),
        lambda wrong: cistern.cuda.explain(wrong),
        lambda wrong: cistern.cuda.trim(keep_idle_bytes=wrong),
    ],
)
def test_bad_numbers_are_named(use, wrong):
    with pytest.raises((cistern.InvalidArgument, TypeError), match=re.escape(repr(wrong).strip("'"))):
        use(wrong)


def test_a_device_number_has_a_limit_and_a_memory_is_text():
    with pytest.raises(cistern.InvalidArgument, match=str(2**31)):
        cistern.cuda.empty(3, device=2**31)
    with pytest.raises(TypeError, match="memory"):
        cistern.cuda.stats(memory=3)


@needs_device
def test_arrays_have_what_others_need():
    array = cistern.cuda.empty((3, 4), "float32")
    interface = array.__cuda_array_interface__
    assert interface["shape"] == (3, 4) and interface["typestr"] == "<f4"
    assert interface["data"] == (array.ptr, False)
    assert array.nbytes == 48 and array.ptr % 256 == 0
    assert array.__dlpack_device__() == (2, 0)


@needs_device
@pytest.mark.parametrize("memory", ["pinned", "managed"])
def test_numpy_arrays_in_memory_that_devices_reach(memory):
    pool = cistern.Pool(memory=memory, name=memory)
    array = pool.zeros((300, 70), "float32")
    array += 1
    assert array.sum() == 21000
    del array
    again = pool.empty((300, 70), "float32")
    assert again.flags.c_contiguous and pool.stats().hits >= 1


@needs_device
@pytest.mark.parametrize("memory", ["pinned", "managed"])
def test_pools_belong_to_a_device(memory):
    assert cistern.Pool(memory).memory == cistern.Pool(memory, device=0).memory
    with pytest.raises(cistern.InvalidArgument, match="no such CUDA device: 99"):
        cistern.Pool(memory, device=99)
    try:
        pool = cistern.Pool(memory, device=1)
    except cistern.InvalidArgument as error:
        assert "no such CUDA device: 1" in str(error)
        pytest.skip("one device only")
    assert pool.memory != cistern.Pool(memory).memory
    assert pickle.loads(pickle.dumps(pool)).memory == pool.memory
    assert pool.zeros(1000).sum() == 0


@needs_device
def test_limits_of_the_processes_pool_can_be_set():
    try:
        cistern.cuda.set_limits(max_bytes=16 << 20)  # of a device that has more
        cistern.cuda.set_limits(max_bytes=8 << 20)
        cistern.cuda.set_limits(max_bytes=4 << 20, max_idle_bytes=0)
        array = cistern.cuda.empty(1 << 20, "uint8")
        with pytest.raises(cistern.OutOfMemory, match="max_bytes"):
            cistern.cuda.empty(4 << 20, "uint8")
        del array
        assert cistern.cuda.stats()["idle_bytes"]["now"] == 0
        with pytest.raises(cistern.InvalidArgument, match="-1"):
            cistern.cuda.set_limits(max_bytes=-1)
        with pytest.raises(TypeError, match="max_idle_age"):
            cistern.cuda.set_limits(max_idle_age="x")
    finally:
        cistern.cuda.set_limits(max_bytes=float("inf"), max_idle_bytes=float("inf"))
    assert cistern.cuda.empty(8 << 20, "uint8").nbytes == 8 << 20


@needs_device
def test_dlpack_refuses_what_it_cannot_say():
    array = cistern.cuda.empty(3, "float32")
    for options in ({"dl_device": (1, 0)}, {"dl_device": (2, 1)}, {"copy": True}):
        with pytest.raises(BufferError):
            array.__dlpack__(**options)
    with pytest.raises(BufferError, match=">f4"):
        cistern.cuda.empty(3, ">f4").__dlpack__()
    with pytest.raises(TypeError):
        array.__dlpack__(nonsense=1)
    assert array.__dlpack__(dl_device=(2, 0), copy=False, max_version=(1, 0), stream=-1) is not None


@needs_device
def test_a_device_array_that_is_pickled_says_what_to_do():
    array = cistern.cuda.empty(3)
    with pytest.raises(TypeError, match="cistern.cuda.share"):
        pickle.dumps(array)
    assert copy_of(array).ptr == array.ptr


@needs_device
def test_a_forked_process_says_that_it_cannot_use_cuda():
    run("""
        import os
        import cistern, cistern.cuda
        array = cistern.cuda.empty(3)
        child = os.fork()
        if child == 0:
            said = []
            for use in (lambda: cistern.Pool(memory="pinned"), lambda: cistern.cuda.empty(3), cistern.cuda._require):
                try:
                    use()
                except cistern.Unavailable as error:
                    said.append("forked" in str(error))
            os._exit(0 if said == [True] * 3 and not cistern.cuda.available() else 1)
        assert os.waitpid(child, 0)[1] == 0
    """)


@needs_device
def test_bytes_return_with_the_last_user():
    torch = pytest.importorskip("torch")
    before = cistern.cuda.stats()["lent_buffers"]["now"]
    tensor = torch.from_dlpack(cistern.cuda.empty((5, 7), "float32"))
    tensor.fill_(3)
    assert tensor.shape == (5, 7) and tensor.is_cuda
    assert float(tensor.sum()) == 105
    assert cistern.cuda.stats()["lent_buffers"]["now"] == before + 1
    del tensor
    assert cistern.cuda.stats()["lent_buffers"]["now"] == before


def copy(to, source, nbytes):
    """Copies between host and device with the driver itself, and waits for it."""
    driver = ctypes.CDLL(os.environ.get("CISTERN_CUDA_DRIVER", "libcuda.so.1"))
    context = ctypes.c_void_p()
    assert driver.cuInit(0) == 0
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxPushCurrent_v2(context) == 0
    address, size = ctypes.c_uint64, ctypes.c_size_t
    assert driver.cuMemcpy(address(to), address(source), size(nbytes)) == 0
    assert driver.cuCtxSynchronize() == 0
    assert driver.cuCtxPopCurrent_v2(ctypes.byref(context)) == 0


def read(array):
    host = numpy.empty(array.shape, array.dtype)
    copy(host.ctypes.data, array.ptr, array.nbytes)
    return host


def write(array, host):
    copy(array.ptr, host.ctypes.data, array.nbytes)


def add_one(shared, answers):
    array = cistern.cuda.open(shared)
    interface = array.__cuda_array_interface__
    assert interface["shape"] == array.shape and interface["data"] == (array.ptr, False)
    write(array, read(array) + 1)
    answers.put((array.shape, str(array.dtype), array.device))


def add_one_through(queue, answers):
    add_one(queue.get(timeout=60), answers)


def lend(queue, done):
    array = cistern.cuda.empty(300_000, "int32")
    write(array, numpy.arange(300_000, dtype="int32"))
    queue.put(cistern.cuda.share(array))
    done.wait(60)  # the descriptors travel when they are asked for


@needs_device
@pytest.mark.parametrize("through", ["argument", "queue"])
def test_another_process_uses_the_same_bytes(through):
    context = multiprocessing.get_context("spawn")
    array = cistern.cuda.empty((1000, 777), "float32")
    numbers = numpy.arange(777_000, dtype="float32").reshape(1000, 777)
    write(array, numbers)
    shared = cistern.cuda.share(array)
    answers = context.Queue()
    if through == "argument":
        child = context.Process(target=add_one, args=(shared, answers))
        child.start()
    else:
        queue = context.Queue()
        child = context.Process(target=add_one_through, args=(queue, answers))
        child.start()
        queue.put(shared)
    assert answers.get(timeout=60) == ((1000, 777), "float32", 0)
    child.join(60)
    assert child.exitcode == 0
    assert (read(array) == numbers + 1).all()


@needs_device
def test_bytes_outlive_the_process_that_lent_them():
    context = multiprocessing.get_context("spawn")
    queue, done = context.Queue(), context.Event()
    child = context.Process(target=lend, args=(queue, done))
    child.start()
    shared = queue.get(timeout=60)
    done.set()
    child.join(60)
    assert child.exitcode == 0
    array = cistern.cuda.open(shared)
    del shared
    assert (read(array) == numpy.arange(300_000)).all()


@needs_device
def test_what_is_shared_stays_lent_and_what_is_opened_can_be_used():
    before = cistern.cuda.stats()["lent_buffers"]["now"]
    files = len(os.listdir("/proc/self/fd"))
    array = cistern.cuda.empty(1000, "int64")
    write(array, numpy.arange(1000))
    shared = cistern.cuda.share(array)
    del array
    assert cistern.cuda.stats()["lent_buffers"]["now"] == before + 1
    opened = cistern.cuda.open(shared)
    opened.also_used_on(0)
    assert opened.nbytes == 8000 and opened.__dlpack_device__() == (2, 0)
    capsule = opened.__dlpack__()
    with pytest.raises(TypeError, match="DeviceArray"):
        cistern.cuda.share(opened)
    assert (read(opened) == numpy.arange(1000)).all()
    del opened, capsule, shared
    gc.collect()
    assert cistern.cuda.stats()["lent_buffers"]["now"] == before
    assert len(os.listdir("/proc/self/fd")) == files


@needs_device
def test_what_cannot_be_shared_or_opened_is_named():
    with pytest.raises(TypeError, match="array"):
        cistern.cuda.share(numpy.zeros(3))
    with pytest.raises(TypeError, match="3"):
        cistern.cuda.open(3)
    shared = cistern.cuda.share(cistern.cuda.empty(10))._shared
    none = cistern.cuda._core.Shared([], shared.offset, shared.nbytes, shared.uuid)
    with pytest.raises(cistern.InvalidArgument, match="no bytes"):
        cistern.cuda._core.Opened(none)
    with pytest.raises(cistern.InvalidArgument, match="UUID"):
        cistern.cuda._core.Shared([], 0, 0, b"short")
    parts = [(os.dup(file), nbytes) for file, nbytes in shared.parts]
    elsewhere = cistern.cuda._core.Shared(parts, shared.offset, shared.nbytes, bytes(16))
    with pytest.raises(cistern.Unavailable, match="GPU-00000000"):
        cistern.cuda._core.Opened(elsewhere)


def on_device(buffer):
    """What the device side of a unified buffer holds."""
    return read(buffer._device_bytes)


@needs_device
@pytest.mark.parametrize("pinned", [False, True])
def test_unified_buffers_have_two_sides(pinned):
    State = cistern.BufferState
    assert cistern.cuda_available()
    buffer = cistern.UnifiedBuffer((5, 40), "float32", pinned=pinned).allocate()
    assert buffer.state is State.SYNCHRONIZED and buffer.device is not buffer.host
    assert buffer.device.shape == (5, 40)

    buffer[2, 3] = 7
    assert buffer.state is State.HOST_DIRTY
    buffer.fill(1.5)
    buffer.sync_to_device()
    assert buffer.state is State.SYNCHRONIZED and (on_device(buffer) == 1.5).all()

    write(buffer._device_bytes, numpy.full((5, 40), 4, "float32"))
    assert (buffer.host == 1.5).all(), "nobody said that the device side was written"
    buffer.mark_device_dirty()
    assert (buffer.host == 4).all() and buffer.state is State.SYNCHRONIZED

    buffer.host_writable()[...] = 9
    assert buffer.device is not None and (on_device(buffer) == 9).all()
    assert (buffer.to_numpy() == 9).all()


@needs_device
def test_unified_buffers_get_their_sides_when_they_are_used():
    State = cistern.BufferState
    buffer = cistern.UnifiedBuffer(100, "int64").allocate(device=False)
    assert buffer.state is State.HOST_ONLY and buffer._device_data is None
    buffer.host[...] = numpy.arange(100)
    assert buffer.device is not None and buffer.state is State.SYNCHRONIZED
    assert (on_device(buffer) == numpy.arange(100)).all()

    buffer = cistern.UnifiedBuffer(100, "int64").allocate(host=False)
    assert buffer.state is State.DEVICE_ONLY and buffer.is_allocated
    write(buffer._device_bytes, numpy.arange(100))
    assert buffer.host[99] == 99 and buffer.state is State.SYNCHRONIZED
    buffer.free()
    assert not buffer.is_allocated
    with pytest.raises(cistern.BufferNotAllocatedError):
        buffer.device
    buffer = cistern.UnifiedBuffer(100, "int64").allocate(host=False)
    buffer.copy_from(numpy.full(100, 3))
    assert buffer.state is State.HOST_DIRTY and buffer.device is not None
    assert (on_device(buffer) == 3).all()
    empty = cistern.UnifiedBuffer((3, 0)).allocate()
    empty.mark_host_dirty()
    assert empty.device is not None and empty.host.size == 0


@needs_device
def test_memory_pools_lend_both_sides():
    pool = cistern.MemoryPool()
    before = cistern.cuda.stats()["lent_buffers"]["now"]
    first = pool.acquire((30, 30), pinned=True)
    assert first.state is cistern.BufferState.SYNCHRONIZED
    assert pool.get_pinned_stats().used_bytes >= 3600
    first[0] = 1
    pool.release(first)
    assert pool.acquire((30, 30), pinned=True) is first
    assert first.state is cistern.BufferState.SYNCHRONIZED
    assert (on_device(first)[0] == 1).all() and (first.host[0] == 1).all(), "both hold what was written"
    pool.release(first)
    pool.clear()
    del first
    gc.collect()
    assert cistern.cuda.stats()["lent_buffers"]["now"] == before


@needs_device
def test_the_device_side_is_cupys_where_cupy_is():
    cupy = pytest.importorskip("cupy")
    buffer = cistern.UnifiedBuffer((4, 5), "float32").fill(2)
    on_device = buffer.device
    assert isinstance(on_device, cupy.ndarray)
    on_device *= 3
    buffer.mark_device_dirty()
    assert (buffer.host == 6).all()


@needs_device
def test_an_array_taken_on_another_stream_comes_after_its_last_borrower():
    torch = pytest.importorskip("torch")
    side = torch.cuda.Stream()
    for _ in range(10):
        last = torch.from_dlpack(cistern.cuda.empty(1 << 20, "float32"))
        torch.cuda._sleep(5_000_000)
        last.fill_(1)  # on the default stream, still to come
        del last
        with torch.cuda.stream(side):
            taken = torch.from_dlpack(cistern.cuda.empty(1 << 20, "float32"))
            taken.fill_(2)
        torch.cuda.synchronize()
        assert (taken == 2).all()


def test_numpy_dtypes_have_a_code():
    for name in ("float16", "float32", "float64", "int8", "uint64", "complex64", "bool"):
        assert numpy.dtype(name).kind in cistern.cuda._CODES
