//! Makes the page of a search: the results of `headspace tune` in a folder, with pictures.
//!
//! The file names are constants. The files are read for each request, because the search may still be
//! running. They are served only if the folder belongs to a search.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use headspace_exporters::run_folder::open_file;
use maud::{DOCTYPE, html};

use crate::page::Text;

/// Path of the page.
pub(super) const PAGE: &str = "/tuning";

/// The files that the page shows, with their media types.
pub(super) const FILES: [(&str, &str); 5] = [
    ("progress.svg", "image/svg+xml"),
    ("ladder.svg", "image/svg+xml"),
    ("tree.svg", "image/svg+xml"),
    ("results.tsv", "text/tab-separated-values; charset=utf-8"),
    ("experiments.jsonl", "application/x-ndjson"),
];

/// The content security policy of a picture: only styles.
pub(super) const PICTURE_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; sandbox; frame-ancestors 'none'";

/// Maximum size of a file that is read, in bytes.
const MOST: u64 = 16 << 20;

/// A folder with the results of a search.
#[derive(Debug, Clone)]
pub(super) struct Tuning {
    folder: PathBuf,
}

impl Tuning {
    /// The search in a folder; `None` if the folder belongs to no search.
    pub(super) fn find(folder: &Path) -> Option<Self> {
        let is_one = folder.join("results.tsv").is_file() && folder.join("experiments").is_dir();
        is_one.then(|| Self {
            folder: folder.to_owned(),
        })
    }

    /// The folder with links to the runs of its experiments.
    pub(super) fn runs(&self) -> PathBuf {
        self.folder.join("runs")
    }

    /// Reads one of [`FILES`].
    pub(super) fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        open_file(&self.folder.join(name))?
            .take(MOST)
            .read_to_end(&mut content)?;
        Ok(content)
    }

    /// The page.
    pub(super) fn page(&self) -> io::Result<String> {
        let table = self.read("results.tsv")?;
        let table = String::from_utf8_lossy(&table);
        let rows = table.lines().enumerate().map(|(row, line)| {
            let cells = line.split('\t').map(|text| text.replace("\\n", " "));
            html! {
                tr {
                    @for text in cells {
                        @if row == 0 { th { (Text(&text)) } } @else { td { (Text(&text)) } }
                    }
                }
                "\n"
            }
        });
        // Searches of versions up to 0.1.0 have no ladder.
        let has_ladder = self.folder.join("ladder.svg").is_file();
        let document = html! {
            (DOCTYPE) "\n"
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width";
                    meta http-equiv="refresh" content="15";
                    title { "headspace tune" }
                    link rel="icon" href="data:,";
                    link rel="stylesheet" href="/assets/page.css";
                }
                body {
                    header { div.part {
                        h1 {
                            span.brand { "headspace" } " tune "
                            span.run { (Text(&self.folder.display().to_string())) }
                        }
                        p {
                            a href="/" { "the newest run" } " · "
                            a href="/tuning/results.tsv" { "results.tsv" } " · "
                            a href="/tuning/experiments.jsonl" { "experiments.jsonl" }
                        }
                    } }
                    main {
                        section { div.scroll {
                            img src="/tuning/progress.svg" alt="The step of each experiment";
                        } }
                        @if has_ladder {
                            section { div.scroll {
                                img src="/tuning/ladder.svg" alt="What each change contributes";
                            } }
                        }
                        section { div.scroll {
                            img src="/tuning/tree.svg" alt="Which experiment led to which";
                        } }
                        section {
                            h2 { "Experiments" }
                            div.scroll { table { @for row in rows { (row) } } }
                        }
                    }
                }
            }
            "\n"
        };
        Ok(document.into_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_a_search_s_where_its_table_and_its_experiments_are() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Tuning::find(folder.path()).is_none());
        std::fs::write(folder.path().join("results.tsv"), "name\nbaseline\n").unwrap();
        assert!(Tuning::find(folder.path()).is_none());
        std::fs::create_dir(folder.path().join("experiments")).unwrap();
        assert!(Tuning::find(folder.path()).is_some());
    }

    #[test]
    fn a_page_shows_the_ladder_if_the_search_has_one() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("results.tsv"), "name\nbaseline\n").unwrap();
        std::fs::create_dir(folder.path().join("experiments")).unwrap();
        let tuning = Tuning::find(folder.path()).unwrap();
        assert!(!tuning.page().unwrap().contains("ladder.svg"));
        std::fs::write(folder.path().join("ladder.svg"), "<svg/>").unwrap();
        assert!(tuning.page().unwrap().contains("/tuning/ladder.svg"));
    }

    #[test]
    fn a_device_in_place_of_a_file_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("progress.svg");
        std::os::unix::fs::symlink("/dev/zero", file).unwrap();
        let tuning = Tuning {
            folder: folder.path().to_owned(),
        };
        let error = tuning.read("progress.svg").unwrap_err();
        assert_eq!(error.to_string(), "it is not a regular file");
    }

    #[test]
    fn text_in_the_table_is_never_markup() {
        let folder = tempfile::tempdir().unwrap();
        let table = "name\tnotes\n000\t<script>alert(1)</script>\\nmore\n";
        std::fs::write(folder.path().join("results.tsv"), table).unwrap();
        std::fs::create_dir(folder.path().join("experiments")).unwrap();
        let page = Tuning::find(folder.path()).unwrap().page().unwrap();
        assert!(page.contains("<th>notes</th>"));
        assert!(page.contains("<td>&lt;script&gt;alert(1)&lt;/script&gt; more</td>"));
        assert!(!page.contains("<script"));
    }
}
