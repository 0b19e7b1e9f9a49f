//! Parses `CUDA_VISIBLE_DEVICES` as CUDA does: which GPUs the process may use, and in which order.
//!
//! CUDA does not report an invalid list. It uses the entries before the first invalid one, and none at
//! all if the list names a device twice. This module does the same. Entries are numbers or unique ids.
//! An id may be abbreviated if only one device begins with it. The first entry decides whether the list
//! contains numbers or ids.
//!
//! With MIG, CUDA shows a single slice (the first one that it may use) and no whole GPU.
//!
//! Numbers follow NVML's order, by bus address. CUDA uses that order if `CUDA_DEVICE_ORDER=PCI_BUS_ID`
//! is set, and if all GPUs are of the same model. On a machine with different models, CUDA may put the
//! fastest first, and its numbers then differ from ours. Unique ids always refer to the same device.

/// A GPU as the driver lists it, with a handle of type `H`. Tests have no handles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Listed<H = ()> {
    pub(super) handle: H,
    /// `GPU-...`.
    pub(super) uuid: String,
    /// Whether it is in MIG mode. It may still have no slices.
    pub(super) mig: bool,
    /// Its slices, in the driver's order.
    pub(super) slices: Vec<Slice<H>>,
}

/// A slice of a GPU (MIG).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Slice<H> {
    pub(super) handle: H,
    /// `MIG-...`.
    pub(super) uuid: String,
    /// Id of its GPU instance.
    pub(super) gpu_instance: Option<u32>,
    /// Id of its compute instance.
    pub(super) compute_instance: Option<u32>,
}

/// A device that the process may use, by index in the list of [`Listed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Choice {
    /// Index of the GPU.
    pub(super) gpu: usize,
    /// Index of the slice; `None` if the process has the whole GPU.
    pub(super) slice: Option<usize>,
}

/// Index of a GPU, and of one of its slices if a slice was requested.
type DevicePosition = (usize, Option<usize>);

/// The devices that the process may use. The index in the result is the process's own ordinal of the
/// device. `visible` is `CUDA_VISIBLE_DEVICES`, `None` if it is not set.
pub(super) fn select<H>(visible: Option<&str>, gpus: &[Listed<H>]) -> Vec<Choice> {
    let Some(visible) = visible else {
        return as_cuda_shows((0..gpus.len()).map(|gpu| (gpu, None)), gpus);
    };
    let entries = visible.split(',').map(str::trim);
    let find: fn(&str, &[Listed<H>]) -> Option<DevicePosition> =
        if visible.trim_start().starts_with("MIG-") {
            by_slice
        } else if visible.trim_start().starts_with("GPU-") {
            by_uuid
        } else {
            by_number
        };
    let mut found = Vec::new();
    for entry in entries {
        let Some(place) = find(entry, gpus) else {
            break;
        };
        if found.contains(&place) {
            return Vec::new();
        }
        found.push(place);
    }
    as_cuda_shows(found.into_iter(), gpus)
}

/// The devices as CUDA shows them. A GPU in MIG mode stands for its first slice. A slice hides all
/// other devices.
fn as_cuda_shows<H>(
    positions: impl Iterator<Item = DevicePosition>,
    gpus: &[Listed<H>],
) -> Vec<Choice> {
    let mut whole = Vec::new();
    for (gpu, slice) in positions {
        let listed = &gpus[gpu];
        let slice = slice.or((listed.mig && !listed.slices.is_empty()).then_some(0));
        if slice.is_some() {
            return vec![Choice { gpu, slice }];
        }
        if !listed.mig {
            whole.push(Choice { gpu, slice: None });
        }
    }
    whole
}

/// Parses a number such as `1`. Trailing text is ignored, so `1x` is 1, as in CUDA.
fn by_number<H>(entry: &str, gpus: &[Listed<H>]) -> Option<DevicePosition> {
    let digits = entry.strip_prefix('+').unwrap_or(entry);
    let end = digits
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(digits.len());
    let number: usize = digits[..end].parse().ok()?;
    (number < gpus.len()).then_some((number, None))
}

/// Finds a GPU by `GPU-8f6a...`, or by an unambiguous prefix.
fn by_uuid<H>(entry: &str, gpus: &[Listed<H>]) -> Option<DevicePosition> {
    if !entry.starts_with("GPU-") {
        return None;
    }
    let gpus = gpus.iter().enumerate();
    let named = gpus.filter(|(_, gpu)| gpu.uuid.starts_with(entry));
    only(named.map(|(place, _)| (place, None)))
}

