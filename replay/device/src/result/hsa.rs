//! HSA calls with results. One value stands for one reference that `hsa_init` counted.

use core::ffi::{CStr, c_char, c_void};
use core::ptr::{null, null_mut};

use crate::error::{Api, DeviceError};
use crate::status;
use crate::sys::hsa::{
    HSA_AGENT_INFO_DEVICE, HSA_ERROR, HSA_INFO_BREAK, HSA_ISA_INFO_NAME, HSA_ISA_INFO_NAME_LENGTH,
    HSA_PROFILE_FULL, HSA_QUEUE_TYPE_MULTI, HSA_ROUNDING_MODE_DEFAULT, HSA_SIGNAL_CONDITION_LT,
    HSA_SUCCESS, HSA_WAIT_STATE_BLOCKED, HsaAgent, HsaCodeObjectReader, HsaExecutable,
    HsaExecutableSymbol, HsaIsa, HsaLoadedCodeObject, HsaMemoryPool, HsaQueue, HsaSignal,
    HsaStatus, QueueCallback,
};
use crate::sys::{HipTable, HsaTable};

/// Most items that one iteration collects: no system has as many agents, pools or ISAs.
const ITEMS: usize = 1024;

/// The started HSA runtime; dropping it gives the reference back.
pub(crate) struct Hsa {
    table: HsaTable,
    take_reason: Option<unsafe extern "C" fn(*mut u8, usize) -> usize>,
}

impl Drop for Hsa {
    fn drop(&mut self) {
        // SAFETY: pairs with the `hsa_init` of `start`; every object of this device is gone, since
        // each holds the device that owns this value. A failure leaves nothing to do.
        let _ = unsafe { (self.table.hsa_shut_down)() };
    }
}

/// A list under construction inside an HSA iteration.
struct Collected<T> {
    items: Vec<T>,
}

unsafe extern "C" fn collect<T>(item: T, data: *mut c_void) -> HsaStatus {
    // SAFETY: `data` is the `Collected<T>` that `Hsa::iterate` lends to the iteration, which calls
    // back on the calling thread only and not after it returned.
    let collected = unsafe { &mut *data.cast::<Collected<T>>() };
    if collected.items.len() == ITEMS {
        return HSA_ERROR;
    }
    collected.items.push(item);
    HSA_SUCCESS
}

impl Hsa {
    /// Calls `hsa_init`. Errors: the bare status, for the caller to find out why.
    pub(crate) fn start(table: HsaTable, hip: &HipTable) -> Result<Self, DeviceError> {
        // SAFETY: no precondition.
        let status = unsafe { (table.hsa_init)() };
        let hsa = Self {
            table,
            take_reason: hip.refrain_take_reason,
        };
        match hsa.check("hsa_init", status) {
            Ok(()) => Ok(hsa),
            Err(error) => {
                // Nothing was counted, so nothing may be given back.
                core::mem::forget(hsa);
                Err(error)
            }
        }
    }

    fn check(&self, call: &'static str, status: HsaStatus) -> Result<(), DeviceError> {
        if status == HSA_SUCCESS || status == HSA_INFO_BREAK {
            return Ok(());
        }
        let row = status::hsa(status.0);
        let mut reason = self.take_reason.and_then(|entry| {
            // SAFETY: the entry writes at most `capacity` bytes at `at`, which `text` owns.
            super::text(|at, capacity| unsafe { entry(at, capacity) })
        });
        if reason.is_none() && !status::HSA.contains(&row) {
            reason = self.status_string(status);
        }
        let reason = reason.map(|text| super::without_call(call, text));
        let (code, name, remedy) = (status.0, row.name, row.remedy);
        Err(DeviceError::Call {
            api: Api::Hsa,
            call,
            code,
            name,
            remedy,
            reason,
        })
    }

