//! Statistics of a benchmark: medians, slopes, spreads, outliers, paired ratios and bootstrap
//! intervals, as pure functions of series. Whether a series may be reported is the gate's
//! question; where values come from is left to others.

/// Resamples of a bootstrap interval.
pub const RESAMPLES: usize = 2000;
/// Probability mass outside a bootstrap interval: 95 % intervals.
pub const ALPHA: f64 = 0.05;

/// The middle value, or the mean of the two middle ones; `None` of nothing or of a NaN.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The quantile `q` from 0 to 1, linear between neighbours; `None` of nothing or of a NaN.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    if values.iter().any(|value| value.is_nan()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let at = q.clamp(0.0, 1.0) * last as f64;
    let (below, above) = (at.floor() as usize, at.ceil() as usize);
    let (low, high) = (*sorted.get(below)?, *sorted.get(above)?);
    Some(low + (high - low) * (at - below as f64))
}

/// Least-squares slope per row as a share of the median, e.g. 0.0005 for 0.05 % a row. 0 for one
/// row; `None` where there is no median above 0.
pub fn slope(values: &[f64]) -> Option<f64> {
    let middle = median(values).filter(|middle| *middle > 0.0)?;
    let count = values.len() as f64;
    let mean_x = (count - 1.0) / 2.0;
    let mean_y = values.iter().sum::<f64>() / count;
    let (mut products, mut squares) = (0.0, 0.0);
    for (index, value) in values.iter().enumerate() {
        let x = index as f64 - mean_x;
        products += x * (value - mean_y);
        squares += x * x;
    }
    Some(if squares > 0.0 {
        products / squares / middle
    } else {
        0.0
    })
}

/// Largest less smallest as a share of the median.
pub fn spread(values: &[f64]) -> Option<f64> {
    let middle = median(values).filter(|middle| *middle > 0.0)?;
    let largest = values.iter().copied().fold(f64::MIN, f64::max);
    let smallest = values.iter().copied().fold(f64::MAX, f64::min);
    Some((largest - smallest) / middle)
}

/// Distance of two medians as a share of the first.
pub fn drift(first: &[f64], second: &[f64]) -> Option<f64> {
    let (first, second) = (median(first)?, median(second)?);
    (first > 0.0).then(|| (second - first).abs() / first)
}

/// Indices of values further from the median than three times the scaled median absolute deviation
/// (1.4826 makes it a standard deviation for normal values). They are marked, never dropped.
pub fn outliers(values: &[f64]) -> Vec<usize> {
    let Some(middle) = median(values) else {
        return Vec::new();
    };
    let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    let Some(deviation) = median(&distances) else {
        return Vec::new();
    };
    let limit = 3.0 * 1.4826 * deviation;
    let far = distances.iter().enumerate();
    far.filter(|(_, distance)| deviation > 0.0 && **distance > limit)
        .map(|(index, _)| index)
        .collect()
}

/// Row by row `base / other`: above 1 where the other is faster. Rows of one round pair up.
pub fn paired_ratios(base: &[f64], other: &[f64]) -> Vec<f64> {
    let pairs = base.iter().zip(other);
    pairs
        .filter(|(_, other)| **other > 0.0)
        .map(|(base, other)| base / other)
        .collect()
}

/// A generator for resampling: SplitMix64 (Steele, Lea, Flood 2014), the same on every machine.
#[derive(Debug, Clone)]
pub struct Seeded(u64);

impl Seeded {
    /// The generator of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is at least 1.
    pub const fn below(&mut self, bound: usize) -> usize {
        ((self.number() as u128 * bound as u128) >> 64) as usize
    }
}

/// The 95 % percentile bootstrap interval of the median.
pub fn bootstrap(values: &[f64], seed: u64) -> Option<(f64, f64)> {
    median(values)?;
    let mut random = Seeded::new(seed);
    let mut medians = Vec::with_capacity(RESAMPLES);
    let mut sample = vec![0.0; values.len()];
    for _ in 0..RESAMPLES {
        for slot in &mut sample {
            *slot = values.get(random.below(values.len())).copied()?;
        }
        medians.push(median(&sample)?);
    }
    let low = quantile(&medians, ALPHA / 2.0)?;
    let high = quantile(&medians, 1.0 - ALPHA / 2.0)?;
    Some((low, high))
}

