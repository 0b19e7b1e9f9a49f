//! Text about memory that grows: how fast, what grows, and what holds it.

use super::units::{amount, bytes};
use super::verdict::place_in_file;
use crate::model::record::{
    Estimate, GrownObjectsRecord, GrowthCause, HolderKind, HolderRecord, MemoryGrowthRecord,
    MemoryScope,
};

/// Maximum number of holders in a text. The innermost and the outermost say most.
const MOST_HOLDERS: usize = 4;

/// The text of a finding. `growth` is in bytes per step.
pub(super) fn memory_growth(
    growth: Estimate,
    scope: MemoryScope,
    cause: Option<&MemoryGrowthRecord>,
) -> String {
    let worker = cause.and_then(|cause| cause.worker.as_deref());
    let whose = match worker {
        Some(_) => "The memory of the worker processes",
        None if scope == MemoryScope::Children => "The memory of the child processes",
        None => "The memory of this process",
    };
    let [value, low, high] = [growth.value, growth.low, growth.high].map(|b| bytes(1e3 * b));
    let grows = format!("{whose} grows by {value} in 1,000 steps ({low} to {high}).");
    let in_worker = worker.map_or_else(String::new, |worker| format!(" In `{worker}`:"));
    match cause.and_then(what_grows) {
        Some(text) => format!("{grows}{in_worker} {text}"),
        None => grows,
    }
}

fn what_grows(cause: &MemoryGrowthRecord) -> Option<String> {
    let native = "The counted Python objects do not account for it, so native code has probably allocated it: an \
                  extension or a library in C or C++.";
    match (cause.cause, cause.objects.first()) {
        (GrowthCause::Native, _) => Some(native.to_owned()),
        (GrowthCause::AutogradGraph, Some(tensors)) if tensors.is_container => Some(format!(
            "{} Each keeps the graph of its operations, and the tensors that these need. If you do not need the graph, \
             keep `item()` or `detach()` of the tensor.",
            objects(tensors)
        )),
        (GrowthCause::AutogradGraph, Some(graph)) => Some(format!(
            "A `{}` keeps the graph of all earlier steps, which grows by {} operations per step{}. If it is a sum of \
             losses, add `loss.item()` or `loss.detach()` to it.",
            graph.type_name,
            amount(graph.count_per_step),
            held_by(graph)
        )),
        (GrowthCause::Objects, Some(grown)) => Some(objects(grown)),
        _ => None,
    }
}

fn objects(grown: &GrownObjectsRecord) -> String {
    let (count, in_steps) = count(grown.count_per_step);
    let about = if count.starts_with("less") {
        ""
    } else {
        "about "
    };
    let size = grown.bytes_per_step.map_or_else(String::new, |size| {
        format!(", {} in 1,000 steps", bytes(1e3 * size))
    });
    let what = if grown.is_container {
        let noun = if count == "1" { "item" } else { "items" };
        let items = match &grown.items {
            Some(items) => format!("{noun} of type `{items}`"),
            None => noun.to_owned(),
        };
        let name = &grown.type_name;
        format!("A `{name}` grows by {about}{count} {items} {in_steps}{size}")
    } else {
        let name = &grown.type_name;
        format!("The number of objects of type `{name}` grows by {about}{count} {in_steps}{size}")
    };
    let made_at = grown.site.as_ref().map_or_else(String::new, |site| {
        format!(
            " The newest were made at {}.",
            place_in_file(&site.file, site.line)
        )
    });
    format!("{what}{}.{made_at}", held_by(grown))
}

/// By how much a count grows, without digits that are noise, and in how many steps: `1` and `per step`.
fn count(per_step: f64) -> (String, &'static str) {
    match per_step {
        rare if rare < 0.0005 => ("less than 1".to_owned(), "in 1,000 steps"),
        rare if rare < 0.095 => (amount((1e3 * rare).round()), "in 1,000 steps"),
        few if few < 9.95 => (amount(few), "per step"),
        many => (format!("{many:.0}"), "per step"),
    }
}

