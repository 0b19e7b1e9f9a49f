//! Models of the ring with one writer and one reader. The ring of a model has four words.

use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::sync::check;

/// An event of two words. The second one shows whether both belong together.
fn event(number: u64) -> [u64; 2] {
    [number, !number]
}

/// Appends the events in the ring to `read`.
fn read_events(ring: &Ring, read: &mut Vec<u64>) {
    let mut words = ring.read();
    while let Some(number) = words.next() {
        assert_eq!(words.next(), Some(!number), "half of an event is missing");
        read.push(number);
    }
}

#[test]
fn each_written_event_is_read_once_whole_and_in_order() {
    check("ring", || {
        let ring = Arc::new(Ring::new());
        let writer = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                let fits = |number: &u64| ring.push(event(*number)) != Pushed::Full;
                (0..4).filter(fits).collect::<Vec<_>>()
            })
        };
        let mut read = Vec::new();
        read_events(&ring, &mut read);
        read_events(&ring, &mut read);
        let written = writer.join().unwrap();
        read_events(&ring, &mut read);

        assert_eq!(read, written);
        assert!(
            written.starts_with(&[0, 1]),
            "two events fit without a reader"
        );
    });
}
