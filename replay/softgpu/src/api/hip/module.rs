//! HIP entries that load code objects and launch their kernels.

use super::super::registry::{Entry, registry};
use super::super::stream::Node;
use super::streams;
use super::{Answer, current, fail, memory_for, put, status_of, stream_failed, submitted};
use crate::gpu::SoftError;
use crate::gpu::faults::Event;
use crate::object::{KernelSymbol, LoadedObject};
use refrain_device::sys::hip as c;
use refrain_device::sys::hip::{HipFunction, HipModule, HipStatus, HipStream};
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_uint, c_void};
use std::ptr::without_provenance_mut;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of an ELF64 header.
const ELF_HEADER: usize = 64;

/// A loaded module.
pub(crate) struct ModuleEntry {
    pub(crate) entry: Arc<Entry>,
    object: Arc<LoadedObject>,
    /// Handles given out by kernel name: asking again gives the same one.
    functions: Mutex<HashMap<String, u64>>,
}

/// A kernel of a module.
pub(crate) struct FunctionEntry {
    pub(crate) entry: Arc<Entry>,
    module: u64,
    kernel: KernelSymbol,
}

/// Length of the ELF image at `image`: the end of its section header table, which code objects end
/// with. HIP gives no length, so what the header says has to be believed.
///
/// # Safety
/// `image` is valid for reads of a whole ELF64 image, at least of its header.
unsafe fn image<'a>(image: *const c_void) -> Option<&'a [u8]> {
    if image.is_null() {
        return None;
    }
    // SAFETY: the caller vouches for the header.
    let header = unsafe { std::slice::from_raw_parts(image.cast::<u8>(), ELF_HEADER) };
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let short = |at: usize| u64::from(u16::from_le_bytes([header[at], header[at + 1]]));
    // e_shoff at 40, e_shentsize at 58, e_shnum at 60.
    let offset = header[40..48]
        .iter()
        .rev()
        .fold(0, |value, &byte| value << 8 | u64::from(byte));
    let len = usize::try_from(offset.checked_add(short(58) * short(60))?).ok()?;
    if len < ELF_HEADER || len > isize::MAX as usize {
        return None;
    }
    // SAFETY: the caller vouches for the whole image.
    Some(unsafe { std::slice::from_raw_parts(image.cast::<u8>(), len) })
}

pub(crate) unsafe extern "C" fn module_load_data(
    out: *mut HipModule,
    data: *const c_void,
) -> HipStatus {
    let call = "hipModuleLoadData";
    status_of(current(call).and_then(|entry| {
        // SAFETY: the caller's promise to hipModuleLoadData.
        let Some(bytes) = (unsafe { image(data) }) else {
            return fail(
                call,
                c::HIP_ERROR_INVALID_IMAGE,
                "the image is not an ELF64 file",
            );
        };
        memory_for(call, &entry, Event::CodeLoad)?;
        let object = match entry.gpu.load_code_object(bytes) {
            Ok(object) => object,
            Err(SoftError::Alloc(error)) => return fail(call, c::HIP_ERROR_OUT_OF_MEMORY, error),
            Err(error) => return fail(call, c::HIP_ERROR_INVALID_IMAGE, error),
        };
        let handle = registry().handle();
        // SAFETY: the caller passes null or a handle's address.
        unsafe { put(call, out, without_provenance_mut(handle as usize)) }?;
        registry().modules.insert(
            handle,
            Arc::new(ModuleEntry {
                entry,
                object,
                functions: Mutex::default(),
            }),
        );
        Ok(())
    }))
}

fn module(call: &str, handle: HipModule) -> Answer<Arc<ModuleEntry>> {
    match registry().modules.get(&(handle.addr() as u64)) {
        Some(module) => Ok(module),
        None => {
            let what = format!("{:#x} is not a live module", handle.addr());
            fail(call, c::HIP_ERROR_INVALID_HANDLE, what)
        }
    }
}

pub(crate) unsafe extern "C" fn module_unload(handle: HipModule) -> HipStatus {
    let call = "hipModuleUnload";
    status_of(module(call, handle).map(|module| {
        // Code stays until no launch can still execute it; a failed device executes nothing more.
        streams::settle_device(&module.entry);
        let id = handle.addr() as u64;
        registry()
            .functions
            .retain(|function| function.module != id);
        registry().modules.remove(&id);
    }))
}

pub(crate) unsafe extern "C" fn module_get_function(
    out: *mut HipFunction,
    handle: HipModule,
    name: *const c_char,
) -> HipStatus {
    let call = "hipModuleGetFunction";
    status_of(module(call, handle).and_then(|module| {
        if name.is_null() {
            return fail(call, c::HIP_ERROR_INVALID_VALUE, "the name is null");
        }
        // SAFETY: not null, so a NUL-terminated string by the caller's promise.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let kernel = match module.object.kernel(&name) {
            Ok(kernel) if !name.ends_with(".kd") => kernel,
            Ok(_) => {
                let what = format!("`{name}` is a descriptor; name the kernel without .kd");
                return fail(call, c::HIP_ERROR_NOT_FOUND, what);
            }
            Err(error @ SoftError::NoKernel { .. }) => {
                return fail(call, c::HIP_ERROR_NOT_FOUND, error);
            }
            Err(error) => return fail(call, c::HIP_ERROR_NOT_SUPPORTED, error),
        };
        let mut known = module
            .functions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let id = *known.entry(name.into_owned()).or_insert_with(|| {
            let id = registry().handle();
            let entry = Arc::clone(&module.entry);
            let made = FunctionEntry {
                entry,
                module: handle.addr() as u64,
                kernel,
            };
            registry().functions.insert(id, Arc::new(made));
            id
        });
        // SAFETY: the caller passes null or a handle's address.
        unsafe { put(call, out, without_provenance_mut(id as usize)) }
    }))
}

