//! Buffers: named allocations of one device, freed on drop, with bounded host access where the
//! kind allows it. Copies through the device are left to the stream.

use core::ffi::c_void;
use core::fmt;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

use crate::device::Device;
use crate::error::DeviceError;
use crate::sys::hip::{HIP_HOST_MALLOC_COHERENT, HIP_HOST_MALLOC_MAPPED};
use crate::sys::hsa::HSA_POOL_ALLOCATE_EXECUTABLE;

/// What a buffer is for, which decides where it lies and who may touch it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    /// Device memory, not touched by the host.
    Device,
    /// Host memory that the device sees coherently (fine-grained).
    HostCoherent,
    /// Host memory for kernel arguments.
    Kernarg,
    /// Host memory that the packet processor may fetch as an indirect buffer.
    Executable,
}

impl MemoryKind {
    /// True where the host may read and write the buffer directly.
    #[must_use]
    pub fn host_visible(self) -> bool {
        self != Self::Device
    }

    /// Alignment that the runtime gives without being asked, bytes: HIP documents 256, HSA pools
    /// allocate whole 4 KiB granules.
    fn natural_alignment(self) -> u64 {
        match self {
            Self::Device | Self::HostCoherent => 256,
            Self::Kernarg | Self::Executable => 4096,
        }
    }
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Device => "device",
            Self::HostCoherent => "coherent host",
            Self::Kernarg => "kernarg",
            Self::Executable => "executable",
        })
    }
}

/// Largest alignment that can be asked for, bytes.
const MAX_ALIGN: u64 = 2 << 20;

/// A named allocation. The memory is freed on drop; work that still uses it must have ended.
pub struct Buffer {
    device: Arc<Device>,
    name: String,
    kind: MemoryKind,
    /// What the runtime returned, and is given back.
    allocation: *mut c_void,
    /// First byte of the buffer, at the alignment asked for.
    start: *mut u8,
    len: u64,
    /// Whether neither host nor device writes it any more; see [`Buffer::seal`].
    sealed: bool,
}

// SAFETY: the pointers are addresses of memory that the buffer owns; the host touches it through
// atomics only, and the runtime's free may be called from any thread.
unsafe impl Send for Buffer {}
// SAFETY: as above: `&Buffer` gives atomic access only.
unsafe impl Sync for Buffer {}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Buffer({} {}, {} bytes at {:#x})",
            self.kind,
            self.name,
            self.len,
            self.va()
        )
    }
}

impl Device {
    /// Allocates `bytes` bytes aligned to `align` (a power of two up to 2 MiB). The content is
    /// undefined. `name` appears in errors, and in the messages of the software GPU.
    ///
    /// # Errors
    /// [`DeviceError::BadAllocation`] for a size or alignment out of range, [`DeviceError::NoPool`],
    /// or the runtime's answer.
    pub fn alloc(
        self: &Arc<Self>,
        kind: MemoryKind,
        name: &str,
        bytes: u64,
        align: u64,
    ) -> Result<Buffer, DeviceError> {
        let refused = || DeviceError::BadAllocation {
            buffer: name.to_owned(),
            bytes,
            align,
        };
        if bytes == 0 || !align.is_power_of_two() || align > MAX_ALIGN {
            return Err(refused());
        }
        let room = if align > kind.natural_alignment() {
            align
        } else {
            0
        };
        let size = bytes
            .checked_add(room)
            .and_then(|size| usize::try_from(size).ok());
        let size = size
            .filter(|&size| size <= isize::MAX as usize)
            .ok_or_else(refused)?;
        let allocation = self.raw_alloc(kind, size)?;
        let misaligned = allocation.addr() as u64 % align;
        let skip = if misaligned == 0 {
            0
        } else {
            align - misaligned
        };
        let start = allocation.cast::<u8>().wrapping_add(skip as usize);
        let device = Arc::clone(self);
        let buffer = Buffer {
            device,
            name: name.to_owned(),
            kind,
            allocation,
            start,
            len: bytes,
            sealed: false,
        };
        if skip > room {
            return Err(refused());
        }
        self.hip.set_name(allocation, name)?;
        Ok(buffer)
    }

