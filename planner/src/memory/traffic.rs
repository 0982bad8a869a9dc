//! Bytes that one token moves between memory and the GPU, and the time that they take at least.
//!
//! Counted are weights, keys, values and states as the launches declare them, and the copies of host
//! steps. Other activations, words, prompt and ring are left out: they are small and stay in the caches, and leaving them out keeps
//! the bound a bound. Nothing here is measured.

use crate::machine::Machine;
use crate::plan::{Arg, BufferKind, Extent, HostStep, Launch, Plan, Region, Step, Tier};
use refrain_kernels::find;

/// Bytes of one token by tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Weights read from device memory.
    pub device_weights: u64,
    /// Keys, values and states, read and written, in device memory.
    pub device_state: u64,
    /// Weights read from host memory over the link.
    pub link: u64,
    /// Activations copied over the link for steps of the host.
    pub copied: u64,
    /// Weights read from host memory by the host itself.
    pub host_weights: u64,
}

impl Traffic {
    fn add(&mut self, other: Self) {
        self.device_weights = self.device_weights.saturating_add(other.device_weights);
        self.device_state = self.device_state.saturating_add(other.device_state);
        self.link = self.link.saturating_add(other.link);
        self.copied = self.copied.saturating_add(other.copied);
        self.host_weights = self.host_weights.saturating_add(other.host_weights);
    }

    /// All bytes of device memory.
    pub const fn device(&self) -> u64 {
        self.device_weights.saturating_add(self.device_state)
    }
}

/// What the machine's stated rates allow at most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// Least seconds of one token.
    pub seconds: f64,
    /// Most tokens per second.
    pub tokens_per_s: f64,
}

/// Bytes that the token at `position` moves; positions end below the plan's bucket.
pub fn traffic(plan: &Plan, position: u32) -> Traffic {
    let mut sum = Traffic::default();
    for step in &plan.steps {
        sum.add(of_step(plan, step, position));
    }
    sum
}

fn of_step(plan: &Plan, step: &Step, position: u32) -> Traffic {
    let mut sum = Traffic::default();
    for launch in step.body.launches() {
        sum.add(of_launch(plan, launch, position));
    }
    if let Some(host) = step.body.host() {
        sum.copied = host.transfer_bytes();
        sum.host_weights = host_weights(plan, host);
    }
    sum
}

fn host_weights(plan: &Plan, host: &HostStep) -> u64 {
    let bytes = host.parts.iter().filter_map(|part| {
        let tensor = plan.model.tensors.get(part.tensor as usize)?;
        Some(part.weight_bytes(tensor))
    });
    bytes.fold(0, u64::saturating_add)
}

/// The bandwidth bound at `position`. Launches between two waits or barriers may overlap, so each such
/// run takes at least as long as the slower of memory and link; `None` where nothing is moved. The
/// host's own reads are left out: a profile states no rate of its memory.
pub fn bound(plan: &Plan, machine: &Machine, position: u32) -> Option<Bound> {
    let mut waits = plan.schedule.waits.iter().peekable();
    let (mut seconds, mut run) = (0.0, Traffic::default());
    for (id, step) in plan.steps.iter().enumerate() {
        let waited = waits.next_if(|wait| wait.before as usize == id).is_some();
        if waited || step.body.is_barrier() {
            seconds += least_seconds(&run, machine);
            run = Traffic::default();
        }
        run.add(of_step(plan, step, position));
        if step.body.is_barrier() {
            seconds += least_seconds(&run, machine);
            run = Traffic::default();
        }
    }
    seconds += least_seconds(&run, machine);
    (seconds > 0.0).then(|| Bound {
        seconds,
        tokens_per_s: seconds.recip(),
    })
}

fn least_seconds(traffic: &Traffic, machine: &Machine) -> f64 {
    let seconds = |bytes: u64, mb_per_s: u64| bytes as f64 / (mb_per_s.max(1) as f64 * 1e6);
    let device = seconds(traffic.device(), machine.vram_mb_per_s);
    let link = traffic.link.saturating_add(traffic.copied);
    device.max(seconds(link, machine.link.mb_per_s))
}

fn of_launch(plan: &Plan, launch: &Launch, position: u32) -> Traffic {
    let mut sum = Traffic::default();
    let (used, all) = experts(plan, launch);
    for region in launch.reads.iter().chain(&launch.writes) {
        let Some(buffer) = plan.buffers.get(region.buffer as usize) else {
            continue;
        };
        let bytes = bytes(region, position);
        match (buffer.kind, buffer.kind.tier()) {
            (kind, tier) if kind.holds_weights() => {
                // A launch that chooses experts declares the matrices of all of them.
                let read = u128::from(bytes) * u128::from(used) / u128::from(all);
                let read = u64::try_from(read).unwrap_or(u64::MAX);
                match tier {
                    Tier::Device => sum.device_weights = sum.device_weights.saturating_add(read),
                    Tier::HostCoherent => sum.link = sum.link.saturating_add(read),
                }
            }
            (BufferKind::Kv | BufferKind::State, _) => {
                sum.device_state = sum.device_state.saturating_add(bytes);
            }
            _ => {}
        }
    }
    sum
}

/// Experts that a launch reads, of how many; 1 of 1 for launches without.
fn experts(plan: &Plan, launch: &Launch) -> (u32, u32) {
    let kernel = plan.kernels.get(launch.kernel as usize);
    let row = kernel.and_then(|kernel| find(&kernel.symbol));
    let named = |name: &str| {
        let at = row?.args.iter().position(|arg| arg.name == name)?;
        match launch.args.get(at)? {
            Arg::Imm(value) => Some(*value),
            _ => None,
        }
    };
    match (named("top_k"), named("experts")) {
        (Some(used), Some(all)) if all > 0 => (used.min(all), all),
        _ => (1, 1),
    }
}

fn bytes(region: &Region, position: u32) -> u64 {
    match region.extent {
        Extent::Fixed { bytes } | Extent::Row { bytes, .. } => bytes,
        Extent::RowsTo { stride, count, .. } => {
            stride.saturating_mul(u64::from(position.saturating_add(1).min(count)))
        }
    }
}
