"""Numba on Cistern: `numba.cuda` arrays from the process's pool.

    import cistern.numba
    cistern.numba.enable()          # before Numba first uses the device

or, without touching the program, NUMBA_CUDA_MEMORY_MANAGER=cistern.numba in the environment.
"""

from __future__ import annotations

import ctypes
from typing import Any

from numba import cuda as numba_cuda  # type: ignore

from . import _core, cuda

__all__ = ["CisternManager", "enable"]


class CisternManager(numba_cuda.HostOnlyCUDAMemoryManager):
    """Numba's external memory manager interface, version 1. Device memory is Cistern's; Numba manages
    the host's as ever."""

    @property
    def interface_version(self) -> int:
        return 1

    def initialize(self) -> None:
        super().initialize()
        cuda._require()

    def memalloc(self, size: int) -> Any:
        device = self.context.device.id
        loan = _core.lend("device", device, size or 1, 0)
        # The pointer may be an object of the driver's bindings, or a number.
        pointer: Any = ctypes.c_uint64(loan.ptr)
        try:
            from cuda.bindings import driver  # type: ignore
            pointer = driver.CUdeviceptr(loan.ptr)
        except ImportError:
            pass
        return numba_cuda.MemoryPointer(self.context, pointer, size, finalizer=loan.release)

    def get_memory_info(self) -> Any:
        raise NotImplementedError("a pool serves Numba: cistern.cuda.stats() says what it holds")

    def reset(self) -> None:
        super().reset()
        cuda.trim(self.context.device.id)

    def get_ipc_handle(self, memory: Any) -> Any:
        raise NotImplementedError("Numba cannot share Cistern's memory with other processes")


def enable() -> None:
    """Has Numba allocate device memory from Cistern."""
    numba_cuda.set_memory_manager(CisternManager)


_numba_memory_manager = CisternManager