    fn raw_alloc(&self, kind: MemoryKind, size: usize) -> Result<*mut c_void, DeviceError> {
        let pool = |pool: Option<_>| pool.ok_or(DeviceError::NoPool { kind });
        match kind {
            MemoryKind::Device => self.hip.malloc(size),
            MemoryKind::HostCoherent => self
                .hip
                .host_malloc(size, HIP_HOST_MALLOC_MAPPED | HIP_HOST_MALLOC_COHERENT),
            MemoryKind::Kernarg => {
                self.hsa
                    .pool_allocate(pool(self.pools.kernarg)?, size, 0, self.agent)
            }
            MemoryKind::Executable => {
                let flags = HSA_POOL_ALLOCATE_EXECUTABLE;
                self.hsa
                    .pool_allocate(pool(self.pools.fine_grained)?, size, flags, self.agent)
            }
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // A failed free leaves nothing to do: the memory goes with the process.
        let _ = match self.kind {
            // SAFETY: `allocation` came from `Hip::malloc` and is freed here only.
            MemoryKind::Device => unsafe { self.device.hip.free(self.allocation) },
            // SAFETY: `allocation` came from `Hip::host_malloc` and is freed here only.
            MemoryKind::HostCoherent => unsafe { self.device.hip.host_free(self.allocation) },
            // SAFETY: `allocation` came from `Hsa::pool_allocate` and is freed here only.
            MemoryKind::Kernarg | MemoryKind::Executable => unsafe {
                self.device.hsa.pool_free(self.allocation)
            },
        };
    }
}

#[expect(clippy::len_without_is_empty, reason = "a buffer is never empty")]
impl Buffer {
    /// Address of the first byte, the same for host and device.
    #[must_use]
    pub fn va(&self) -> u64 {
        self.start.addr() as u64
    }

    /// Bytes of the buffer, at least 1.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// What it is for.
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// The name it was given.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The address of `bytes` bytes at `offset`.
    pub(crate) fn range(&self, offset: u64, bytes: u64) -> Result<*mut u8, DeviceError> {
        let end = offset.checked_add(bytes);
        if end.is_none_or(|end| end > self.len) {
            let (buffer, len) = (self.name.clone(), self.len);
            return Err(DeviceError::OutOfBounds {
                buffer,
                offset,
                bytes,
                len,
            });
        }
        Ok(self.start.wrapping_add(offset as usize))
    }

    fn host_range(&self, offset: u64, bytes: u64) -> Result<*mut u8, DeviceError> {
        if !self.kind.host_visible() {
            let (buffer, kind) = (self.name.clone(), self.kind);
            return Err(DeviceError::NotHostVisible { buffer, kind });
        }
        self.range(offset, bytes)
    }

    fn host_cell(&self, offset: u64, bytes: u64) -> Result<*mut u8, DeviceError> {
        let cell = self.host_range(offset, bytes)?;
        if !(cell.addr() as u64).is_multiple_of(bytes) {
            return Err(DeviceError::Misaligned {
                buffer: self.name.clone(),
                offset,
                bytes,
            });
        }
        Ok(cell)
    }

    /// Ends all writing, so that [`Self::sealed_bytes`] may lend the bytes: the host's methods refuse to
    /// write from now on. That no kernel writes them is the caller's claim, as with every launch; a
    /// checked plan writes no weights.
    ///
    /// # Errors
    /// Memory that the host cannot touch.
    pub fn seal(&mut self) -> Result<(), DeviceError> {
        self.host_range(0, 0)?;
        self.sealed = true;
        Ok(())
    }

    /// The bytes of a sealed buffer; `None` of any other.
    #[must_use]
    pub fn sealed_bytes(&self) -> Option<&[u8]> {
        // `alloc` bounded the size by isize::MAX.
        let len = usize::try_from(self.len).ok().filter(|_| self.sealed)?;
        // SAFETY: `start` is the first of `len` bytes that live as long as `self`. `seal` took the only
        // reference there was, so every write before it is over, and `writable` refuses all later ones.
        Some(unsafe { core::slice::from_raw_parts(self.start, len) })
    }

