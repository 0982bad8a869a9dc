//! HSA entries that load code objects into executables and describe their kernels. An executable
//! holds one code object, which is what Refrain and ROCm's tools make.

use super::super::registry::{Entry, registry};
use super::{Answer, alive, fail, gpu_agent, put, resources, started, status_of};
use crate::gpu::SoftError;
use crate::gpu::faults::Event;
use crate::object::{KernelSymbol, LoadedObject};
use refrain_device::sys::hsa as c;
use refrain_device::sys::hsa::{
    HsaAgent, HsaCodeObjectReader, HsaExecutable, HsaExecutableSymbol, HsaLoadedCodeObject,
    HsaStatus,
};
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::sync::{Arc, Mutex, PoisonError};

/// The bytes behind a reader.
pub(crate) struct ReaderEntry {
    bytes: Vec<u8>,
}

#[derive(Default)]
struct Content {
    loaded: Option<(Arc<Entry>, Arc<LoadedObject>)>,
    frozen: bool,
    /// Handles given out by symbol: asking again gives the same one.
    symbols: HashMap<String, u64>,
}

/// An executable.
pub(crate) struct ExecutableEntry {
    content: Mutex<Content>,
}

impl ExecutableEntry {
    /// Whether its code object is loaded on the device of that ordinal.
    pub(crate) fn is_on(&self, ordinal: u32) -> bool {
        let content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        content
            .loaded
            .as_ref()
            .is_some_and(|(entry, _)| entry.ordinal == ordinal)
    }
}

/// A kernel symbol.
pub(crate) struct SymbolEntry {
    pub(crate) entry: Arc<Entry>,
    executable: u64,
    kernel: KernelSymbol,
}

fn no_options(call: &str, options: *const c_char) -> Answer {
    // SAFETY: not null in the second operand, so a NUL-terminated string by the caller's promise.
    if options.is_null() || unsafe { CStr::from_ptr(options) }.is_empty() {
        return Ok(());
    }
    fail(
        call,
        c::HSA_ERROR_INVALID_ARGUMENT,
        "options are not modelled",
    )
}

pub(crate) unsafe extern "C" fn reader_create_from_memory(
    bytes: *const c_void,
    len: usize,
    out: *mut HsaCodeObjectReader,
) -> HsaStatus {
    let call = "hsa_code_object_reader_create_from_memory";
    status_of(started(call).and_then(|()| {
        if bytes.is_null() || len == 0 {
            return fail(
                call,
                c::HSA_ERROR_INVALID_ARGUMENT,
                "the code object is empty",
            );
        }
        // SAFETY: not null, so `len` bytes by the caller's promise.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), len) }.to_vec();
        let handle = registry().handle();
        // SAFETY: the caller passes null or a handle's address.
        unsafe { put(call, out, HsaCodeObjectReader { handle }) }?;
        registry()
            .readers
            .insert(handle, Arc::new(ReaderEntry { bytes }));
        Ok(())
    }))
}

pub(crate) unsafe extern "C" fn reader_destroy(reader: HsaCodeObjectReader) -> HsaStatus {
    let call = "hsa_code_object_reader_destroy";
    status_of(
        started(call).and_then(|()| match registry().readers.remove(&reader.handle) {
            Some(_) => Ok(()),
            None => {
                let what = format!("{:#x} is not a live reader", reader.handle);
                fail(call, c::HSA_ERROR_INVALID_CODE_OBJECT_READER, what)
            }
        }),
    )
}

pub(crate) unsafe extern "C" fn executable_create_alt(
    profile: u32,
    rounding: u32,
    options: *const c_char,
    out: *mut HsaExecutable,
) -> HsaStatus {
    let call = "hsa_executable_create_alt";
    status_of(
        started(call)
            .and_then(|()| no_options(call, options))
            .and_then(|()| {
                if profile != c::HSA_PROFILE_FULL || rounding != c::HSA_ROUNDING_MODE_DEFAULT {
                    let what =
                        format!("profile {profile} with rounding {rounding} is not modelled");
                    return fail(call, c::HSA_ERROR_INVALID_ARGUMENT, what);
                }
                let handle = registry().handle();
                // SAFETY: the caller passes null or a handle's address.
                unsafe { put(call, out, HsaExecutable { handle }) }?;
                let content = Mutex::default();
                registry()
                    .executables
                    .insert(handle, Arc::new(ExecutableEntry { content }));
                Ok(())
            }),
    )
}