/// The argument bytes that `extra` names: (BUFFER_POINTER, p, BUFFER_SIZE, &n, END).
///
/// # Safety
/// `extra` is null or such a list in any order, ended by END.
unsafe fn arguments<'a>(call: &str, extra: *mut *mut c_void) -> Answer<&'a [u8]> {
    let (mut buffer, mut size) = (None, None);
    let mut at = extra;
    while !at.is_null() {
        // SAFETY: inside the list, which END ends.
        let key = unsafe { at.read() };
        if key == c::HIP_LAUNCH_PARAM_END {
            break;
        }
        // SAFETY: every key but END is followed by its value.
        let value = unsafe { at.add(1).read() };
        match key {
            c::HIP_LAUNCH_PARAM_BUFFER_POINTER => buffer = Some(value),
            c::HIP_LAUNCH_PARAM_BUFFER_SIZE => {
                // SAFETY: documented to be the address of a size_t.
                size = Some(unsafe { value.cast::<usize>().read() });
            }
            _ => {
                let what = format!("launch parameter {:#x} is not modelled", key.addr());
                return fail(call, c::HIP_ERROR_INVALID_VALUE, what);
            }
        }
        // SAFETY: a key and its value were read, so the list goes on.
        at = unsafe { at.add(2) };
    }
    match (buffer, size) {
        (None, None) | (_, Some(0)) => Ok(&[]),
        (Some(buffer), Some(size)) if !buffer.is_null() => {
            // SAFETY: the caller passes `size` bytes of arguments at `buffer`.
            Ok(unsafe { std::slice::from_raw_parts(buffer.cast(), size) })
        }
        _ => fail(
            call,
            c::HIP_ERROR_INVALID_VALUE,
            "argument buffer and size do not go together",
        ),
    }
}

pub(crate) unsafe extern "C" fn module_launch_kernel(
    function: HipFunction,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    lds_bytes: c_uint,
    stream: HipStream,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> HipStatus {
    let call = "hipModuleLaunchKernel";
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    if !params.is_null() {
        let what = "kernelParams are not modelled; pass the argument bytes through extra";
        return status_of(fail(call, c::HIP_ERROR_NOT_SUPPORTED, what));
    }
    // SAFETY: the caller's promise to hipModuleLaunchKernel.
    let kernarg = unsafe { arguments(call, extra) };
    status_of(
        kernarg.and_then(|kernarg| launch(call, function, grid, block, lds_bytes, stream, kernarg)),
    )
}

fn launch(
    call: &str,
    function: HipFunction,
    grid: [u32; 3],
    block: [u32; 3],
    lds_bytes: u32,
    stream: HipStream,
    kernarg: &[u8],
) -> Answer {
    let entry = current(call)?;
    let handle = function.addr() as u64;
    let found = registry().functions.get(&handle);
    let Some(function) = found.filter(|found| found.entry.ordinal == entry.ordinal) else {
        let what = format!("{:#x} is not a function of this device", function.addr());
        return fail(call, c::HIP_ERROR_INVALID_HANDLE, what);
    };
    let kernel = &function.kernel;
    let refuse = |what: String| {
        fail(
            call,
            c::HIP_ERROR_INVALID_CONFIGURATION,
            format_args!("{}: {what}", kernel.name),
        )
    };
    let items = block.iter().map(|&size| u64::from(size)).product::<u64>();
    if grid.contains(&0) || items == 0 {
        return refuse(format!(
            "a grid of {grid:?} groups of {block:?} work-items is empty"
        ));
    }
    if items > u64::from(kernel.max_flat_workgroup_size) {
        let most = kernel.max_flat_workgroup_size;
        return refuse(format!(
            "{items} work-items in a group, the code allows {most}"
        ));
    }
    if kernel.reqd_workgroup_size.is_some_and(|size| size != block) {
        return refuse(format!(
            "the code requires groups of {:?}",
            kernel.reqd_workgroup_size
        ));
    }
    let lds = u64::from(kernel.group_bytes) + u64::from(lds_bytes);
    let most = super::LDS_BYTES.unsigned_abs();
    if lds > u64::from(most) {
        return refuse(format!("{lds} bytes of LDS, a group has at most {most}"));
    }
    // The compiler's size may end before the padding that callers write after the last argument.
    let needed = kernel.kernarg_size as usize;
    if kernarg.len() < needed || kernarg.len() > needed.next_multiple_of(16) {
        return fail(
            call,
            c::HIP_ERROR_INVALID_VALUE,
            format_args!(
                "{} takes {needed} bytes of arguments, {} were passed",
                kernel.name,
                kernarg.len()
            ),
        );
    }
    let stream = streams::stream(call, &entry, stream)?;
    let launch = || Node {
        function: handle,
        kernel: kernel.clone(),
        groups: grid,
        group: block,
        lds_bytes,
        kernarg: kernarg.to_vec(),
    };
    if stream.captures(launch) {
        return Ok(());
    }
    submitted(call, &entry)?;
    let done = stream.launch(kernel, grid, block, lds_bytes, kernarg);
    done.or_else(|error| stream_failed(call, &error))
}
