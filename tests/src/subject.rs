//! A device under test, and the one kernel that the conformance cases launch: `kv_write_f32`, which
//! copies a row of keys and a row of values into caches at the position that the control block says.

use crate::conformance::{Done, ensure};
use refrain_device::{
    Buffer, Device, DeviceError, Executable, MemoryKind, Module, Queue, Runtime, Signal,
};
use refrain_kernels::{CONTROL_BYTES, Target, Word, code_object};
use refrain_packet::aql::encode::{AqlError, kernel_dispatch};
use refrain_packet::aql::{Header, KernelDispatch};
use refrain_softgpu::{SoftConfig, SoftGpu};
use std::sync::Arc;
use std::time::Duration;

/// Longest wait of a case.
pub const WAIT: Duration = Duration::from_secs(20);
/// Kernel of the cases.
pub const KERNEL: &str = "kv_write_f32";
/// Elements of a row.
pub const DIM: u32 = 96;
/// Bytes of a row.
pub const ROW: u64 = DIM as u64 * 4;
/// Rows of a cache.
pub const ROWS: u64 = 4;
/// Work-items of a group, as the catalog says.
pub const GROUP: u32 = 256;

/// A device under test.
#[derive(Debug)]
pub struct Subject {
    /// The device.
    pub device: Arc<Device>,
    /// Its target.
    pub target: Target,
    /// The software GPU behind it, if it is one.
    pub soft: Option<Arc<SoftGpu>>,
}

/// The software GPU's name of a target.
pub const fn soft_target(target: Target) -> refrain_softgpu::isa::Target {
    match target {
        Target::Gfx1100 => refrain_softgpu::isa::Target::Gfx1100,
        Target::Gfx1151 => refrain_softgpu::isa::Target::Gfx1151,
        Target::Gfx1201 => refrain_softgpu::isa::Target::Gfx1201,
    }
}

impl Subject {
    /// A fresh software GPU.
    ///
    /// # Errors
    /// Why it cannot be made, in words.
    pub fn soft(target: Target) -> Result<Self, String> {
        let config = SoftConfig {
            threads: 2,
            // Recordings are compared with what the ring held.
            keep_packet_log: true,
            ..SoftConfig::new(soft_target(target))
        };
        let gpu = SoftGpu::new(config).map_err(|error| error.to_string())?;
        let device = Device::open(refrain_softgpu::runtime(Arc::clone(&gpu)), 0);
        Ok(Self {
            device: device.map_err(|error| error.to_string())?,
            target,
            soft: Some(gpu),
        })
    }

    /// A ROCm device.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub fn rocm(ordinal: u32) -> Result<Self, String> {
        let runtime = Runtime::load_rocm().map_err(|error| DeviceError::from(error).to_string())?;
        let device = Device::open(runtime, ordinal).map_err(|error| error.to_string())?;
        let name = device.info().target.clone();
        let target = Target::ALL.into_iter().find(|target| target.name() == name);
        Ok(Self {
            device,
            target: target.ok_or_else(|| format!("there are no kernels for {name}"))?,
            soft: None,
        })
    }

    /// Bytes of the shipped code object.
    pub fn image(&self) -> &'static [u8] {
        code_object(self.target).bytes()
    }
}

/// Rows of keys and values, caches and a control block, with the code to launch.
pub struct Copying {
    device: Arc<Device>,
    /// k, v, kcache, vcache.
    pub buffers: [Buffer; 4],
    /// The control block, in memory that host and device share.
    pub control: Buffer,
    /// Kernel arguments for packets.
    pub kernarg: Buffer,
    /// Kernel arguments as bytes.
    pub args: Vec<u8>,
    /// HIP's copy of the code.
    pub module: Module,
    /// HSA's copy of the code.
    pub executable: Executable,
}

/// Row `salt` of a test.
pub fn row(salt: u8) -> Vec<u8> {
    let value = |index: u32| (index as f32 + f32::from(salt)).to_le_bytes();
    (0..DIM).flat_map(value).collect()
}

/// Arguments: addresses of k, v, kcache, vcache and the control block, then the elements of a row.
pub fn arguments(addresses: [u64; 5]) -> Vec<u8> {
    let mut bytes: Vec<u8> = addresses.iter().flat_map(|va| va.to_le_bytes()).collect();
    bytes.extend(DIM.to_le_bytes());
    bytes
}

