"""One reader for each library. A reader opens a clip and returns the requested frames.

Readers open the file again for each clip, as a loader of random clips does. They decode with one thread, so that
only the number of workers determines how many cores are used.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import av
import numpy as np
from av.video.reformatter import VideoReformatter

from .formats import FORMATS, Clip, Frames, Kind, decode_jpeg, read_jpegs, read_raw, runs
from .wording import format_count


@dataclass(frozen=True)
class Request:
    """The requested frames of a clip, and their size."""

    clip: Clip
    path: Path
    kind: Kind
    indices: tuple[int, ...]
    """Frame numbers, in ascending order."""
    size: int = 0
    """Width and height of the returned frames. 0 keeps the size in the file."""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of the result."""
        height, width = (self.size or self.clip.height), (self.size or self.clip.width)
        return len(self.indices), height, width, 3


class Reader(Protocol):
    """Reads clips with one library. Several threads may call `read` at the same time."""

    def read(self, request: Request) -> Frames:
        """The frames as `(frames, height, width, 3)` in RGB. Exceptions of the library are not caught."""


class NoFrameError(ValueError):
    """The decoder returned another number of frames than requested."""


def _check_count(frames: Sized, request: Request) -> None:
    if len(frames) != len(request.indices):
        asked = format_count(len(request.indices), "frame")
        raise NoFrameError(f"{len(frames)} of {asked} of {request.clip.name} were decoded")


class PyAV:
    """Reads the packets from the keyframe before the first frame on, and decodes only those that are needed."""

    def read(self, request: Request) -> Frames:
        if request.kind != "video":
            images = map(decode_jpeg, read_jpegs(request.path, request.kind, request.indices))
            return self._convert(images, request)
        with av.open(str(request.path)) as container:
            stream = container.streams.video[0]
            stream.codec_context.thread_count = 1
            scale = 1 / (request.clip.rate * float(stream.time_base or 1))
            start = stream.start_time or 0
            wanted = [start + round(index * scale) for index in request.indices]
            container.seek(wanted[0], stream=stream)
            packets = []
            for packet in container.demux(stream):
                # A packet's decoding time never exceeds its presentation time, so later packets are not needed.
                if packet.dts is None or packet.dts > wanted[-1] + scale / 2:
                    break
                packets.append(packet)
            found: dict[int, av.VideoFrame] = {}
            for begin, end, here in _parts(packets, wanted, scale / 2):
                self._decode(stream.codec_context, packets[begin:end], here, scale / 2, found)
            frames = [found[time] for time in wanted if time in found]
            return self._convert(frames, request)

    def _decode(
        self, context: Any, packets: list[Any], wanted: list[int], slack: float, found: Any
    ) -> None:
        """Adds the frames at the times `wanted` to `found`."""
        missing = set(wanted)
        for packet in [*packets, None]:
            for frame in context.decode(packet):
                for time in [time for time in missing if abs(frame.pts - time) < slack]:
                    found[time] = frame
                    missing.discard(time)
            if not missing:
                break
        context.flush_buffers()

    def _convert(self, frames: Any, request: Request) -> Frames:
        scaler, size = VideoReformatter(), request.size or None
        pixels = [
            scaler.reformat(frame, size, size, "rgb24", interpolation="BILINEAR").to_ndarray()
            for frame in frames
        ]
        _check_count(pixels, request)
        return np.stack(pixels)


def _parts(packets: list[Any], wanted: list[int], slack: float) -> list[tuple[int, int, list[int]]]:
    """Runs of packets that begin at a keyframe, and the wanted times in each.

    Packets between two runs are not decoded.
    """
    keys = [place for place, packet in enumerate(packets) if packet.is_keyframe]
    if not keys:
        return []
    groups: dict[int, list[int]] = {}
    for time in wanted:
        # In an open group of pictures, a frame that is stored after a keyframe may be shown before it. To decode
        # this frame, the keyframe before that one is needed. So presentation times are compared.
        before = [number for number, place in enumerate(keys) if packets[place].pts <= time + slack]
        groups.setdefault(before[-1] if before else 0, []).append(time)
    parts: list[tuple[int, int, list[int]]] = []
    last = -2
    for number, times in sorted(groups.items()):
        # One more group is included: its first packets may contain the last frames of this group.
        end = keys[number + 2] if number + 2 < len(keys) else len(packets)
        if number == last + 1:
            begin, _, earlier = parts.pop()
            parts.append((begin, end, earlier + times))
        else:
            parts.append((keys[number], end, times))
        last = number
    return parts


