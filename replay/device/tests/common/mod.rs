//! Software GPUs and kernels for the tests of this folder.
#![allow(dead_code, reason = "each test file uses a part")]

use refrain_device::sys::{HipTable, HsaTable};
use refrain_device::{Device, Origin, Runtime};
use refrain_softgpu::gpu::LoggedPacket;
use refrain_softgpu::{SoftConfig, SoftGpu, isa::Target};
use std::sync::Arc;

/// The committed kernels of a target.
pub fn kernels(target: Target) -> &'static [u8] {
    let target = refrain_kernels::Target::parse(target.name());
    let object = target.map(refrain_kernels::code_object);
    object.map_or(&[], |object| object.bytes())
}

/// A software GPU with one thread and a packet log.
pub fn gpu(target: Target) -> Arc<SoftGpu> {
    let config = SoftConfig {
        threads: 1,
        keep_packet_log: true,
        ..SoftConfig::new(target)
    };
    SoftGpu::new(config).expect("a software GPU")
}

/// A device on a software GPU of its own.
pub fn device(target: Target) -> (Arc<SoftGpu>, Arc<Device>) {
    let gpu = gpu(target);
    let device = Device::open(refrain_softgpu::runtime(Arc::clone(&gpu)), 0).expect("opens");
    (gpu, device)
}

/// The packet log once it has `count` packets. An entry is handed over by the packet processor's
/// thread when it turns to the next packet, which may be after the completion signal.
pub fn log(gpu: &SoftGpu, count: usize) -> Vec<LoggedPacket> {
    let start = std::time::Instant::now();
    loop {
        let log = gpu.packet_log();
        if log.len() >= count || start.elapsed().as_secs() > 5 {
            return log;
        }
        std::thread::yield_now();
    }
}

/// A runtime of the software GPU whose tables and origin were changed by `change`.
pub fn changed(
    gpu: &Arc<SoftGpu>,
    change: impl FnOnce(&mut HipTable, &mut HsaTable, &mut Origin),
) -> Runtime {
    let base = refrain_softgpu::runtime(Arc::clone(gpu));
    let (mut hip, mut hsa, mut origin) = (*base.hip(), *base.hsa(), base.origin().clone());
    change(&mut hip, &mut hsa, &mut origin);
    // SAFETY: the entries are those of the software GPU, or wrap them; `base` keeps it registered.
    unsafe { Runtime::from_tables(hip, hsa, origin, Arc::new(base)) }
}

/// Arguments of `kv_write_f32`: k, v, kcache, vcache, control (addresses), kv_dim.
pub fn kv_write_args(addresses: [u64; 5], kv_dim: u32) -> Vec<u8> {
    let mut bytes: Vec<u8> = addresses.iter().flat_map(|va| va.to_le_bytes()).collect();
    bytes.extend(kv_dim.to_le_bytes());
    bytes
}

/// A control block whose position is `pos`: 11 words, of which `pos` is the second.
pub fn control(pos: u32) -> Vec<u8> {
    let mut words = [0u32; 11];
    words[1] = pos;
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
