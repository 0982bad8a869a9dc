//! HIP: types, constants and the rows of its function table.
//!
//! Values are those of `hip_runtime_api.h` (5.2 to 7.x agree on all of them). What a call does is
//! left to the result layer, and what a status means to the status table.

use core::ffi::{c_char, c_int, c_uint, c_void};

/// `hipError_t`: 0 is success.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HipStatus(pub u32);

/// `hipSuccess`.
pub const HIP_SUCCESS: HipStatus = HipStatus(0);
/// `hipErrorInvalidValue`.
pub const HIP_ERROR_INVALID_VALUE: HipStatus = HipStatus(1);
/// `hipErrorOutOfMemory`.
pub const HIP_ERROR_OUT_OF_MEMORY: HipStatus = HipStatus(2);
/// `hipErrorInvalidConfiguration`.
pub const HIP_ERROR_INVALID_CONFIGURATION: HipStatus = HipStatus(9);
/// `hipErrorInvalidDevicePointer`.
pub const HIP_ERROR_INVALID_DEVICE_POINTER: HipStatus = HipStatus(17);
/// `hipErrorInvalidMemcpyDirection`.
pub const HIP_ERROR_INVALID_MEMCPY_DIRECTION: HipStatus = HipStatus(21);
/// `hipErrorNoDevice`.
pub const HIP_ERROR_NO_DEVICE: HipStatus = HipStatus(100);
/// `hipErrorInvalidDevice`; also what the first `hipInit` of a process without a device answers.
pub const HIP_ERROR_INVALID_DEVICE: HipStatus = HipStatus(101);
/// `hipErrorInvalidImage`.
pub const HIP_ERROR_INVALID_IMAGE: HipStatus = HipStatus(200);
/// `hipErrorNoBinaryForGpu`.
pub const HIP_ERROR_NO_BINARY_FOR_GPU: HipStatus = HipStatus(209);
/// `hipErrorInvalidHandle`.
pub const HIP_ERROR_INVALID_HANDLE: HipStatus = HipStatus(400);
/// `hipErrorNotFound`.
pub const HIP_ERROR_NOT_FOUND: HipStatus = HipStatus(500);
/// `hipErrorNotReady`.
pub const HIP_ERROR_NOT_READY: HipStatus = HipStatus(600);
/// `hipErrorIllegalAddress`.
pub const HIP_ERROR_ILLEGAL_ADDRESS: HipStatus = HipStatus(700);
/// `hipErrorLaunchFailure`.
pub const HIP_ERROR_LAUNCH_FAILURE: HipStatus = HipStatus(719);
/// `hipErrorIllegalState`: the call does not fit the state, such as a capture that was not begun.
pub const HIP_ERROR_ILLEGAL_STATE: HipStatus = HipStatus(401);
/// `hipErrorStreamCaptureUnsupported`: not allowed on a stream that is captured.
pub const HIP_ERROR_STREAM_CAPTURE_UNSUPPORTED: HipStatus = HipStatus(900);
/// `hipErrorStreamCaptureInvalidated`: a call that was not allowed spoilt the capture.
pub const HIP_ERROR_STREAM_CAPTURE_INVALIDATED: HipStatus = HipStatus(901);
/// `hipErrorNotSupported`.
pub const HIP_ERROR_NOT_SUPPORTED: HipStatus = HipStatus(801);
/// `hipErrorUnknown`.
pub const HIP_ERROR_UNKNOWN: HipStatus = HipStatus(999);

/// `hipMemcpyKind`.
pub type HipMemcpyKind = c_uint;
/// `hipMemcpyHostToHost`.
pub const HIP_MEMCPY_HOST_TO_HOST: HipMemcpyKind = 0;
/// `hipMemcpyHostToDevice`.
pub const HIP_MEMCPY_HOST_TO_DEVICE: HipMemcpyKind = 1;
/// `hipMemcpyDeviceToHost`.
pub const HIP_MEMCPY_DEVICE_TO_HOST: HipMemcpyKind = 2;
/// `hipMemcpyDeviceToDevice`.
pub const HIP_MEMCPY_DEVICE_TO_DEVICE: HipMemcpyKind = 3;
/// `hipMemcpyDefault`: direction from the addresses.
pub const HIP_MEMCPY_DEFAULT: HipMemcpyKind = 4;

