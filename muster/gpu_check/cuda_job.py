"""A CUDA job that needs only the driver: no toolkit, no compiler, no package.

Source: "CUDA Driver API" (docs.nvidia.com/cuda/cuda-driver-api), whose library comes with the
driver. Its header maps the plain names to those with _v2.
"""

import ctypes
import sys
from collections.abc import Callable, Iterator
from typing import Any

LIBRARY = "libcuda.so.1"
WORDS = 1 << 24
"""Words of 32 bits that go to each GPU and come back: 64 MiB."""
PATTERN = 0x4D555354


class CudaError(Exception):
    """What CUDA refused, as a sentence."""


class Cuda:
    """The driver's library, with errors as exceptions."""

    def __init__(self, library: Any) -> None:
        """Take the loaded library."""
        self._library = library

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the library.

        Raises:
            CudaError: it did not succeed.

        """
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(code, ctypes.byref(text))
            said = text.value.decode() if text.value else "an error without a name"
            raise CudaError(f"{name} failed with {code}: {said}")


def job(load: Callable[[str], Any] = ctypes.CDLL) -> Iterator[str]:
    """Write to the memory of each GPU and read it back; yield a line on each.

    Raises:
        CudaError: there is no driver, no GPU, or one of them computes nothing.

    """
    try:
        cuda = Cuda(load(LIBRARY))
    except OSError as error:
        raise CudaError(f"{LIBRARY} can't be loaded: {error}") from error
    cuda.call("cuInit", 0)
    count = ctypes.c_int()
    cuda.call("cuDeviceGetCount", ctypes.byref(count))
    if count.value == 0:
        raise CudaError("CUDA finds no GPU")
    for number in range(count.value):
        yield _on(cuda, number)


def _on(cuda: Cuda, number: int) -> str:
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_size_t()
    name = ctypes.create_string_buffer(128)
    cuda.call("cuDeviceGet", ctypes.byref(device), number)
    cuda.call("cuDeviceGetName", name, len(name), device)
    cuda.call("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
    cuda.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    try:
        cuda.call("cuCtxSetCurrent", context)
        _write_and_read(cuda, number)
    finally:
        cuda.call("cuDevicePrimaryCtxRelease_v2", device)
    return (
        f"GPU {number}, {name.value.decode()}, {memory.value >> 20} MiB: {WORDS >> 18} MiB "
        "written and read back"
    )


def _write_and_read(cuda: Cuda, number: int) -> None:
    words = (ctypes.c_uint32 * WORDS)()
    address = ctypes.c_uint64()
    size = ctypes.c_size_t(ctypes.sizeof(words))
    cuda.call("cuMemAlloc_v2", ctypes.byref(address), size)
    try:
        # Each half is filled by its own program on the GPU, so that not all words are equal.
        half = WORDS // 2
        middle = ctypes.c_uint64(address.value + half * 4)
        cuda.call("cuMemsetD32_v2", address, ctypes.c_uint32(PATTERN), ctypes.c_size_t(half))
        cuda.call("cuMemsetD32_v2", middle, ctypes.c_uint32(~PATTERN), ctypes.c_size_t(half))
        cuda.call("cuMemcpyDtoH_v2", words, address, size)
    finally:
        cuda.call("cuMemFree_v2", address)
    expected = (PATTERN.to_bytes(4, "little") * half) + (
        (~PATTERN & 0xFFFFFFFF).to_bytes(4, "little") * half
    )
    if bytes(words) != expected:
        raise CudaError(f"GPU {number} returns other words than were written to it")


def main() -> int:
    """Run the job and print its lines; return the exit status."""
    try:
        for line in job():
            print(line, flush=True)
    except CudaError as error:
        print(error, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
