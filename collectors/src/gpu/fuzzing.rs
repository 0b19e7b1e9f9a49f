//! The parsers of the driver's texts, and of `CUDA_VISIBLE_DEVICES`.

use super::describe::by_name;
use super::visible_devices::{Listed, Slice, select};
use crate::procfs::fuzzing::Parsers;

pub(crate) const PARSERS: Parsers = &[
    ("CUDA_VISIBLE_DEVICES and ids of devices", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.lines();
        let visible = lines.next();
        check_selection(visible, &listed(lines));
    }),
    ("name of a device", |bytes| {
        let _ = by_name(&String::from_utf8_lossy(bytes));
    }),
];

/// A device for each line. A line that begins with `-` is a slice of the device before it: its two instances are its
/// number of characters.
fn listed<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<Listed> {
    let mut gpus: Vec<Listed> = Vec::new();
    for line in lines {
        match (line.strip_prefix('-'), gpus.last_mut()) {
            (Some(uuid), Some(gpu)) => {
                let instance = u32::try_from(uuid.len()).ok();
                gpu.mig = true;
                gpu.slices.push(Slice {
                    handle: (),
                    uuid: uuid.to_owned(),
                    gpu_instance: instance,
                    compute_instance: instance,
                });
            }
            _ => gpus.push(Listed {
                uuid: line.to_owned(),
                ..Listed::default()
            }),
        }
    }
    gpus
}

/// Checks that each choice exists, and that none is chosen twice.
fn check_selection(visible: Option<&str>, gpus: &[Listed]) {
    let choices = select(visible, gpus);
    for (at, choice) in choices.iter().enumerate() {
        let gpu = gpus.get(choice.gpu);
        let exists = gpu.is_some_and(|gpu| {
            let slices = gpu.slices.len();
            choice.slice.is_none_or(|slice| slice < slices)
        });
        assert!(exists && !choices[..at].contains(choice), "{choices:?}");
    }
}
