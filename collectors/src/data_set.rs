//! Measures a data set on disk: its size, how much of it is in the page cache, and how fast it is read.
//!
//! This opens and reads files, so it is for a command, not for a training process: a file system that does not answer stops it.
//! It changes nothing, except that files it reads are in the page cache afterwards.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use headspace_agent::statistics::bootstrap::Rng;
use rustix::fs::SeekFrom as SeekTo;

/// Maximum number of files of which the cached pages are counted.
const MAX_SAMPLE: usize = 4096;

/// How long files are searched.
const MAX_SEARCH: Duration = Duration::from_secs(60);

/// How much is read, and for how long, to measure a rate.
const MAX_READ_BYTES: u64 = 256 << 20;
const MAX_READ: Duration = Duration::from_secs(2);

/// Largest part of a file that is read at once. A file that does not fit into the memory is rarely cached as a whole, or not at
/// all.
const MAX_PART: u64 = 16 << 20;

/// Minimum number of bytes for a rate.
pub const MIN_READ_BYTES: u64 = 4 << 20;

/// A data set.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DataSet {
    /// Number of distinct files. A file with several names counts once.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Whether all files were found in time.
    pub complete: bool,
    /// Files that could not be read: of a folder, its name.
    pub unreadable: u64,
    /// Number of files of the sample from which the following values come.
    pub sampled: u64,
    /// Share of the sample's bytes that are holes of sparse files. They are read as zeros, without storage.
    pub hole_share: f64,
    /// Share of the sample's bytes that are in the page cache. `None` if the kernel does not tell (before Linux 6.5).
    pub cached_share: Option<f64>,
    /// Bytes per second of one reader, from parts of files without a hole and without a page in the page cache. `None` if the
    /// sample has too few.
    pub cold_bytes_per_s: Option<f64>,
    /// The same from parts that are in the page cache.
    pub warm_bytes_per_s: Option<f64>,
}

/// A file of the sample.
struct Sampled {
    path: PathBuf,
    bytes: u64,
    /// Bytes in holes.
    holes: u64,
    /// Bytes in the page cache.
    cached: Option<u64>,
}

impl Sampled {
    fn new((path, bytes): (PathBuf, u64)) -> Self {
        let open = File::open(&path).ok();
        Self {
            holes: (open.as_ref()).map_or(0, |file| bytes_in_holes(file, bytes)),
            cached: open.and_then(|file| cached_bytes(&file, 0..bytes)),
            path,
            bytes,
        }
    }
}

/// A part of a file.
struct Part<'a> {
    path: &'a Path,
    range: Range<u64>,
}

/// Measures the files in these folders, and these files.
pub fn measure(paths: &[PathBuf]) -> DataSet {
    let mut search = Search::default();
    let begin = Instant::now();
    search.complete = paths
        .iter()
        .all(|path| search.add(path, begin + MAX_SEARCH));
    let sample: Vec<Sampled> = search.sample.into_iter().map(Sampled::new).collect();
    let sampled_bytes: u64 = sample.iter().map(|file| file.bytes).sum();
    let holes: u64 = sample.iter().map(|file| file.holes).sum();
    let known = || sample.iter().filter(|file| file.cached.is_some());
    let known_bytes: u64 = known().map(|file| file.bytes).sum();
    let cached: u64 = known().filter_map(|file| file.cached).sum();
    let cold_bytes_per_s = read_rate(&find_parts(&sample, Cached::Nothing));
    // What has just been read from storage is in the page cache now.
    let warm_bytes_per_s = read_rate(&find_parts(&sample, Cached::All));
    DataSet {
        files: search.files,
        bytes: search.bytes,
        complete: search.complete,
        unreadable: search.unreadable,
        sampled: sample.len() as u64,
        cached_share: (known_bytes > 0).then(|| (cached as f64 / known_bytes as f64).min(1.0)),
        hole_share: holes as f64 / sampled_bytes.max(1) as f64,
        cold_bytes_per_s,
        warm_bytes_per_s,
    }
}

/// The files found so far.
struct Search {
    seen: HashSet<(u64, u64)>,
    files: u64,
    bytes: u64,
    unreadable: u64,
    complete: bool,
    /// Files drawn with equal probability (Vitter's algorithm R, ACM Transactions on Mathematical Software 11, 1985).
    sample: Vec<(PathBuf, u64)>,
    random: Rng,
}

impl Default for Search {
    fn default() -> Self {
        Self {
            seen: HashSet::new(),
            files: 0,
            bytes: 0,
            unreadable: 0,
            complete: false,
            sample: Vec::new(),
            // The same sample in each run.
            random: Rng::new(0),
        }
    }
}