/// Finds a slice by `MIG-8f6a...` (or a prefix), or by the older form `MIG-GPU-8f6a.../1/0`.
fn by_slice<H>(entry: &str, gpus: &[Listed<H>]) -> Option<DevicePosition> {
    let name = entry.strip_prefix("MIG-")?;
    let slices = || {
        gpus.iter().enumerate().flat_map(|(place, gpu)| {
            let numbered = gpu.slices.iter().enumerate();
            numbered.map(move |(slice, listed)| (place, gpu, slice, listed))
        })
    };
    if !name.starts_with("GPU-") {
        let named = slices().filter(|(.., listed)| listed.uuid.starts_with(entry));
        return only(named.map(|(place, _, slice, _)| (place, Some(slice))));
    }
    let mut parts = name.split('/');
    let uuid = parts.next()?;
    let (gpu_instance, compute_instance) = (
        parts.next()?.parse::<u32>().ok()?,
        parts.next()?.parse::<u32>().ok()?,
    );
    if parts.next().is_some() {
        return None;
    }
    only(
        slices()
            .filter(|(_, gpu, _, listed)| {
                gpu.uuid == uuid
                    && listed.gpu_instance == Some(gpu_instance)
                    && listed.compute_instance == Some(compute_instance)
            })
            .map(|(place, _, slice, _)| (place, Some(slice))),
    )
}

