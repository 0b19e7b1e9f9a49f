//! Texts about a data set and the memory that can hold it.

use super::units::{bytes, duration_s, percent};
use crate::analysis::working_set::LaterEpochs;

/// What happens from the second epoch on, in sentences.
pub fn later_epochs(later: &LaterEpochs) -> String {
    if later.fits {
        return "The data set fits into the memory: from the second epoch on, it is read from there, as long as nothing else \
                needs the memory, also not the training program itself."
            .to_owned();
    }
    let pct = |share: f64| percent(100.0 * share, 0);
    let shares = format!(
        "The data set does not fit into the memory. From the second epoch on, about {} % of it still comes from storage if \
         each epoch has a new random order (at least {} %), and all of it if each epoch has the same order.",
        pct(later.random_storage_share),
        pct(later.least_storage_share)
    );
    let Some((random, warm)) = later.random_read_s.zip(later.warm_read_s) else {
        return shares;
    };
    format!(
        "{shares} One reader then needs about {} for an epoch in random order, and {} if all were in memory.",
        duration_s(random),
        duration_s(warm)
    )
}

/// Bytes per second.
pub fn rate(bytes_per_s: f64) -> String {
    format!("{}/s", bytes(bytes_per_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_set_that_does_not_fit_has_both_orders_and_the_time_of_an_epoch_if_known() {
        let later = LaterEpochs {
            fits: false,
            random_storage_share: 0.812,
            least_storage_share: 0.45,
            same_order_storage_share: 1.0,
            random_read_s: None,
            warm_read_s: None,
        };
        let shares = "The data set does not fit into the memory. From the second epoch on, about 81 % of it still comes from \
                      storage if each epoch has a new random order (at least 45 %), and all of it if each epoch has the same \
                      order.";
        assert_eq!(later_epochs(&later), shares);

        let timed = LaterEpochs {
            random_read_s: Some(580.0),
            warm_read_s: Some(50.0),
            ..later
        };
        let text = later_epochs(&timed);
        assert!(
            text.starts_with(shares) && text.contains("One reader"),
            "{text}"
        );
    }
}
