//! The errors of this crate: why no device can be used, and how a call on one failed. Each names
//! the values concerned and the remedy. Which exit code they become is left to the command line.

use core::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::memory::MemoryKind;

/// A library that could not be used, with everything that was tried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// None of the names could be opened.
    #[error("{library} is not installed: {}", Attempts(.tried))]
    NotInstalled {
        /// `libamdhip64` or `libhsa-runtime64`.
        library: &'static str,
        /// Each name that was tried, with the dynamic linker's answer.
        tried: Vec<Attempt>,
    },
    /// The library lacks entries that Refrain needs.
    #[error("{} lacks {}", .path.display(), .missing.join(", "))]
    EntriesMissing {
        /// File that was opened.
        path: PathBuf,
        /// Names of the missing entries.
        missing: Vec<&'static str>,
    },
}

/// One try to open a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The name handed to the dynamic linker.
    pub name: &'static str,
    /// Its answer.
    pub answer: String,
}

struct Attempts<'a>(&'a [Attempt]);

impl fmt::Display for Attempts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, attempt) in self.0.iter().enumerate() {
            let separator = if index == 0 { "tried " } else { "; " };
            let Attempt { name, answer } = attempt;
            // The dynamic linker's answer mostly begins with the name.
            match answer.strip_prefix(name) {
                Some(rest) => write!(f, "{separator}{name}{rest}")?,
                None => write!(f, "{separator}{name} ({answer})")?,
            }
        }
        Ok(())
    }
}

/// Why no device can be used. [`NoDevice::remedy`] says what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoDevice {
    /// The libraries of ROCm cannot be used.
    #[error("{0}")]
    Library(#[from] LoadError),
    /// The driver's device file does not exist.
    #[error("{} does not exist: the amdgpu kernel driver is not loaded, or its device is not passed into this container ({answer})", .path.display())]
    DriverAbsent {
        /// The device file.
        path: PathBuf,
        /// The runtime's call and answer.
        answer: String,
    },
    /// The driver's device file may not be opened by this user.
    #[error("{} may not be opened by this user ({answer})", .path.display())]
    NoPermission {
        /// The device file.
        path: PathBuf,
        /// The runtime's call and answer.
        answer: String,
    },
    /// The driver's device file exists but cannot be opened, or is not the driver's.
    #[error("{} cannot be used: {cause} ({answer})", .path.display())]
    DriverUnusable {
        /// The device file.
        path: PathBuf,
        /// What the system or the file says.
        cause: String,
        /// The runtime's call and answer.
        answer: String,
    },
    /// The driver is there, but the runtime sees no GPU.
    #[error("the ROCm runtime sees no GPU ({answer})")]
    NoneVisible {
        /// The runtime's call and answer.
        answer: String,
    },
    /// The ordinal is not one of the devices.
    #[error("there is no device {ordinal}: the runtime lists {count}")]
    OrdinalOutOfRange {
        /// Ordinal asked for.
        ordinal: u32,
        /// Devices that the runtime lists.
        count: u32,
    },
    /// HIP lists the device, but HSA has no agent at its PCI address.
    #[error("HIP device {ordinal} at PCI {pci} has no HSA agent")]
    NoAgent {
        /// Ordinal asked for.
        ordinal: u32,
        /// `domain:bus:device` as HIP gives it.
        pci: String,
    },
    /// The card's instruction set is not one that Refrain has kernels for.
    #[error("device {ordinal} ({name}) is a {target}, which is not supported")]
    TargetUnsupported {
        /// Ordinal asked for.
        ordinal: u32,
        /// Name of the card.
        name: String,
        /// Instruction set, such as `gfx906`.
        target: String,
    },
}

impl NoDevice {
    /// What a user can do about it; a whole clause without a full stop.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Library(LoadError::NotInstalled { .. }) => {
                "install ROCm (packages that carry libamdhip64 and libhsa-runtime64), or use --device soft:gfx1201"
            }
            Self::Library(LoadError::EntriesMissing { .. }) => {
                "install ROCm 6 or later, or use --device soft:gfx1201"
            }
            Self::DriverAbsent { .. } => {
                "load the amdgpu driver (modprobe amdgpu), pass --device=/dev/kfd --device=/dev/dri to the container, or use --device soft:gfx1201"
            }
            Self::NoPermission { .. } => {
                "add the user to the group that owns the file (usermod -aG render,video USER, then log in again)"
            }
            Self::DriverUnusable { .. } => {
                "see the kernel log (dmesg | grep -i -e amdgpu -e kfd), or use --device soft:gfx1201"
            }
            Self::NoneVisible { .. } => {
                "check HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES, that /dev/dri/renderD* may be opened, and that the installed ROCm knows the card"
            }
            Self::OrdinalOutOfRange { .. } => "choose an ordinal that `refrain devices` lists",
            Self::NoAgent { .. } => {
                "make HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES name the same cards"
            }
            Self::TargetUnsupported { .. } => {
                "use a card of gfx1100, gfx1151 or gfx1201, or --device soft:gfx1201"
            }
        }
    }
}

/// Which of the two runtimes answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// HIP.
    Hip,
    /// HSA.
    Hsa,
}

