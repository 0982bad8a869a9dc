//! HSA: types, constants and the rows of its function table.
//!
//! Values are those of `hsa.h` and `hsa_ext_amd.h`. What a call does is left to the result layer,
//! and what a status means to the status table.

use core::ffi::{c_char, c_void};

/// `hsa_status_t`: 0 is success; 1 (`HSA_STATUS_INFO_BREAK`) ends an iteration early.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HsaStatus(pub u32);

/// `HSA_STATUS_SUCCESS`.
pub const HSA_SUCCESS: HsaStatus = HsaStatus(0);
/// `HSA_STATUS_INFO_BREAK`.
pub const HSA_INFO_BREAK: HsaStatus = HsaStatus(1);
/// `HSA_STATUS_ERROR_INVALID_MEMORY_POOL` (AMD).
pub const HSA_ERROR_INVALID_MEMORY_POOL: HsaStatus = HsaStatus(40);
/// `HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION` (AMD).
pub const HSA_ERROR_MEMORY_APERTURE_VIOLATION: HsaStatus = HsaStatus(41);
/// `HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION` (AMD).
pub const HSA_ERROR_ILLEGAL_INSTRUCTION: HsaStatus = HsaStatus(42);
/// `HSA_STATUS_ERROR_MEMORY_FAULT` (AMD).
pub const HSA_ERROR_MEMORY_FAULT: HsaStatus = HsaStatus(43);
/// `HSA_STATUS_ERROR`.
pub const HSA_ERROR: HsaStatus = HsaStatus(0x1000);
/// `HSA_STATUS_ERROR_INVALID_ARGUMENT`.
pub const HSA_ERROR_INVALID_ARGUMENT: HsaStatus = HsaStatus(0x1001);
/// `HSA_STATUS_ERROR_INVALID_QUEUE_CREATION`.
pub const HSA_ERROR_INVALID_QUEUE_CREATION: HsaStatus = HsaStatus(0x1002);
/// `HSA_STATUS_ERROR_INVALID_ALLOCATION`.
pub const HSA_ERROR_INVALID_ALLOCATION: HsaStatus = HsaStatus(0x1003);
/// `HSA_STATUS_ERROR_INVALID_AGENT`.
pub const HSA_ERROR_INVALID_AGENT: HsaStatus = HsaStatus(0x1004);
/// `HSA_STATUS_ERROR_INVALID_SIGNAL`.
pub const HSA_ERROR_INVALID_SIGNAL: HsaStatus = HsaStatus(0x1006);
/// `HSA_STATUS_ERROR_INVALID_QUEUE`.
pub const HSA_ERROR_INVALID_QUEUE: HsaStatus = HsaStatus(0x1007);
/// `HSA_STATUS_ERROR_OUT_OF_RESOURCES`; also every failure of `hsa_init` without a usable driver.
pub const HSA_ERROR_OUT_OF_RESOURCES: HsaStatus = HsaStatus(0x1008);
/// `HSA_STATUS_ERROR_INVALID_PACKET_FORMAT`.
pub const HSA_ERROR_INVALID_PACKET_FORMAT: HsaStatus = HsaStatus(0x1009);
/// `HSA_STATUS_ERROR_NOT_INITIALIZED`.
pub const HSA_ERROR_NOT_INITIALIZED: HsaStatus = HsaStatus(0x100b);
/// `HSA_STATUS_ERROR_INVALID_ISA`.
pub const HSA_ERROR_INVALID_ISA: HsaStatus = HsaStatus(0x100f);
/// `HSA_STATUS_ERROR_INVALID_CODE_OBJECT`.
pub const HSA_ERROR_INVALID_CODE_OBJECT: HsaStatus = HsaStatus(0x1010);
/// `HSA_STATUS_ERROR_INVALID_EXECUTABLE`.
pub const HSA_ERROR_INVALID_EXECUTABLE: HsaStatus = HsaStatus(0x1011);
/// `HSA_STATUS_ERROR_FROZEN_EXECUTABLE`.
pub const HSA_ERROR_FROZEN_EXECUTABLE: HsaStatus = HsaStatus(0x1012);
/// `HSA_STATUS_ERROR_INVALID_SYMBOL_NAME`.
pub const HSA_ERROR_INVALID_SYMBOL_NAME: HsaStatus = HsaStatus(0x1013);
/// `HSA_STATUS_ERROR_INVALID_EXECUTABLE_SYMBOL`.
pub const HSA_ERROR_INVALID_EXECUTABLE_SYMBOL: HsaStatus = HsaStatus(0x1019);
/// `HSA_STATUS_ERROR_FATAL`.
pub const HSA_ERROR_FATAL: HsaStatus = HsaStatus(0x1026);
/// `HSA_STATUS_ERROR_INVALID_CODE_OBJECT_READER`.
pub const HSA_ERROR_INVALID_CODE_OBJECT_READER: HsaStatus = HsaStatus(0x1021);

