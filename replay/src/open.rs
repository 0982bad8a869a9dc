//! Opening a device by name: the ROCm tables, or a software GPU that fills the same ones.

use crate::refusal::Refusal;
use crate::spec::DeviceSpec;
use refrain_device::{Device, DeviceError, Runtime};
use refrain_kernels::Target;
use refrain_recorder::{PacketTap, TappedPacket};
use refrain_softgpu::gpu::{SoftConfig, SoftError, SoftGpu};
use refrain_softgpu::strict::StrictConfig;
use std::sync::Arc;

/// Most bytes that a software GPU's packet log keeps: many times one token's packets.
const PACKET_LOG_BYTES: usize = 32 << 20;

/// Why a device could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The ROCm libraries, the driver or the card.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The software GPU could not be made.
    #[error("software GPU: {0}")]
    Soft(#[from] SoftError),
    /// The CPU is no device with packets.
    #[error(transparent)]
    Cpu(Refusal),
}

impl OpenError {
    /// Whether there is no device, as opposed to one that failed.
    pub fn is_no_device(&self) -> bool {
        matches!(self, Self::Device(error) if error.is_no_device())
    }
}

/// How a software GPU runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SoftOptions {
    /// Seed of the order of waves and work-groups.
    pub seed: u64,
    /// Threads; `None` for as many as the host has.
    pub threads: Option<usize>,
    /// Strict mode, see [`crate::strict`].
    pub strict: Option<StrictConfig>,
}

/// An open device and what it is called.
#[derive(Debug, Clone)]
pub struct OpenedDevice {
    /// The device.
    pub device: Arc<Device>,
    /// The software GPU behind it, if it is one.
    pub soft: Option<Arc<SoftGpu>>,
    /// Its name as a user would give it, e.g. `soft:gfx1201`.
    pub spec: DeviceSpec,
    /// Why `auto` took what it took.
    pub note: Option<String>,
}

impl OpenedDevice {
    /// Opens a device. `auto` takes ROCm device 0 and, only where there is none, the software GPU;
    /// `note` then says why.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(spec: DeviceSpec, soft: SoftOptions) -> Result<Self, OpenError> {
        match spec {
            DeviceSpec::Rocm(ordinal) => Self::rocm(ordinal).map_err(OpenError::Device),
            DeviceSpec::Soft(target) => Self::soft(target, soft),
            DeviceSpec::Cpu => Err(OpenError::Cpu(crate::cpu::refuse(
                "this command works on a device's packets",
            ))),
            DeviceSpec::Auto => match Self::rocm(0) {
                Ok(mut opened) => {
                    opened.note = Some(format!("auto: {}", opened.device.info().name));
                    Ok(opened)
                }
                Err(error) if error.is_no_device() => {
                    let mut opened = Self::soft(DeviceSpec::DEFAULT_SOFT, soft)?;
                    opened.note = Some(format!("auto: software GPU, because of {error}"));
                    Ok(opened)
                }
                Err(error) => Err(error.into()),
            },
        }
    }

    fn rocm(ordinal: u32) -> Result<Self, DeviceError> {
        let runtime = Runtime::load_rocm()?;
        let device = Device::open(runtime, ordinal)?;
        Ok(Self {
            device,
            soft: None,
            spec: DeviceSpec::Rocm(ordinal),
            note: None,
        })
    }

    fn soft(target: Target, options: SoftOptions) -> Result<Self, OpenError> {
        let mut config = SoftConfig::new(soft_target(target));
        config.seed = options.seed;
        config.threads = options.threads.unwrap_or(config.threads).max(1);
        config.strict = options.strict;
        // The recorder decodes the log; see `GpuTap`.
        config.keep_packet_log = true;
        config.packet_log_bytes = PACKET_LOG_BYTES;
        let gpu = SoftGpu::new(config)?;
        let device = Device::open(refrain_softgpu::runtime(gpu.clone()), 0)?;
        Ok(Self {
            device,
            soft: Some(gpu),
            spec: DeviceSpec::Soft(target),
            note: None,
        })
    }

    /// The packet log of a software GPU that keeps one.
    pub fn tap(&self) -> Option<GpuTap> {
        let soft = self.soft.clone();
        soft.filter(|gpu| gpu.config().keep_packet_log).map(GpuTap)
    }
}

pub(crate) const fn soft_target(target: Target) -> refrain_softgpu::isa::Target {
    match target {
        Target::Gfx1100 => refrain_softgpu::isa::Target::Gfx1100,
        Target::Gfx1151 => refrain_softgpu::isa::Target::Gfx1151,
        Target::Gfx1201 => refrain_softgpu::isa::Target::Gfx1201,
    }
}

/// A software GPU's packet log as a [`PacketTap`].
#[derive(Debug, Clone)]
pub struct GpuTap(Arc<SoftGpu>);

impl PacketTap for GpuTap {
    fn take(&mut self) -> Vec<TappedPacket> {
        let packets = self.0.take_packet_log().packets.into_iter();
        let launches = packets.flat_map(|packet| {
            // Header half-word of an AQL packet.
            let header = u16::from_le_bytes([packet.bytes[0], packet.bytes[1]]);
            let launches = packet.dispatches.into_iter();
            launches.map(move |launch| TappedPacket {
                symbol: launch.symbol.to_string(),
                object: launch.object,
                grid: launch.groups,
                block: launch.group_size,
                lds: launch.lds_bytes,
                header,
                kernarg: launch.kernarg,
            })
        });
        launches.collect()
    }
}
