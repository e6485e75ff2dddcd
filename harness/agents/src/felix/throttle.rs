//! How often Felix goes through its tables (`felix/throttle` and `int_dataplane.go`): a bucket of ten
//! passes, of which one is there at the start and one comes each 100 ms.

use std::time::Duration;

const BUCKET: u32 = 10;
const REFILL: Duration = Duration::from_millis(100);

/// The bucket.
#[derive(Debug)]
pub(super) struct Throttle {
    passes: u32,
    /// When the next pass comes.
    refill: Duration,
}

impl Throttle {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            passes: 1,
            refill: now + REFILL,
        }
    }

    /// Takes a pass if there is one.
    pub(super) fn admit(&mut self, now: Duration) -> bool {
        while now >= self.refill {
            self.passes = (self.passes + 1).min(BUCKET);
            // A full bucket need not count through an idle hour.
            self.refill = if self.passes == BUCKET {
                now
            } else {
                self.refill
            } + REFILL;
        }
        let admitted = self.passes > 0;
        self.passes -= u32::from(admitted);
        admitted
    }

    /// When the next pass comes.
    pub(super) fn next(&self) -> Duration {
        self.refill
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_passes_at_once_then_one_each_hundred_milliseconds() {
        let mut throttle = Throttle::new(Duration::ZERO);
        assert!(throttle.admit(Duration::ZERO));
        assert!(!throttle.admit(Duration::from_millis(99)));
        assert!(throttle.admit(Duration::from_millis(100)));
        let later = Duration::from_secs(3600);
        let burst = (0..20).filter(|_| throttle.admit(later)).count();
        assert_eq!(burst, 10);
        assert!(!throttle.admit(later + Duration::from_millis(50)));
        assert!(throttle.admit(throttle.next()));
    }
}
