//! HSA entries of memory pools and copies. A fresh allocation of a CPU pool has host rights only:
//! the GPU gets its rights with `hsa_amd_agents_allow_access`, so a forgotten call shows.

use super::super::registry::{Allocated, Entry, registry};
use super::{Answer, Role, agent, alive, fail, handle, put, resources, split, started, status_of};
use crate::gpu::faults::Event;
use crate::memory::{Kind, PAGE, Rights, pointer};
use refrain_device::sys::hsa as c;
use refrain_device::sys::hsa::{HsaAgent, HsaMemoryPool, HsaStatus, PoolCallback};
use std::ffi::c_void;
use std::sync::{Arc, PoisonError};

/// A memory pool: one row each.
struct Pool {
    /// Low byte of the handle.
    role: u8,
    /// Whose pool it is.
    owner: Role,
    flags: u32,
    name: &'static str,
    kind: Kind,
    /// Rights from the start.
    fresh: Rights,
    /// Rights once the GPU may access it.
    granted: Rights,
}

const POOLS: [Pool; 4] = [
    Pool {
        role: 0x10,
        owner: Role::Cpu,
        flags: c::HSA_POOL_FLAG_FINE_GRAINED,
        name: "fine-grained",
        kind: Kind::Host,
        fresh: Rights::HOST,
        granted: Rights::SHARED,
    },
    Pool {
        role: 0x11,
        owner: Role::Cpu,
        flags: c::HSA_POOL_FLAG_FINE_GRAINED | c::HSA_POOL_FLAG_KERNARG,
        name: "kernarg",
        kind: Kind::Kernarg,
        fresh: Rights::HOST,
        // Kernels read their arguments; one that writes them would change a replay.
        granted: Rights::READ.union(Rights::HOST),
    },
    Pool {
        role: 0x12,
        owner: Role::Cpu,
        flags: c::HSA_POOL_FLAG_COARSE_GRAINED,
        name: "coarse-grained",
        kind: Kind::HostCoarse,
        fresh: Rights::HOST,
        granted: Rights::SHARED,
    },
    Pool {
        role: 0x13,
        owner: Role::Gpu,
        flags: c::HSA_POOL_FLAG_COARSE_GRAINED,
        name: "device",
        kind: Kind::Device,
        fresh: Rights::READ_WRITE,
        granted: Rights::READ_WRITE,
    },
];

fn pool(call: &str, pool: HsaMemoryPool) -> Answer<(Arc<Entry>, &'static Pool)> {
    let found = split(pool.handle).and_then(|(entry, role)| {
        let row = POOLS.iter().find(|row| row.role == role)?;
        Some((entry, row))
    });
    match found {
        Some(found) => Ok(found),
        None => {
            let what = format!("{:#x} is not a pool of a living software GPU", pool.handle);
            fail(call, c::HSA_ERROR_INVALID_MEMORY_POOL, what)
        }
    }
}

pub(crate) unsafe extern "C" fn agent_iterate_memory_pools(
    agent_in: HsaAgent,
    callback: PoolCallback,
    data: *mut c_void,
) -> HsaStatus {
    let call = "hsa_amd_agent_iterate_memory_pools";
    let answer = started(call)
        .and_then(|()| agent(call, agent_in))
        .and_then(|(entry, role)| {
            for row in POOLS.iter().filter(|row| row.owner == role) {
                let pool = HsaMemoryPool {
                    handle: handle(entry.ordinal, row.role),
                };
                // SAFETY: the caller's callback takes its own data.
                match unsafe { callback(pool, data) } {
                    c::HSA_SUCCESS => {}
                    other => return Err(other),
                }
            }
            Ok(())
        });
    status_of(answer)
}