/// The only item of the iterator; `None` if there is not exactly one.
fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    let first = items.next()?;
    items.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn gpu(uuid: &str) -> Listed {
        Listed {
            uuid: uuid.to_owned(),
            ..Listed::default()
        }
    }

    fn cut(uuid: &str, slices: &[(&str, u32, u32)]) -> Listed {
        Listed {
            handle: (),
            uuid: uuid.to_owned(),
            mig: true,
            slices: slices
                .iter()
                .map(|&(uuid, gpu_instance, compute_instance)| Slice {
                    handle: (),
                    uuid: uuid.to_owned(),
                    gpu_instance: Some(gpu_instance),
                    compute_instance: Some(compute_instance),
                })
                .collect(),
        }
    }

    fn four() -> Vec<Listed> {
        ["GPU-aa11", "GPU-ab22", "GPU-b33", "GPU-c44"]
            .map(gpu)
            .to_vec()
    }

    /// Indices of the chosen whole GPUs.
    fn whole(visible: Option<&str>, gpus: &[Listed]) -> Vec<usize> {
        select(visible, gpus)
            .into_iter()
            .map(|choice| {
                assert_eq!(choice.slice, None);
                choice.gpu
            })
            .collect()
    }

    fn slice(gpu: usize, slice: usize) -> Vec<Choice> {
        vec![Choice {
            gpu,
            slice: Some(slice),
        }]
    }

    #[test]
    fn without_the_variable_all_are_used_in_the_drivers_order() {
        assert_eq!(whole(None, &four()), [0, 1, 2, 3]);
        assert_eq!(whole(None, &[]), [0; 0]);
    }

    #[test]
    fn numbers_select_and_order_the_devices() {
        assert_eq!(whole(Some("2"), &four()), [2]);
        assert_eq!(whole(Some("3,0"), &four()), [3, 0]);
        assert_eq!(whole(Some(" 1 , 2 "), &four()), [1, 2]);
        assert_eq!(whole(Some("+1"), &four()), [1]);
    }

    #[test]
    fn an_empty_list_and_unknown_words_select_no_device() {
        for nothing in [
            "",
            " ",
            "-1",
            "NoDevFiles",
            "none",
            "void",
            ",0",
            "GPU-",
            "MIG-",
            "99",
        ] {
            assert_eq!(select(Some(nothing), &four()), [], "`{nothing}`");
        }
    }

    #[test]
    fn the_list_ends_at_the_first_entry_that_cannot_be_used() {
        assert_eq!(whole(Some("0,2,-1,1"), &four()), [0, 2]);
        assert_eq!(whole(Some("0,4,1"), &four()), [0]);
        assert_eq!(whole(Some("1,,2"), &four()), [1]);
        assert_eq!(whole(Some("1,x,2"), &four()), [1]);
        assert_eq!(whole(Some("GPU-b,GPU-zz,GPU-c"), &four()), [2]);
        assert_eq!(whole(Some("99999999999999999999,1"), &four()), [0; 0]);
    }

    #[test]
    fn text_after_a_number_is_ignored() {
        assert_eq!(whole(Some("1x,2gpu"), &four()), [1, 2]);
    }

    #[test]
    fn a_device_named_twice_empties_the_list() {
        assert_eq!(whole(Some("0,1,0"), &four()), [0; 0]);
        assert_eq!(whole(Some("GPU-b33,GPU-b"), &four()), [0; 0]);
    }

    #[test]
    fn a_unique_prefix_of_an_id_selects_the_device() {
        assert_eq!(whole(Some("GPU-c44,GPU-aa11"), &four()), [3, 0]);
        assert_eq!(whole(Some("GPU-ab"), &four()), [1]);
        assert_eq!(whole(Some("GPU-b"), &four()), [2]);
        assert_eq!(whole(Some("GPU-a"), &four()), [0; 0], "two begin so");
        assert_eq!(whole(Some("GPU-c44x"), &four()), [0; 0]);
    }

    #[test]
    fn the_first_entry_decides_whether_the_list_contains_numbers_or_ids() {
        assert_eq!(whole(Some("0,GPU-b33"), &four()), [0]);
        assert_eq!(whole(Some("GPU-b33,0"), &four()), [2]);
    }

    #[test]
    fn one_slice_hides_all_other_devices() {
        let gpus = [
            gpu("GPU-a"),
            cut("GPU-b", &[("MIG-1", 1, 0), ("MIG-2", 2, 0)]),
            cut("GPU-c", &[("MIG-3", 1, 0)]),
        ];

        assert_eq!(select(None, &gpus), slice(1, 0));
        assert_eq!(select(Some("0,1,2"), &gpus), slice(1, 0));
        assert_eq!(select(Some("2,1"), &gpus), slice(2, 0));
        assert_eq!(
            select(Some("0"), &gpus),
            [Choice {
                gpu: 0,
                slice: None
            }]
        );
        assert_eq!(select(Some("GPU-c"), &gpus), slice(2, 0));
    }

    #[test]
    fn a_slice_is_selected_by_its_id_or_its_position() {
        let gpus = [
            cut("GPU-a", &[("MIG-e1", 1, 0), ("MIG-e2", 2, 0)]),
            cut("GPU-b", &[("MIG-f3", 1, 0), ("MIG-f4", 1, 1)]),
        ];

        assert_eq!(select(Some("MIG-f4"), &gpus), slice(1, 1));
        assert_eq!(
            select(Some("MIG-e2,MIG-f3"), &gpus),
            slice(0, 1),
            "only one"
        );
        assert_eq!(select(Some("MIG-f"), &gpus), [], "two begin so");
        assert_eq!(select(Some("MIG-GPU-b/1/1"), &gpus), slice(1, 1));
        assert_eq!(select(Some("MIG-GPU-a/2/0"), &gpus), slice(0, 1));
        for wrong in [
            "MIG-GPU-a/3/0",
            "MIG-GPU-a/1",
            "MIG-GPU-a/1/0/0",
            "MIG-GPU-a/x/0",
        ] {
            assert_eq!(select(Some(wrong), &gpus), [], "`{wrong}`");
        }
    }

    #[test]
    fn a_gpu_without_slices_in_mig_mode_cannot_be_used() {
        let gpus = [cut("GPU-a", &[]), gpu("GPU-b")];

        assert_eq!(
            select(None, &gpus),
            [Choice {
                gpu: 1,
                slice: None
            }]
        );
        assert_eq!(select(Some("0"), &gpus), []);
    }

    proptest! {
        #[test]
        fn any_list_chooses_devices_that_exist_and_each_once(visible in "[-+0-9A-Za-z,/ ]{0,24}") {
            let chosen = select(Some(&visible), &four());
            for (place, choice) in chosen.iter().enumerate() {
                prop_assert!(choice.gpu < 4);
                prop_assert!(!chosen[..place].contains(choice));
            }
        }

        #[test]
        fn any_permutation_of_numbers_is_kept(order in Just(vec![0_usize, 1, 2, 3]).prop_shuffle()) {
            let list = order.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            prop_assert_eq!(whole(Some(&list), &four()), order);
        }
    }
}
