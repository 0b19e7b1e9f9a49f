//! Reports tests that cannot run on this machine.

/// Prints that a test cannot run here. With `CI=true` that is a failure, unless no installation could
/// provide what is missing: then `reason` begins with `platform: `.
pub(crate) fn not_here(reason: &str) {
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    assert!(
        !in_ci || reason.starts_with("platform: "),
        "skipped in CI: {reason}"
    );
    eprintln!("skipped: {reason}");
}