pub(crate) unsafe extern "C" fn memory_pool_get_info(
    pool_in: HsaMemoryPool,
    attribute: u32,
    value: *mut c_void,
) -> HsaStatus {
    let call = "hsa_amd_memory_pool_get_info";
    let answer = started(call)
        .and_then(|()| pool(call, pool_in))
        .and_then(|(entry, row)| {
            let size = usize::try_from(entry.model.vram_bytes).unwrap_or(usize::MAX);
            // SAFETY: each attribute is written with the type that hsa_ext_amd.h gives it, which the
            // caller has room for.
            unsafe {
                match attribute {
                    c::HSA_POOL_INFO_SEGMENT => put(call, value.cast(), c::HSA_SEGMENT_GLOBAL),
                    c::HSA_POOL_INFO_GLOBAL_FLAGS => put(call, value.cast(), row.flags),
                    c::HSA_POOL_INFO_SIZE => put(call, value.cast(), size),
                    c::HSA_POOL_INFO_ALLOC_ALLOWED => put(call, value.cast(), true),
                    c::HSA_POOL_INFO_ALLOC_GRANULE | c::HSA_POOL_INFO_ALLOC_ALIGNMENT => {
                        put(call, value.cast(), PAGE as usize)
                    }
                    _ => {
                        let what = format!("attribute {attribute} is not modelled");
                        fail(call, c::HSA_ERROR_INVALID_ARGUMENT, what)
                    }
                }
            }
        });
    status_of(answer)
}

pub(crate) unsafe extern "C" fn memory_pool_allocate(
    pool_in: HsaMemoryPool,
    bytes: usize,
    flags: u32,
    out: *mut *mut c_void,
) -> HsaStatus {
    let call = "hsa_amd_memory_pool_allocate";
    let answer = started(call)
        .and_then(|()| pool(call, pool_in))
        .and_then(|(entry, row)| {
            if bytes == 0 {
                return fail(call, c::HSA_ERROR_INVALID_ARGUMENT, "0 bytes");
            }
            alive(call, &entry)?;
            let event = match row.kind {
                Kind::Kernarg => Event::KernargAlloc,
                _ => Event::PoolAlloc,
            };
            resources(call, &entry, event)?;
            let executable = flags & c::HSA_POOL_ALLOCATE_EXECUTABLE != 0;
            if flags & !c::HSA_POOL_ALLOCATE_EXECUTABLE != 0
                || executable && !matches!(row.kind, Kind::Host | Kind::HostCoarse)
            {
                let what = format!("flags {flags:#x} of the {} pool are not modelled", row.name);
                return fail(call, c::HSA_ERROR_INVALID_ARGUMENT, what);
            }
            let device_bytes = if row.kind == Kind::Device {
                bytes as u64
            } else {
                0
            };
            let used = entry.device_bytes();
            let vram = entry.model.vram_bytes;
            if device_bytes > 0 && used.saturating_add(device_bytes) > vram {
                let what = format!("{bytes} bytes do not fit: {used} of {vram} bytes are in use");
                return fail(call, c::HSA_ERROR_OUT_OF_RESOURCES, what);
            }
            // Executable memory is fetched, not written, by the device: packets do not rewrite themselves.
            let (kind, rights) = match executable {
                true => (Kind::IndirectBuffer, Rights::CODE.union(Rights::HOST)),
                false => (row.kind, row.granted),
            };
            let name = entry.fresh_name(&format!("{} pool allocation", row.name));
            let base = match entry
                .gpu
                .memory()
                .alloc(&name, bytes as u64, PAGE, row.fresh, kind)
            {
                Ok(base) => base,
                Err(error) => return fail(call, c::HSA_ERROR_OUT_OF_RESOURCES, error),
            };
            let allocated = Allocated::Pool {
                rights,
                device_bytes,
            };
            entry
                .allocations
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(base, allocated);
            // SAFETY: the caller passes null or a pointer's address.
            unsafe { put(call, out, pointer(base).cast()) }
        });
    status_of(answer)
}

