//! In which order arms run: forwards and backwards by turns (ABBA), so that a drift of the machine
//! falls on all arms alike, and rotated from process to process.

/// Indices of `arms` arms in round `round` of process `process`.
pub fn round_order(arms: usize, round: usize, process: usize) -> Vec<usize> {
    let rotate = |index: usize| (index + process) % arms.max(1);
    let mut order: Vec<usize> = (0..arms).map(rotate).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::round_order;

    #[test]
    fn rounds_mirror_and_processes_rotate() {
        assert_eq!(round_order(2, 0, 0), [0, 1]);
        assert_eq!(round_order(2, 1, 0), [1, 0]);
        assert_eq!(round_order(4, 0, 1), [1, 2, 3, 0]);
        assert_eq!(round_order(4, 1, 1), [0, 3, 2, 1]);
        assert_eq!(round_order(0, 3, 2), [] as [usize; 0]);
    }

    /// Over two rounds every arm has the same mean place, whatever the process.
    #[test]
    fn every_arm_has_the_same_mean_place() {
        for arms in 1..6 {
            for process in 0..7 {
                let mut places = vec![0; arms];
                for round in 0..2 {
                    for (place, arm) in round_order(arms, round, process).into_iter().enumerate() {
                        places[arm] += place;
                    }
                }
                assert!(places.iter().all(|sum| *sum == arms - 1), "{places:?}");
            }
        }
    }
}