    /// Refuses to change a sealed buffer.
    pub(crate) fn writable(&self) -> Result<(), DeviceError> {
        match self.sealed {
            false => Ok(()),
            true => Err(DeviceError::Sealed {
                buffer: self.name.clone(),
            }),
        }
    }

    /// Writes `bytes` at `offset`, as single bytes and naturally aligned words without order.
    ///
    /// # Errors
    /// Out of bounds, sealed, or memory that the host cannot touch.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.writable()?;
        let at = self.host_range(offset, bytes.len() as u64)?;
        let (head, body, tail) = split(at.addr(), bytes.len());
        for index in (0..head).chain(bytes.len() - tail..bytes.len()) {
            // SAFETY: `host_range` found `bytes.len()` bytes at `at` in this live buffer, which the
            // host and the device touch through atomics only.
            let cell = unsafe { AtomicU8::from_ptr(at.add(index)) };
            cell.store(bytes[index], Ordering::Relaxed);
        }
        for word in 0..body {
            let index = head + word * 8;
            // SAFETY: as above, and `split` makes `at + head` a multiple of 8.
            let cell = unsafe { AtomicU64::from_ptr(at.add(index).cast()) };
            let mut value = [0u8; 8];
            value.copy_from_slice(&bytes[index..index + 8]);
            cell.store(u64::from_ne_bytes(value), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Reads `out.len()` bytes from `offset`, as single bytes and naturally aligned words.
    ///
    /// # Errors
    /// Out of bounds, or memory that the host cannot touch.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), DeviceError> {
        let at = self.host_range(offset, out.len() as u64)?;
        let (head, body, tail) = split(at.addr(), out.len());
        for index in (0..head).chain(out.len() - tail..out.len()) {
            // SAFETY: as in `write`.
            let cell = unsafe { AtomicU8::from_ptr(at.add(index)) };
            out[index] = cell.load(Ordering::Relaxed);
        }
        for word in 0..body {
            let index = head + word * 8;
            // SAFETY: as in `write`.
            let cell = unsafe { AtomicU64::from_ptr(at.add(index).cast()) };
            let value = cell.load(Ordering::Relaxed).to_ne_bytes();
            out[index..index + 8].copy_from_slice(&value);
        }
        Ok(())
    }

    /// Loads the 64-bit word at `offset` with acquire order; `offset` gives 8-byte alignment.
    ///
    /// # Errors
    /// Out of bounds, misaligned, or memory that the host cannot touch.
    pub fn load_u64(&self, offset: u64) -> Result<u64, DeviceError> {
        let cell = self.host_cell(offset, 8)?.cast();
        // SAFETY: 8 aligned bytes of this live buffer, touched through atomics only.
        Ok(unsafe { AtomicU64::from_ptr(cell) }.load(Ordering::Acquire))
    }

    /// Stores the 32-bit word at `offset` with release order; `offset` gives 4-byte alignment.
    ///
    /// # Errors
    /// Out of bounds, misaligned, or memory that the host cannot touch.
    pub fn store_u32_release(&self, offset: u64, value: u32) -> Result<(), DeviceError> {
        self.writable()?;
        let cell = self.host_cell(offset, 4)?.cast();
        // SAFETY: 4 aligned bytes of this live buffer, touched through atomics only.
        unsafe { AtomicU32::from_ptr(cell) }.store(value, Ordering::Release);
        Ok(())
    }
}

/// Splits `len` bytes at `address` into bytes before the first 8-aligned word, words, and bytes
/// after the last word.
fn split(address: usize, len: usize) -> (usize, usize, usize) {
    let head = (address.wrapping_neg() % 8).min(len);
    let body = (len - head) / 8;
    (head, body, len - head - body * 8)
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn split_covers_every_byte_once_and_aligns_the_words() {
        for address in 0..16 {
            for len in 0..40 {
                let (head, body, tail) = split(address, len);
                assert_eq!(head + body * 8 + tail, len);
                assert!(head < 8 && tail < 8);
                assert!(body == 0 || (address + head) % 8 == 0);
            }
        }
    }
}