    fn status_string(&self, status: HsaStatus) -> Option<String> {
        let mut text: *const c_char = null();
        // SAFETY: `text` outlives the call, which stores a static string there or fails.
        let answer = unsafe { (self.table.hsa_status_string)(status, &raw mut text) };
        if answer != HSA_SUCCESS || text.is_null() {
            return None;
        }
        // SAFETY: on success the text is a static NUL-terminated string of the library.
        Some(
            unsafe { CStr::from_ptr(text) }
                .to_string_lossy()
                .into_owned(),
        )
    }

    /// Timestamp ticks per second, the unit of [`Hsa::signal_wait_lt`].
    pub(crate) fn timestamp_frequency(&self) -> Result<u64, DeviceError> {
        let mut value = 0u64;
        let attribute = crate::sys::hsa::HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY;
        // SAFETY: this attribute is a uint64_t, which `value` is.
        let status =
            unsafe { (self.table.hsa_system_get_info)(attribute, (&raw mut value).cast()) };
        self.check("hsa_system_get_info", status)?;
        Ok(value)
    }

    pub(crate) fn agents(&self) -> Result<Vec<HsaAgent>, DeviceError> {
        let mut list = Collected { items: Vec::new() };
        // SAFETY: `collect::<HsaAgent>` gets exactly the `Collected<HsaAgent>` it expects.
        let status =
            unsafe { (self.table.hsa_iterate_agents)(collect::<HsaAgent>, (&raw mut list).cast()) };
        self.check("hsa_iterate_agents", status)?;
        Ok(list.items)
    }

    /// A `uint32_t` attribute of an agent.
    pub(crate) fn agent_u32(&self, agent: HsaAgent, attribute: u32) -> Result<u32, DeviceError> {
        let mut value = 0u32;
        // SAFETY: callers pass attributes whose type is 32 bits wide; `value` outlives the call.
        let status =
            unsafe { (self.table.hsa_agent_get_info)(agent, attribute, (&raw mut value).cast()) };
        self.check("hsa_agent_get_info", status)?;
        Ok(value)
    }

    pub(crate) fn agent_type(&self, agent: HsaAgent) -> Result<u32, DeviceError> {
        self.agent_u32(agent, HSA_AGENT_INFO_DEVICE)
    }

    /// Names of the agent's instruction sets, such as `amdgcn-amd-amdhsa--gfx1100`, best first.
    pub(crate) fn isa_names(&self, agent: HsaAgent) -> Result<Vec<String>, DeviceError> {
        let mut list = Collected { items: Vec::new() };
        // SAFETY: `collect::<HsaIsa>` gets exactly the `Collected<HsaIsa>` it expects.
        let status = unsafe {
            (self.table.hsa_agent_iterate_isas)(agent, collect::<HsaIsa>, (&raw mut list).cast())
        };
        self.check("hsa_agent_iterate_isas", status)?;
        list.items
            .into_iter()
            .map(|isa| self.isa_name(isa))
            .collect()
    }

    fn isa_name(&self, isa: HsaIsa) -> Result<String, DeviceError> {
        let mut len = 0u32;
        // SAFETY: this attribute is a uint32_t, which `len` is.
        let status = unsafe {
            let value = (&raw mut len).cast();
            (self.table.hsa_isa_get_info_alt)(isa, HSA_ISA_INFO_NAME_LENGTH, value)
        };
        self.check("hsa_isa_get_info_alt", status)?;
        let mut name = vec![0u8; len as usize];
        // SAFETY: the call writes as many bytes as it just said, which `name` has.
        let status = unsafe {
            (self.table.hsa_isa_get_info_alt)(isa, HSA_ISA_INFO_NAME, name.as_mut_ptr().cast())
        };
        self.check("hsa_isa_get_info_alt", status)?;
        while name.last() == Some(&0) {
            name.pop();
        }
        Ok(String::from_utf8_lossy(&name).into_owned())
    }

