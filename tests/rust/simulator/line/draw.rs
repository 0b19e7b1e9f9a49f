//! Random pipelines of one to six stages. Each class has its own scarce resource.

use headspace_agent::statistics::bootstrap::Rng;

use super::super::population::Dice;
use super::super::service::{Service, Shape};
use super::{Handing, Line, Part, Stage};

/// The scarce resource of a pipeline, or its structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// The concurrency of one stage, or the model.
    Plain,
    /// The same, with stages that join, split and filter items.
    Ratios,
    /// Small buffers, and calls whose duration varies much.
    Jitter,
    /// Cores, or the CPU quota.
    Cores,
    /// Decoders.
    Nvdec,
    /// The disk.
    Disk,
    /// The interpreter lock.
    Gil,
    /// Memory bandwidth.
    Memory,
    /// Worker processes that deliver in order.
    Workers,
    /// The loop loads in its own thread.
    Inline,
    /// The concurrency of one stage, with another stage that the agent does not know.
    Hidden,
    /// Threads of a pool shared by all stages.
    Pool,
}

pub(crate) const CLASSES: [Class; 12] = [
    Class::Plain,
    Class::Ratios,
    Class::Jitter,
    Class::Cores,
    Class::Nvdec,
    Class::Disk,
    Class::Gil,
    Class::Memory,
    Class::Workers,
    Class::Inline,
    Class::Hidden,
    Class::Pool,
];

const ROOMS: [u32; 9] = [1, 2, 3, 4, 8, 12, 16, 32, 64];
const SHAPES: [Shape; 5] = [
    Shape::Normal,
    Shape::LogNormal,
    Shape::Gamma,
    Shape::Bimodal,
    Shape::Rare,
];
const NAMES: [&str; 6] = ["list", "read", "demux", "decode", "augment", "collate"];

/// A pipeline, its class, and whether its floor is probed.
pub(crate) struct Case {
    pub(crate) class: Class,
    pub(crate) line: Line,
    pub(crate) probed: bool,
    pub(crate) blind: Blind,
}

/// The facts that are hidden from the agent. Only `counters` is a fact that it gets.
#[derive(Debug, Clone, Copy, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is apart from the others"
)]
pub(crate) struct Blind {
    /// A stage without a name, with its queue.
    pub(crate) stage: Option<usize>,
    /// CPU time of calls, which is unknown for coroutines.
    pub(crate) cpu: bool,
    /// All queues except the last.
    pub(crate) queues: bool,
    /// Capacities of queues.
    pub(crate) rooms: bool,
    /// Whether the performance counters of the processor are readable.
    pub(crate) counters: bool,
}

/// Draws a pipeline: first concurrency, ratios and buffers, then the scarce resource.
#[expect(
    clippy::too_many_lines,
    reason = "the order of the draws determines the case of a seed"
)]
pub(crate) fn draw(seed: u64) -> Case {
    let dice = &mut Dice::new(Rng::new(seed ^ 0x11e5_0f0f));
    let class = match dice.uniform(0.0, 1.0) {
        p if p < 0.2 => Class::Plain,
        p if p < 0.4 => Class::Ratios,
        p => CLASSES[2 + ((p - 0.4) / (0.6 / 10.0)) as usize],
    };
    let base = dice.log_uniform(8.0, 80.0);
    let count = if class == Class::Inline || class == Class::Workers {
        1
    } else {
        1 + dice.count(5)
    };
    let calls_vary = if class == Class::Jitter {
        (0.3, 1.3)
    } else {
        (0.0, 0.4)
    };
    let names = NAMES.iter().skip(6 - count as usize);
    let mut stages: Vec<Stage> = names
        .map(|name| {
            let mut stage = Stage::of(name, dice.count(8), Part::Wait, 1.0, dice.one_of(ROOMS));
            stage.service = service(dice, calls_vary);
            stage.concurrency_declared = dice.chance(0.7);
            if class == Class::Jitter {
                stage.threads = dice.count(3);
                stage.room = dice.count(4);
            }
            stage
        })
        .collect();
    if class == Class::Ratios || (count > 1 && dice.chance(0.2)) {
        ratios(dice, &mut stages);
    }
    let mut line = Line::of(stages, 0.0);
    let faster = |dice: &mut Dice| dice.uniform(1.05, 4.0);
    let slowest = dice.count(count) as usize - 1;
    for stage in 0..line.stages.len() {
        let by = if stage == slowest { 1.0 } else { faster(dice) };
        let threads = f64::from(line.stages[stage].threads);
        let ms = base / by * threads / line.calls(stage);
        let cpu = if dice.chance(0.3) {
            1.0
        } else {
            dice.uniform(0.0, 1.0)
        };
        line.stages[stage].parts = vec![(Part::Wait, ms * (1.0 - cpu)), (Part::Cpu, ms * cpu)];
    }
    line.compute_ms = base * dice.log_uniform(0.2, 1.5);
    line.compute = Service::new(1.0, dice.uniform(0.0, 0.2), dice.one_of(SHAPES), 0.0);
    if dice.chance(0.3) {
        line.contention = dice.uniform(0.0, 0.4);
    }
    if dice.chance(0.1) {
        line.gc = dice.uniform(0.0, 0.1);
    }
    short(dice, class, &mut line, base, slowest);
    line.contention /= line
        .stages
        .iter()
        .map(|s| f64::from(s.threads))
        .sum::<f64>();
    let probed = dice.chance(0.5);
    let hidden = class == Class::Hidden;
    let blind = Blind {
        stage: hidden.then(|| dice.count(count) as usize - 1),
        cpu: class == Class::Plain && dice.chance(0.2),
        queues: dice.chance(0.1),
        rooms: dice.chance(0.1),
        counters: dice.chance(0.5),
    };
    Case {
        class,
        line,
        probed,
        blind,
    }
}