fn executable(call: &str, handle: HsaExecutable) -> Answer<Arc<ExecutableEntry>> {
    match registry().executables.get(&handle.handle) {
        Some(found) => Ok(found),
        None => {
            let what = format!("{:#x} is not a live executable", handle.handle);
            fail(call, c::HSA_ERROR_INVALID_EXECUTABLE, what)
        }
    }
}

pub(crate) unsafe extern "C" fn executable_load_agent_code_object(
    handle: HsaExecutable,
    agent: HsaAgent,
    reader: HsaCodeObjectReader,
    options: *const c_char,
    out: *mut HsaLoadedCodeObject,
) -> HsaStatus {
    let call = "hsa_executable_load_agent_code_object";
    status_of(
        started(call)
            .and_then(|()| no_options(call, options))
            .and_then(|()| {
                let found = executable(call, handle)?;
                let entry = gpu_agent(call, agent)?;
                let Some(reader) = registry().readers.get(&reader.handle) else {
                    let what = format!("{:#x} is not a live reader", reader.handle);
                    return fail(call, c::HSA_ERROR_INVALID_CODE_OBJECT_READER, what);
                };
                let mut content = found.content.lock().unwrap_or_else(PoisonError::into_inner);
                if content.frozen {
                    return fail(
                        call,
                        c::HSA_ERROR_FROZEN_EXECUTABLE,
                        "the executable is frozen",
                    );
                }
                if content.loaded.is_some() {
                    let what = "a second code object in one executable is not modelled";
                    return fail(call, c::HSA_ERROR_INVALID_EXECUTABLE, what);
                }
                alive(call, &entry)?;
                resources(call, &entry, Event::CodeLoad)?;
                let object = match entry.gpu.load_code_object(&reader.bytes) {
                    Ok(object) => object,
                    Err(SoftError::Alloc(error)) => {
                        return fail(call, c::HSA_ERROR_OUT_OF_RESOURCES, error);
                    }
                    Err(error) => return fail(call, c::HSA_ERROR_INVALID_CODE_OBJECT, error),
                };
                content.loaded = Some((entry, object));
                if out.is_null() {
                    return Ok(());
                }
                let handle = registry().handle();
                // SAFETY: not null, so a handle's address by the caller's promise.
                unsafe { put(call, out, HsaLoadedCodeObject { handle }) }
            }),
    )
}

pub(crate) unsafe extern "C" fn executable_freeze(
    handle: HsaExecutable,
    options: *const c_char,
) -> HsaStatus {
    let call = "hsa_executable_freeze";
    status_of(
        started(call)
            .and_then(|()| no_options(call, options))
            .and_then(|()| {
                let found = executable(call, handle)?;
                let mut content = found.content.lock().unwrap_or_else(PoisonError::into_inner);
                if std::mem::replace(&mut content.frozen, true) {
                    return fail(
                        call,
                        c::HSA_ERROR_FROZEN_EXECUTABLE,
                        "the executable is frozen already",
                    );
                }
                Ok(())
            }),
    )
}