/// A call that failed, or was refused before it was made.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DeviceError {
    /// There is no device that could be used.
    #[error("no device: {reason}; {remedy}", reason = .0, remedy = .0.remedy())]
    NoDevice(#[from] NoDevice),
    /// A runtime call answered with an error.
    #[error("{call} failed: {name} ({code:#x}){}; {remedy}", Because(.reason))]
    Call {
        /// The runtime that answered.
        api: Api,
        /// Name of the entry.
        call: &'static str,
        /// Its status.
        code: u32,
        /// The vendor's name of the status.
        name: &'static str,
        /// What to do about it.
        remedy: &'static str,
        /// The runtime's own sentence about this call, where it has one.
        reason: Option<String>,
    },
    /// This runtime does not have the entry.
    #[error("this runtime has no {call}; use a newer ROCm")]
    EntryMissing {
        /// Name of the entry.
        call: &'static str,
    },
    /// A host access leaves its buffer.
    #[error("access of {bytes} bytes at offset {offset} leaves buffer {buffer} of {len} bytes")]
    OutOfBounds {
        /// Name of the buffer.
        buffer: String,
        /// First byte of the access.
        offset: u64,
        /// Bytes of the access.
        bytes: u64,
        /// Bytes of the buffer.
        len: u64,
    },
    /// A host access that needs natural alignment does not have it.
    #[error("access of {bytes} bytes at offset {offset} of buffer {buffer} is not aligned")]
    Misaligned {
        /// Name of the buffer.
        buffer: String,
        /// First byte of the access.
        offset: u64,
        /// Bytes of the access.
        bytes: u64,
    },
    /// A write to a buffer that was sealed.
    #[error("buffer {buffer} is sealed: its bytes are lent to the host and no longer change")]
    Sealed {
        /// Name of the buffer.
        buffer: String,
    },
    /// The host touches memory that only the device sees.
    #[error(
        "buffer {buffer} is {kind} memory, which the host cannot touch; copy through the stream"
    )]
    NotHostVisible {
        /// Name of the buffer.
        buffer: String,
        /// Its kind.
        kind: MemoryKind,
    },
    /// A buffer of another device was handed in.
    #[error("{what} belongs to another device")]
    ForeignDevice {
        /// Name of the buffer or symbol.
        what: String,
    },
    /// An allocation was refused before it was tried.
    #[error(
        "buffer {buffer}: {bytes} bytes aligned to {align} cannot be allocated; a size is at least 1 and an alignment a power of two up to 2 MiB"
    )]
    BadAllocation {
        /// Name of the buffer.
        buffer: String,
        /// Bytes asked for.
        bytes: u64,
        /// Alignment asked for.
        align: u64,
    },
    /// The runtime has no memory pool of the needed kind.
    #[error("the runtime offers no memory pool for {kind} memory; update ROCm")]
    NoPool {
        /// Kind asked for.
        kind: MemoryKind,
    },
    /// A name cannot be handed to C.
    #[error("kernel name {name:?} holds a NUL byte")]
    BadName {
        /// The name.
        name: String,
    },
    /// The code object was refused before it was loaded.
    #[error(
        "the code object of {bytes} bytes is not an ELF file; rebuild or reinstall the kernels"
    )]
    BadImage {
        /// Bytes of the image.
        bytes: u64,
    },
    /// A wait took longer than it may.
    #[error("{what} did not happen within {waited:?}; last value {last}{}", Because(.reason))]
    DeadlineExceeded {
        /// What was waited for.
        what: &'static str,
        /// How long.
        waited: Duration,
        /// Last value seen.
        last: i64,
        /// What the software GPU knows about it.
        reason: Option<String>,
    },
    /// The packet processor stopped the queue.
    #[error("the queue stopped: {name} ({status:#x}){}; {remedy}", Because(.reason))]
    Queue {
        /// Status handed to the queue's error callback.
        status: u32,
        /// The vendor's name of the status.
        name: &'static str,
        /// What to do about it.
        remedy: &'static str,
        /// The software GPU's sentence about the fault.
        reason: Option<String>,
    },
    /// The queue has been given a number of packets that it cannot hold or that were not reserved.
    #[error(
        "{what}: packet {id} of a ring of {size} packets (reserved up to {reserved}, read up to {read})"
    )]
    Ring {
        /// What was refused.
        what: &'static str,
        /// Packet id, or number of packets asked for.
        id: u64,
        /// Packets in the ring.
        size: u64,
        /// First id that is not reserved.
        reserved: u64,
        /// First id that the packet processor has not consumed.
        read: u64,
    },
}

struct Because<'a>(&'a Option<String>);

impl fmt::Display for Because<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}

impl From<LoadError> for DeviceError {
    fn from(error: LoadError) -> Self {
        Self::NoDevice(NoDevice::Library(error))
    }
}

impl DeviceError {
    /// True where there is no device to work with, as opposed to a failed call on one.
    #[must_use]
    pub fn is_no_device(&self) -> bool {
        matches!(self, Self::NoDevice(_))
    }

    /// The status code of a failed call or stopped queue.
    #[must_use]
    pub fn status(&self) -> Option<u32> {
        match self {
            Self::Call { code, .. } => Some(*code),
            Self::Queue { status, .. } => Some(*status),
            _ => None,
        }
    }
}
