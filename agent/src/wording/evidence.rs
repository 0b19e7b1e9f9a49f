//! Texts of the measurements behind a bottleneck or a remedy.

use super::gpu::pcie_link;
use super::mounts::mount_use;
use super::units::{amount, bytes, duration_ms, percent};
use super::verdict::place_in_file;
use crate::analysis::attribution::{CoreUser, CoresEvidence, Evidence, StageEvidence};
use crate::analysis::stacks::SharedLockWaits;
use crate::model::record::{BatchRecord, CallsAtOnce, PcieLink};
use crate::model::stack::Frame;

/// The evidence of a conclusion: a clause, without a capital letter and a full stop. Other texts continue it.
#[expect(clippy::too_many_lines, reason = "one text for each kind of evidence")]
pub(super) fn evidence_text(evidence: &Evidence) -> String {
    match evidence {
        Evidence::Stage(stage) => stage_evidence(stage),
        Evidence::Freed {
            step_ms, gain_pct, ..
        } => format!(
            "measured: without its work, a step takes {} (−{} %; 95 % interval {} to {})",
            duration_ms(step_ms.value),
            percent(*gain_pct, 0),
            duration_ms(step_ms.low),
            duration_ms(step_ms.high)
        ),
        Evidence::TrainingThread {
            wait_ms,
            step_ms,
            without_workers,
            receive_ms,
        } => training_thread(*wait_ms, *step_ms, *without_workers, *receive_ms),
        Evidence::Pool {
            threads,
            busy,
            stages,
            more,
        } => pool(*threads, *busy, stages, *more),
        Evidence::Cores(cores) => cores_evidence(cores),
        Evidence::Quota {
            cores,
            throttled_pct,
        } => format!(
            "the quota of {} cores ran out in {} % of its periods",
            amount(*cores),
            percent(*throttled_pct, 0)
        ),
        Evidence::Gil {
            wait_ms,
            work,
            share_of_compute,
        } => gil(*wait_ms, *work, *share_of_compute),
        Evidence::HandOff {
            receive_ms,
            send_ms,
            delayed_load_ms,
            step_ms,
            batch,
        } => hand_off_ends(*receive_ms, *send_ms, *delayed_load_ms, *step_ms) + &contents(*batch),
        Evidence::BlockedLoading {
            share: blocked,
            line,
            wait_ms,
            step_ms,
        } => format!(
            "the training thread loads for {} of each step of {}, but waits {} % of that time{} for another thread \
             or a device, for example for work that the loop launched before",
            duration_ms(*wait_ms),
            duration_ms(*step_ms),
            share(*blocked),
            at_line(line)
        ),
        Evidence::Producers {
            wait_ms,
            step_ms,
            waiting_line,
            line,
        } => producers(*wait_ms, *step_ms, waiting_line.as_ref(), line.as_ref()),
        Evidence::Gc { pct } => format!(
            "the garbage collector stops the process for {} % of the time",
            percent(*pct, 1)
        ),
        Evidence::Disk { busy } => format!("the disk is busy {} % of the time", share(*busy)),
        Evidence::Decoders { busy, engines } => match engines {
            Some((engines, decodes)) => format!(
                "the {engines} decoders are busy {} % of the time with {} concurrent decode calls",
                share(*busy),
                amount(*decodes)
            ),
            None => format!("the decoders are busy {} % of the time", share(*busy)),
        },
        Evidence::Pcie {
            used,
            bytes_per_step,
            link,
        } => pcie(*used, *bytes_per_step, *link),
        Evidence::Mount {
            stage,
            share: part,
            mount,
        } => format!(
            "`{stage}` waits for reads {} % of its time: {}",
            share(*part),
            mount_use(mount)
        ),
        Evidence::Memory { slower_ms, ipc } => memory(*slower_ms, *ipc),
        Evidence::Jitter { longest_ms } => format!(
            "call times vary, and the buffers are too small to absorb this; without the \
             variation, a step would take {}",
            duration_ms(*longest_ms)
        ),
        Evidence::Floor { floor_ms, step_ms } => format!(
            "a step takes {1}, and {0} with free data",
            duration_ms(*floor_ms),
            duration_ms(*step_ms)
        ),
        Evidence::Waiting {
            wait_ms,
            step_ms,
            gpu_ms,
        } => waiting(*wait_ms, *step_ms, *gpu_ms),
    }
}

fn pcie(used: f64, bytes_per_step: f64, link: Option<PcieLink>) -> String {
    let link = link.map_or_else(String::new, |link| format!(" ({})", pcie_link(link)));
    format!(
        "{} per step use {} % of the GPU's PCIe link{link} in one direction",
        bytes(bytes_per_step),
        share(used)
    )
}

fn share(share: f64) -> String {
    percent(100.0 * share, 0)
}