pub(crate) unsafe extern "C" fn executable_get_symbol_by_name(
    handle: HsaExecutable,
    name: *const c_char,
    agent: *const HsaAgent,
    out: *mut HsaExecutableSymbol,
) -> HsaStatus {
    let call = "hsa_executable_get_symbol_by_name";
    status_of(started(call).and_then(|()| {
        let found = executable(call, handle)?;
        if name.is_null() || agent.is_null() {
            return fail(
                call,
                c::HSA_ERROR_INVALID_ARGUMENT,
                "the name or the agent is null",
            );
        }
        // SAFETY: not null, so a NUL-terminated string by the caller's promise.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        // SAFETY: not null, so an agent by the caller's promise.
        let asked = gpu_agent(call, unsafe { agent.read() })?;
        let mut content = found.content.lock().unwrap_or_else(PoisonError::into_inner);
        let object = match &content.loaded {
            Some((entry, object)) if entry.ordinal == asked.ordinal => object,
            _ => {
                let what = "the executable has no code object of that agent";
                return fail(call, c::HSA_ERROR_INVALID_SYMBOL_NAME, what);
            }
        };
        // The symbol of a kernel is that of its descriptor (code object version 3 and later).
        let Some(kernel) = name.strip_suffix(".kd") else {
            let what = format!("`{name}` is not the symbol of a kernel descriptor (NAME.kd)");
            return fail(call, c::HSA_ERROR_INVALID_SYMBOL_NAME, what);
        };
        let kernel = match object.kernel(kernel) {
            Ok(kernel) => kernel,
            Err(error @ SoftError::NoKernel { .. }) => {
                return fail(call, c::HSA_ERROR_INVALID_SYMBOL_NAME, error);
            }
            Err(error) => return fail(call, c::HSA_ERROR, error),
        };
        let id = *content.symbols.entry(name.into_owned()).or_insert_with(|| {
            let id = registry().handle();
            let made = SymbolEntry {
                entry: asked,
                executable: handle.handle,
                kernel,
            };
            registry().symbols.insert(id, Arc::new(made));
            id
        });
        // SAFETY: the caller passes null or a symbol's address.
        unsafe { put(call, out, HsaExecutableSymbol { handle: id }) }
    }))
}

pub(crate) unsafe extern "C" fn executable_symbol_get_info(
    symbol: HsaExecutableSymbol,
    attribute: u32,
    value: *mut c_void,
) -> HsaStatus {
    let call = "hsa_executable_symbol_get_info";
    status_of(started(call).and_then(|()| {
        let Some(symbol) = registry().symbols.get(&symbol.handle) else {
            let what = format!("{:#x} is not a live symbol", symbol.handle);
            return fail(call, c::HSA_ERROR_INVALID_EXECUTABLE_SYMBOL, what);
        };
        let kernel = &symbol.kernel;
        let number = match attribute {
            c::HSA_SYMBOL_INFO_TYPE => c::HSA_SYMBOL_KIND_KERNEL,
            c::HSA_SYMBOL_INFO_KERNARG_SIZE => kernel.kernarg_size,
            c::HSA_SYMBOL_INFO_KERNARG_ALIGNMENT => kernel.kernarg_align,
            c::HSA_SYMBOL_INFO_GROUP_SIZE => kernel.group_bytes,
            c::HSA_SYMBOL_INFO_PRIVATE_SIZE => kernel.private_bytes,
            c::HSA_SYMBOL_INFO_KERNEL_OBJECT => {
                // SAFETY: the attribute is a uint64_t, which the caller has room for.
                return unsafe { put(call, value.cast(), kernel.descriptor_va) };
            }
            c::HSA_SYMBOL_INFO_DYNAMIC_CALLSTACK => {
                // The loader refuses kernels with a dynamic stack, so a symbol never has one.
                // SAFETY: the attribute is a bool, which the caller has room for.
                return unsafe { put(call, value.cast(), false) };
            }
            _ => {
                let what = format!("attribute {attribute} is not modelled");
                return fail(call, c::HSA_ERROR_INVALID_ARGUMENT, what);
            }
        };
        // SAFETY: the attribute is a uint32_t, which the caller has room for.
        unsafe { put(call, value.cast(), number) }
    }))
}

pub(crate) unsafe extern "C" fn executable_destroy(handle: HsaExecutable) -> HsaStatus {
    let call = "hsa_executable_destroy";
    status_of(started(call).and_then(|()| {
        executable(call, handle)?;
        registry()
            .symbols
            .retain(|symbol| symbol.executable != handle.handle);
        registry().executables.remove(&handle.handle);
        Ok(())
    }))
}
