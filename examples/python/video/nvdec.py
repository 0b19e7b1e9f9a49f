"""Decodes clips on the video decoders of an NVIDIA GPU (NVDEC), with torchcodec.

torchcodec demuxes the file and decodes into the memory of the GPU. The GPU also resizes the frames. Then they are
copied to the memory of the host, because a batch consists of NumPy arrays.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .clips import Clip

if TYPE_CHECKING:
    from torch import Tensor


class NvdecError(ValueError):
    """NVDEC cannot be used here. The message says why."""


def require() -> None:
    """Checks that clips can be decoded on NVDEC.

    Raises:
        NvdecError: If PyTorch, an NVIDIA GPU or torchcodec is missing.
    """
    if importlib.util.find_spec("torch") is None:
        raise NvdecError("`--decoder nvdec` needs PyTorch: `python -m pip install torch`")
    import torch

    if torch.version.cuda is None:
        raise NvdecError(
            f"`--decoder nvdec` needs PyTorch with CUDA, and PyTorch {torch.__version__} has none: "
            "install it as described on https://pytorch.org"
        )
    if not torch.cuda.is_available():
        raise NvdecError(
            "`--decoder nvdec` needs an NVIDIA GPU, and PyTorch finds none: use `--decoder cpu`"
        )
    if importlib.util.find_spec("torchcodec") is None:
        raise NvdecError(
            "`--decoder nvdec` needs torchcodec with CUDA: "
            "https://github.com/meta-pytorch/torchcodec says how to install it"
        )


def decode(
    item: tuple[Clip, bytes], frames: int, size: int, device: str = "cuda"
) -> NDArray[np.uint8]:
    """Decodes `frames` frames, evenly spread over the subclip, as squares of `size` pixels: `(time, size, size, 3)`.

    Raises:
        ValueError: If no frame of the subclip can be decoded.
    """
    from torchcodec.decoders import VideoDecoder

    clip, data = item
    decoder = VideoDecoder(data, device=device, num_ffmpeg_threads=1)
    decoded = decoder.get_frames_played_in_range(clip.start, clip.end)
    # The first frame may begin before the subclip.
    inside = [k for k, time in enumerate(decoded.pts_seconds.tolist()) if time >= clip.start]
    if not inside:
        raise ValueError(f"no frame of {clip} could be decoded")
    places = np.linspace(0, len(inside) - 1, frames).astype(int)
    return _resize(decoded.data[[inside[place] for place in places]], size)


def _resize(frames: Tensor, size: int) -> NDArray[np.uint8]:
    from torch.nn.functional import interpolate

    scaled = interpolate(frames.float(), (size, size), mode="bilinear", antialias=True)
    pixels = scaled.round().clamp(0, 255).byte().permute(0, 2, 3, 1)
    array: NDArray[np.uint8] = pixels.contiguous().cpu().numpy()
    return array
