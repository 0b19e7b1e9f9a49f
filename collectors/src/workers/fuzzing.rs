//! The parsers of the names of files in a trainer's marker. Another process of the user may create any name.

use super::Identity;
use crate::procfs::fuzzing::Parsers;

pub(crate) const PARSERS: Parsers = &[("name of a worker's file", |bytes| {
    let name = String::from_utf8_lossy(bytes);
    if let Some((identity, rest)) = Identity::parse(&name) {
        assert!(name.ends_with(rest));
        let again = identity.to_string();
        assert!(Identity::parse(&again).is_some_and(|(same, _)| same == identity));
    }
})];