/// `: local variable `losses` of `train` (train.py:31)`.
fn held_by(grown: &GrownObjectsRecord) -> String {
    let mut holders: Vec<String> = grown.holders.iter().map(holder).collect();
    if holders.len() > MOST_HOLDERS {
        let outer = holders.split_off(holders.len() - MOST_HOLDERS / 2);
        holders.truncate(MOST_HOLDERS / 2);
        holders.push("…".to_owned());
        holders.extend(outer);
    }
    if holders.is_empty() {
        String::new()
    } else {
        format!(". It is held by {}", holders.join(", held by "))
    }
}

fn holder(holder: &HolderRecord) -> String {
    let kind = match holder.kind {
        HolderKind::Local => "the local variable",
        HolderKind::Global => "the global variable",
        HolderKind::Attribute => "the attribute",
        HolderKind::ClassAttribute => "the class attribute",
        HolderKind::Closure => "the variable of a closure",
        HolderKind::ThreadLocal => "the attribute of a thread-local object",
        HolderKind::Cache => "the cache of the function",
    };
    let of = holder
        .of
        .as_ref()
        .map_or_else(String::new, |of| format!(" of `{of}`"));
    let site = holder.site.as_ref().map_or_else(String::new, |site| {
        format!(" ({})", place_in_file(&site.file, site.line))
    });
    format!("{kind} `{}`{of}{site}", holder.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::record::SiteRecord;

    fn growth() -> Estimate {
        Estimate {
            value: 1_048.576,
            low: 1_000.0,
            high: 1_100.0,
        }
    }

    #[test]
    fn the_text_says_whose_memory_grows() {
        let whose = |scope| {
            let text = memory_growth(growth(), scope, None);
            text.split(" grows").next().map(str::to_owned)
        };
        let words = |text: &str| Some(text.to_owned());
        assert_eq!(
            whose(MemoryScope::Process),
            words("The memory of this process")
        );
        assert_eq!(
            whose(MemoryScope::Children),
            words("The memory of the child processes")
        );
    }

    #[test]
    fn the_text_names_what_grows_and_what_holds_it() {
        let cause = MemoryGrowthRecord {
            cause: GrowthCause::Objects,
            objects: vec![GrownObjectsRecord {
                type_name: "list".to_owned(),
                is_container: true,
                items: Some("numpy.ndarray float64[128]".to_owned()),
                count_per_step: 1.0,
                bytes_per_step: Some(1024.0),
                holders: vec![HolderRecord {
                    kind: HolderKind::Local,
                    name: "losses".to_owned(),
                    of: Some("train".to_owned()),
                    site: Some(SiteRecord {
                        file: "/home/me/train.py".to_owned(),
                        line: 31,
                    }),
                }],
                ..GrownObjectsRecord::default()
            }],
            ..MemoryGrowthRecord::default()
        };

        assert_eq!(
            memory_growth(growth(), MemoryScope::Process, Some(&cause)),
            "The memory of this process grows by 1.00 MiB in 1,000 steps (977 KiB to 1.05 MiB). A `list` grows by \
             about 1 item of type `numpy.ndarray float64[128]` per step, 0.98 MiB in 1,000 steps. It is held by the \
             local variable `losses` of `train` (train.py:31)."
        );
    }

    #[test]
    fn a_count_has_no_digits_that_are_noise() {
        let cases = [
            (0.0001, "less than 1", "in 1,000 steps"),
            (0.0043, "4", "in 1,000 steps"),
            (0.52, "0.5", "per step"),
            (1.014, "1", "per step"),
            (2.5, "2.5", "per step"),
            (65.2, "65", "per step"),
        ];
        for (per_step, text, steps) in cases {
            assert_eq!(count(per_step), (text.to_owned(), steps));
        }
    }

    #[test]
    fn memory_of_native_code_is_named() {
        let text = memory_growth(
            growth(),
            MemoryScope::Process,
            Some(&MemoryGrowthRecord::default()),
        );
        assert!(text.contains("native code"), "{text}");
    }
}