macro_rules! handles {
    ($($name:ident = $c:literal;)*) => { $(
        #[doc = concat!("`", $c, "`: an opaque 64-bit handle, 0 is null.")]
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name {
            /// The handle's value.
            pub handle: u64,
        }
    )* };
}
handles! {
    HsaAgent = "hsa_agent_t";
    HsaIsa = "hsa_isa_t";
    HsaSignal = "hsa_signal_t";
    HsaMemoryPool = "hsa_amd_memory_pool_t";
    HsaCodeObjectReader = "hsa_code_object_reader_t";
    HsaExecutable = "hsa_executable_t";
    HsaLoadedCodeObject = "hsa_loaded_code_object_t";
    HsaExecutableSymbol = "hsa_executable_symbol_t";
}

/// `hsa_queue_t`, 40 bytes. The ring holds `size` packets of 64 bytes at `base_address`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct HsaQueue {
    /// `hsa_queue_type32_t`: 0 multi, 1 single, 2 cooperative.
    pub queue_type: u32,
    /// Feature bits; bit 0: kernel dispatch.
    pub features: u32,
    /// Address of slot 0.
    pub base_address: *mut c_void,
    /// Doorbell: takes the id of the last published packet.
    pub doorbell_signal: HsaSignal,
    /// Packets in the ring, a power of two.
    pub size: u32,
    /// Reserved.
    pub reserved1: u32,
    /// Queue id, unique in the process.
    pub id: u64,
}

/// `HSA_QUEUE_TYPE_MULTI`: any number of producers.
pub const HSA_QUEUE_TYPE_MULTI: u32 = 0;
/// `HSA_DEVICE_TYPE_CPU`.
pub const HSA_DEVICE_TYPE_CPU: u32 = 0;
/// `HSA_DEVICE_TYPE_GPU`.
pub const HSA_DEVICE_TYPE_GPU: u32 = 1;
/// `HSA_PROFILE_FULL`: what the ROCm loader is given for every agent.
pub const HSA_PROFILE_FULL: u32 = 1;
/// `HSA_DEFAULT_FLOAT_ROUNDING_MODE_DEFAULT`.
pub const HSA_ROUNDING_MODE_DEFAULT: u32 = 0;

/// `hsa_signal_condition_t`: equal.
pub const HSA_SIGNAL_CONDITION_EQ: u32 = 0;
/// `hsa_signal_condition_t`: not equal.
pub const HSA_SIGNAL_CONDITION_NE: u32 = 1;
/// `hsa_signal_condition_t`: less than.
pub const HSA_SIGNAL_CONDITION_LT: u32 = 2;
/// `hsa_signal_condition_t`: greater or equal.
pub const HSA_SIGNAL_CONDITION_GTE: u32 = 3;
/// `HSA_WAIT_STATE_BLOCKED`.
pub const HSA_WAIT_STATE_BLOCKED: u32 = 0;

/// `hsa_system_info_t`: timestamp ticks per second (`uint64_t`), the unit of wait timeouts.
pub const HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY: u32 = 3;

/// `hsa_agent_info_t`: `char[64]`, such as `gfx1100`.
pub const HSA_AGENT_INFO_NAME: u32 = 0;
/// `hsa_agent_info_t`: `char[64]`.
pub const HSA_AGENT_INFO_VENDOR_NAME: u32 = 1;
/// `hsa_agent_info_t`: lanes of a wave, `uint32_t`.
pub const HSA_AGENT_INFO_WAVEFRONT_SIZE: u32 = 6;
/// `hsa_agent_info_t`: smallest ring in packets, `uint32_t`.
pub const HSA_AGENT_INFO_QUEUE_MIN_SIZE: u32 = 13;
/// `hsa_agent_info_t`: largest ring in packets, `uint32_t`.
pub const HSA_AGENT_INFO_QUEUE_MAX_SIZE: u32 = 14;
/// `hsa_agent_info_t`: `hsa_device_type_t`.
pub const HSA_AGENT_INFO_DEVICE: u32 = 17;
/// `hsa_amd_agent_info_t`: compute units, `uint32_t`.
pub const HSA_AMD_AGENT_INFO_COMPUTE_UNIT_COUNT: u32 = 0xa002;
/// `hsa_amd_agent_info_t`: bus [15:8], device [7:3], function [2:0], `uint32_t`.
pub const HSA_AMD_AGENT_INFO_BDFID: u32 = 0xa006;
/// `hsa_amd_agent_info_t`: marketing name, `char[64]`.
pub const HSA_AMD_AGENT_INFO_PRODUCT_NAME: u32 = 0xa009;
/// `hsa_amd_agent_info_t`: PCI domain, `uint32_t`.
pub const HSA_AMD_AGENT_INFO_DOMAIN: u32 = 0xa00f;