impl Copying {
    /// Keys are row `salt`, values row `salt + 1`; caches hold zeros; the position is 0.
    ///
    /// # Errors
    /// The device's answer.
    pub fn new(subject: &Subject, salt: u8) -> Result<Self, DeviceError> {
        let device = &subject.device;
        let buffer = |name: &str, bytes| device.alloc(MemoryKind::Device, name, bytes, 64);
        let buffers = [
            buffer("k", ROW)?,
            buffer("v", ROW)?,
            buffer("kcache", ROW * ROWS)?,
            buffer("vcache", ROW * ROWS)?,
        ];
        let stream = device.stream();
        stream.copy_to_device(&buffers[0], 0, &row(salt))?;
        stream.copy_to_device(&buffers[1], 0, &row(salt + 1))?;
        stream.memset(&buffers[2], 0, 0, ROW * ROWS)?;
        stream.memset(&buffers[3], 0, 0, ROW * ROWS)?;
        stream.synchronize()?;
        let control = device.alloc(MemoryKind::HostCoherent, "control", CONTROL_BYTES, 256)?;
        control.write(0, &[0; CONTROL_BYTES as usize])?;
        let [k, v, kcache, vcache] = &buffers;
        let args = arguments([k.va(), v.va(), kcache.va(), vcache.va(), control.va()]);
        let kernarg = device.alloc(MemoryKind::Kernarg, "kernargs", 4096, 256)?;
        kernarg.write(0, &args)?;
        Ok(Self {
            device: Arc::clone(device),
            control,
            kernarg,
            args,
            module: Module::load(device, subject.image())?,
            executable: Executable::load(device, subject.image())?,
            buffers,
        })
    }

    /// Sets the position that the next launch writes.
    ///
    /// # Errors
    /// The device's answer.
    pub fn position(&self, position: u32) -> Result<(), DeviceError> {
        self.control
            .store_u32_release(u64::from(Word::Pos.offset()), position)
    }

    /// Launches through HIP with these argument bytes; does not wait.
    ///
    /// # Errors
    /// The device's answer.
    pub fn launch(&self, args: &[u8]) -> Result<(), DeviceError> {
        let function = self.module.function(KERNEL)?;
        let stream = self.device.stream();
        stream.launch(&function, [1, 1, 1], [GROUP, 1, 1], 0, args)
    }

    /// A dispatch packet of one group with the arguments at `kernarg`.
    ///
    /// # Errors
    /// The device's answer.
    pub fn packet(
        &self,
        header: Header,
        kernarg: u64,
        signal: Option<&Signal>,
    ) -> Result<[u8; 64], PacketTrouble> {
        let kernel = self.executable.kernel(KERNEL)?;
        let packet = KernelDispatch {
            dimensions: 1,
            workgroup_size: [GROUP as u16, 1, 1],
            grid_size: [GROUP, 1, 1],
            private_segment_size: kernel.private_bytes,
            group_segment_size: kernel.group_bytes,
            kernel_object: kernel.kernel_object,
            kernarg_address: kernarg,
            correlation: 0,
            completion_signal: signal.map_or(0, Signal::handle),
        };
        Ok(kernel_dispatch(header, &packet)?.bytes())
    }

    /// The caches hold the rows at `written` positions (keys `salt`, values `salt + 1`), else zeros.
    ///
    /// # Errors
    /// What differs.
    pub fn check(&self, salt: u8, written: &[u64]) -> Done {
        for (cache, salt) in [(2, salt), (3, salt + 1)] {
            let mut found = vec![0; (ROW * ROWS) as usize];
            let stream = self.device.stream();
            stream.copy_from_device(&self.buffers[cache], 0, &mut found)?;
            for (position, bytes) in (0..).zip(found.chunks(ROW as usize)) {
                let expected = if written.contains(&position) {
                    row(salt)
                } else {
                    vec![0; ROW as usize]
                };
                ensure(bytes == expected, || {
                    format!("row {position} of {}", self.buffers[cache].name())
                })?;
            }
        }
        Ok(())
    }
}

/// Why a packet could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PacketTrouble {
    /// The device's answer.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The packet's.
    #[error(transparent)]
    Packet(#[from] AqlError),
}

/// Submits packets, the last of which completes `signal`, and waits.
///
/// # Errors
/// The device's answer.
pub fn complete(queue: &Queue, packets: &[[u8; 64]], signal: &Signal) -> Result<(), DeviceError> {
    queue.submit(packets)?;
    signal.wait_lt(1, WAIT)
}
