"""Programs that need only packages from PyPI: commands of the packages, and small programs that use the
packages as their documentation does."""

from __future__ import annotations

from typing import Any

import data
from case import TORCH, Case


def own(
    name: str,
    *modules: str,
    made: Any = data.images,
    launcher: tuple[str, ...] = ("{python}",),
    options: tuple[str, ...] = (),
    **how: Any,
) -> Case:
    """A program of `programs/`. Its arguments are a folder of data and the number of steps."""
    workers = ("--workers", "{num_workers}") if "num_workers" in how.get("knobs", {}) else ()
    return Case(
        name=name,
        modules=("PIL", *modules),
        data=made,
        command=(
            *launcher,
            "{programs}/" + f"{name}_train.py",
            *("{data}", "--steps", "{steps}"),
            *workers,
            *options,
        ),
        steps=0,
        **how,
    )


def workers(count: int) -> dict[str, str]:
    return {"num_workers": str(count)}


CASES = (
    Case(
        name="ultralytics",
        modules=("torch", "ultralytics"),
        data=data.boxes,
        command=(
            *("{bin}/yolo", "train", "model=yolov8n.yaml", "data={data}/boxes.yaml", "imgsz=32"),
            *("epochs=4", "batch=3", "workers={num_workers}", "device=cpu", "plots=False"),
            *("save=False", "val=False", "amp=False", "project={cwd}/out", "name=run"),
            *("exist_ok=True", "seed=0"),
        ),
        env={"YOLO_CONFIG_DIR": "{cwd}", "YOLO_OFFLINE": "true", "YOLO_AUTOINSTALL": "false"},
        loop="InfiniteDataLoader",
        source="ultralytics.data.build:InfiniteDataLoader.__iter__",
        knobs=workers(1),
        steps=4 * 400,
        masks=(
            (r"(Fast image access|ping|read|size).*", "<disk>"),
            (r"Scanning .*", "Scanning"),
            (r"Ultralytics \S+.*", "<versions>"),
            # Only the first run creates the cache of labels.
            (r".*New cache created.*", ""),
            (r"run_id\(\w+\)", "<run>"),
        ),
        computed=((r"^ *(all|one|two)( +[\d.]+)+$", "<metrics>"),),
    ),
    own(
        "trainer",
        *("torch", "transformers", "accelerate"),
        made=data.words,
        loop="DataLoaderShard",
        knobs=workers(0),
        masks=((r"'\w+_(runtime|per_second)': '?[\d.]+'?", "<rate>"),),
    ),
    own(
        "accelerate",
        *("torch", "accelerate"),
        launcher=(
            *("{python}", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        ),
        loop="DataLoaderShard",
        knobs=workers(1),
        unordered=True,
    ),
    own("lightning", "torch", "lightning", knobs=workers(0)),
    own(
        "webdataset",
        *("torch", "webdataset"),
        made=data.shards,
        loop="WebLoader",
        source="webdataset.pipeline:DataPipeline.__iter__",
        knobs=workers(1),
    ),
    own(
        "spdl",
        *("torch", "spdl"),
        options=("--decode", "{load.concurrency}"),
        loop="Pipeline",
        has_length=False,
        source="spdl.pipeline._pipeline:Pipeline.get_iterator",
        knobs={"load.concurrency": "1"},
    ),
    own(
        "monai",
        *("torch", "monai"),
        loop="ThreadDataLoader",
        source="monai.data.thread_buffer:ThreadDataLoader.__iter__",
    ),
    own(
        "grain",
        *("jax", "grain"),
        has_length=False,
        source="grain._src.python.data_loader:DataLoader.__iter__",
        role=None,
    ),
    own("datasets", "torch", "datasets", has_length=False, knobs=workers(0)),
    own(
        "torchdata",
        *("torch", "torchdata"),
        loop="StatefulDataLoader",
        source="torchdata.stateful_dataloader.stateful_dataloader:StatefulDataLoader.__iter__",
        knobs=workers(2),
    ),
    own(
        "fastai", "torch", "fastai", source="fastai.data.load:DataLoader.__iter__", knobs=workers(1)
    ),
    # Keras first reads one batch of another iteration.
    own("keras", "torch", "keras", loop="DataLoader-2", knobs=workers(1), source=TORCH),
    own("ignite", "torch", "ignite", knobs=workers(1)),
)