fn service(dice: &mut Dice, (low, high): (f64, f64)) -> Service {
    let cv = if dice.chance(0.15) {
        0.0
    } else {
        dice.uniform(low, high)
    };
    let correlation = if dice.chance(0.15) {
        dice.uniform(0.0, 0.4)
    } else {
        0.0
    };
    Service::new(1.0, cv, dice.one_of(SHAPES), correlation)
}

/// Lets one stage join items; sometimes another one splits or filters.
fn ratios(dice: &mut Dice, stages: &mut [Stage]) {
    let last = stages.len() - 1;
    let joins = last - usize::from(last > 0 && dice.chance(0.4));
    stages[joins].takes = dice.one_of([2, 3, 4, 5, 6, 8, 16]);
    if joins > 0 && dice.chance(0.4) {
        let other = dice.count(joins as u32) as usize - 1;
        if dice.chance(0.5) {
            stages[other].gives = dice.one_of([2, 3, 5]);
        } else {
            stages[other].keeps = dice.uniform(0.5, 0.95);
        }
    }
}

/// Makes the resource of the class scarce.
#[expect(clippy::too_many_lines, reason = "a case for each class")]
fn short(dice: &mut Dice, class: Class, line: &mut Line, base: f64, slowest: usize) {
    let others = line.stages.len();
    match class {
        Class::Plain | Class::Ratios | Class::Jitter | Class::Hidden => {
            if dice.chance(0.5) {
                // There are enough cores, and the agent knows their number.
                line.cores = 64.0;
            }
        }
        Class::Cores => {
            for stage in &mut line.stages {
                let ms = stage.alone_ms();
                let cpu = dice.uniform(0.6, 1.0);
                stage.parts = vec![(Part::Wait, ms * (1.0 - cpu)), (Part::Cpu, ms * cpu)];
            }
            if dice.chance(0.4) {
                (line.compute_cores, line.contention) = (1.0, 0.0);
            }
            let work: f64 = (0..others)
                .map(|s| line.calls(s) * line.stages[s].parts[1].1)
                .sum::<f64>()
                + line.compute_ms * line.compute_cores;
            line.cores = (work / base / dice.uniform(0.8, 2.5)).round().max(1.0);
            line.quota = dice.chance(0.3);
            if dice.chance(0.3) {
                line.switching = dice.uniform(0.0, 0.05);
            }
        }
        Class::Pool => {
            let load: f64 = (0..others)
                .map(|s| line.calls(s) * line.stages[s].alone_ms())
                .sum();
            line.pool = Some((load / base / dice.uniform(0.8, 2.5)).round().max(1.0) as u32);
            line.cores = 64.0;
        }
        Class::Nvdec => {
            let stage = &mut line.stages[slowest];
            "decode".clone_into(&mut stage.name);
            let ms = stage.alone_ms();
            stage.parts = vec![(Part::Engine, ms)];
            line.engines = f64::from(dice.count(8));
            line.engine_penalty = dice.uniform(0.0, 0.3);
            rename(line, slowest);
        }
        Class::Disk => {
            let stage = &mut line.stages[slowest];
            let ms = stage.alone_ms();
            let read = dice.uniform(0.5, 1.0);
            stage.parts = vec![(Part::Disk, ms * read), (Part::Cpu, ms * (1.0 - read))];
            line.disk = f64::from(dice.count(3));
            line.cores = 64.0;
        }
        Class::Gil => {
            let mut threads = 0;
            for stage in &mut line.stages {
                let ms = stage.alone_ms();
                let python = dice.uniform(0.6, 1.0);
                stage.parts = vec![(Part::Wait, ms * (1.0 - python)), (Part::Gil, ms * python)];
                threads += stage.threads;
            }
            line.stages[slowest].threads += 2;
            line.cores = f64::from(threads + 8);
        }
        Class::Memory => {
            let stage = &mut line.stages[slowest];
            let ms = stage.alone_ms();
            stage.threads += 4;
            stage.parts = vec![(Part::Memory, ms)];
            line.memory = f64::from(1 + dice.count(4));
            line.memory_penalty = dice.uniform(0.2, 0.8);
            line.contention = dice.uniform(0.2, 0.5);
            line.cores = 64.0;
        }
        Class::Workers => {
            let stage = &mut line.stages[0];
            stage.ahead = Some(dice.one_of([1, 2, 2, 2, 4]));
            if dice.chance(0.4) {
                stage.service = service(dice, (0.4, 1.5));
            }
            (
                stage.takes,
                stage.gives,
                stage.keeps,
                stage.concurrency_declared,
            ) = (1, 1, 1.0, true);
            if dice.chance(0.5) {
                line.cores = 64.0;
            }
        }
        Class::Inline => {
            let stage = &mut line.stages[0];
            (stage.threads, stage.takes, stage.gives, stage.keeps) = (1, 1, 1, 1.0);
            line.batch = dice.one_of([1, 1, 4, 8]);
            line.inline = true;
            line.contention = 0.0;
            let ms = base / f64::from(line.batch);
            line.stages[0].parts = vec![(Part::Cpu, ms)];
            line.cores = 16.0;
            line.handing = Handing {
                tensors: dice.log_uniform(1.0, 10.0) as u64,
                mib: dice.log_uniform(0.1, 40.0),
                more: dice.log_uniform(0.8, 1.25) - 1.0,
            };
        }
    }
}

/// Renames other stages so that only the decoder is called `decode`.
fn rename(line: &mut Line, decoder: usize) {
    for (number, stage) in line.stages.iter_mut().enumerate() {
        if number != decoder && stage.name == "decode" {
            "parse".clone_into(&mut stage.name);
        }
    }
}