class OpenCV:
    """Uses `VideoCapture`. To skip frames, it sets `CAP_PROP_POS_FRAMES`."""

    def __init__(self) -> None:
        self._cv2: Any = importlib.import_module("cv2")
        self._cv2.setNumThreads(1)

    def read(self, request: Request) -> Frames:
        cv2 = self._cv2
        if request.kind != "video":
            images = [
                cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
                for data in read_jpegs(request.path, request.kind, request.indices)
            ]
        else:
            images = self._read_video(request)
        _check_count(images, request)
        if request.size:
            size = (request.size, request.size)
            images = [cv2.resize(image, size, interpolation=cv2.INTER_LINEAR) for image in images]
        return np.stack([cv2.cvtColor(image, cv2.COLOR_BGR2RGB) for image in images])

    def _read_video(self, request: Request) -> list[Any]:
        cv2 = self._cv2
        capture = cv2.VideoCapture(str(request.path), cv2.CAP_FFMPEG, [cv2.CAP_PROP_N_THREADS, 1])
        try:
            if not capture.isOpened():
                raise ValueError(f"OpenCV cannot open `{request.path}`")
            images, position = [], 0
            for index in request.indices:
                if index != position:
                    capture.set(cv2.CAP_PROP_POS_FRAMES, index)
                good, image = capture.read()
                if good:
                    images.append(image)
                position = index + 1
            return images
        finally:
            capture.release()


class Decord:
    """Uses `VideoReader.get_batch`."""

    def __init__(self) -> None:
        self._decord: Any = importlib.import_module("decord")
        self._decord.logging.set_level(self._decord.logging.ERROR)

    def read(self, request: Request) -> Frames:
        size = request.size or -1
        reader = self._decord.VideoReader(str(request.path), width=size, height=size, num_threads=1)
        frames: Frames = reader.get_batch(list(request.indices)).asnumpy()
        _check_count(frames, request)
        return frames


class TorchCodec:
    """Uses `VideoDecoder.get_frames_at`, on the CPU or with NVDEC (`device="cuda"`)."""

    def __init__(self, device: str = "cpu") -> None:
        self._decoders: Any = importlib.import_module("torchcodec.decoders")
        self._transforms: Any = importlib.import_module("torchcodec.transforms")
        self._device = device

    def read(self, request: Request) -> Frames:
        size = [request.size, request.size]
        decoder = self._decoders.VideoDecoder(
            str(request.path),
            dimension_order="NHWC",
            num_ffmpeg_threads=1,
            device=self._device,
            transforms=[self._transforms.Resize(size)] if request.size else None,
        )
        frames: Frames = decoder.get_frames_at(list(request.indices)).data.cpu().numpy()
        _check_count(frames, request)
        return frames


class Spdl:
    """Uses `spdl.io`: demuxes the clip, then decodes the groups of pictures that are needed."""

    def __init__(self) -> None:
        self._io: Any = importlib.import_module("spdl.io")

    def _filter(self, size: int) -> Any:
        return self._io.get_video_filter_desc(
            scale_width=size or None,
            scale_height=size or None,
            scale_algo="bilinear",
            scale_mode=None,
            pix_fmt="rgb24",
        )

    def read(self, request: Request) -> Frames:
        io, description = self._io, self._filter(request.size)
        if request.kind != "video":
            decoded = [
                io.decode_packets(io.demux_image(data), filter_desc=description)
                for data in read_jpegs(request.path, request.kind, request.indices)
            ]
        else:
            packets = io.demux_video(str(request.path))
            if len(request.indices) == request.clip.frames:
                decoded = io.decode_packets(packets, filter_desc=description)
            else:
                decoded = io.sample_decode_video(
                    packets, list(request.indices), filter_desc=description
                )
        frames: Frames = io.to_numpy(io.convert_frames(decoded))
        _check_count(frames, request)
        return frames