#[cfg(test)]
mod tests {
    use super::{
        Seeded, bootstrap, drift, median, outliers, paired_ratios, quantile, slope, spread,
    };
    use proptest::prelude::{prop, proptest};

    fn close(found: Option<f64>, expected: f64) {
        let found = found.unwrap();
        assert!((found - expected).abs() < 1e-12, "{found} for {expected}");
    }

    #[test]
    fn medians_and_quantiles_of_small_series() {
        for (values, middle) in [
            (&[3.0][..], 3.0),
            (&[4.0, 2.0], 3.0),
            (&[9.0, 1.0, 5.0], 5.0),
            (&[1.0, 100.0, 2.0, 3.0], 2.5),
        ] {
            close(median(values), middle);
        }
        close(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.25), 2.0);
        close(quantile(&[1.0, 2.0], 0.975), 1.975);
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn slope_is_a_share_of_the_median_per_row() {
        let rising: Vec<f64> = (0..10).map(|row| 1000.0 + f64::from(row)).collect();
        close(slope(&rising), 1.0 / 1004.5);
        let falling: Vec<f64> = rising.iter().rev().copied().collect();
        close(slope(&falling), -1.0 / 1004.5);
        close(slope(&[5.0]), 0.0);
        close(slope(&[5.0, 5.0, 5.0]), 0.0);
        assert_eq!(slope(&[0.0, 0.0]), None);
    }

    #[test]
    fn spread_and_drift_are_shares() {
        close(spread(&[99.0, 100.0, 101.0]), 0.02);
        close(drift(&[100.0], &[101.0]), 0.01);
        close(drift(&[100.0], &[99.0]), 0.01);
        assert_eq!(drift(&[], &[1.0]), None);
    }

    #[test]
    fn outliers_are_named_and_a_constant_series_has_none() {
        let mut values = vec![10.0, 10.1, 9.9, 10.05, 9.95, 10.0, 14.0];
        assert_eq!(outliers(&values), [6]);
        values.pop();
        assert_eq!(outliers(&values), [] as [usize; 0]);
        assert_eq!(outliers(&[1.0; 9]), [] as [usize; 0]);
    }

    #[test]
    fn ratios_pair_rows_of_a_round() {
        assert_eq!(
            paired_ratios(&[10.0, 12.0, 9.0], &[5.0, 4.0]),
            [2.0, 3.0],
            "a round without both rows has no ratio"
        );
        assert_eq!(paired_ratios(&[1.0], &[0.0]), [] as [f64; 0]);
    }

    #[test]
    fn the_generator_is_the_published_one() {
        // First outputs of SplitMix64 for seed 1234567, as published with the reference code.
        let mut random = Seeded::new(1_234_567);
        let found: Vec<u64> = (0..3).map(|_| random.number()).collect();
        assert_eq!(
            found,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn intervals_are_seeded_and_hold_the_median() {
        let values: Vec<f64> = (0..20).map(|row| 100.0 + f64::from(row % 5)).collect();
        let first = bootstrap(&values, 7).unwrap();
        assert_eq!(bootstrap(&values, 7), Some(first));
        let middle = median(&values).unwrap();
        assert!(first.0 <= middle && middle <= first.1, "{first:?}");
        assert_eq!(bootstrap(&[4.0], 1), Some((4.0, 4.0)));
        assert_eq!(bootstrap(&[], 1), None);
    }

    proptest! {
        #[test]
        fn the_interval_lies_in_the_range_of_the_values(
            values in prop::collection::vec(1.0f64..1e6, 1..30), seed: u64,
        ) {
            let (low, high) = bootstrap(&values, seed).unwrap();
            let smallest = values.iter().copied().fold(f64::MAX, f64::min);
            let largest = values.iter().copied().fold(f64::MIN, f64::max);
            assert!(smallest <= low && low <= high && high <= largest);
        }

        #[test]
        fn order_changes_no_median_and_scale_no_share(
            mut values in prop::collection::vec(1.0f64..1e6, 2..30), scale in 0.1f64..10.0,
        ) {
            let scaled: Vec<f64> = values.iter().map(|value| value * scale).collect();
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(1.0);
            assert!(near(slope(&values).unwrap(), slope(&scaled).unwrap()));
            assert!(near(spread(&values).unwrap(), spread(&scaled).unwrap()));
            let middle = median(&values);
            values.reverse();
            assert_eq!(median(&values), middle);
        }
    }
}
