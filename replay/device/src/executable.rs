//! Code objects loaded through HSA, for packets that name a kernel descriptor by address.

use core::fmt;
use std::ffi::CString;
use std::sync::Arc;

use crate::device::Device;
use crate::error::DeviceError;
use crate::module::check_elf;
use crate::sys::hsa::{
    HSA_SYMBOL_INFO_DYNAMIC_CALLSTACK, HSA_SYMBOL_INFO_GROUP_SIZE,
    HSA_SYMBOL_INFO_KERNARG_ALIGNMENT, HSA_SYMBOL_INFO_KERNARG_SIZE, HSA_SYMBOL_INFO_KERNEL_OBJECT,
    HSA_SYMBOL_INFO_PRIVATE_SIZE, HsaCodeObjectReader, HsaExecutable,
};

/// A frozen executable of one code object. It must outlive every packet that names its kernels.
pub struct Executable {
    device: Arc<Device>,
    executable: HsaExecutable,
    reader: HsaCodeObjectReader,
    /// The runtime may refer to the bytes as long as the reader lives.
    _image: Arc<[u8]>,
}

/// What a packet needs to know about a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelHandle {
    /// Address of the 64-byte kernel descriptor.
    pub kernel_object: u64,
    /// Bytes of kernel arguments.
    pub kernarg_size: u32,
    /// Alignment of kernel arguments, bytes.
    pub kernarg_align: u32,
    /// Static LDS of a work-group, bytes.
    pub group_bytes: u32,
    /// Scratch of a work-item, bytes.
    pub private_bytes: u32,
    /// The kernel needs a call stack whose size is not known before it runs.
    pub dynamic_stack: bool,
}

impl fmt::Debug for Executable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Executable({:#x})", self.executable.handle)
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        // SAFETY: both came from one `executable_load` and are destroyed here only; that no packet
        // names the code any more is the owner's duty. A failure leaves nothing to do.
        let _ = unsafe {
            self.device
                .hsa
                .executable_destroy(self.executable, self.reader)
        };
    }
}

impl Executable {
    /// Loads and freezes a code object.
    ///
    /// # Errors
    /// [`DeviceError::BadImage`] for what is not a whole ELF file, or the runtime's answer.
    pub fn load(device: &Arc<Device>, image: &[u8]) -> Result<Self, DeviceError> {
        check_elf(image)?;
        let image: Arc<[u8]> = Arc::from(image);
        // SAFETY: the bytes are kept in place by `_image`, which drops after the executable.
        let (executable, reader) = unsafe { device.hsa.executable_load(device.agent, &image) }?;
        Ok(Self {
            device: Arc::clone(device),
            executable,
            reader,
            _image: image,
        })
    }

    /// The kernel of that name (without the `.kd` of its descriptor).
    ///
    /// # Errors
    /// A name with a NUL byte, or the runtime's answer (`HSA_STATUS_ERROR_INVALID_SYMBOL_NAME`).
    pub fn kernel(&self, name: &str) -> Result<KernelHandle, DeviceError> {
        let bad_name = || DeviceError::BadName {
            name: name.to_owned(),
        };
        let text = CString::new(format!("{name}.kd")).map_err(|_| bad_name())?;
        let hsa = &self.device.hsa;
        // SAFETY: the executable is live as long as `self`.
        let symbol = unsafe { hsa.executable_symbol(self.executable, &text, self.device.agent) }?;
        // SAFETY: the symbol belongs to this live executable; every attribute asked for below is at
        // most 8 bytes wide (HSA runtime specification, hsa_executable_symbol_info_t).
        let info = |attribute| unsafe { hsa.symbol_u64(symbol, attribute) };
        Ok(KernelHandle {
            kernel_object: info(HSA_SYMBOL_INFO_KERNEL_OBJECT)?,
            kernarg_size: info(HSA_SYMBOL_INFO_KERNARG_SIZE)? as u32,
            kernarg_align: info(HSA_SYMBOL_INFO_KERNARG_ALIGNMENT)? as u32,
            group_bytes: info(HSA_SYMBOL_INFO_GROUP_SIZE)? as u32,
            private_bytes: info(HSA_SYMBOL_INFO_PRIVATE_SIZE)? as u32,
            dynamic_stack: info(HSA_SYMBOL_INFO_DYNAMIC_CALLSTACK)? != 0,
        })
    }
}
