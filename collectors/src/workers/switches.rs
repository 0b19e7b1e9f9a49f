//! The file of a trainer's switches, which change stages in all processes at once.
//!
//! The trainer creates it before its loop forks workers. A forked worker inherits the mapping. A worker that was started
//! otherwise maps the file when it finds its trainer.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use headspace_agent::recording::stage::Switches;

use super::folders::open;
use super::layout::SwitchFile;
use super::{Marker, mapping};

/// Creates the switches of the process with this marker, or opens those that it has created before. They stay mapped.
///
/// # Errors
///
/// Returns the system's error: the disk is full, or files or memory are limited.
pub fn create_switches(marker: &Marker) -> io::Result<&'static Switches> {
    if !mapping::is_size_allowed(SwitchFile::SIZE) {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let file = match open(&path(marker), true) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return open_switches(marker).ok_or(error);
        }
        Err(error) => return Err(error),
    };
    let mapped =
        mapping::reserve(&file, 0..SwitchFile::SIZE).and_then(|()| mapping::map_switches(&file));
    let mapped = mapped.inspect_err(|_| {
        let _ = std::fs::remove_file(path(marker));
    })?;
    mapped.begin();
    Ok(&mapped.switches)
}

/// The switches of the process with this marker. `None` if it has none, or if another version created them.
pub fn open_switches(marker: &Marker) -> Option<&'static Switches> {
    let file = open(&path(marker), false).ok()?;
    is_complete(&file).then_some(())?;
    Some(&mapping::map_switches(&file).ok()?.switches)
}

/// Whether the file has our format. It is read before it is mapped, because an access behind the end of a mapped file
/// is fatal.
fn is_complete(file: &File) -> bool {
    let mut proof = [0; SwitchFile::PROOF];
    file.read_exact_at(&mut proof, 0).is_ok() && SwitchFile::is_proof(&proof)
}

fn path(marker: &Marker) -> PathBuf {
    marker.folder().join("switches")
}

#[cfg(test)]
mod tests {
    use headspace_agent::recording::stage::Setting;

    use super::super::Folders;
    use super::*;

    #[test]
    fn a_setting_of_the_trainer_is_read_in_another_mapping() {
        let folder = tempfile::tempdir().unwrap();
        let marker = Folders::below(&[folder.path()]).mark().unwrap();
        assert!(open_switches(&marker).is_none());

        let trainers = create_switches(&marker).unwrap();
        let workers = open_switches(&marker).unwrap();
        let theirs = workers.claim("fetch").unwrap();
        let (name, ours) = trainers.of_stages().next().unwrap();
        ours.set(Setting::Gate { calls: 2 });

        assert_eq!(name, "fetch");
        assert_eq!(Setting::decode(theirs.word()), Setting::Gate { calls: 2 });
        let again = create_switches(&marker).unwrap();
        assert_eq!(again.of_stages().count(), 1);
    }

    #[test]
    fn a_file_of_another_format_is_not_mapped() {
        let folder = tempfile::tempdir().unwrap();
        let marker = Folders::below(&[folder.path()]).mark().unwrap();
        std::fs::write(path(&marker), [0; 4096]).unwrap();
        assert!(open_switches(&marker).is_none());
        assert!(create_switches(&marker).is_err());
    }
}