/// A line and its function, after a verb.
fn at_line(line: &Frame) -> String {
    let place = place_in_file(&line.file, line.line);
    format!(" at `{place}` ({})", line.function)
}

fn producers(
    wait_ms: f64,
    step_ms: f64,
    waiting_line: Option<&Frame>,
    line: Option<&(Frame, f64)>,
) -> String {
    let (wait, step) = (duration_ms(wait_ms), duration_ms(step_ms));
    let place = waiting_line.map_or_else(String::new, at_line);
    let meanwhile = line.map_or_else(String::new, |(line, part)| {
        let line = at_line(line);
        format!("; {} % of that time, these are{line}", share(*part))
    });
    format!(
        "the loop waits {wait} of each step of {step}{place} for what other threads or processes make{meanwhile}"
    )
}

fn waiting(wait_ms: f64, step_ms: f64, gpu_ms: Option<f64>) -> String {
    let (wait, step) = (duration_ms(wait_ms), duration_ms(step_ms));
    match gpu_ms {
        // Together they exceed the step, so the GPU works during most of the wait.
        Some(gpu_ms) if wait_ms + gpu_ms - step_ms > wait_ms / 2.0 => format!(
            "the GPU works for {} of each step of {step}, also while the loop waits {wait} for data",
            duration_ms(gpu_ms)
        ),
        Some(gpu_ms) => format!(
            "the loop waits {wait} for data in a step of {step}, and the GPU works for {} of it",
            duration_ms(gpu_ms)
        ),
        None => format!("the loop waits {wait} for data in a step of {step}"),
    }
}

fn stage_evidence(stage: &StageEvidence) -> String {
    let busy = share(stage.busy);
    let busy = if stage.concurrency > 1.0 {
        format!(
            "{} concurrent calls, busy {busy} % of the time",
            amount(stage.concurrency)
        )
    } else {
        format!("busy {busy} % of the time")
    };
    let queue = |state: &str, pct: Option<f64>| {
        pct.map(|pct| format!("its {state} {} % of the time", percent(pct, 0)))
    };
    let slow = stage.slow_pct.map(|pct| percent(pct, 0));
    let inner = stage.inner.as_ref();
    clauses([
        Some(busy),
        queue("input queue is full", stage.full_before_pct),
        queue("output queue is empty", stage.empty_after_pct),
        slow.map(|pct| format!("{pct} % of its calls take over 3 times the median")),
        inner.map(|(inner, part)| format!("`{inner}` takes {} % of its time", share(*part))),
        stage.shared_lock.as_ref().map(shared_lock),
        stage.slowed.map(slowed_calls),
    ])
}

fn shared_lock(waits: &SharedLockWaits) -> String {
    format!(
        "its calls wait for one another's lock {} % of their time (`{}`)",
        share(waits.share),
        place_in_file(&waits.line.file, waits.line.line)
    )
}

/// The time of a call with few and with many calls at once.
fn slowed_calls([few, many]: [CallsAtOnce; 2]) -> String {
    let with = |level: CallsAtOnce| match level.calls {
        1 => format!("{} alone", duration_ms(level.mean_ms)),
        calls => format!("{} with {calls} at once", duration_ms(level.mean_ms)),
    };
    format!("a call takes {} and {}", with(few), with(many))
}

