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
    let least = pct(later.least_storage_share);
    let all = match later.same_order_storage_share {
        1.0.. => "all".to_owned(),
        stored => format!("{} %", pct(stored)),
    };
    let shares = match later.random_storage_share {
        Some(random) => format!(
            "From the second epoch on, about {} % of it still comes from storage if each epoch reads whole files in a new \
             random order (at least {least} %), and {all} of it if each epoch has the same order.",
            pct(random)
        ),
        None => format!(
            "Its files are large, so the page cache holds parts of them. From the second epoch on, {all} of it still comes \
             from storage if each epoch reads it from the start to the end. If samples are read at random places, at least \
             {least} % of the reads come from storage, and the kernel may read more than they need (read-ahead)."
        ),
    };
    format!(
        "The data set does not fit into the memory. {shares}{}",
        read_times(later).unwrap_or_default()
    )
}

/// How long one reader takes, as a sentence after others. `None` if the rate from storage is unknown.
fn read_times(later: &LaterEpochs) -> Option<String> {
    let same_order = duration_s(later.same_order_read_s?);
    let order = if later.files_are_large {
        "from the start to the end"
    } else {
        "in the same order"
    };
    let times = match later.random_read_s {
        Some(random) => format!(
            "{} for an epoch in random order, {same_order} {order}",
            duration_s(random)
        ),
        None => format!("{same_order} for an epoch {order}"),
    };
    let warm =
        (later.warm_read_s).map(|s| format!(", and {} if all were in memory", duration_s(s)));
    Some(format!(
        " One reader then needs about {times}{}.",
        warm.unwrap_or_default()
    ))
}

/// Bytes per second.
pub fn rate(bytes_per_s: f64) -> String {
    format!("{}/s", bytes(bytes_per_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL_FILES: LaterEpochs = LaterEpochs {
        fits: false,
        files_are_large: false,
        random_storage_share: Some(0.812),
        least_storage_share: 0.45,
        same_order_storage_share: 1.0,
        random_read_s: None,
        same_order_read_s: None,
        warm_read_s: None,
    };

    #[test]
    fn a_data_set_that_does_not_fit_has_both_orders_and_the_time_of_an_epoch_if_known() {
        let shares = "The data set does not fit into the memory. From the second epoch on, about 81 % of it still comes from \
                      storage if each epoch reads whole files in a new random order (at least 45 %), and all of it if each \
                      epoch has the same order.";
        assert_eq!(later_epochs(&SMALL_FILES), shares);

        let timed = LaterEpochs {
            random_read_s: Some(580.0),
            same_order_read_s: Some(700.0),
            warm_read_s: Some(50.0),
            ..SMALL_FILES
        };
        assert_eq!(
            later_epochs(&timed),
            format!(
                "{shares} One reader then needs about 580 s for an epoch in random order, 11 min 40 s in the same order, and \
                 50.0 s if all were in memory."
            )
        );
        let never_cached = LaterEpochs {
            same_order_read_s: Some(700.0),
            ..SMALL_FILES
        };
        assert_eq!(
            later_epochs(&never_cached),
            format!(
                "{shares} One reader then needs about 11 min 40 s for an epoch in the same order."
            )
        );
    }

    #[test]
    fn of_large_files_the_text_names_parts_and_the_time_of_a_pass() {
        let large = LaterEpochs {
            files_are_large: true,
            random_storage_share: None,
            same_order_read_s: Some(135.0),
            ..SMALL_FILES
        };
        assert_eq!(
            later_epochs(&large),
            "The data set does not fit into the memory. Its files are large, so the page cache holds parts of them. From the \
             second epoch on, all of it still comes from storage if each epoch reads it from the start to the end. If samples \
             are read at random places, at least 45 % of the reads come from storage, and the kernel may read more than they \
             need (read-ahead). One reader then needs about 135 s for an epoch from the start to the end."
        );
    }
}
