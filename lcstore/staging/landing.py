"""From GPUs to this machine's memory, beside what the GPUs compute.

Tensors are copied in a stream of their own. It begins when the current stream has done what it was given
until now, and what that is given later waits, on the GPU, until they are read: the host waits for neither.
Tensors that are copied to spare memory of the GPU first are read soonest: the way to the host takes longer.

Whoever works on other streams has them wait for the current one, before and after, as torch demands of all
that shares tensors between streams.
"""

from __future__ import annotations

import logging
import sys
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import numpy as np

from lcstore.arrays import Array
from lcstore.state.frameworks import HostArray
from lcstore.state.names import Name

_log: Final = logging.getLogger("lcstore")

#: Tensors begin at multiples of so many bytes.
_ALIGNED: Final = 256
_PAGE: Final = 1 << 16


class Landing:
    """Memory that tensors of torch on GPUs are copied to, kept from one save to the next.

    Parameters
    ----------
    spare
        Bytes of each GPU that tensors may be copied to first.
    """

    def __init__(self, spare: int = 0) -> None:
        self._spare = spare
        self._shape: dict[Name, tuple[Any, ...]] = {}
        self._strips: list[_Strip] = []

    def begin(self, tensors: Mapping[Name, HostArray]) -> dict[Name, Array]:
        """Begin to copy tensors on GPUs; return where their elements are, in C order, after `wait`."""
        self.wait()
        shape = {
            name: (host.on_gpu.device, host.array.dtype, host.array.shape) for name, host in tensors.items()
        }
        if shape != self._shape:
            self._strips, self._shape = [], {}
            devices = dict.fromkeys(host.on_gpu.device for host in tensors.values())
            self._strips = [
                _Strip(
                    device,
                    {n: host for n, host in tensors.items() if host.on_gpu.device == device},
                    self._spare,
                )
                for device in devices
            ]
            self._shape = shape
        for strip in self._strips:
            strip.begin(tensors)
        return {name: array for strip in self._strips for name, array in strip.arrays.items()}

    def wait(self) -> None:
        """Wait until all that was begun is there."""
        for strip in self._strips:
            strip.wait()


class _Strip:
    """What lands from one GPU: tensor after tensor, the smallest first.

    As many of those as there is spare memory for go through that, and on from there as one: each copy to the
    host takes a while to begin.
    """

    def __init__(self, device: Any, tensors: Mapping[Name, HostArray], spare: int) -> None:
        torch: Any = sys.modules["torch"]
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._landed: Any = None
        #: Tensors that are on their way, so that their memory is not used for something else.
        self._alive: list[Any] = []
        names = sorted(tensors, key=lambda name: tensors[name].array.nbytes)
        starts = _starts([tensors[name].array.nbytes for name in names])
        self.host = _pinned(device, starts[-1])
        self._host = torch.from_numpy(self.host)
        some = int(np.searchsorted(starts, spare, side="right")) - 1
        self._spare = _spared(device, starts[some])
        #: Where tensors are copied to: memory of the GPU, or of the host at once.
        self._near: dict[Name, Any] = {}
        self._far: dict[Name, Any] = {}
        self.arrays: dict[Name, Array] = {}
        for i, name in enumerate(names):
            part, tensor = slice(starts[i], starts[i] + tensors[name].array.nbytes), tensors[name].on_gpu
            self.arrays[name] = self.host[part].view(tensors[name].array.dtype)
            if i < some and self._spare is not None:
                self._near[name] = self._spare[part].view(tensor.dtype).reshape(tensor.shape)
            else:
                self._far[name] = self._host[part].view(tensor.dtype).reshape(tensor.shape)

    def begin(self, tensors: Mapping[Name, HostArray]) -> None:
        """Begin to copy."""
        torch: Any = sys.modules["torch"]
        self._alive = [tensors[name].on_gpu for name in self.arrays]
        with torch.cuda.device(self._device):
            current = torch.cuda.current_stream()
            self._stream.wait_stream(current)
            with torch.cuda.stream(self._stream):
                for name, to in self._far.items():
                    to.copy_(tensors[name].on_gpu, non_blocking=True)
            far = self._stream.record_event()
            if self._near:
                torch._foreach_copy_([*self._near.values()], [tensors[name].on_gpu for name in self._near])
                self._stream.wait_stream(current)
                with torch.cuda.stream(self._stream):
                    self._host[: self._spare.numel()].copy_(self._spare, non_blocking=True)
            self._landed = self._stream.record_event()
            current.wait_event(far)

    def wait(self) -> None:
        """Wait for what was begun."""
        if self._landed is not None:
            self._landed.synchronize()
            self._landed, self._alive = None, []


def _starts(sizes: list[int]) -> list[int]:
    """Return where tensors of some bytes begin, one after another, and where the last one ends."""
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + -(-size // _ALIGNED) * _ALIGNED)
    return starts


def _pinned(device: Any, nbytes: int) -> Array:
    """Return memory of some bytes, pinned where the system allows that, in pages of its own.

    Not by torch, which rounds up to a power of two.
    """
    torch: Any = sys.modules["torch"]
    size = -(-nbytes // _PAGE) * _PAGE
    memory = np.empty(size + _PAGE, np.uint8)
    start = -memory.ctypes.data % _PAGE
    runtime, address = torch.cuda.cudart(), memory.ctypes.data + start
    if size and int(runtime.cudaHostRegister(address, size, 0)):
        _log.warning("%d bytes of memory cannot be pinned: saves of tensors on GPUs take longer", size)
        with suppress(RuntimeError):  # CUDA tells of the failure once more, at whatever runs next
            torch.zeros(1, device=device).add_(1)
    elif size:
        weakref.finalize(memory, runtime.cudaHostUnregister, address).atexit = False
    return memory[start : start + nbytes]


def _spared(device: Any, nbytes: int) -> Any:
    """Return memory of a GPU; None if it has not so much left."""
    torch: Any = sys.modules["torch"]
    try:
        return torch.empty(nbytes, dtype=torch.uint8, device=device) if nbytes else None
    except torch.OutOfMemoryError:
        _log.warning(
            "%s has no %d bytes to spare: it waits while states are copied to the host", device, nbytes
        )
        return None