/// Joins the clauses that there are.
fn clauses<const N: usize>(all: [Option<String>; N]) -> String {
    all.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn training_thread(
    wait_ms: f64,
    step_ms: f64,
    without_workers: bool,
    receive_ms: Option<f64>,
) -> String {
    let (wait, step) = (duration_ms(wait_ms), duration_ms(step_ms));
    let setting = if without_workers {
        " (num_workers=0)"
    } else {
        ""
    };
    let receive = receive_ms.filter(|_| without_workers).map(duration_ms);
    let receive = receive.map(|ms| {
        format!(
            "; with worker processes, the training thread would need about {ms} to receive a batch"
        )
    });
    format!(
        "loading runs on the training thread itself{setting} for {wait} of each step of {step}, so \
         loading and training do not overlap{}",
        receive.unwrap_or_default()
    )
}

fn pool(threads: u32, busy: f64, stages: &[String], more: usize) -> String {
    let names: Vec<String> = stages.iter().map(|name| format!("`{name}`")).collect();
    let more = match more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let threads = match threads {
        1 => "its thread is".to_owned(),
        threads => format!("its {threads} threads are"),
    };
    format!(
        "{threads} busy {} % of the time with {}{more}",
        share(busy),
        names.join(", ")
    )
}

fn cores_evidence(cores: &CoresEvidence) -> String {
    let (used, usable) = (amount(cores.used), amount(cores.usable));
    let threads = cores.runnable_threads.map(amount);
    let waits = cores.run_queue_pct.map(|pct| percent(pct, 0));
    clauses([
        Some(format!("{used} of {usable} cores used")),
        cores.most.as_ref().map(core_user),
        (cores.other_ranks).map(|cores| format!("other ranks use about {}", amount(cores))),
        (cores.others).map(|others| format!("other programs use {}", amount(others))),
        threads.map(|threads| format!("{threads} threads compete for them")),
        waits.map(|pct| format!("the training thread waits for a core {pct} % of the time")),
    ])
}

fn core_user(user: &CoreUser) -> String {
    let full = user.full_before_pct.map(|pct| {
        format!(
            " (its input queue is full {} % of the time)",
            percent(pct, 0)
        )
    });
    let (cores, stage) = (amount(user.cores), &user.stage);
    format!("{cores} of them by `{stage}`{}", full.unwrap_or_default())
}

/// The time of each end of the hand-off.
fn hand_off_ends(
    receive_ms: f64,
    send_ms: Option<f64>,
    delayed_load_ms: Option<f64>,
    step_ms: f64,
) -> String {
    let step = duration_ms(step_ms);
    if let (Some(send_ms), Some(load_ms)) = (send_ms, delayed_load_ms) {
        return format!(
            "a worker process loads a batch in {} and meanwhile serializes the previous one in {}; the training \
             thread takes {} of each step of {step} to receive one",
            duration_ms(load_ms),
            duration_ms(send_ms),
            duration_ms(receive_ms)
        );
    }
    let send = send_ms.map_or_else(String::new, |ms| {
        format!(", which serializes it in {}", duration_ms(ms))
    });
    format!(
        "the training thread takes {} of each step of {step} to receive a batch from a worker process{send}",
        duration_ms(receive_ms)
    )
}

/// The contents of a batch, in parentheses.
fn contents(batch: Option<BatchRecord>) -> String {
    batch.map_or_else(String::new, |batch| {
        format!(
            " (tensors: {}, bytes in them: {}, other objects: {})",
            batch.tensors,
            bytes(batch.tensor_bytes as f64),
            batch.objects
        )
    })
}

fn gil(wait_ms: f64, work: Option<f64>, share_of_compute: Option<f64>) -> String {
    let wait = duration_ms(wait_ms);
    if let Some(waiting) = share_of_compute {
        return format!(
            "the training thread waits for the interpreter lock (GIL) for {} % of its compute, because \
             another thread holds the lock",
            share(waiting)
        );
    }
    match work {
        Some(work) => format!(
            "a thread waits {wait} on average for the interpreter lock (GIL), and the stages' \
             threads together use {} % of a core",
            share(work)
        ),
        None => format!(
            "a thread waits {wait} on average for the interpreter lock (GIL), which the loop also \
             needs"
        ),
    }
}

fn memory(slower_ms: Option<f64>, ipc: Option<f64>) -> String {
    let slower = slower_ms.map(duration_ms);
    clauses([
        Some(
            "a stage's threads always run, and neither the cores nor the interpreter lock limits \
             them"
                .to_owned(),
        ),
        slower.map(|ms| format!("compute takes {ms} longer while they run")),
        ipc.map(|ipc| {
            format!("the training thread completes only {ipc:.2} instructions per cycle")
        }),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::record::MountUse;

    #[test]
    fn evidence_is_a_clause_that_other_texts_can_continue() {
        let (wait_ms, step_ms) = (9.0, 20.0);
        for evidence in [
            Evidence::TrainingThread {
                wait_ms,
                step_ms,
                without_workers: true,
                receive_ms: Some(1.9),
            },
            Evidence::Gil {
                wait_ms,
                work: None,
                share_of_compute: None,
            },
            Evidence::Memory {
                slower_ms: Some(2.0),
                ipc: Some(0.4),
            },
            Evidence::Jitter { longest_ms: 18.0 },
        ] {
            let text = evidence_text(&evidence);
            assert!(text.starts_with(char::is_lowercase), "{text}");
            assert!(!text.ends_with('.') && !text.contains(". "), "{text}");
        }
    }

    #[test]
    fn storage_and_a_link_have_their_numbers() {
        let mount = Evidence::Mount {
            stage: "fetch".to_owned(),
            share: 0.9,
            mount: MountUse {
                path: "/data".to_owned(),
                file_system: "nfs4".to_owned(),
                read_ms: Some(3.1),
                bytes_per_s: Some(80.0 * 1_048_576.0),
                ..MountUse::default()
            },
        };
        let link = Evidence::Pcie {
            used: 0.8,
            bytes_per_step: 12.6e7,
            link: Some(PcieLink {
                generation: 4,
                width: 8,
            }),
        };

        assert_eq!(
            evidence_text(&mount),
            "`fetch` waits for reads 90 % of its time: nfs4 mount `/data`, 3.1 ms per read, 80.0 MiB/s"
        );
        assert_eq!(
            evidence_text(&link),
            "120 MiB per step use 80 % of the GPU's PCIe link (generation 4 x8) in one direction"
        );
    }
}
