"""Iterates loaders of one kind as a training loop would: `iterates.py KIND`. It does not
use headspace. Prints the number and the sum of the batches."""

import os
import pickle
import sys
import tempfile
import threading
import time
from queue import Queue

EPOCHS = 2


def numbers(count=60):
    yield from range(count)


def decode(number):
    time.sleep(0.0005)
    return number


def spdl_pipeline():
    from spdl.pipeline import PipelineBuilder

    for _ in range(EPOCHS):
        builder = PipelineBuilder().add_source(numbers()).pipe(decode, concurrency=2).add_sink(3)
        pipeline = builder.build(num_threads=2)
        with pipeline.auto_stop():
            yield from consume(pipeline.get_iterator(timeout=30))


def spdl_apart():
    from spdl.pipeline import PipelineBuilder, run_pipeline_in_subprocess

    builder = PipelineBuilder().add_source(range(60)).pipe(decode, concurrency=2).add_sink(3)
    loader = run_pipeline_in_subprocess(builder.get_config(), num_threads=2)
    for _ in range(EPOCHS):
        yield from consume(loader)


def spdl_loader():
    from spdl.dataloader import DataLoader

    loader = DataLoader(list(range(120)), batch_size=2, aggregator=sum, preprocessor=decode)
    for _ in range(EPOCHS):
        yield from consume(loader)


def spdl_torch():
    from spdl.dataloader import get_pytorch_dataloader

    loader = get_pytorch_dataloader(
        dataset=Items(120),
        batch_size=2,
        collate_fn=sum,
        num_workers=1,
        timeout=30,
    )
    for _ in range(EPOCHS):
        yield from consume(loader)


class Items:
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if not 0 <= index < self.count:
            raise IndexError(index)
        time.sleep(0.0005)
        return index


def hf():
    import datasets

    data = datasets.Dataset.from_dict({"x": list(range(60))})
    for _ in range(EPOCHS):
        for row in data:
            yield row["x"]


def hf_batches():
    import datasets

    data = datasets.Dataset.from_dict({"x": list(range(120))})
    for _ in range(EPOCHS):
        for rows in data.iter(batch_size=2):
            yield sum(rows["x"])


def hf_stream():
    import datasets

    data = datasets.Dataset.from_dict({"x": list(range(60))}).to_iterable_dataset()
    for _ in range(EPOCHS):
        for row in data.map(lambda row: {"x": row["x"] + 1}):
            yield row["x"]


def hf_in_torch(workers):
    import datasets
    from torch.utils.data import DataLoader

    data = datasets.Dataset.from_dict({"x": list(range(120))}).to_iterable_dataset()
    loader = DataLoader(data, batch_size=2, num_workers=workers)
    for _ in range(EPOCHS):
        for batch in loader:
            yield int(batch["x"].sum())


def shards(folder):
    import webdataset

    path = os.path.join(folder, "shard.tar")
    with webdataset.TarWriter(path) as shard:
        for number in range(60):
            shard.write({"__key__": f"{number:03}", "txt": str(number)})
    return webdataset.WebDataset(path, shardshuffle=False).decode().to_tuple("txt")


def web():
    with tempfile.TemporaryDirectory() as folder:
        data = shards(folder)
        for _ in range(EPOCHS):
            for (text,) in data:
                yield int(text)


def web_loader(workers):
    import webdataset

    with tempfile.TemporaryDirectory() as folder:
        loader = webdataset.WebLoader(shards(folder), batch_size=None, num_workers=workers)
        for _ in range(EPOCHS):
            for (text,) in loader:
                yield int(text)


def litdata_folder(folder, numbers):
    from litdata.streaming import Cache

    cache = Cache(folder, chunk_size=20)
    for index, number in enumerate(numbers):
        cache[index] = number
    cache.done()
    cache.merge()
    return folder


def litdata_combined(folder, count):
    """Samples of two datasets in a random order. Each has this many."""
    import litdata

    parts = [
        litdata_folder(f"{folder}/one", range(count)),
        litdata_folder(f"{folder}/two", range(count, 2 * count)),
    ]
    data = [litdata.StreamingDataset(part) for part in parts]
    return litdata.CombinedStreamingDataset(data, iterate_over_all=True)


def litdata_set():
    import litdata

    with tempfile.TemporaryDirectory() as folder:
        data = litdata.StreamingDataset(litdata_folder(folder, range(60)))
        for _ in range(EPOCHS):
            yield from data


