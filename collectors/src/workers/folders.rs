//! Finds the folder of the files, and the trainer for which a process works.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::Identity;
use super::identity::ancestors;

/// The folders of this user in which trainers put their markers, in order of preference.
#[derive(Debug, Clone)]
pub struct Folders {
    folders: Vec<PathBuf>,
    /// The pid namespace: containers may share the folders, but not the pids.
    namespace: u64,
}

/// The folder in which a trainer's workers put their files.
#[derive(Debug, Clone)]
pub struct Marker {
    folder: PathBuf,
    is_new: bool,
}

/// Beginning of the name of the file in a marker that shows the rank of its trainer.
const RANK: &str = "rank-";

impl Folders {
    /// The folder for shared memory, or else the temporary folder.
    pub fn of_this_machine() -> Self {
        Self::below(&[Path::new("/dev/shm"), &std::env::temp_dir()])
    }

    /// Folders below these parents, which may be writable by everyone.
    pub fn below(parents: &[&Path]) -> Self {
        let own = format!("headspace-{}", geteuid());
        Self {
            folders: parents.iter().map(|parent| parent.join(&own)).collect(),
            namespace: fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino()),
        }
    }

    /// Marks this process as one that has workers. Repeated calls return the same marker.
    ///
    /// # Errors
    ///
    /// Returns the error of the last place if no place is writable, or if none belongs to this user
    /// alone.
    pub fn mark(&self) -> io::Result<Marker> {
        let here = Identity::here().ok_or(io::ErrorKind::NotFound)?;
        let mut problem = io::Error::from(io::ErrorKind::NotFound);
        for folder in &self.folders {
            let marker = folder.join(self.name(here));
            match make_both(folder, &marker) {
                Ok(is_new) => {
                    return Ok(Marker {
                        folder: marker,
                        is_new,
                    });
                }
                Err(error) => problem = error,
            }
        }
        Err(problem)
    }

    /// The marker of the nearest ancestor that has one.
    pub fn nearest(&self) -> Option<Marker> {
        let folders: Vec<&PathBuf> = self.folders.iter().filter(|f| is_own(f)).collect();
        if folders.is_empty() {
            return None;
        }
        ancestors().find_map(|ancestor| {
            let name = self.name(ancestor);
            let mut markers = folders.iter().map(|folder| folder.join(&name));
            let folder = markers.find(|marker| is_own(marker))?;
            Some(Marker {
                folder,
                is_new: false,
            })
        })
    }

    /// The marker of a trainer with the same parent as this process: that of the lowest rank, or else the first one.
    pub fn sibling_trainer(&self) -> Option<Marker> {
        self.sibling_trainer_of(std::os::unix::process::parent_id())
    }

    fn sibling_trainer_of(&self, parent: u32) -> Option<Marker> {
        let folders = self.folders.iter().filter(|folder| is_own(folder));
        let entries = folders.filter_map(|folder| fs::read_dir(folder).ok());
        let markers = entries.flatten().flatten().filter_map(|entry| {
            let name = entry.file_name();
            let trainer = self.trainer(name.to_str()?)?;
            let is_beside = trainer.parent() == Some(parent) && trainer.lives();
            let marker = Marker {
                folder: entry.path(),
                is_new: false,
            };
            is_beside.then_some((trainer.started, marker))
        });
        markers
            .min_by_key(|(started, marker)| (marker.rank().unwrap_or(u32::MAX), *started))
            .map(|(_, marker)| marker)
    }

    /// Removes the markers and files of trainers that have ended.
    pub fn sweep(&self) {
        for folder in self.folders.iter().filter(|folder| is_own(folder)) {
            let Ok(entries) = fs::read_dir(folder) else {
                continue;
            };
            for entry in entries.flatten() {
                let name = entry.file_name();
                let trainer = name.to_str().and_then(|name| self.trainer(name));
                if trainer.is_some_and(|trainer| !trainer.lives()) {
                    let _ = fs::remove_dir_all(entry.path());
                }
            }
        }
    }

    fn name(&self, trainer: Identity) -> String {
        format!("{}-{trainer}", self.namespace)
    }

    /// The owner of the marker `name`, if it is a marker of this namespace.
    fn trainer(&self, name: &str) -> Option<Identity> {
        let (namespace, rest) = name.split_once('-')?;
        let (trainer, rest) = Identity::parse(rest)?;
        (rest.is_empty() && namespace == self.namespace.to_string()).then_some(trainer)
    }
}

impl Marker {
    /// The marker's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The pid of the process that created the marker.
    pub(super) fn trainer(&self) -> Option<u32> {
        let (_, trainer) = self.folder.file_name()?.to_str()?.split_once('-')?;
        Identity::parse(trainer).map(|(identity, _)| identity.pid)
    }

    /// Shows the rank of the trainer.
    ///
    /// # Errors
    ///
    /// Returns the error of the file system if it cannot be written.
    pub fn set_rank(&self, rank: u32) -> io::Result<()> {
        match open(&self.folder.join(format!("{RANK}{rank}")), true) {
            // Another session of this process has shown it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            shown => shown.map(drop),
        }
    }

    /// The rank that its trainer shows.
    fn rank(&self) -> Option<u32> {
        let entries = fs::read_dir(&self.folder).ok()?;
        let rank = |name: &str| name.strip_prefix(RANK)?.parse().ok();
        (entries.flatten()).find_map(|entry| rank(entry.file_name().to_str()?))
    }

    /// Whether this call created the marker.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Whether the marker still exists. Costs one file-system call.
    pub fn exists(&self) -> bool {
        is_own(&self.folder)
    }