/// The device and the granted rights of a pool allocation that begins at `address`.
fn owned(call: &str, address: u64) -> Answer<(Arc<Entry>, Rights)> {
    match registry().owner(address) {
        Some((entry, Allocated::Pool { rights, .. })) => Ok((entry, rights)),
        _ => {
            let what = format!("{address:#x} is not the beginning of a live pool allocation");
            fail(call, c::HSA_ERROR_INVALID_ALLOCATION, what)
        }
    }
}

pub(crate) unsafe extern "C" fn memory_pool_free(at: *mut c_void) -> HsaStatus {
    let call = "hsa_amd_memory_pool_free";
    let address = at.addr() as u64;
    status_of(started(call).and_then(|()| {
        let (entry, _) = owned(call, address)?;
        entry
            .allocations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&address);
        let freed = entry.gpu.memory().free(address);
        freed.or_else(|error| fail(call, c::HSA_ERROR_INVALID_ALLOCATION, error))
    }))
}

pub(crate) unsafe extern "C" fn agents_allow_access(
    count: u32,
    agents: *const HsaAgent,
    flags: *const u32,
    at: *const c_void,
) -> HsaStatus {
    let call = "hsa_amd_agents_allow_access";
    let address = at.addr() as u64;
    status_of(started(call).and_then(|()| {
        if !flags.is_null() {
            return fail(
                call,
                c::HSA_ERROR_INVALID_ARGUMENT,
                "flags is reserved and must be null",
            );
        }
        if count == 0 || agents.is_null() {
            return fail(
                call,
                c::HSA_ERROR_INVALID_ARGUMENT,
                "the list of agents is empty",
            );
        }
        let (entry, rights) = owned(call, address)?;
        // SAFETY: not null, so `count` agents by the caller's promise.
        for &member in unsafe { std::slice::from_raw_parts(agents, count as usize) } {
            match agent(call, member)? {
                (other, Role::Gpu) if other.ordinal != entry.ordinal => {
                    let what = "access by another software GPU is not modelled";
                    return fail(call, c::HSA_ERROR_INVALID_AGENT, what);
                }
                (_, Role::Gpu) => {
                    let set = entry.gpu.memory().set_rights(address, rights);
                    set.or_else(|error| fail(call, c::HSA_ERROR_INVALID_ALLOCATION, error))?;
                }
                _ => {}
            }
        }
        Ok(())
    }))
}

pub(crate) unsafe extern "C" fn memory_copy(
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
) -> HsaStatus {
    let call = "hsa_memory_copy";
    let (to, from) = (dst.addr() as u64, src.addr() as u64);
    status_of(started(call).and_then(|()| {
        let live = registry().live();
        let holds = |at: u64| {
            live.iter()
                .find(|entry| entry.gpu.memory().find(at).is_some())
        };
        for entry in holds(to).into_iter().chain(holds(from)) {
            alive(call, entry)?;
        }
        let done = match (holds(to), holds(from)) {
            (Some(a), Some(b)) if a.ordinal != b.ordinal => {
                let what = "a copy between two software GPUs is not modelled";
                return fail(call, c::HSA_ERROR_INVALID_ARGUMENT, what);
            }
            (Some(entry), Some(_)) => entry.gpu.memory().copy(to, from, bytes as u64),
            (Some(entry), None) if from != 0 => {
                // SAFETY: plain host memory, which the caller vouches for.
                let bytes = unsafe { std::slice::from_raw_parts(src.cast(), bytes) };
                entry.gpu.memory().write_bytes(to, bytes)
            }
            (None, Some(entry)) if to != 0 => {
                // SAFETY: plain host memory, which the caller vouches for and does not touch.
                let bytes = unsafe { std::slice::from_raw_parts_mut(dst.cast(), bytes) };
                entry.gpu.memory().read_bytes(from, bytes)
            }
            _ => {
                let what = "neither address is memory of a software GPU";
                return fail(call, c::HSA_ERROR_INVALID_ARGUMENT, what);
            }
        };
        done.or_else(|fault| fail(call, c::HSA_ERROR_INVALID_ARGUMENT, fault))
    }))
}
