//! Typed memory faults: what was touched, how, and what lies nearest to it.
//! Which instruction did it is added by the executor (`exec::ExecError`).

use std::fmt;
use std::sync::Arc;

/// How an access wants to use memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// A load by the device.
    Read,
    /// A store by the device.
    Write,
    /// A read-modify-write by the device.
    Atomic,
    /// An instruction fetch.
    Execute,
    /// A load by host code through a pointer it was handed.
    HostRead,
    /// A store by host code through a pointer it was handed.
    HostWrite,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Atomic => "atomic",
            Self::Execute => "instruction fetch",
            Self::HostRead => "host read",
            Self::HostWrite => "host write",
        })
    }
}

/// Why an access was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultReason {
    /// No live allocation holds all bytes of the access.
    OutOfBounds,
    /// The bytes belong to an allocation that was freed.
    Freed,
    /// The allocation does not grant this kind of access.
    Rights,
    /// The address is not a multiple of the access size where the ISA demands it.
    Misaligned,
}

/// The allocation that lies nearest to a faulting address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nearest {
    /// Its name at the time of the fault.
    pub name: Arc<str>,
    /// Its first byte.
    pub base: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Bytes from the access to the allocation: negative before its base, positive past its end,
    /// 0 when the access begins inside it.
    pub distance: i64,
    /// Whether it was freed before the access.
    pub freed: bool,
}

/// A refused access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryFault {
    /// First byte of the access.
    pub address: u64,
    /// Bytes accessed.
    pub length: u64,
    /// Kind of access.
    pub access: Access,
    /// Why it was refused.
    pub reason: FaultReason,
    /// The nearest allocation, live or freed; `None` in an empty address space.
    pub nearest: Option<Nearest>,
}

impl std::error::Error for MemoryFault {}

impl fmt::Display for MemoryFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            address,
            length,
            access,
            reason,
            nearest,
        } = self;
        write!(f, "{access} of {length} bytes at {address:#x} ")?;
        let Some(n) = nearest else {
            return write!(
                f,
                "with nothing allocated; allocate the buffer before it is used"
            );
        };
        let name = &n.name;
        match reason {
            FaultReason::Freed => write!(
                f,
                "touches `{name}` ({:#x}, {} bytes), which was freed; keep it alive until the last launch that uses it has completed",
                n.base, n.len
            ),
            FaultReason::Rights => write!(
                f,
                "is not allowed in `{name}` ({:#x}, {} bytes); grant the right when allocating, or write to another buffer",
                n.base, n.len
            ),
            FaultReason::Misaligned => write!(
                f,
                "is not aligned to {length} bytes (`{name}` + {:#x}); align the address",
                address.wrapping_sub(n.base)
            ),
            FaultReason::OutOfBounds => {
                match n.distance {
                    0 => {
                        let inside = address.wrapping_sub(n.base);
                        let over = inside.saturating_add(*length).saturating_sub(n.len);
                        write!(
                            f,
                            "begins at byte {inside} of `{name}` ({} bytes) and ends {over} bytes past it",
                            n.len
                        )?;
                    }
                    d if d < 0 => {
                        write!(
                            f,
                            "is {} bytes before `{name}` ({} bytes)",
                            d.unsigned_abs(),
                            n.len
                        )?;
                    }
                    d => write!(f, "is {d} bytes past the end of `{name}` ({} bytes)", n.len)?,
                }
                write!(f, "; check the buffer size, the grid and the offset")
            }
        }
    }
}

/// An allocation or administration request that cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocError {
    /// Zero bytes, or more than the host can address.
    #[error("`{name}`: {len} bytes cannot be allocated; ask for between 1 and {max} bytes")]
    Size {
        /// Name of the request.
        name: String,
        /// Bytes asked for.
        len: u64,
        /// Largest size accepted.
        max: u64,
    },
    /// The alignment is not a power of two, or too large.
    #[error("`{name}`: alignment {align} is not a power of two of at most {max}")]
    Align {
        /// Name of the request.
        name: String,
        /// Alignment asked for, in bytes.
        align: u64,
        /// Largest alignment accepted.
        max: u64,
    },
    /// The host has no memory left.
    #[error(
        "`{name}`: the host has no {len} bytes left ({total} are allocated); free buffers or take a smaller model"
    )]
    HostMemory {
        /// Name of the request.
        name: String,
        /// Bytes asked for.
        len: u64,
        /// Bytes that are allocated at this moment.
        total: u64,
    },
    /// No live allocation begins at this address.
    #[error("no live allocation begins at {base:#x}; pass the address that alloc returned, once")]
    NotABase {
        /// The address that was passed.
        base: u64,
    },
}