impl Search {
    /// Adds what is at or below this path. Returns whether all was found in time.
    fn add(&mut self, path: &Path, until: Instant) -> bool {
        let mut left = vec![path.to_owned()];
        while let Some(path) = left.pop() {
            if Instant::now() > until {
                return false;
            }
            // Follows symbolic links: data sets often consist of them. A file or folder counts once.
            let Ok(found) = fs::metadata(&path) else {
                self.unreadable += 1;
                continue;
            };
            if !self.seen.insert((found.dev(), found.ino())) {
                continue;
            }
            if found.is_dir() {
                match fs::read_dir(&path) {
                    Ok(entries) => left.extend(entries.flatten().map(|entry| entry.path())),
                    Err(_) => self.unreadable += 1,
                }
            } else if found.is_file() {
                self.add_file(path, found.len());
            }
        }
        true
    }

    fn add_file(&mut self, path: PathBuf, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
        if self.sample.len() < MAX_SAMPLE {
            self.sample.push((path, bytes));
            return;
        }
        let place = self
            .random
            .below(usize::try_from(self.files).unwrap_or(usize::MAX));
        if let Some(replaced) = self.sample.get_mut(place) {
            *replaced = (path, bytes);
        }
    }
}

/// How much of a part is in the page cache.
#[derive(Clone, Copy, PartialEq)]
enum Cached {
    Nothing,
    All,
}

/// Parts of these files without a hole, of which all or nothing is cached, until they are enough for a rate.
fn find_parts(sample: &[Sampled], wanted: Cached) -> Vec<Part<'_>> {
    let (mut parts, mut found_bytes, end) = (Vec::new(), 0, Instant::now() + MAX_READ);
    for file in sample.iter().filter(|file| file.cached.is_some()) {
        let Ok(open) = File::open(&file.path) else {
            continue;
        };
        let mut start = 0;
        while start < file.bytes {
            if found_bytes >= MAX_READ_BYTES || Instant::now() >= end {
                return parts;
            }
            let range = start..file.bytes.min(start + MAX_PART);
            let is_wanted = match (cached_bytes(&open, range.clone()), wanted) {
                (Some(cached), Cached::All) => cached >= range.end - range.start,
                (Some(cached), Cached::Nothing) => cached == 0,
                (None, _) => false,
            };
            start = range.end;
            if is_wanted && !has_hole(&open, &range) {
                found_bytes += range.end - range.start;
                let path = &file.path;
                parts.push(Part { path, range });
            }
        }
    }
    parts
}

/// Whether a part of a file has a hole. A file system that does not tell says that it has none.
fn has_hole(file: &File, range: &Range<u64>) -> bool {
    rustix::fs::seek(file, SeekTo::Hole(range.start)).is_ok_and(|hole| hole < range.end)
}

/// Bytes of a sparse file for which nothing is stored. A compressed file has fewer blocks too, but no hole.
fn bytes_in_holes(file: &File, bytes: u64) -> u64 {
    /// The unit of `st_blocks` on Linux.
    const BLOCK: u64 = 512;
    if bytes == 0 || !has_hole(file, &(0..bytes)) {
        return 0;
    }
    let stored = file
        .metadata()
        .map_or(bytes, |found| found.blocks() * BLOCK);
    bytes.saturating_sub(stored)
}

/// Bytes of a part of a file in the page cache. `None` if the kernel does not tell.
fn cached_bytes(file: &File, range: Range<u64>) -> Option<u64> {
    let page = u64::try_from(rustix::param::page_size()).ok()?;
    let pages = cached_pages(file, range)?;
    Some(pages * page)
}

/// `cachestat(2)`, which libc does not wrap. Its number is the same on all architectures with the generic table, and on x86.
#[cfg(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    target_arch = "riscv64"
))]
fn cached_pages(file: &File, range: Range<u64>) -> Option<u64> {
    const CACHESTAT: libc::c_long = 451;
    // `struct cachestat_range`: offset and length. The length 0 means up to the end of the file.
    let range = [range.start, range.end - range.start];
    // `struct cachestat`: pages that are cached, dirty, in writeback, evicted, and recently evicted.
    let mut counts = [0_u64; 5];
    // SAFETY: the file is open during the call. `range` and `counts` have the layout of the structures in linux/mman.h, two and
    // five numbers of 64 bits, and live longer than the call. An older kernel returns ENOSYS and accesses neither.
    let result = unsafe {
        libc::syscall(
            CACHESTAT,
            file.as_raw_fd(),
            range.as_ptr(),
            counts.as_mut_ptr(),
            0,
        )
    };
    (result == 0).then_some(counts[0])
}

#[cfg(not(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    target_arch = "riscv64"
)))]
fn cached_pages(_: &File, _: Range<u64>) -> Option<u64> {
    None
}

