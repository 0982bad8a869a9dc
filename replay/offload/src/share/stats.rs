//! Running statistics of constant size: means, smoothed values, weighted lines, the floor of a join.

/// Mean and spread of all values since the last reset.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mean {
    pub(super) count: u32,
    pub(super) mean: f64,
    m2: f64,
    odd: u8,
}

/// A value beyond this multiple of the mean does not count, unless two follow each other.
const ODD_RATIO: f64 = 2.5;

impl Mean {
    /// Takes a value in; false if it was set aside as an outlier. Two odd ones in a row are no accident:
    /// the mean starts again from them.
    pub(super) fn push(&mut self, value: f64) -> bool {
        if self.count >= 3 && (value > ODD_RATIO * self.mean || value * ODD_RATIO < self.mean) {
            self.odd += 1;
            if self.odd < 2 {
                return false;
            }
            *self = Mean::default();
        }
        self.odd = 0;
        self.count += 1;
        let off = value - self.mean;
        self.mean += off / f64::from(self.count);
        self.m2 += off * (value - self.mean);
        true
    }

    /// Sum of squared relative deviations, and its degrees of freedom.
    pub(super) fn relative_squares(&self) -> (f64, u32) {
        if self.mean > 0.0 {
            (
                self.m2 / (self.mean * self.mean),
                self.count.saturating_sub(1),
            )
        } else {
            (0.0, 0)
        }
    }

    /// Relative standard deviation; zero below two values.
    pub(super) fn spread(&self) -> f64 {
        match self.relative_squares() {
            (_, 0) => 0.0,
            (squares, freedom) => (squares / f64::from(freedom)).max(0.0).sqrt(),
        }
    }
}

/// An exponentially smoothed value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Smooth {
    pub(super) value: f64,
    weight: f64,
}

impl Smooth {
    /// Starts at `value`; each later one counts `weight`.
    pub(super) fn new(value: f64, weight: f64) -> Smooth {
        Smooth { value, weight }
    }

    pub(super) fn push(&mut self, value: f64) {
        self.value += self.weight * (value - self.value);
    }
}

/// A line through weighted points whose past fades: time of an arm as a function of its part of the
/// rows, intercept (what it costs before its first row) not negative.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Line {
    weight: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

/// Points closer together than this say little about a slope.
const NARROW: f64 = 0.03;

impl Line {
    /// Takes a point in; all earlier ones count `keep` times as much as before.
    pub(super) fn push(&mut self, x: f64, y: f64, keep: f64) {
        self.fade(keep);
        self.weight += 1.0;
        self.x += x;
        self.y += y;
        self.xx += x * x;
        self.xy += x * y;
    }

    /// Makes all points count `keep` times as much as before.
    pub(super) fn fade(&mut self, keep: f64) {
        self.weight *= keep;
        self.x *= keep;
        self.y *= keep;
        self.xx *= keep;
        self.xy *= keep;
    }

    /// Intercept and slope; `None` without points. A slope that the points do not determine is the one
    /// of a line through the origin, which is the closed form of two rates.
    pub(super) fn fit(&self) -> Option<(f64, f64)> {
        if self.weight <= 0.0 || self.x <= 0.0 || self.y <= 0.0 {
            return None;
        }
        let (x, y) = (self.x / self.weight, self.y / self.weight);
        let through_origin = y / x;
        let sxx = (self.xx - self.weight * x * x).max(0.0);
        let sxy = self.xy - self.weight * x * y;
        let prior = self.weight * NARROW * NARROW;
        let slope = (sxy + prior * through_origin) / (sxx + prior);
        let slope = slope.clamp(0.05 * through_origin, 1.25 * through_origin);
        Some((y - slope * x, slope))
    }
}

/// The join of a shape when the GPU is not waited for: the least of the last 32 to 64 joins, so it falls
/// at once and may also rise.
#[derive(Debug, Clone, Copy)]
pub(super) struct JoinFloor {
    current: u64,
    before: u64,
    seen: u32,
}

/// Joins after which the older half is forgotten.
const FLOOR_WINDOW: u32 = 32;

impl JoinFloor {
    pub(super) fn new() -> JoinFloor {
        JoinFloor {
            current: u64::MAX,
            before: u64::MAX,
            seen: 0,
        }
    }

    pub(super) fn is_known(&self) -> bool {
        self.current.min(self.before) != u64::MAX
    }

    pub(super) fn push(&mut self, join_ns: u64) {
        if self.seen == FLOOR_WINDOW {
            self.before = self.current;
            self.current = u64::MAX;
            self.seen = 0;
        }
        self.seen += 1;
        self.current = self.current.min(join_ns);
    }

    /// How long the GPU was waited for beyond the floor; zero inside the margin of 1 to 10 µs.
    pub(super) fn excess(&self, join_ns: u64) -> u64 {
        let floor = self.current.min(self.before);
        if floor == u64::MAX {
            return 0;
        }
        let margin = (floor / 4).clamp(1_000, 10_000);
        let excess = join_ns.saturating_sub(floor);
        if excess > margin { excess } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::{JoinFloor, Line, Mean};

    #[test]
    fn lines_are_found_and_never_start_below_zero() {
        let mut line = Line::default();
        for x in [0.2, 0.5, 0.9] {
            line.push(x, 10.0 + 40.0 * x, 1.0);
        }
        let (intercept, slope) = line.fit().unwrap();
        assert!((intercept - 10.0).abs() < 0.5 && (slope - 40.0).abs() < 1.0);
        let mut narrow = Line::default();
        narrow.push(0.5, 50.0, 1.0);
        narrow.push(0.5, 52.0, 1.0);
        assert_eq!(narrow.fit().unwrap(), (0.0, 102.0));
        assert!(Line::default().fit().is_none());
    }

    #[test]
    fn one_odd_value_is_set_aside_and_two_are_believed() {
        let mut mean = Mean::default();
        for value in [10.0, 11.0, 9.0] {
            assert!(mean.push(value));
        }
        assert!(!mean.push(100.0));
        assert!((mean.mean - 10.0).abs() < 1e-9);
        assert!(!mean.push(100.0) || mean.count == 1);
        assert!((mean.mean - 100.0).abs() < 1e-9);
    }

    #[test]
    fn the_floor_falls_at_once_and_rises_after_its_window() {
        let mut floor = JoinFloor::new();
        floor.push(5_000);
        floor.push(3_000);
        assert_eq!(floor.excess(20_000), 17_000);
        assert_eq!(floor.excess(3_900), 0);
        for _ in 0..32 {
            floor.push(15_000);
        }
        assert_eq!(floor.excess(18_000), 15_000, "the older half still counts");
        for _ in 0..32 {
            floor.push(15_000);
        }
        assert_eq!(floor.excess(18_000), 0);
        assert_eq!(floor.excess(25_000), 10_000);
    }
}
