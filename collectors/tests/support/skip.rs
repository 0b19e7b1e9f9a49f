//! Reports tests that cannot run on this machine.

/// Prints that a test cannot run here. With `CI=true` this is a failure, unless `reason` begins with
/// `platform: `, which means that the test needs something that cannot be installed.
pub(crate) fn not_here(reason: &str) {
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    assert!(
        !in_ci || reason.starts_with("platform: "),
        "skipped in CI: {reason}"
    );
    eprintln!("skipped: {reason}");
}
