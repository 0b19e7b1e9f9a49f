//! What the name of a stage suggests about its work.

/// Whether the name suggests that the stage decodes images or video.
pub(super) fn has_decoding_name(name: &str) -> bool {
    has_word(name, &["dec", "video"])
}

/// Whether the name contains one of the words, in lower or upper case.
pub(super) fn has_word(name: &str, words: &[&str]) -> bool {
    let name = name.to_lowercase();
    words.iter().any(|word| name.contains(word))
}