/// `hsa_isa_info_t`: bytes of the name with its NUL, `uint32_t`.
pub const HSA_ISA_INFO_NAME_LENGTH: u32 = 0;
/// `hsa_isa_info_t`: `char[]`, such as `amdgcn-amd-amdhsa--gfx1100`.
pub const HSA_ISA_INFO_NAME: u32 = 1;

/// `hsa_amd_memory_pool_info_t`: `hsa_amd_segment_t`.
pub const HSA_POOL_INFO_SEGMENT: u32 = 0;
/// `hsa_amd_memory_pool_info_t`: `hsa_amd_memory_pool_global_flag_t`.
pub const HSA_POOL_INFO_GLOBAL_FLAGS: u32 = 1;
/// `hsa_amd_memory_pool_info_t`: bytes, `size_t`.
pub const HSA_POOL_INFO_SIZE: u32 = 2;
/// `hsa_amd_memory_pool_info_t`: `bool`.
pub const HSA_POOL_INFO_ALLOC_ALLOWED: u32 = 5;
/// `hsa_amd_memory_pool_info_t`: bytes, `size_t`.
pub const HSA_POOL_INFO_ALLOC_GRANULE: u32 = 6;
/// `hsa_amd_memory_pool_info_t`: bytes, `size_t`.
pub const HSA_POOL_INFO_ALLOC_ALIGNMENT: u32 = 7;
/// `HSA_AMD_SEGMENT_GLOBAL`.
pub const HSA_SEGMENT_GLOBAL: u32 = 0;
/// `HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT`.
pub const HSA_POOL_FLAG_KERNARG: u32 = 1;
/// `HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED`.
pub const HSA_POOL_FLAG_FINE_GRAINED: u32 = 2;
/// `HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED`.
pub const HSA_POOL_FLAG_COARSE_GRAINED: u32 = 4;
/// `HSA_AMD_MEMORY_POOL_EXECUTABLE_FLAG`: the memory may be fetched as code or as an IB.
pub const HSA_POOL_ALLOCATE_EXECUTABLE: u32 = 4;

/// `hsa_executable_symbol_info_t`: `hsa_symbol_kind_t`; 1 is a kernel.
pub const HSA_SYMBOL_INFO_TYPE: u32 = 0;
/// `hsa_executable_symbol_info_t`: bytes, `uint32_t`.
pub const HSA_SYMBOL_INFO_KERNARG_SIZE: u32 = 11;
/// `hsa_executable_symbol_info_t`: bytes, `uint32_t`.
pub const HSA_SYMBOL_INFO_KERNARG_ALIGNMENT: u32 = 12;
/// `hsa_executable_symbol_info_t`: bytes of LDS, `uint32_t`.
pub const HSA_SYMBOL_INFO_GROUP_SIZE: u32 = 13;
/// `hsa_executable_symbol_info_t`: bytes of scratch per work-item, `uint32_t`.
pub const HSA_SYMBOL_INFO_PRIVATE_SIZE: u32 = 14;
/// `hsa_executable_symbol_info_t`: `bool`.
pub const HSA_SYMBOL_INFO_DYNAMIC_CALLSTACK: u32 = 15;
/// `hsa_executable_symbol_info_t`: address of the kernel descriptor, `uint64_t`.
pub const HSA_SYMBOL_INFO_KERNEL_OBJECT: u32 = 22;
/// `HSA_SYMBOL_KIND_KERNEL`.
pub const HSA_SYMBOL_KIND_KERNEL: u32 = 1;

/// Callback of `hsa_iterate_agents`.
pub type AgentCallback = unsafe extern "C" fn(HsaAgent, *mut c_void) -> HsaStatus;
/// Callback of `hsa_agent_iterate_isas`.
pub type IsaCallback = unsafe extern "C" fn(HsaIsa, *mut c_void) -> HsaStatus;
/// Callback of `hsa_amd_agent_iterate_memory_pools`.
pub type PoolCallback = unsafe extern "C" fn(HsaMemoryPool, *mut c_void) -> HsaStatus;
/// Error callback of `hsa_queue_create`.
pub type QueueCallback = unsafe extern "C" fn(HsaStatus, *mut HsaQueue, *mut c_void);