def litdata_sets():
    with tempfile.TemporaryDirectory() as folder:
        data = litdata_combined(folder, 30)
        data.set_batch_size(2)
        for _ in range(EPOCHS):
            yield from data
        assert data.batch_size == 2  # `len(data)` sets it to 1.


def litdata_loader(workers):
    import litdata

    with tempfile.TemporaryDirectory() as folder:
        data = litdata_combined(folder, 60)
        loader = litdata.StreamingDataLoader(data, batch_size=2, num_workers=workers)
        for _ in range(EPOCHS):
            for batch in loader:
                yield int(batch.sum())


def mosaic_set(folder, count):
    """MosaicML Streaming keeps its locks in the folder, too."""
    import streaming

    tempfile.tempdir = folder
    with streaming.MDSWriter(out=f"{folder}/set", columns={"x": "int"}) as writer:
        for number in range(count):
            writer.write({"x": number})
    return streaming.StreamingDataset(local=f"{folder}/set", batch_size=2)


def mosaic():
    with tempfile.TemporaryDirectory() as folder:
        data = mosaic_set(folder, 60)
        for _ in range(EPOCHS):
            for row in data:
                yield int(row["x"])


def mosaic_loader():
    import streaming

    with tempfile.TemporaryDirectory() as folder:
        data = mosaic_set(folder, 120)
        loader = streaming.StreamingDataLoader(data, batch_size=2)
        for _ in range(EPOCHS):
            for batch in loader:
                yield int(batch["x"].sum())


def ray_data(consume):
    # Ray listens on loopback only, and sends no usage reports.
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    os.environ["RAY_AUTH_MODE"] = "disabled"
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    with tempfile.TemporaryDirectory() as folder:
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=100 << 20,
            _temp_dir=folder,
        )
        try:
            ray.data.DataContext.get_current().enable_progress_bars = False
            yield from consume(ray.data)
        finally:
            ray.shutdown()


def ray_dataset(ray):
    def keep(rows):
        return rows

    data = ray.range(120).map_batches(keep, concurrency=1)
    assert len(data.take(2)) == 2  # Here, Ray itself iterates the data.
    for batches in data.iter_batches(batch_size=2), data.iter_torch_batches(batch_size=2):
        for batch in batches:
            yield int(batch["id"].sum())


def ray_train(ray):
    from ray.train import RunConfig, ScalingConfig, get_dataset_shard
    from ray.train.torch import TorchTrainer

    def train():
        for _ in range(EPOCHS):
            for _ in get_dataset_shard("train").iter_torch_batches(batch_size=2):
                time.sleep(0.01)

    trainer = TorchTrainer(
        train,
        scaling_config=ScalingConfig(num_workers=1),
        datasets={"train": ray.range(120)},
        run_config=RunConfig(storage_path=os.getcwd()),
    )
    trainer.fit()
    yield 0


def ray_ranks(ray):
    from ray import get, remote

    def keep(rows):
        time.sleep(0.05)
        return rows

    def train(shard):
        for _ in shard.iter_torch_batches(batch_size=2):
            pass

    data = ray.range(120, override_num_blocks=60).map_batches(keep, batch_size=2, concurrency=1)
    ranks = []
    for rank, shard in enumerate(data.streaming_split(2, equal=True)):
        environment = {"env_vars": {"RANK": str(rank), "WORLD_SIZE": "2"}}
        task = remote(num_cpus=0, runtime_env=environment)(train)
        ranks.append(task.remote(shard))
    get(ranks)
    yield 0


def monai():
    from monai.data import ThreadDataLoader

    loader = ThreadDataLoader(Items(120), batch_size=2, num_workers=0, buffer_size=2)
    for _ in range(EPOCHS):
        for batch in loader:
            time.sleep(0.004)
            yield int(batch.sum())


def grain_map():
    import grain

    data = grain.MapDataset.range(120).map(decode).batch(2)
    for _ in range(EPOCHS):
        for batch in data:
            yield int(batch.sum())


def grain_iter():
    import grain

    options = grain.ReadOptions(num_threads=2, prefetch_buffer_size=4)
    data = grain.MapDataset.range(120).map(decode).to_iter_dataset(options).batch(2)
    for _ in range(EPOCHS):
        batches = iter(data)
        yield int(next(batches).sum())
        # As in a training that resumes from a checkpoint.
        batches.set_state(batches.get_state())
        for batch in batches:
            yield int(batch.sum())


