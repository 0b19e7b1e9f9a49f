//! Parses lines of `/proc/self/mountinfo` (proc(5)), the table of mounts.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The fields of a line that this crate uses, as the kernel writes them.
pub(crate) struct MountLine<'a> {
    /// Numbers of the device: `major:minor`.
    pub(crate) numbers: &'a [u8],
    /// The part of the file system that is visible at the mount point.
    pub(crate) root: &'a [u8],
    /// The mount point.
    pub(crate) at: &'a [u8],
    /// Kind of file system.
    pub(crate) kind: &'a [u8],
    /// The path of the mounted device, or another name that the file system uses.
    pub(crate) source: &'a [u8],
    /// Options of the file system, separated by commas.
    pub(crate) options: &'a [u8],
}

impl<'a> MountLine<'a> {
    /// Parses a line; `None` if it is truncated.
    pub(crate) fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.split(|&byte| byte == b' ');
        let (numbers, root, at) = (fields.nth(2)?, fields.next()?, fields.next()?);
        // After the mount's own options, any number of optional fields up to a lone hyphen.
        let mut fields = fields.skip_while(|&field| field != b"-").skip(1);
        Some(Self {
            numbers,
            root,
            at,
            kind: fields.next()?,
            source: fields.next()?,
            options: fields.next()?,
        })
    }
}

/// Decodes a path, in which the kernel escapes space, tab, newline and backslash: a space is `\040`.
pub(crate) fn path(field: &[u8]) -> PathBuf {
    let octal = |digits: &[u8]| {
        let [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7'] = *digits else {
            return None;
        };
        Some((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'))
    };
    let mut bytes = Vec::with_capacity(field.len());
    let mut at = 0;
    while let Some(&byte) = field.get(at) {
        let escaped = field.get(at + 1..at + 4).and_then(octal);
        let escaped = escaped.filter(|_| byte == b'\\');
        bytes.push(escaped.unwrap_or(byte));
        at += if escaped.is_some() { 4 } else { 1 };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes_of(field: &[u8]) -> Vec<u8> {
        path(field).into_os_string().into_vec()
    }

    #[test]
    fn invalid_escapes_are_kept() {
        assert_eq!(bytes_of(br"\04"), br"\04");
        assert_eq!(bytes_of(br"\\040\400\"), br"\ \400\");
        assert_eq!(bytes_of(br"\048"), br"\048");
    }

    fn escape(bytes: &[u8]) -> Vec<u8> {
        let escape = |&byte: &u8| match byte {
            b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}").into_bytes(),
            _ => vec![byte],
        };
        bytes.iter().flat_map(escape).collect()
    }

    proptest! {
        #[test]
        fn a_path_equals_the_path_that_the_kernel_escaped(bytes: Vec<u8>) {
            prop_assert_eq!(bytes_of(&escape(&bytes)), bytes);
        }

        #[test]
        fn no_input_causes_a_panic(bytes: Vec<u8>) {
            let _ = MountLine::parse(&bytes);
        }
    }
}
