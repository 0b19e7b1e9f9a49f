//! Tests the GPU sources on a node with eight GPUs. The process may use all GPUs. It is one of eight ranks, or the
//! only process.

#![allow(clippy::unwrap_used, reason = "all of it is test code")]

mod fake_nvml_build;
mod gpu;

use std::collections::BTreeSet;

use fake_nvml_build::FakeNvml;
use gpu::{Machine, h100, h100s};
use headspace_agent::model::record::{ComputeGpu, GpuRule};
use headspace_agent::model::{Reading, Scope};
use headspace_agent::sampling::RankGpu;
use serde_json::{Value, json};

const GPUS: u32 = 8;

/// The GPUs that have readings.
fn read_of(readings: &[Reading]) -> BTreeSet<u32> {
    let ordinal = |reading: &Reading| match reading.scope {
        Scope::Gpu(ordinal) => Some(ordinal),
        _ => None,
    };
    readings.iter().filter_map(ordinal).collect()
}

/// The GPUs that a rank reads, by source.
fn read(machine: &mut Machine) -> [BTreeSet<u32>; 2] {
    machine.advance(2.0);
    [
        read_of(&machine.device().unwrap()),
        read_of(&machine.gpm().unwrap()),
    ]
}

fn node_with_memory_on(own: u32) -> Value {
    let of = |ordinal| {
        let mut processes = vec![json!({"pid": 4_000_000_001_u32 + ordinal, "memory": 9e9})];
        // Many programs also have a small context on the first GPU.
        if ordinal == own || ordinal == 0 {
            let bytes = if ordinal == own { 20e9 } else { 0.4e9 };
            processes.push(json!({"pid": "self", "memory": bytes}));
        }
        h100(json!({"processes": processes}))
    };
    json!({"devices": (0..GPUS).map(of).collect::<Vec<_>>()})
}

#[test]
fn each_rank_reads_its_own_gpu_and_the_first_rank_reads_all() {
    for rank in 0..GPUS {
        let rank_gpu = RankGpu::of_rank(rank);
        let fake = FakeNvml::start(&h100s(GPUS as usize));
        let mut machine = Machine::of_rank(fake, None, &rank_gpu);

        let expected: BTreeSet<u32> = if rank == 0 {
            (0..GPUS).collect()
        } else {
            [rank].into()
        };
        for read in read(&mut machine) {
            assert_eq!(read, expected, "rank {rank}");
        }
        let bound = ComputeGpu {
            ordinal: rank,
            rule: GpuRule::LocalRank,
        };
        assert_eq!(rank_gpu.get(), Some(bound));
        assert_eq!(machine.gpus.records.len(), GPUS as usize);
    }
}

#[test]
fn the_gpu_memory_of_the_process_overrides_its_local_rank() {
    let rank_gpu = RankGpu::of_rank(2);
    let fake = FakeNvml::start(&node_with_memory_on(5));
    let mut machine = Machine::of_rank(fake, None, &rank_gpu);
    machine.advance(1.0);

    let readings = machine.processes().unwrap();

    let bound = ComputeGpu {
        ordinal: 5,
        rule: GpuRule::OwnMemory,
    };
    assert_eq!(rank_gpu.get(), Some(bound));
    assert_eq!(read_of(&readings), [5].into());
    for read in read(&mut machine) {
        assert_eq!(read, [5].into());
    }
}

#[test]
fn equal_memory_on_all_gpus_leaves_the_rank_on_its_own_gpu() {
    let own = json!([{"pid": "self", "memory": 2e9}]);
    let device = h100(json!({"processes": own}));
    let rank_gpu = RankGpu::of_rank(2);
    let fake = FakeNvml::start(&json!({"devices": vec![device; GPUS as usize]}));
    let mut machine = Machine::of_rank(fake, None, &rank_gpu);
    machine.advance(1.0);

    machine.processes().unwrap();

    assert_eq!(rank_gpu.get().map(|own| own.ordinal), Some(2));
}

#[test]
fn a_device_known_from_torch_stops_the_process_queries_of_other_gpus() {
    const LISTS: &str = "nvmlDeviceGetComputeRunningProcesses_v3";
    let rank_gpu = RankGpu::of_rank(2);
    let fake = FakeNvml::start(&node_with_memory_on(5));
    let mut machine = Machine::of_rank(fake, None, &rank_gpu);
    rank_gpu.bind_by_torch(6);
    let before = machine.fake.calls(LISTS);

    machine.advance(1.0);
    machine.processes().unwrap();

    // Two calls for one device: the first returns the length of the list, the second the list.
    assert_eq!(machine.fake.calls(LISTS) - before, 2);
    assert_eq!(rank_gpu.get().map(|own| own.ordinal), Some(6));
}

#[test]
fn a_single_rank_reads_all_gpus_and_is_bound_to_none() {
    let mut machine = Machine::with_script(&h100s(GPUS as usize));

    for read in read(&mut machine) {
        assert_eq!(read, (0..GPUS).collect());
    }
}

#[test]
fn a_process_without_a_local_rank_is_bound_to_the_only_gpu_that_holds_its_memory() {
    let bound = ComputeGpu {
        ordinal: 5,
        rule: GpuRule::OwnMemory,
    };
    let mut devices = vec![h100(json!({"processes": []})); GPUS as usize];
    devices[5] = h100(json!({}));
    let on_one = json!({"devices": devices});
    // The small context on the first GPU does not change the GPU of a rank, but a single process may
    // compute there.
    let on_two = node_with_memory_on(5);
    let (single, rank) = (RankGpu::default, || RankGpu::of_unnumbered_rank(3));

    for (script, rank_gpu, expected) in [
        (&on_one, single(), Some(bound)),
        (&on_two, single(), None),
        (&on_one, rank(), Some(bound)),
        (&on_two, rank(), Some(bound)),
    ] {
        let mut machine = Machine::of_rank(FakeNvml::start(script), None, &rank_gpu);
        machine.advance(1.0);

        machine.processes().unwrap();

        assert_eq!(rank_gpu.get(), expected, "{rank_gpu:?}");
    }
}