/// Calls `$callback! { $($prefix)* rows }` with the rows of [`HsaTable`].
macro_rules! hsa_rows {
    ($callback:ident $($prefix:tt)*) => {
        $callback! {
            $($prefix)*
            required {
                hsa_init() -> HsaStatus;
                hsa_shut_down() -> HsaStatus;
                hsa_status_string(status: HsaStatus, text: *mut *const c_char) -> HsaStatus;
                hsa_system_get_info(attribute: u32, value: *mut c_void) -> HsaStatus;
                hsa_iterate_agents(callback: AgentCallback, data: *mut c_void) -> HsaStatus;
                hsa_agent_get_info(agent: HsaAgent, attribute: u32, value: *mut c_void) -> HsaStatus;
                hsa_agent_iterate_isas(agent: HsaAgent, callback: IsaCallback, data: *mut c_void) -> HsaStatus;
                hsa_isa_get_info_alt(isa: HsaIsa, attribute: u32, value: *mut c_void) -> HsaStatus;
                hsa_queue_create(
                    agent: HsaAgent, packets: u32, queue_type: u32,
                    callback: Option<QueueCallback>, data: *mut c_void,
                    private_bytes: u32, group_bytes: u32, queue: *mut *mut HsaQueue,
                ) -> HsaStatus;
                hsa_queue_destroy(queue: *mut HsaQueue) -> HsaStatus;
                hsa_queue_add_write_index_screlease(queue: *const HsaQueue, packets: u64) -> u64;
                hsa_queue_load_read_index_scacquire(queue: *const HsaQueue) -> u64;
                hsa_signal_create(initial: i64, consumers: u32, agents: *const HsaAgent, signal: *mut HsaSignal) -> HsaStatus;
                hsa_signal_destroy(signal: HsaSignal) -> HsaStatus;
                hsa_signal_load_scacquire(signal: HsaSignal) -> i64;
                hsa_signal_store_relaxed(signal: HsaSignal, value: i64) -> ();
                hsa_signal_store_screlease(signal: HsaSignal, value: i64) -> ();
                hsa_signal_wait_scacquire(signal: HsaSignal, condition: u32, value: i64, timeout_ticks: u64, wait_state: u32) -> i64;
                hsa_amd_agent_iterate_memory_pools(agent: HsaAgent, callback: PoolCallback, data: *mut c_void) -> HsaStatus;
                hsa_amd_memory_pool_get_info(pool: HsaMemoryPool, attribute: u32, value: *mut c_void) -> HsaStatus;
                hsa_amd_memory_pool_allocate(pool: HsaMemoryPool, bytes: usize, flags: u32, pointer: *mut *mut c_void) -> HsaStatus;
                hsa_amd_memory_pool_free(pointer: *mut c_void) -> HsaStatus;
                hsa_amd_agents_allow_access(agents: u32, list: *const HsaAgent, flags: *const u32, pointer: *const c_void) -> HsaStatus;
                hsa_code_object_reader_create_from_memory(bytes: *const c_void, len: usize, reader: *mut HsaCodeObjectReader) -> HsaStatus;
                hsa_code_object_reader_destroy(reader: HsaCodeObjectReader) -> HsaStatus;
                hsa_executable_create_alt(profile: u32, rounding: u32, options: *const c_char, executable: *mut HsaExecutable) -> HsaStatus;
                hsa_executable_load_agent_code_object(
                    executable: HsaExecutable, agent: HsaAgent, reader: HsaCodeObjectReader,
                    options: *const c_char, loaded: *mut HsaLoadedCodeObject,
                ) -> HsaStatus;
                hsa_executable_freeze(executable: HsaExecutable, options: *const c_char) -> HsaStatus;
                hsa_executable_get_symbol_by_name(executable: HsaExecutable, name: *const c_char, agent: *const HsaAgent, symbol: *mut HsaExecutableSymbol) -> HsaStatus;
                hsa_executable_symbol_get_info(symbol: HsaExecutableSymbol, attribute: u32, value: *mut c_void) -> HsaStatus;
                hsa_executable_destroy(executable: HsaExecutable) -> HsaStatus;
                hsa_memory_copy(dst: *mut c_void, src: *const c_void, bytes: usize) -> HsaStatus;
            }
            optional {}
            soft_only {}
        }
    };
}

hsa_rows! { declare_table
    /// The HSA entries that Refrain calls.
    HsaTable
}

use crate::sys::table::declare_table;