    /// Removes the marker with all files in it, and the folder of markers if that is then empty.
    /// Workers that are still running are not affected.
    pub fn remove(&self) {
        let _ = fs::remove_dir_all(&self.folder);
        if let Some(parent) = self.folder.parent() {
            // Fails if another trainer has a marker in the folder.
            let _ = fs::remove_dir(parent);
        }
    }
}

/// Creates a folder and one inside it. Returns whether the inner one was created now.
fn make_both(folder: &Path, inner: &Path) -> io::Result<bool> {
    make(folder)?;
    match make(inner) {
        // Another trainer has just ended and removed the outer folder.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make(folder)?;
            make(inner)
        }
        made => made,
    }
}

/// Ensures that a folder of this user alone exists. Returns whether it was created now.
fn make(folder: &Path) -> io::Result<bool> {
    let made = DirBuilder::new().mode(0o700).create(folder);
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ if is_own(folder) => Ok(made.is_ok()),
        _ => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("`{}` is not this user's alone", folder.display()),
        )),
    }
}

/// Whether it is a folder (not a link to one) that no other user can write to or list.
fn is_own(folder: &Path) -> bool {
    let user = geteuid().as_raw();
    let others = |mode: u32| mode & 0o077;
    fs::symlink_metadata(folder)
        .is_ok_and(|found| found.is_dir() && found.uid() == user && others(found.mode()) == 0)
}

/// Opens a file in a marker, or creates it, for this user alone. A link is not followed.
pub(super) fn open(path: &Path, new: bool) -> io::Result<fs::File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(new)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_marker_is_created_where_only_this_user_has_access() {
        let folder = tempfile::tempdir().unwrap();
        let places = Folders::below(&[folder.path()]);

        let marker = places.mark().unwrap();

        let again = places.mark().unwrap();
        assert_eq!(again.folder(), marker.folder());
        assert!(marker.is_new() && !again.is_new());
        for made in [marker.folder(), marker.folder().parent().unwrap()] {
            assert_eq!(fs::metadata(made).unwrap().mode() & 0o777, 0o700);
        }
        assert!(marker.exists());
        marker.remove();
        assert!(!marker.exists() && !marker.folder().exists());
    }

    #[test]
    fn removing_the_last_marker_removes_the_folder_of_markers() {
        let folder = tempfile::tempdir().unwrap();
        let places = Folders::below(&[folder.path()]);
        let marker = places.mark().unwrap();
        let of_another = places.folders[0].join("of another trainer");
        fs::create_dir(&of_another).unwrap();

        marker.remove();
        assert!(of_another.exists());
        fs::remove_dir(of_another).unwrap();
        places.mark().unwrap().remove();

        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_marker_names_its_trainer() {
        let folder = tempfile::tempdir().unwrap();
        let marker = Folders::below(&[folder.path()]).mark().unwrap();

        assert_eq!(marker.trainer(), Some(std::process::id()));
    }

    #[test]
    fn of_the_trainers_with_one_parent_that_of_the_lowest_rank_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let places = Folders::below(&[folder.path()]);
        let mut children: Vec<_> = (0..2)
            .map(|_| std::process::Command::new("cat"))
            .map(|mut cat| cat.stdin(std::process::Stdio::piped()).spawn().unwrap())
            .collect();
        let mark = |pid: u32, rank| {
            let identity = super::super::identity::of(pid).unwrap();
            let own = &places.folders[0];
            make(own).unwrap();
            let folder = own.join(places.name(identity));
            make(&folder).unwrap();
            let marker = Marker {
                folder,
                is_new: true,
            };
            marker.set_rank(rank).unwrap();
            // A later session shows the same rank.
            marker.set_rank(rank).unwrap();
            let file = fs::metadata(marker.folder.join(format!("{RANK}{rank}"))).unwrap();
            assert_eq!(file.mode() & 0o777, 0o600);
            marker
        };
        // The children are siblings of one another, not of this process.
        mark(children[0].id(), 1);
        mark(children[1].id(), 0);
        assert!(places.sibling_trainer().is_none());
        let found = places.sibling_trainer_of(std::process::id()).unwrap();
        assert_eq!(found.trainer(), Some(children[1].id()));

        for child in &mut children {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
        assert!(
            places.sibling_trainer_of(std::process::id()).is_none(),
            "they have ended"
        );
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_not_used() {
        let (open, next) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let places = Folders::below(&[open.path(), next.path()]);
        let taken = &places.folders[0];
        fs::create_dir(taken).unwrap();
        fs::set_permissions(taken, fs::Permissions::from_mode(0o777)).unwrap();

        assert!(places.mark().unwrap().folder().starts_with(next.path()));
        assert!(Folders::below(&[open.path()]).mark().is_err());
    }

    #[test]
    fn a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let places = Folders::below(&[folder.path()]);
        let elsewhere = folder.path().join("elsewhere");
        DirBuilder::new().mode(0o700).create(&elsewhere).unwrap();
        symlink(&elsewhere, &places.folders[0]).unwrap();

        assert!(places.mark().is_err());
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    }

    #[test]
    fn only_files_of_ended_trainers_of_this_namespace_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let places = Folders::below(&[folder.path()]);
        let own = places.mark().unwrap();
        let here = Identity::here().unwrap();
        let ended = Identity {
            started: here.started - 1,
            ..here
        };
        let make = |name: String| {
            let path = places.folders[0].join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("4720-1-0"), "x").unwrap();
            path
        };
        let left = make(places.name(ended));
        let of_another = make(format!("{}-{ended}", places.namespace + 1));
        let foreign = make("notes".to_owned());

        places.sweep();

        assert!(!left.exists());
        assert!(own.folder().exists() && of_another.exists() && foreign.exists());
    }
}
