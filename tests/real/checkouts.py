"""Programs in checkouts of public repositories, run as they are.

docs/real.md says which repositories and versions. Edits change constants for which a program has no
option, in a copy.
"""

from __future__ import annotations

import data
from case import BACKWARD, Case, Edit

#: Models and images are small, so that a step takes tens of milliseconds without a GPU.
CASES = (
    Case(
        name="imagenet",
        checkout="examples",
        folder="imagenet",
        modules=("torch", "torchvision"),
        data=data.imagenet,
        command=(
            *("{python}", "main.py", "{data}", "--arch", "shufflenet_v2_x0_5", "--no-accel"),
            *("--batch-size", "2", "--epochs", "2", "--workers", "{num_workers}"),
            *("--seed", "1", "--print-freq", "50"),
        ),
        knobs={"num_workers": "1"},
        steps=2 * 800,
        masks=((r"(Time|Data) +[\d.]+ \( *[\d.]+\)", "<time>"),),
        computed=((r"\( +", "("),),
    ),
    Case(
        name="mnist",
        checkout="examples",
        folder="mnist",
        modules=("torch", "torchvision"),
        data=data.mnist,
        data_at="../data",
        command=(
            *("{python}", "main.py", "--no-accel", "--epochs", "2"),
            *("--batch-size", "16", "--log-interval", "100"),
        ),
        knobs={"num_workers": "0"},
        steps=2 * 900,
        computed=((r"Accuracy: \d+/(\d+) \(\d+%\)", r"Accuracy: \1"),),
    ),
    Case(
        name="vae",
        checkout="examples",
        folder="vae",
        modules=("torch", "torchvision"),
        data=data.mnist,
        data_at="../data",
        command=(
            *("{python}", "main.py", "--no-accel", "--epochs", "14"),
            *("--batch-size", "128", "--log-interval", "50"),
        ),
        knobs={"num_workers": "0"},
        steps=14 * 113,
    ),
    Case(
        name="word_language_model",
        checkout="examples",
        folder="word_language_model",
        modules=("torch",),
        data=data.words,
        command=(
            *("{python}", "main.py", "--data", "{data}", "--epochs", "2", "--batch_size", "8"),
            *("--emsize", "64", "--nhid", "64", "--nlayers", "1", "--bptt", "32"),
        ),
        loop="get_batch",
        watch_options=("--batch-from", "main:get_batch"),
        source=BACKWARD,
        cached_edits=(
            Edit(
                "main.py",
                "def get_batch(source, i):",
                "@__import__('sitecustomize').again\ndef get_batch(source, i):",
            ),
        ),
        masks=((r"ms/batch +[\d.]+", "<rate>"), (r"time: +[\d.]+s", "<time>")),
    ),
    Case(
        name="timm",
        checkout="pytorch-image-models",
        modules=("torch", "torchvision", "yaml", "huggingface_hub", "safetensors"),
        data=data.timm,
        command=(
            *("{python}", "train.py", "--data-dir", "{data}", "--model", "test_resnet"),
            *("--num-classes", "10", "--img-size", "96", "--device", "cpu", "--batch-size", "8"),
            *("--epochs", "4", "--warmup-epochs", "0", "--lr", "0.01", "--seed", "1"),
            *("--workers", "{num_workers}", "--log-interval", "100", "--output", "out"),
            *("--experiment", "run"),
        ),
        knobs={"num_workers": "2"},
        steps=4 * 400,
        masks=(
            (r"[\d.]+s, +[\d.]+/s +\( *[\d.]+s, +[\d.]+/s\)", "<rate>"),
            (r"Data: +[\d.]+ +\( *[\d.]+\)", "<time>"),
            (r"Time: +[\d.]+ +\( *[\d.]+\)", "<time>"),
            (r"out/run(-\d+)?", "<folder>"),
        ),
        # Repeated batches change which epoch is the best, and so the order of the checkpoints.
        computed=(
            (r"\( +", "("),
            (r"\(epoch \d+\)", "<epoch>"),
            (r'"epoch": \d+', "<epoch>"),
            (r"^ *\('.*checkpoint.*", "<checkpoint>"),
        ),
    ),
    Case(
        name="lightning_classifier",
        checkout="pytorch-lightning",
        folder="examples/pytorch/basics",
        modules=("torch", "torchvision", "lightning", "jsonargparse"),
        data=data.mnist_whole,
        data_at="data,../../Datasets",
        command=(
            *("{python}", "backbone_image_classifier.py", "--trainer.max_epochs=1"),
            *("--trainer.accelerator=cpu", "--trainer.logger=false"),
        ),
        knobs={"num_workers": "0"},
        steps=1719,
    ),
    Case(
        name="nanogpt",
        checkout="nanoGPT",
        modules=("torch",),
        data=data.tokens,
        data_at="data/bytes",
        command=(
            *("{python}", "train.py", "--device=cpu", "--compile=False", "--dtype=float32"),
            *("--dataset=bytes", "--gradient_accumulation_steps=1", "--batch_size=8"),
            *("--block_size=64", "--n_layer=2", "--n_head=2", "--n_embd=64"),
            *("--max_iters=1600", "--eval_interval=100000", "--eval_iters=2", "--log_interval=50"),
        ),
        loop="get_batch",
        watch_options=("--batch-from", "train:get_batch"),
        source=BACKWARD,
        cached_edits=(
            Edit(
                "train.py",
                "def get_batch(split):",
                "@__import__('sitecustomize').again\ndef get_batch(split):",
            ),
        ),
        masks=((r"time [\d.]+ms, mfu -?[\d.]+%", "<rate>"),),
    ),
    Case(
        name="monai_unet",
        checkout="tutorials",
        folder="2d_segmentation/torch",
        modules=("torch", "monai", "tensorboard", "PIL"),
        command=("{python}", "unet_training_array.py"),
        edits=(
            Edit("unet_training_array.py", "range(40)", "range(220)"),
            Edit("unet_training_array.py", "[:20]", "[:200]"),
            Edit("unet_training_array.py", "num_workers=8", "num_workers={num_workers}"),
            Edit("unet_training_array.py", "num_workers=4", "num_workers=1"),
            Edit("unet_training_array.py", "range(10)", "range(32)"),
            Edit("unet_training_array.py", "val_interval = 2", "val_interval = 8"),
            Edit("unet_training_array.py", "(16, 32, 64, 128, 256)", "(8, 16, 32)"),
            Edit("unet_training_array.py", "strides=(2, 2, 2, 2)", "strides=(2, 2)"),
        ),
        # The program first reads one batch of another loader.
        loop="DataLoader-2",
        knobs={"num_workers": "2"},
        steps=32 * 50,
        # The images, the first weights and the order of the images are not seeded, so another epoch may be
        # the best.
        masks=(
            (r"/tmp/tmp\w+", "<folder>"),
            (r"saved new best metric model", ""),
            (r"at epoch:? \d+", "at epoch <number>"),
        ),
        deterministic=False,
    ),
    Case(
        name="lightning_fabric",
        checkout="pytorch-lightning",
        folder="examples/fabric/image_classifier",
        modules=("torch", "torchvision", "lightning", "torchmetrics"),
        data=data.mnist,
        data_at="../../../Datasets",
        command=(
            *("{python}", "train_fabric.py", "--epochs", "2", "--batch-size", "16"),
            *("--log-interval", "100"),
        ),
        knobs={"num_workers": "0"},
        steps=2 * 900,
        computed=((r"Accuracy: \(\d+%\)", "Accuracy"),),
    ),
)