class SpdlNvdec:
    """Uses `spdl.io.decode_packets_nvdec`: decodes the whole clip on the GPU, then selects the frames."""

    def __init__(self) -> None:
        self._io: Any = importlib.import_module("spdl.io")

    def read(self, request: Request) -> Frames:
        io, size = self._io, request.size or -1
        # NVDEC needs start codes between the units of the stream. mp4 stores their lengths instead.
        filters = {"libx264": "h264_mp4toannexb", "libx265": "hevc_mp4toannexb"}
        encoder = next(f.encoder for f in FORMATS.values() if f.name == request.path.parent.name)
        packets = io.demux_video(str(request.path), bsf=filters.get(encoder))
        buffer = io.decode_packets_nvdec(
            packets,
            device_config=io.cuda_config(device_index=0),
            scale_width=size,
            scale_height=size,
        )
        planes = io.to_torch(buffer)[list(request.indices)]
        frames: Frames = planes.permute(0, 2, 3, 1).cpu().numpy()
        _check_count(frames, request)
        return frames


def find_ffmpeg() -> str | None:
    """Path of the program `ffmpeg`: that of the system, or else that in the package imageio-ffmpeg."""
    found = shutil.which("ffmpeg")
    if found is None and importlib.util.find_spec("imageio_ffmpeg"):
        try:
            found = importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe()
        except RuntimeError:
            return None
    return found


def _time_before(request: Request) -> str:
    """A time half a frame before the first frame, so that rounding never selects a neighbour."""
    return f"{max(0.0, (request.indices[0] - 0.5) / request.clip.rate):.6f}"


class FFmpegPipe:
    """Runs a process of `ffmpeg` for each clip. It selects and resizes frames, and writes them to a pipe."""

    def __init__(self) -> None:
        program = find_ffmpeg()
        if program is None:
            raise ModuleNotFoundError("the program `ffmpeg` is not in PATH")
        self._program = program

    def read(self, request: Request) -> Frames:
        first = request.indices[0]
        chosen = "+".join(f"between(n,{a - first},{b - first})" for a, b in runs(request.indices))
        chain = f"select='{chosen}'"
        if request.size:
            chain += f",scale={request.size}:{request.size}:flags=bilinear"
        command = [
            self._program,
            "-v",
            "error",
            "-nostdin",
            "-threads",
            "1",
            "-filter_threads",
            "1",
        ]
        command += ["-ss", _time_before(request), "-i", str(request.path), "-vf", chain]
        command += ["-fps_mode", "passthrough", "-frames:v", str(len(request.indices))]
        command += ["-f", "rawvideo", "-pix_fmt", "rgb24", "pipe:1"]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode:
            raise ValueError(f"ffmpeg: {done.stderr.decode(errors='replace').strip()[-300:]}")
        frames = np.frombuffer(done.stdout, np.uint8).reshape(-1, *request.shape[1:])
        _check_count(frames, request)
        return frames


class ImageioFFmpeg:
    """Uses `imageio_ffmpeg.read_frames`, which also runs a process for each clip.

    It returns every frame from the first to the last requested one.
    """

    def __init__(self) -> None:
        self._library: Any = importlib.import_module("imageio_ffmpeg")

    def read(self, request: Request) -> Frames:
        first, last = request.indices[0], request.indices[-1]
        _, height, width, _ = request.shape
        output = ["-frames:v", str(last - first + 1), "-s", f"{width}x{height}"]
        output += ["-sws_flags", "bilinear"]
        generator = self._library.read_frames(
            str(request.path),
            input_params=["-threads", "1", "-ss", _time_before(request)],
            output_params=output,
        )
        chosen = {index - first for index in request.indices}
        try:
            next(generator)  # The first item is the metadata of the video.
            raw = [bytes(data) for number, data in enumerate(generator) if number in chosen]
        finally:
            generator.close()
        frames = np.frombuffer(b"".join(raw), np.uint8).reshape(-1, height, width, 3)
        _check_count(frames, request)
        return frames


class NumPy:
    """Reads the bytes of the frames from an `.npy` file, and resizes them if requested."""

    def read(self, request: Request) -> Frames:
        frames = read_raw(request.path, request.indices)
        if not request.size:
            return frames
        scaler, size = VideoReformatter(), request.size
        return np.stack(
            [
                scaler.reformat(
                    av.VideoFrame.from_ndarray(frame, format="rgb24"),
                    size,
                    size,
                    "rgb24",
                    interpolation="BILINEAR",
                ).to_ndarray()
                for frame in frames
            ]
        )