def grain_loader(workers):
    import grain
    from absl import flags

    # If JAX is installed, Grain's workers read flags.
    flags.FLAGS.mark_as_parsed()
    sampler = grain.samplers.IndexSampler(120, shuffle=False, num_epochs=1)
    loader = grain.DataLoader(
        data_source=Items(120),
        sampler=sampler,
        operations=[grain.transforms.Batch(2)],
        worker_count=workers,
    )
    for _ in range(EPOCHS):
        for batch in loader:
            yield int(batch.sum())


def tensorflow(within):
    import tensorflow as tf

    data = tf.data.Dataset.range(120).batch(2).prefetch(2)
    for _ in range(EPOCHS):
        if within:
            # A compiled function needs TensorFlow's own iterator.
            batches = iter(data)
            step = tf.function(lambda batches: tf.reduce_sum(next(batches)))
            yield from (int(step(batches)) for _ in range(60))
        else:
            for batch in data:
                yield int(tf.reduce_sum(batch))


def beside():
    """A thread of the program reads the batches faster than the loop trains on them."""
    from torch.utils.data import DataLoader

    loader = DataLoader(Items(120), batch_size=2)
    for _ in range(EPOCHS):
        queue = Queue(2)

        def fill(queue=queue):
            for batch in loader:
                queue.put(batch)
            queue.put(None)

        thread = threading.Thread(target=fill)
        thread.start()
        while (batch := queue.get()) is not None:
            time.sleep(0.004)
            yield int(batch.sum())
        thread.join()


def wrapped():
    from torch.utils.data import DataLoader

    import headspace

    loader = headspace.wrap(DataLoader(Items(120), batch_size=2), name="mine")
    for _ in range(EPOCHS):
        for batch in loader:
            yield int(batch.sum())


def anew():
    """A new loader in each epoch, after pickling and unpickling as for a spawned worker."""
    from torch.utils.data import DataLoader

    for _ in range(EPOCHS):
        loader = pickle.loads(pickle.dumps(DataLoader(Items(120), batch_size=2)))
        for batch in loader:
            yield int(batch.sum())


def pairs():
    """Two loaders side by side."""
    from torch.utils.data import DataLoader

    one, two = (DataLoader(Items(120), batch_size=2) for _ in range(2))
    for _ in range(EPOCHS):
        for a, b in zip(one, two, strict=True):
            yield int(a.sum() + b.sum())


def subclass():
    """A subclass of torch's loader. Its `__iter__` is a generator, and the loop calls `send` and `close`."""
    from torch.utils.data import DataLoader

    class Mine(DataLoader):
        def __iter__(self):
            extra = 0
            for batch in super().__iter__():
                extra = (yield int(batch.sum()) + extra) or 0

    loader = Mine(Items(120), batch_size=2)
    for _ in range(EPOCHS):
        batches = iter(loader)
        yield next(batches)
        yield batches.send(100) - 100
        yield from batches
        batches.close()


def consume(loader):
    for batch in loader:
        time.sleep(0.001)
        yield batch


KINDS = {
    "spdl pipeline": spdl_pipeline,
    "spdl apart": spdl_apart,
    "spdl loader": spdl_loader,
    "spdl torch": spdl_torch,
    "hf": hf,
    "hf batches": hf_batches,
    "hf stream": hf_stream,
    "hf in torch": lambda: hf_in_torch(0),
    "hf in workers": lambda: hf_in_torch(2),
    "web": web,
    "web loader": lambda: web_loader(0),
    "web workers": lambda: web_loader(1),
    "litdata": litdata_set,
    "litdata combined": litdata_sets,
    "litdata loader": lambda: litdata_loader(0),
    "litdata workers": lambda: litdata_loader(1),
    "mosaic": mosaic,
    "mosaic loader": mosaic_loader,
    "ray dataset": lambda: ray_data(ray_dataset),
    "ray train": lambda: ray_data(ray_train),
    "ray ranks": lambda: ray_data(ray_ranks),
    "monai": monai,
    "grain map": grain_map,
    "grain iter": grain_iter,
    "grain loader": lambda: grain_loader(0),
    "grain workers": lambda: grain_loader(1),
    "tf": lambda: tensorflow(False),
    "tf function": lambda: tensorflow(True),
    "beside": beside,
    "wrapped": wrapped,
    "anew": anew,
    "pairs": pairs,
    "subclass": subclass,
}

if __name__ == "__main__":
    batches = list(KINDS[sys.argv[1]]())
    print(len(batches), sum(batches))
