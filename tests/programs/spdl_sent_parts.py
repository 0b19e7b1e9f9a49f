"""A pipeline of SPDL with a local function, in a program that starts processes by `spawn`."""

import multiprocessing

from spdl.pipeline import PipelineBuilder

import headspace
import headspace.spdl


def main():
    multiprocessing.set_start_method("spawn")
    headspace.spdl.install()

    def decode(item):
        return item + 1

    builder = PipelineBuilder().add_source(range(40)).pipe(decode, concurrency=2).add_sink(2)
    pipeline = builder.build(num_threads=2)
    with pipeline.auto_stop():
        for _ in headspace.wrap(pipeline):
            pass


if __name__ == "__main__":
    main()
