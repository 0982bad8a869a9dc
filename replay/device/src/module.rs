//! Code objects loaded through HIP, and their kernels. Which object to load for a target is left
//! to the kernel catalog.

use core::sync::atomic::Ordering;
use std::ffi::CString;
use std::sync::Arc;

use crate::device::Device;
use crate::error::DeviceError;
use crate::sys::hip::{HipFunction, HipModule};

/// A loaded code object. Cloning shares it; it is unloaded when it and its functions are dropped.
#[derive(Clone)]
pub struct Module {
    inner: Arc<Loaded>,
}

/// What a module and its functions share.
pub(crate) struct Loaded {
    device: Arc<Device>,
    handle: HipModule,
    id: u64,
    image: Arc<[u8]>,
}

// SAFETY: the handle is opaque, and HIP's module calls may be made from any thread.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: `handle` came from `module_load`; every function holds this value, so none is
        // left. A failure leaves nothing to do.
        let _ = unsafe { self.device.hip.module_unload(self.handle) };
    }
}

impl Loaded {
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn image(&self) -> &[u8] {
        &self.image
    }
}

/// Refuses what is not even an ELF file: HIP takes sizes from the header, not from the caller, so a
/// short image would be read past its end.
pub(crate) fn check_elf(image: &[u8]) -> Result<(), DeviceError> {
    let bad = DeviceError::BadImage {
        bytes: image.len() as u64,
    };
    let field = |at: usize| {
        image
            .get(at..at + 8)
            .and_then(|b| <[u8; 8]>::try_from(b).ok())
    };
    let short = |at: usize| {
        image
            .get(at..at + 2)
            .and_then(|b| <[u8; 2]>::try_from(b).ok())
    };
    let header = image
        .get(..64)
        .filter(|header| header.starts_with(b"\x7fELF\x02\x01"));
    // ELF64 little-endian: e_shoff at 40, e_shentsize at 58, e_shnum at 60.
    let (Some(_), Some(offset), Some(size), Some(count)) =
        (header, field(40), short(58), short(60))
    else {
        return Err(bad);
    };
    let table = u64::from(u16::from_le_bytes(size)) * u64::from(u16::from_le_bytes(count));
    let end = u64::from_le_bytes(offset).checked_add(table);
    if end.is_none_or(|end| end > image.len() as u64) {
        return Err(bad);
    }
    Ok(())
}

impl Module {
    /// Loads a code object.
    ///
    /// # Errors
    /// [`DeviceError::BadImage`] for what is not a whole ELF file, or the runtime's answer.
    pub fn load(device: &Arc<Device>, image: &[u8]) -> Result<Self, DeviceError> {
        check_elf(image)?;
        let image: Arc<[u8]> = Arc::from(image);
        // SAFETY: `check_elf` found the section header table, which ends a code object, inside.
        let handle = unsafe { device.hip.module_load(&image) }?;
        let id = device.next_module.fetch_add(1, Ordering::Relaxed);
        let inner = Arc::new(Loaded {
            device: Arc::clone(device),
            handle,
            id,
            image,
        });
        Ok(Self { inner })
    }

    /// Number of the module on its device, in load order.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// The kernel of that name.
    ///
    /// # Errors
    /// A name with a NUL byte, or the runtime's answer (`hipErrorNotFound`).
    pub fn function(&self, name: &str) -> Result<Function, DeviceError> {
        let text = CString::new(name).map_err(|_| DeviceError::BadName {
            name: name.to_owned(),
        })?;
        // SAFETY: the module is live as long as `self.inner`.
        let handle = unsafe {
            self.inner
                .device
                .hip
                .module_function(self.inner.handle, &text)
        }?;
        Ok(Function {
            module: Arc::clone(&self.inner),
            handle,
            symbol: Arc::from(name),
        })
    }
}

/// A kernel of a module, which it keeps loaded.
#[derive(Clone)]
pub struct Function {
    module: Arc<Loaded>,
    handle: HipFunction,
    symbol: Arc<str>,
}

// SAFETY: the handle is opaque and only handed to HIP, whose launches may be made from any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl core::fmt::Debug for Function {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Function({} of module {})", self.symbol, self.module.id)
    }
}

impl Function {
    /// Kernel symbol.
    #[must_use]
    pub fn symbol(&self) -> &str {
        &self.symbol
    }

    pub(crate) fn module(&self) -> &Loaded {
        &self.module
    }

    pub(crate) fn handle(&self) -> HipFunction {
        self.handle
    }
}