@dataclass(frozen=True)
class Loader:
    """A library, and how to install it."""

    name: str
    open: Callable[[], Reader]
    module: str
    """Module that must be importable."""
    package: str
    """Its name on PyPI."""
    kinds: tuple[Kind, ...] = ("video",)
    needs: tuple[str, ...] = ()
    """Packages that it imports but does not install. Their modules have the same names."""
    gpu: bool = False
    pipe: bool = False
    """Whether frames reach this process through a pipe."""


_IMAGES: tuple[Kind, ...] = ("video", "burst", "folder")
LOADERS = {
    loader.name: loader
    for loader in (
        Loader("pyav", PyAV, "av", "av", _IMAGES),
        Loader("torchcodec", TorchCodec, "torchcodec", "torchcodec", needs=("torch",)),
        Loader("decord", Decord, "decord", "decord"),
        Loader("opencv", OpenCV, "cv2", "opencv-python-headless", _IMAGES),
        Loader("imageio-ffmpeg", ImageioFFmpeg, "imageio_ffmpeg", "imageio-ffmpeg", pipe=True),
        Loader("spdl", Spdl, "spdl.io", "spdl-io", _IMAGES),
        Loader("ffmpeg-pipe", FFmpegPipe, "imageio_ffmpeg", "imageio-ffmpeg", pipe=True),
        Loader("numpy", NumPy, "numpy", "numpy", ("raw",)),
        Loader(
            "torchcodec-cuda",
            lambda: TorchCodec("cuda"),
            "torchcodec",
            "torchcodec",
            needs=("torch",),
            gpu=True,
        ),
        Loader("spdl-nvdec", SpdlNvdec, "spdl.io", "spdl-io-cuda", gpu=True),
    )
}


# --- which libraries can be used here ---


def find_problem(loader: Loader) -> str | None:
    """The reason why the library cannot be used here. None if no reason is known."""
    if loader.gpu:
        problem = find_gpu_problem()
        if problem:
            return problem
    if loader.name == "ffmpeg-pipe" and find_ffmpeg():
        return None
    try:
        modules = (loader.module, *loader.needs)
        missing = any(importlib.util.find_spec(module) is None for module in modules)
    except ModuleNotFoundError:
        missing = True
    if missing:
        packages = " ".join((loader.package, *loader.needs))
        what = "no program `ffmpeg` in PATH" if loader.name == "ffmpeg-pipe" else "not installed"
        return f"{what}: `--install`, or `python -m pip install {packages}`"
    return None


def find_gpu_problem() -> str | None:
    """The reason why NVDEC cannot be used here. None if the driver lists a GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "NVDEC needs an NVIDIA GPU: its driver (`libcuda.so.1`) is not installed"
    count = ctypes.c_int(0)
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status:
        return f"NVDEC needs an NVIDIA GPU: the driver reports error {status}"
    return None if count.value else "NVDEC needs an NVIDIA GPU: the driver lists none"


def install(loader: Loader) -> str | None:
    """Installs the package of the loader into this environment. Returns the reason if that failed."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-input",
            loader.package,
            *loader.needs,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if not done.returncode:
        importlib.invalidate_caches()
        return None
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    reason = (errors or done.stderr.splitlines() or ["no message"])[-1]
    return f"`pip install {loader.package}` failed: {reason}"


def version_of(loader: Loader) -> str:
    """The version of the package."""
    try:
        return importlib.metadata.version(loader.package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown version"


def link_ffmpeg_libraries(folder: Path) -> Path | None:
    """A folder in which torchcodec and SPDL find FFmpeg's libraries, if the system has none.

    The wheels of both contain no FFmpeg. PyAV's wheel contains it, but the file names include a hash. The folder
    has links with the usual names. Add it to `LD_LIBRARY_PATH` of a new process.
    """
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False)
    shipped = Path(av.__file__).parents[1] / "av.libs"
    if "libavutil.so" in listed.stdout or not shipped.is_dir():
        return None
    folder.mkdir(parents=True, exist_ok=True)
    for library in shipped.iterdir():
        # For example, libavutil-5809ad29.so.60.26.102 is also linked as libavutil.so.60.
        stem, _, rest = library.name.partition(".so.")
        names = [library.name]
        if rest and stem.startswith(("libav", "libsw")):
            names.append(f"{stem.rpartition('-')[0]}.so.{rest.split('.')[0]}")
        for name in names:
            link = folder / name
            if not link.exists():
                link.unlink(missing_ok=True)
                os.symlink(library, link)
    return folder
