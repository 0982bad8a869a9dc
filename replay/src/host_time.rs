//! Host time per token: the median of the last tokens, in fixed memory.
//!
//! A mean would state how busy the host's other programs are: one lost time slice is a thousand
//! times longer than a token's host path.

use std::time::Duration;

/// Tokens that the median is taken over.
const WINDOW: usize = 1024;

/// Durations of the last [`WINDOW`] tokens.
#[derive(Debug, Clone)]
pub struct HostTimes {
    nanoseconds: Box<[u32]>,
    count: u64,
}

impl Default for HostTimes {
    fn default() -> Self {
        Self {
            nanoseconds: vec![0; WINDOW].into(),
            count: 0,
        }
    }
}

impl HostTimes {
    /// Adds one token's duration; above 4.29 s it counts as 4.29 s. Allocates nothing.
    pub fn add(&mut self, duration: Duration) {
        let index = (self.count % WINDOW as u64) as usize;
        if let Some(slot) = self.nanoseconds.get_mut(index) {
            *slot = u32::try_from(duration.as_nanos()).unwrap_or(u32::MAX);
        }
        self.count += 1;
    }

    /// Tokens added.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Median in microseconds; `None` before the first token.
    pub fn median_us(&self) -> Option<f64> {
        let filled = self.count.min(WINDOW as u64) as usize;
        let mut sorted = self.nanoseconds.get(..filled)?.to_vec();
        sorted.sort_unstable();
        let upper = *sorted.get(filled / 2)?;
        let lower = sorted
            .get(filled.saturating_sub(1) / 2)
            .copied()
            .unwrap_or(upper);
        Some((f64::from(lower) + f64::from(upper)) / 2e3)
    }
}

#[cfg(test)]
mod tests {
    use super::{HostTimes, WINDOW};
    use std::time::Duration;

    #[test]
    fn the_median_is_of_the_last_tokens_and_ignores_outliers() {
        let mut times = HostTimes::default();
        assert_eq!(times.median_us(), None);
        times.add(Duration::from_micros(4));
        assert_eq!(times.median_us(), Some(4.0));
        times.add(Duration::from_micros(8));
        assert_eq!(times.median_us(), Some(6.0));
        times.add(Duration::from_secs(100));
        assert_eq!(times.median_us(), Some(8.0));
        for _ in 0..WINDOW {
            times.add(Duration::from_nanos(1500));
        }
        assert_eq!(times.median_us(), Some(1.5));
        assert_eq!(times.count(), 3 + WINDOW as u64);
    }
}