/// `hipDeviceAttribute_t`.
pub type HipDeviceAttribute = c_uint;
/// `hipDeviceAttributeCanMapHostMemory`.
pub const HIP_ATTRIBUTE_CAN_MAP_HOST_MEMORY: HipDeviceAttribute = 3;
/// `hipDeviceAttributeConcurrentKernels`.
pub const HIP_ATTRIBUTE_CONCURRENT_KERNELS: HipDeviceAttribute = 8;
/// `hipDeviceAttributeIntegrated`.
pub const HIP_ATTRIBUTE_INTEGRATED: HipDeviceAttribute = 16;
/// `hipDeviceAttributeComputeCapabilityMajor`: 11 for gfx1100.
pub const HIP_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: HipDeviceAttribute = 23;
/// `hipDeviceAttributeMaxBlockDimX`.
pub const HIP_ATTRIBUTE_MAX_BLOCK_DIM_X: HipDeviceAttribute = 26;
/// `hipDeviceAttributeMaxBlockDimY`.
pub const HIP_ATTRIBUTE_MAX_BLOCK_DIM_Y: HipDeviceAttribute = 27;
/// `hipDeviceAttributeMaxBlockDimZ`.
pub const HIP_ATTRIBUTE_MAX_BLOCK_DIM_Z: HipDeviceAttribute = 28;
/// `hipDeviceAttributeMaxGridDimX`.
pub const HIP_ATTRIBUTE_MAX_GRID_DIM_X: HipDeviceAttribute = 29;
/// `hipDeviceAttributeMaxGridDimY`.
pub const HIP_ATTRIBUTE_MAX_GRID_DIM_Y: HipDeviceAttribute = 30;
/// `hipDeviceAttributeMaxGridDimZ`.
pub const HIP_ATTRIBUTE_MAX_GRID_DIM_Z: HipDeviceAttribute = 31;
/// `hipDeviceAttributeMaxThreadsPerBlock`.
pub const HIP_ATTRIBUTE_MAX_THREADS_PER_BLOCK: HipDeviceAttribute = 56;
/// `hipDeviceAttributeComputeCapabilityMinor`: 0 for gfx1100, 5 for gfx1151.
pub const HIP_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: HipDeviceAttribute = 61;
/// `hipDeviceAttributeMultiprocessorCount`. On RDNA in WGP mode a multiprocessor is a WGP.
pub const HIP_ATTRIBUTE_MULTIPROCESSOR_COUNT: HipDeviceAttribute = 63;
/// `hipDeviceAttributePciBusId`.
pub const HIP_ATTRIBUTE_PCI_BUS_ID: HipDeviceAttribute = 67;
/// `hipDeviceAttributePciDeviceId`: the slot on the bus.
pub const HIP_ATTRIBUTE_PCI_DEVICE_ID: HipDeviceAttribute = 68;
/// `hipDeviceAttributePciDomainID`.
pub const HIP_ATTRIBUTE_PCI_DOMAIN_ID: HipDeviceAttribute = 69;
/// `hipDeviceAttributeMaxSharedMemoryPerBlock`, bytes of LDS.
pub const HIP_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: HipDeviceAttribute = 74;
/// `hipDeviceAttributeUnifiedAddressing`.
pub const HIP_ATTRIBUTE_UNIFIED_ADDRESSING: HipDeviceAttribute = 85;
/// `hipDeviceAttributeWarpSize`, lanes.
pub const HIP_ATTRIBUTE_WARP_SIZE: HipDeviceAttribute = 87;

/// `hipStreamNonBlocking`: no implicit ordering with the null stream.
pub const HIP_STREAM_NON_BLOCKING: c_uint = 1;
/// `hipHostMallocMapped`.
pub const HIP_HOST_MALLOC_MAPPED: c_uint = 2;
/// `hipHostMallocCoherent`: fine-grained, not cached by the GPU.
pub const HIP_HOST_MALLOC_COHERENT: c_uint = 0x4000_0000;

/// `HIP_LAUNCH_PARAM_BUFFER_POINTER`: the next element of `extra` is the kernarg address.
pub const HIP_LAUNCH_PARAM_BUFFER_POINTER: *mut c_void = core::ptr::without_provenance_mut(1);
/// `HIP_LAUNCH_PARAM_BUFFER_SIZE`: the next element of `extra` is the address of a `size_t`.
pub const HIP_LAUNCH_PARAM_BUFFER_SIZE: *mut c_void = core::ptr::without_provenance_mut(2);
/// `HIP_LAUNCH_PARAM_END`.
pub const HIP_LAUNCH_PARAM_END: *mut c_void = core::ptr::without_provenance_mut(3);

/// `hipStream_t`: opaque.
pub type HipStream = *mut c_void;
/// `hipModule_t`: opaque.
pub type HipModule = *mut c_void;
/// `hipFunction_t`: opaque.
pub type HipFunction = *mut c_void;

/// `hipGraph_t`: opaque.
pub type HipGraph = *mut c_void;
/// `hipGraphExec_t`: opaque.
pub type HipGraphExec = *mut c_void;
/// `hipGraphNode_t`: opaque.
pub type HipGraphNode = *mut c_void;
/// `hipStreamCaptureMode`.
pub type HipStreamCaptureMode = c_uint;
/// `hipStreamCaptureModeThreadLocal`: the capturing thread may make no unsafe call, others may.
pub const HIP_STREAM_CAPTURE_THREAD_LOCAL: HipStreamCaptureMode = 1;

/// Bytes of `hipDeviceProp_tR0600` (HIP 6.0 and later).
pub const HIP_DEVICE_PROP_R0600_BYTES: usize = 1472;
/// Offset of `gcnArchName` (`char[256]`, such as `gfx1100`) in `hipDeviceProp_tR0600`.
pub const HIP_DEVICE_PROP_R0600_ARCH_OFFSET: usize = 1160;

