"""The CUDA job: what is written to each GPU comes back, and what CUDA refuses is said.

The library is played: that a GPU computes, only `make gpu-check` on one shows.
"""

import ctypes
from typing import Any

import pytest

from muster.gpu_check import cuda_job


class Library:
    """libcuda.so.1 with GPUs whose memory is the machine's."""

    def __init__(self, gpus: int = 1, fails: str = "", flips: int | None = None) -> None:
        self.gpus, self.fails, self.flips = gpus, fails, flips
        self.memory: Any = None
        self.held: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: 999 if name == self.fails else self.answer(name, arguments)

    def answer(self, name: str, arguments: tuple[Any, ...]) -> int:  # noqa: PLR0912 - a table
        match name, arguments:
            case "cuDeviceGetCount", (count,):
                count._obj.value = self.gpus
            case "cuDeviceGetName", (text, _, _):
                text.value = b"NVIDIA H200"
            case "cuDeviceTotalMem_v2", (size, _):
                size._obj.value = 143771 << 20
            case "cuGetErrorString", (_, text):
                text._obj.value = b"unknown error"
            case "cuDevicePrimaryCtxRetain", _:
                self.held.append("context")
            case "cuDevicePrimaryCtxRelease_v2", _:
                self.held.remove("context")
            case "cuMemAlloc_v2", (address, size):
                self.memory = ctypes.create_string_buffer(size.value)
                address._obj.value = ctypes.addressof(self.memory)
                self.held.append("memory")
            case "cuMemFree_v2", _:
                self.held.remove("memory")
            case "cuMemsetD32_v2", (address, word, count):
                text = word.value.to_bytes(4, "little") * count.value
                ctypes.memmove(address.value, text, len(text))
            case "cuMemcpyDtoH_v2", (words, address, size):
                if self.flips is not None:
                    self.memory[self.flips] = bytes([self.memory[self.flips][0] ^ 1])
                ctypes.memmove(words, address.value, size.value)
            case (("cuInit" | "cuDeviceGet" | "cuCtxSetCurrent"), _):
                pass
            case _:
                raise AssertionError(name)
        return 0


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(cuda_job, "WORDS", 1 << 18)


def test_each_gpu_gives_back_what_was_written():
    library = Library(gpus=2)
    said = "NVIDIA H200, 143771 MiB: 1 MiB written and read back"
    assert list(cuda_job.job(lambda _: library)) == [f"GPU 0, {said}", f"GPU 1, {said}"]
    assert library.held == []


@pytest.mark.parametrize("at", [0, (1 << 19) - 1, 1 << 19, (1 << 20) - 1])
def test_one_wrong_bit_is_seen(at):
    library = Library(flips=at)
    with pytest.raises(cuda_job.CudaError, match="GPU 0 returns other words"):
        list(cuda_job.job(lambda _: library))
    assert library.held == []


@pytest.mark.parametrize(
    "name", ["cuInit", "cuDeviceGetCount", "cuCtxSetCurrent", "cuMemAlloc_v2", "cuMemcpyDtoH_v2"]
)
def test_what_cuda_refuses_is_said_and_nothing_is_kept(name):
    library = Library(fails=name)
    with pytest.raises(cuda_job.CudaError, match=f"{name} failed with 999: unknown error"):
        list(cuda_job.job(lambda _: library))
    assert library.held == []


def test_no_gpu_and_no_driver_are_told_apart():
    with pytest.raises(cuda_job.CudaError, match="CUDA finds no GPU"):
        list(cuda_job.job(lambda _: Library(gpus=0)))

    def absent(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    with pytest.raises(cuda_job.CudaError, match=r"libcuda\.so\.1 can't be loaded"):
        list(cuda_job.job(absent))


def test_the_program_ends_with_what_happened(monkeypatch, capsys):
    for gpus, status, said in ((1, 0, "read back\n"), (0, 1, "CUDA finds no GPU\n")):
        monkeypatch.setattr(cuda_job.job, "__defaults__", (lambda _, n=gpus: Library(gpus=n),))
        assert cuda_job.main() == status
        assert capsys.readouterr().out.endswith(said)