    pub(crate) fn pools(&self, agent: HsaAgent) -> Result<Vec<HsaMemoryPool>, DeviceError> {
        let mut list = Collected { items: Vec::new() };
        // SAFETY: `collect::<HsaMemoryPool>` gets exactly the `Collected` it expects.
        let status = unsafe {
            (self.table.hsa_amd_agent_iterate_memory_pools)(
                agent,
                collect::<HsaMemoryPool>,
                (&raw mut list).cast(),
            )
        };
        self.check("hsa_amd_agent_iterate_memory_pools", status)?;
        Ok(list.items)
    }

    /// A `uint32_t` attribute of a pool.
    pub(crate) fn pool_u32(&self, pool: HsaMemoryPool, attribute: u32) -> Result<u32, DeviceError> {
        let mut value = 0u32;
        // SAFETY: callers pass attributes whose type is 32 bits wide; `value` outlives the call.
        let status = unsafe {
            (self.table.hsa_amd_memory_pool_get_info)(pool, attribute, (&raw mut value).cast())
        };
        self.check("hsa_amd_memory_pool_get_info", status)?;
        Ok(value)
    }

    /// A `bool` attribute of a pool.
    pub(crate) fn pool_bool(
        &self,
        pool: HsaMemoryPool,
        attribute: u32,
    ) -> Result<bool, DeviceError> {
        let mut value = 0u8;
        // SAFETY: callers pass attributes of type bool, one byte; `value` outlives the call.
        let status = unsafe {
            (self.table.hsa_amd_memory_pool_get_info)(pool, attribute, (&raw mut value).cast())
        };
        self.check("hsa_amd_memory_pool_get_info", status)?;
        Ok(value != 0)
    }

    /// Allocates from `pool` and lets `agent` access it.
    pub(crate) fn pool_allocate(
        &self,
        pool: HsaMemoryPool,
        bytes: usize,
        flags: u32,
        agent: HsaAgent,
    ) -> Result<*mut c_void, DeviceError> {
        let mut pointer = null_mut();
        // SAFETY: `pointer` outlives the call, which writes one address.
        let status = unsafe {
            (self.table.hsa_amd_memory_pool_allocate)(pool, bytes, flags, &raw mut pointer)
        };
        self.check("hsa_amd_memory_pool_allocate", status)?;
        // SAFETY: the list has one agent, flags must be null, and `pointer` was just allocated.
        let status = unsafe {
            (self.table.hsa_amd_agents_allow_access)(1, &raw const agent, null(), pointer)
        };
        if let Err(error) = self.check("hsa_amd_agents_allow_access", status) {
            // SAFETY: just allocated and handed to nobody.
            unsafe { self.pool_free(pointer) }?;
            return Err(error);
        }
        Ok(pointer)
    }

