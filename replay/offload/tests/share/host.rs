//! A host with a GPU behind a link, as arithmetic: what a step takes at any split, with what noise, and
//! which split is truly best. Deterministic from its seed.
//!
//! Both arms start together. Each has a time before its first row, and rows per nanosecond alone and
//! while the other arm moves rows too. Noise multiplies each arm, the copies and the join, uniformly.

use refrain_offload::share::{Decision, Kind, ROW_STEP, Sample};

/// splitmix64.
#[derive(Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Uniform in `[low, high)`.
    pub(crate) fn within(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform in the logarithm.
    pub(crate) fn scale(&mut self, low: f64, high: f64) -> f64 {
        self.within(low.ln(), high.ln()).exp()
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[(self.bits() % of.len() as u64) as usize]
    }
}

/// One arm: nanoseconds before its first row, rows per nanosecond alone and beside the other arm.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arm {
    pub(crate) before: f64,
    pub(crate) alone: f64,
    pub(crate) beside: f64,
}

/// A machine and one step on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Host {
    pub(crate) rows: u32,
    pub(crate) gpu: Arm,
    pub(crate) cpu: Arm,
    /// Activations down and result up, nanoseconds.
    pub(crate) copies: f64,
    /// Join of a split whose GPU arm ends first, nanoseconds.
    pub(crate) join: f64,
    /// Noise: each part is multiplied by a factor uniform in `1 ± noise`.
    pub(crate) noise: f64,
}

impl Host {
    /// A host out of everything that is thinkable: link 3 to 60 GB/s, CPU 2 to 120 GB/s, rows of 0.5 to
    /// 20 kB, contention that costs either arm up to 40 %.
    pub(crate) fn random(random: &mut Random, noise: f64) -> Host {
        let row_bytes = random.scale(500.0, 20_000.0);
        let arm = |random: &mut Random, low: f64, high: f64, before: f64| {
            let alone = random.scale(low, high) / row_bytes;
            Arm {
                before: random.scale(1_000.0, before),
                alone,
                beside: alone * random.within(0.6, 1.0),
            }
        };
        Host {
            rows: random.pick(&[
                1024, 1536, 2048, 3072, 4096, 5120, 8192, 11008, 12288, 17408, 34816,
            ]),
            gpu: arm(random, 3.0, 60.0, 40_000.0),
            cpu: arm(random, 2.0, 120.0, 30_000.0),
            copies: random.scale(2_000.0, 60_000.0),
            join: random.scale(500.0, 10_000.0),
            noise,
        }
    }

    /// Times of both arms of a split with `gpu_rows` rows on the GPU, without noise.
    pub(crate) fn arms(&self, gpu_rows: u32) -> (f64, f64) {
        let mut left = [f64::from(gpu_rows), f64::from(self.rows - gpu_rows)];
        let arms = [self.gpu, self.cpu];
        let mut ends = [0.0, 0.0];
        let mut now = 0.0;
        let active =
            |left: &[f64; 2], now: f64, arm: usize| left[arm] > 1e-9 && now >= arms[arm].before;
        for _ in 0..8 {
            let on = [active(&left, now, 0), active(&left, now, 1)];
            let mut next = f64::INFINITY;
            for arm in 0..2 {
                if on[arm] {
                    let rate = if on[1 - arm] {
                        arms[arm].beside
                    } else {
                        arms[arm].alone
                    };
                    next = next.min(now + left[arm] / rate);
                } else if left[arm] > 1e-9 {
                    next = next.min(arms[arm].before);
                }
            }
            if next.is_infinite() {
                break;
            }
            for arm in 0..2 {
                if on[arm] {
                    let rate = if on[1 - arm] {
                        arms[arm].beside
                    } else {
                        arms[arm].alone
                    };
                    left[arm] -= rate * (next - now);
                    if left[arm] <= 1e-6 {
                        left[arm] = 0.0;
                        ends[arm] = next;
                    }
                }
            }
            now = next;
        }
        (ends[0], ends[1])
    }

    /// Expected wall of a decision, over the noise.
    pub(crate) fn wall(&self, kind: Kind, gpu_rows: u32) -> f64 {
        match kind {
            Kind::Pcie => self.gpu.before + f64::from(self.rows) / self.gpu.alone,
            Kind::Cpu => self.copies + self.cpu.before + f64::from(self.rows) / self.cpu.alone,
            Kind::Split => {
                let (gpu, cpu) = self.arms(gpu_rows);
                self.copies + self.join + mean_of_later(gpu, cpu, self.noise)
            }
        }
    }