/// Bytes per second of one reader. `None` if too little was read.
fn read_rate(parts: &[Part<'_>]) -> Option<f64> {
    let mut buffer = vec![0; 1 << 20];
    let (begin, mut bytes) = (Instant::now(), 0);
    'parts: for Part { path, range } in parts {
        let Ok(mut open) = File::open(path) else {
            continue;
        };
        if open.seek(SeekFrom::Start(range.start)).is_err() {
            continue;
        }
        let mut part = open.take(range.end - range.start);
        while let Ok(read @ 1..) = part.read(&mut buffer) {
            bytes += read as u64;
            if bytes >= MAX_READ_BYTES || begin.elapsed() >= MAX_READ {
                break 'parts;
            }
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    (bytes >= MIN_READ_BYTES && seconds > 0.0).then(|| bytes as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::slice;

    use rustix::fs::{Advice, fadvise, fsync};

    use super::*;

    /// Drops a file from the page cache.
    fn evict(path: &Path) {
        let file = File::open(path).unwrap();
        fsync(&file).unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    }

    #[test]
    fn each_file_counts_once_under_all_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("sub")).unwrap();
        fs::write(at("a"), [1; 100]).unwrap();
        fs::write(at("sub/b"), [1; 20]).unwrap();
        fs::hard_link(at("a"), at("sub/a")).unwrap();
        symlink(at("sub/b"), at("link")).unwrap();
        symlink(folder.path(), at("sub/loop")).unwrap();
        symlink("/nowhere", at("broken")).unwrap();

        let found = measure(&[folder.path().to_owned(), at("a")]);

        assert_eq!((found.files, found.bytes, found.sampled), (2, 120, 2));
        assert_eq!((found.complete, found.unreadable), (true, 1));
    }

    #[test]
    fn the_sample_of_a_large_data_set_has_files_of_all_of_it() {
        let mut search = Search::default();
        for number in 0..100_000_u64 {
            search.add_file(PathBuf::new(), number);
        }

        assert_eq!((search.files, search.sample.len()), (100_000, MAX_SAMPLE));
        let late = search.sample.iter().filter(|(_, at)| *at >= 50_000).count();
        assert!((1800..2300).contains(&late), "{late}");
    }

    #[test]
    fn cached_files_and_evicted_ones_are_told_apart() {
        // The default folder may be in memory, from where nothing is evicted.
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let at = |number: u32| folder.path().join(number.to_string());
        for number in 0..4 {
            fs::write(at(number), vec![1; 4 << 20]).unwrap();
        }
        let whole = measure(&[folder.path().to_owned()]);
        if whole.cached_share.is_none() {
            return; // Linux before 6.5.
        }
        evict(&at(0));
        evict(&at(1));
        let half = measure(&[folder.path().to_owned()]);

        assert_eq!(whole.cached_share, Some(1.0));
        assert!(whole.warm_bytes_per_s.is_some() && whole.cold_bytes_per_s.is_none());
        assert!((0.4..0.6).contains(&half.cached_share.unwrap()), "{half:?}");
        assert!(half.warm_bytes_per_s.is_some() && half.cold_bytes_per_s.is_some());
        assert!(whole.hole_share.abs() < 1e-9);
    }

    #[test]
    fn one_file_of_which_a_part_is_cached_has_both_rates_and_an_uncached_one_too() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = folder.path().join("data.lmdb");
        fs::write(&path, vec![1; 3 << 24]).unwrap();
        if measure(slice::from_ref(&path)).cached_share.is_none() {
            return; // Linux before 6.5.
        }
        evict(&path);
        let uncached = measure(slice::from_ref(&path));
        evict(&path);
        let mut buffer = vec![0; 20 << 20];
        File::open(&path).unwrap().read_exact(&mut buffer).unwrap();
        let partly = measure(slice::from_ref(&path));

        assert!(partly.cached_share.unwrap() < 0.7, "{partly:?}");
        for found in [uncached, partly] {
            assert!(
                found.cold_bytes_per_s.is_some() && found.warm_bytes_per_s.is_some(),
                "{found:?}"
            );
        }
    }

    #[test]
    fn holes_are_not_stored_and_their_speed_is_not_that_of_the_storage() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = folder.path().join("sparse");
        fs::write(&path, vec![1; 16 << 20]).unwrap();
        File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_len(64 << 20))
            .unwrap();
        evict(&path);
        let found = measure(slice::from_ref(&path));

        assert_eq!(found.bytes, 64 << 20);
        assert!((found.hole_share - 0.75).abs() < 0.01, "{found:?}");

        File::create(&path).unwrap().set_len(64 << 20).unwrap();
        let empty = measure(slice::from_ref(&path));

        assert!((empty.hole_share - 1.0).abs() < 0.01, "{empty:?}");
        assert_eq!(
            (empty.cold_bytes_per_s, empty.warm_bytes_per_s),
            (None, None)
        );
    }
}