    /// # Safety
    /// `pointer` came from [`Hsa::pool_allocate`], was not freed, and nothing uses it any more.
    pub(crate) unsafe fn pool_free(&self, pointer: *mut c_void) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise is the call's only precondition.
        let status = unsafe { (self.table.hsa_amd_memory_pool_free)(pointer) };
        self.check("hsa_amd_memory_pool_free", status)
    }

    pub(crate) fn signal_create(
        &self,
        initial: i64,
        consumer: HsaAgent,
    ) -> Result<HsaSignal, DeviceError> {
        let mut signal = HsaSignal::default();
        // SAFETY: the list has one agent, and `signal` outlives the call.
        let status = unsafe {
            (self.table.hsa_signal_create)(initial, 1, &raw const consumer, &raw mut signal)
        };
        self.check("hsa_signal_create", status)?;
        Ok(signal)
    }

    /// # Safety
    /// `signal` came from [`Hsa::signal_create`], was not destroyed, and no packet refers to it.
    pub(crate) unsafe fn signal_destroy(&self, signal: HsaSignal) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise is the call's only precondition.
        let status = unsafe { (self.table.hsa_signal_destroy)(signal) };
        self.check("hsa_signal_destroy", status)
    }

    /// # Safety
    /// `signal` is live.
    pub(crate) unsafe fn signal_load(&self, signal: HsaSignal) -> i64 {
        // SAFETY: the caller's promise is the call's only precondition.
        unsafe { (self.table.hsa_signal_load_scacquire)(signal) }
    }

    /// # Safety
    /// `signal` is live.
    pub(crate) unsafe fn signal_store_relaxed(&self, signal: HsaSignal, value: i64) {
        // SAFETY: the caller's promise is the call's only precondition.
        unsafe { (self.table.hsa_signal_store_relaxed)(signal, value) }
    }

    /// # Safety
    /// `signal` is live, or the doorbell of a live queue.
    pub(crate) unsafe fn signal_store_release(&self, signal: HsaSignal, value: i64) {
        // SAFETY: the caller's promise is the call's only precondition.
        unsafe { (self.table.hsa_signal_store_screlease)(signal, value) }
    }

    /// Waits until the signal is below `value` or about `ticks` timestamp ticks have passed.
    ///
    /// # Safety
    /// `signal` is live.
    pub(crate) unsafe fn signal_wait_lt(&self, signal: HsaSignal, value: i64, ticks: u64) -> i64 {
        let (condition, state) = (HSA_SIGNAL_CONDITION_LT, HSA_WAIT_STATE_BLOCKED);
        // SAFETY: the caller's promise is the call's only precondition.
        unsafe { (self.table.hsa_signal_wait_scacquire)(signal, condition, value, ticks, state) }
    }

    /// # Safety
    /// `data` stays valid for `callback`, from any thread, until the queue is destroyed.
    pub(crate) unsafe fn queue_create(
        &self,
        agent: HsaAgent,
        packets: u32,
        callback: QueueCallback,
        data: *mut c_void,
    ) -> Result<*mut HsaQueue, DeviceError> {
        let mut queue = null_mut();
        // SAFETY: the caller vouches for callback and data; `queue` outlives the call. UINT32_MAX
        // leaves both segment sizes to the runtime.
        let status = unsafe {
            (self.table.hsa_queue_create)(
                agent,
                packets,
                HSA_QUEUE_TYPE_MULTI,
                Some(callback),
                data,
                u32::MAX,
                u32::MAX,
                &raw mut queue,
            )
        };
        self.check("hsa_queue_create", status)?;
        Ok(queue)
    }

    /// # Safety
    /// `queue` came from [`Hsa::queue_create`] and was not destroyed; nothing uses it any more.
    pub(crate) unsafe fn queue_destroy(&self, queue: *mut HsaQueue) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise is the call's only precondition.
        self.check("hsa_queue_destroy", unsafe {
            (self.table.hsa_queue_destroy)(queue)
        })
    }

    /// Reserves `packets` slots; returns the first id.
    ///
    /// # Safety
    /// `queue` is live.
    pub(crate) unsafe fn queue_reserve(&self, queue: *const HsaQueue, packets: u64) -> u64 {
        // SAFETY: the caller's promise is the call's only precondition.
        unsafe { (self.table.hsa_queue_add_write_index_screlease)(queue, packets) }
    }

    /// First id that the packet processor has not consumed.
    ///
    /// # Safety
    /// `queue` is live.
    pub(crate) unsafe fn queue_read_index(&self, queue: *const HsaQueue) -> u64 {
        // SAFETY: the caller's promise is the call's only precondition.
        unsafe { (self.table.hsa_queue_load_read_index_scacquire)(queue) }
    }

    /// Loads one code object for `agent` into a fresh, frozen executable.
    ///
    /// # Safety
    /// `image` stays where it is as long as the executable and its reader live.
    pub(crate) unsafe fn executable_load(
        &self,
        agent: HsaAgent,
        image: &[u8],
    ) -> Result<(HsaExecutable, HsaCodeObjectReader), DeviceError> {
        let mut reader = HsaCodeObjectReader::default();
        // SAFETY: pointer and length are those of `image`, which the caller keeps in place.
        let status = unsafe {
            (self.table.hsa_code_object_reader_create_from_memory)(
                image.as_ptr().cast(),
                image.len(),
                &raw mut reader,
            )
        };
        self.check("hsa_code_object_reader_create_from_memory", status)?;
        match self.executable_fill(agent, reader) {
            Ok(executable) => Ok((executable, reader)),
            Err(error) => {
                // SAFETY: the reader was just created and no executable uses it.
                let _ = unsafe { (self.table.hsa_code_object_reader_destroy)(reader) };
                Err(error)
            }
        }
    }

    fn executable_fill(
        &self,
        agent: HsaAgent,
        reader: HsaCodeObjectReader,
    ) -> Result<HsaExecutable, DeviceError> {
        let mut executable = HsaExecutable::default();
        // SAFETY: options may be null; `executable` outlives the call.
        let status = unsafe {
            (self.table.hsa_executable_create_alt)(
                HSA_PROFILE_FULL,
                HSA_ROUNDING_MODE_DEFAULT,
                null(),
                &raw mut executable,
            )
        };
        self.check("hsa_executable_create_alt", status)?;
        let mut loaded = HsaLoadedCodeObject::default();
        // SAFETY: executable and reader were just created; options may be null.
        let status = unsafe {
            (self.table.hsa_executable_load_agent_code_object)(
                executable,
                agent,
                reader,
                null(),
                &raw mut loaded,
            )
        };
        let mut result = self.check("hsa_executable_load_agent_code_object", status);
        if result.is_ok() {
            // SAFETY: the executable was just created; options may be null.
            let status = unsafe { (self.table.hsa_executable_freeze)(executable, null()) };
            result = self.check("hsa_executable_freeze", status);
        }
        if let Err(error) = result {
            // SAFETY: just created and handed to nobody.
            let _ = unsafe { (self.table.hsa_executable_destroy)(executable) };
            return Err(error);
        }
        Ok(executable)
    }

    /// # Safety
    /// Both came from one [`Hsa::executable_load`], and no packet refers to their code.
    pub(crate) unsafe fn executable_destroy(
        &self,
        executable: HsaExecutable,
        reader: HsaCodeObjectReader,
    ) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise is the call's only precondition.
        let status = unsafe { (self.table.hsa_executable_destroy)(executable) };
        self.check("hsa_executable_destroy", status)?;
        // SAFETY: the executable that used the reader is gone.
        let status = unsafe { (self.table.hsa_code_object_reader_destroy)(reader) };
        self.check("hsa_code_object_reader_destroy", status)
    }

    /// # Safety
    /// `executable` is live.
    pub(crate) unsafe fn executable_symbol(
        &self,
        executable: HsaExecutable,
        name: &CStr,
        agent: HsaAgent,
    ) -> Result<HsaExecutableSymbol, DeviceError> {
        let mut symbol = HsaExecutableSymbol::default();
        // SAFETY: the caller vouches for the executable; the rest outlives the call.
        let status = unsafe {
            (self.table.hsa_executable_get_symbol_by_name)(
                executable,
                name.as_ptr(),
                &raw const agent,
                &raw mut symbol,
            )
        };
        self.check("hsa_executable_get_symbol_by_name", status)?;
        Ok(symbol)
    }

    /// An attribute of a symbol, zero-extended from its own width of 1, 4 or 8 bytes.
    ///
    /// # Safety
    /// `symbol` belongs to a live executable, and the attribute is at most 8 bytes wide.
    pub(crate) unsafe fn symbol_u64(
        &self,
        symbol: HsaExecutableSymbol,
        attribute: u32,
    ) -> Result<u64, DeviceError> {
        let mut value = 0u64;
        // SAFETY: the caller vouches for symbol and width; the target is little-endian, so a
        // narrower attribute fills the low bytes of a zeroed value.
        let status = unsafe {
            (self.table.hsa_executable_symbol_get_info)(symbol, attribute, (&raw mut value).cast())
        };
        self.check("hsa_executable_symbol_get_info", status)?;
        Ok(value)
    }
}