    /// The same host without noise.
    pub(crate) fn quiet(mut self) -> Host {
        self.noise = 0.0;
        self
    }

    /// The best decision by trying every one: kind, rows of the GPU, wall.
    pub(crate) fn best(&self) -> (Kind, u32, f64) {
        let ends = [(Kind::Pcie, self.rows), (Kind::Cpu, 0)];
        let splits = (1..)
            .map(|steps| (Kind::Split, steps * ROW_STEP))
            .take_while(|(_, rows)| *rows < self.rows);
        ends.into_iter()
            .chain(splits)
            .map(|(kind, rows)| (kind, rows, self.wall(kind, rows)))
            .min_by(|a, b| a.2.total_cmp(&b.2))
            .unwrap()
    }

    /// Runs a decision once.
    pub(crate) fn run(&self, decision: &Decision, random: &mut Random) -> Sample {
        let mut noisy = |ns: f64| ns * random.within(1.0 - self.noise, 1.0 + self.noise);
        let whole = |ns: f64| ns.round() as u64;
        match decision.kind {
            Kind::Pcie => {
                let gpu = noisy(self.wall(Kind::Pcie, self.rows));
                Sample {
                    gpu_ns: Some(whole(gpu)),
                    wall_ns: whole(gpu),
                    ..Sample::default()
                }
            }
            Kind::Cpu => {
                let cpu = noisy(self.cpu.before + f64::from(self.rows) / self.cpu.alone);
                let copies = noisy(self.copies);
                Sample {
                    cpu_ns: whole(cpu),
                    copy_ns: whole(copies),
                    wall_ns: whole(cpu + copies),
                    ..Sample::default()
                }
            }
            Kind::Split => {
                let (gpu, cpu) = self.arms(decision.gpu_rows);
                let (gpu, cpu) = (noisy(gpu), noisy(cpu));
                let (copies, join) = (noisy(self.copies), noisy(self.join));
                Sample {
                    gpu_ns: Some(whole(gpu)),
                    cpu_ns: whole(cpu),
                    join_ns: whole(join + (gpu - cpu).max(0.0)),
                    copy_ns: whole(copies),
                    wall_ns: whole(copies + join + gpu.max(cpu)),
                }
            }
        }
    }
}

/// Mean of the later of two times, each uniform within `± noise` of its own.
fn mean_of_later(a: f64, b: f64, noise: f64) -> f64 {
    let (c, d) = (b * (1.0 - noise), b * (1.0 + noise));
    if noise == 0.0 || a * (1.0 - noise) >= d || a * (1.0 + noise) <= c {
        return a.max(b);
    }
    const POINTS: u32 = 64;
    let point = |at: u32| {
        let x = a * (1.0 - noise + 2.0 * noise * (f64::from(at) + 0.5) / f64::from(POINTS));
        if x >= d {
            x
        } else if x <= c {
            b
        } else {
            ((x - c) * x + (d * d - x * x) / 2.0) / (d - c)
        }
    };
    (0..POINTS).map(point).sum::<f64>() / f64::from(POINTS)
}

#[cfg(test)]
mod tests {
    use super::{Arm, Host, Kind, mean_of_later};

    #[test]
    fn arms_share_the_memory_only_while_both_run() {
        let host = Host {
            rows: 3000,
            gpu: Arm {
                before: 100.0,
                alone: 2.0,
                beside: 1.0,
            },
            cpu: Arm {
                before: 0.0,
                alone: 4.0,
                beside: 2.0,
            },
            copies: 10.0,
            join: 5.0,
            noise: 0.0,
        };
        // CPU: 100 ns alone (400 rows), then 2 a ns beside: 1600 left, ends at 900. GPU: 800 rows by
        // then, 200 alone: 1000.
        assert_eq!(host.arms(1000), (1000.0, 900.0));
        assert_eq!(host.wall(Kind::Split, 1000), 1015.0);
        assert_eq!(host.wall(Kind::Pcie, 3000), 1600.0);
        assert_eq!(host.wall(Kind::Cpu, 0), 760.0);
        assert_eq!(host.best().0, Kind::Cpu);
    }

    #[test]
    fn the_later_of_two_equal_noisy_times_is_a_third_of_the_noise_late() {
        assert!((mean_of_later(100.0, 100.0, 0.1) - (100.0 + 10.0 / 3.0)).abs() < 0.01);
        assert_eq!(mean_of_later(100.0, 200.0, 0.1), 200.0);
        assert_eq!(mean_of_later(70.0, 50.0, 0.0), 70.0);
    }
}