/// `hipDeviceProp_tR0600` as bytes: of its 120 fields only the name of the instruction set is read.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub struct HipDevicePropR0600(pub [u8; HIP_DEVICE_PROP_R0600_BYTES]);

/// Calls `$callback! { $($prefix)* rows }` with the rows of [`HipTable`].
macro_rules! hip_rows {
    ($callback:ident $($prefix:tt)*) => {
        $callback! {
            $($prefix)*
            required {
                hipInit(flags: c_uint) -> HipStatus;
                hipDriverGetVersion(version: *mut c_int) -> HipStatus;
                hipRuntimeGetVersion(version: *mut c_int) -> HipStatus;
                hipGetDeviceCount(count: *mut c_int) -> HipStatus;
                hipSetDevice(device: c_int) -> HipStatus;
                hipGetDevice(device: *mut c_int) -> HipStatus;
                hipDeviceGetName(name: *mut c_char, len: c_int, device: c_int) -> HipStatus;
                hipDeviceGetAttribute(value: *mut c_int, attribute: HipDeviceAttribute, device: c_int) -> HipStatus;
                hipDeviceTotalMem(bytes: *mut usize, device: c_int) -> HipStatus;
                hipMemGetInfo(free: *mut usize, total: *mut usize) -> HipStatus;
                hipMalloc(pointer: *mut *mut c_void, bytes: usize) -> HipStatus;
                hipFree(pointer: *mut c_void) -> HipStatus;
                hipHostMalloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint) -> HipStatus;
                hipHostFree(pointer: *mut c_void) -> HipStatus;
                hipMemcpy(dst: *mut c_void, src: *const c_void, bytes: usize, kind: HipMemcpyKind) -> HipStatus;
                hipMemcpyAsync(dst: *mut c_void, src: *const c_void, bytes: usize, kind: HipMemcpyKind, stream: HipStream) -> HipStatus;
                hipMemset(dst: *mut c_void, value: c_int, bytes: usize) -> HipStatus;
                hipMemsetAsync(dst: *mut c_void, value: c_int, bytes: usize, stream: HipStream) -> HipStatus;
                hipModuleLoadData(module: *mut HipModule, image: *const c_void) -> HipStatus;
                hipModuleUnload(module: HipModule) -> HipStatus;
                hipModuleGetFunction(function: *mut HipFunction, module: HipModule, name: *const c_char) -> HipStatus;
                hipModuleLaunchKernel(
                    function: HipFunction,
                    grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
                    block_x: c_uint, block_y: c_uint, block_z: c_uint,
                    lds_bytes: c_uint, stream: HipStream,
                    params: *mut *mut c_void, extra: *mut *mut c_void,
                ) -> HipStatus;
                hipStreamCreate(stream: *mut HipStream) -> HipStatus;
                hipStreamCreateWithFlags(stream: *mut HipStream, flags: c_uint) -> HipStatus;
                hipStreamDestroy(stream: HipStream) -> HipStatus;
                hipStreamSynchronize(stream: HipStream) -> HipStatus;
                hipStreamQuery(stream: HipStream) -> HipStatus;
                hipDeviceSynchronize() -> HipStatus;
                hipGetErrorName(status: HipStatus) -> *const c_char;
                hipGetErrorString(status: HipStatus) -> *const c_char;
            }
            optional {
                hipGetDevicePropertiesR0600(properties: *mut HipDevicePropR0600, device: c_int) -> HipStatus;
                hipStreamBeginCapture(stream: HipStream, mode: HipStreamCaptureMode) -> HipStatus;
                hipStreamEndCapture(stream: HipStream, graph: *mut HipGraph) -> HipStatus;
                hipGraphInstantiate(
                    exec: *mut HipGraphExec, graph: HipGraph, error_node: *mut HipGraphNode,
                    log: *mut c_char, log_bytes: usize,
                ) -> HipStatus;
                hipGraphLaunch(exec: HipGraphExec, stream: HipStream) -> HipStatus;
                hipGraphExecDestroy(exec: HipGraphExec) -> HipStatus;
                hipGraphDestroy(graph: HipGraph) -> HipStatus;
            }
            soft_only {
                refrain_set_name(address: *const c_void, name: *const u8, bytes: usize) -> HipStatus;
                refrain_take_reason(text: *mut u8, capacity: usize) -> usize;
                refrain_fault(device: c_int, text: *mut u8, capacity: usize) -> usize;
            }
        }
    };
}
#[cfg(test)]
pub(crate) use hip_rows;

hip_rows! { declare_table
    /// The HIP entries that Refrain calls. The three `refrain_*` entries exist on the software GPU only:
    /// `refrain_set_name` names the allocation that starts at `address` (UTF-8, not terminated);
    /// `refrain_take_reason` moves the calling thread's text about its last failed call into `text`
    /// and returns its length, 0 if none; `refrain_fault` copies the first fatal error of a device,
    /// with the same contract. Both cut the text at `capacity` bytes.
    HipTable
}

use crate::sys::table::declare_table;
