//! The HIP rows against an independent binding: every entry has the same C signature there, every
//! constant the same value, every struct the same layout. HSA has no such binding; its rows are
//! checked against the layouts of `hsa.h` below and against a real library in `tests/rocm.rs`.

use super::hip::{
    self, HipDeviceAttribute, HipDevicePropR0600, HipFunction, HipGraph, HipGraphExec,
    HipGraphNode, HipMemcpyKind, HipModule, HipStatus, HipStream, HipStreamCaptureMode, hip_rows,
};
use super::hsa::{HsaAgent, HsaQueue, HsaSignal, HsaStatus};
use core::ffi::{c_char, c_int, c_uint, c_void};
use core::mem::{offset_of, size_of};
use cubecl_hip_sys as other;

/// A C type spelled the same way whichever Rust type stands for it.
trait CType {
    fn spell() -> String;
}

macro_rules! spell {
    ($($ty:ty => $text:literal;)*) => { $(
        impl CType for $ty {
            fn spell() -> String {
                $text.to_owned()
            }
        }
    )* };
}

spell! {
    i32 => "int";
    u32 => "unsigned";
    usize => "size_t";
    c_char => "char";
    c_void => "void";
    HipStatus => "unsigned";
    HipDevicePropR0600 => "hipDeviceProp_tR0600";
    other::hipDeviceProp_tR0600 => "hipDeviceProp_tR0600";
    other::ihipStream_t => "void";
    other::ihipModule_t => "void";
    other::ihipModuleSymbol_t => "void";
    other::ihipGraph => "void";
    other::hipGraphNode => "void";
    other::hipGraphExec => "void";
}

impl<T: CType> CType for *mut T {
    fn spell() -> String {
        format!("{}*", T::spell())
    }
}

impl<T: CType> CType for *const T {
    fn spell() -> String {
        format!("const {}*", T::spell())
    }
}

macro_rules! compare {
    (
        required { $( $name:ident ( $($arg:ident : $type:ty),* $(,)? ) -> $ret:ty; )* }
        optional { $( $oname:ident ( $($oarg:ident : $otype:ty),* $(,)? ) -> $oret:ty; )* }
        soft_only { $($soft:tt)* }
    ) => {
        vec![
            $({
                type Ours = unsafe extern "C" fn($($type),*) -> $ret;
                let theirs = compare!(@pointer other::$name; $($arg)*);
                (stringify!($name), signature_of::<Ours>(), pointer_signature(theirs))
            },)*
            $({
                type Ours = unsafe extern "C" fn($($otype),*) -> $oret;
                let theirs = compare!(@pointer other::$oname; $($oarg)*);
                (stringify!($oname), signature_of::<Ours>(), pointer_signature(theirs))
            },)*
        ]
    };
    // One underscore per argument: the binding's item coerces to a function pointer of that arity.
    (@pointer $path:path; $($arg:ident)*) => {
        $path as unsafe extern "C" fn($(compare!(@hole $arg)),*) -> _
    };
    (@hole $arg:ident) => { _ };
}

/// The signature of a function-pointer type as text.
trait SignatureOf {
    fn text() -> String;
}

macro_rules! signature_of {
    ($($arg:ident)*) => {
        impl<R: CType, $($arg: CType),*> SignatureOf for unsafe extern "C" fn($($arg),*) -> R {
            fn text() -> String {
                let arguments: Vec<String> = vec![$($arg::spell()),*];
                format!("{} ({})", R::spell(), arguments.join(", "))
            }
        }
    };
}

signature_of! {}
signature_of! { A }
signature_of! { A B }
signature_of! { A B C }
signature_of! { A B C D }
signature_of! { A B C D E }
signature_of! { A B C D E F G H I J K }

fn signature_of<F: SignatureOf>() -> String {
    F::text()
}

fn pointer_signature<F: SignatureOf>(_: F) -> String {
    F::text()
}

#[test]
fn hip_entries_have_the_bindings_signatures() {
    let rows: Vec<(&str, String, String)> = hip_rows! { compare };
    assert_eq!(
        rows.len(),
        super::HipTable::REQUIRED.len() + super::HipTable::OPTIONAL.len()
    );
    for (name, ours, theirs) in rows {
        assert_eq!(ours, theirs, "{name}");
    }
}

macro_rules! constants {
    ($($ours:expr => $theirs:ident;)*) => { [$((stringify!($theirs), $ours, other::$theirs)),*] };
}

#[test]
fn hip_constants_have_the_bindings_values() {
    let rows = constants! {
        hip::HIP_SUCCESS.0 => hipError_t_hipSuccess;
        hip::HIP_ERROR_INVALID_VALUE.0 => hipError_t_hipErrorInvalidValue;
        hip::HIP_ERROR_OUT_OF_MEMORY.0 => hipError_t_hipErrorOutOfMemory;
        hip::HIP_ERROR_INVALID_CONFIGURATION.0 => hipError_t_hipErrorInvalidConfiguration;
        hip::HIP_ERROR_INVALID_DEVICE_POINTER.0 => hipError_t_hipErrorInvalidDevicePointer;
        hip::HIP_ERROR_INVALID_MEMCPY_DIRECTION.0 => hipError_t_hipErrorInvalidMemcpyDirection;
        hip::HIP_ERROR_NO_DEVICE.0 => hipError_t_hipErrorNoDevice;
        hip::HIP_ERROR_INVALID_DEVICE.0 => hipError_t_hipErrorInvalidDevice;
        hip::HIP_ERROR_INVALID_IMAGE.0 => hipError_t_hipErrorInvalidImage;
        hip::HIP_ERROR_NO_BINARY_FOR_GPU.0 => hipError_t_hipErrorNoBinaryForGpu;
        hip::HIP_ERROR_INVALID_HANDLE.0 => hipError_t_hipErrorInvalidHandle;
        hip::HIP_ERROR_NOT_FOUND.0 => hipError_t_hipErrorNotFound;
        hip::HIP_ERROR_NOT_READY.0 => hipError_t_hipErrorNotReady;
        hip::HIP_ERROR_ILLEGAL_ADDRESS.0 => hipError_t_hipErrorIllegalAddress;
        hip::HIP_ERROR_LAUNCH_FAILURE.0 => hipError_t_hipErrorLaunchFailure;
        hip::HIP_ERROR_NOT_SUPPORTED.0 => hipError_t_hipErrorNotSupported;
        hip::HIP_ERROR_ILLEGAL_STATE.0 => hipError_t_hipErrorIllegalState;
        hip::HIP_ERROR_STREAM_CAPTURE_UNSUPPORTED.0 => hipError_t_hipErrorStreamCaptureUnsupported;
        hip::HIP_ERROR_STREAM_CAPTURE_INVALIDATED.0 => hipError_t_hipErrorStreamCaptureInvalidated;
        hip::HIP_STREAM_CAPTURE_THREAD_LOCAL => hipStreamCaptureMode_hipStreamCaptureModeThreadLocal;
        hip::HIP_ERROR_UNKNOWN.0 => hipError_t_hipErrorUnknown;
        hip::HIP_MEMCPY_HOST_TO_HOST => hipMemcpyKind_hipMemcpyHostToHost;
        hip::HIP_MEMCPY_HOST_TO_DEVICE => hipMemcpyKind_hipMemcpyHostToDevice;
        hip::HIP_MEMCPY_DEVICE_TO_HOST => hipMemcpyKind_hipMemcpyDeviceToHost;
        hip::HIP_MEMCPY_DEVICE_TO_DEVICE => hipMemcpyKind_hipMemcpyDeviceToDevice;
        hip::HIP_MEMCPY_DEFAULT => hipMemcpyKind_hipMemcpyDefault;
        hip::HIP_STREAM_NON_BLOCKING => hipStreamNonBlocking;
        hip::HIP_HOST_MALLOC_MAPPED => hipHostMallocMapped;
        hip::HIP_HOST_MALLOC_COHERENT => hipHostMallocCoherent;
    };
    for (name, ours, theirs) in rows {
        assert_eq!(ours, theirs, "{name}");
    }
}

macro_rules! attributes {
    ($($ours:ident = $theirs:ident;)*) => {
        [$((stringify!($ours), hip::$ours, other::$theirs)),*]
    };
}

#[test]
fn hip_attributes_have_the_bindings_values() {
    let rows = attributes! {
        HIP_ATTRIBUTE_CAN_MAP_HOST_MEMORY = hipDeviceAttribute_t_hipDeviceAttributeCanMapHostMemory;
        HIP_ATTRIBUTE_CONCURRENT_KERNELS = hipDeviceAttribute_t_hipDeviceAttributeConcurrentKernels;
        HIP_ATTRIBUTE_INTEGRATED = hipDeviceAttribute_t_hipDeviceAttributeIntegrated;
        HIP_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = hipDeviceAttribute_t_hipDeviceAttributeComputeCapabilityMajor;
        HIP_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = hipDeviceAttribute_t_hipDeviceAttributeComputeCapabilityMinor;
        HIP_ATTRIBUTE_MAX_BLOCK_DIM_X = hipDeviceAttribute_t_hipDeviceAttributeMaxBlockDimX;
        HIP_ATTRIBUTE_MAX_BLOCK_DIM_Y = hipDeviceAttribute_t_hipDeviceAttributeMaxBlockDimY;
        HIP_ATTRIBUTE_MAX_BLOCK_DIM_Z = hipDeviceAttribute_t_hipDeviceAttributeMaxBlockDimZ;
        HIP_ATTRIBUTE_MAX_GRID_DIM_X = hipDeviceAttribute_t_hipDeviceAttributeMaxGridDimX;
        HIP_ATTRIBUTE_MAX_GRID_DIM_Y = hipDeviceAttribute_t_hipDeviceAttributeMaxGridDimY;
        HIP_ATTRIBUTE_MAX_GRID_DIM_Z = hipDeviceAttribute_t_hipDeviceAttributeMaxGridDimZ;
        HIP_ATTRIBUTE_MAX_THREADS_PER_BLOCK = hipDeviceAttribute_t_hipDeviceAttributeMaxThreadsPerBlock;
        HIP_ATTRIBUTE_MULTIPROCESSOR_COUNT = hipDeviceAttribute_t_hipDeviceAttributeMultiprocessorCount;
        HIP_ATTRIBUTE_PCI_BUS_ID = hipDeviceAttribute_t_hipDeviceAttributePciBusId;
        HIP_ATTRIBUTE_PCI_DEVICE_ID = hipDeviceAttribute_t_hipDeviceAttributePciDeviceId;
        HIP_ATTRIBUTE_PCI_DOMAIN_ID = hipDeviceAttribute_t_hipDeviceAttributePciDomainID;
        HIP_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = hipDeviceAttribute_t_hipDeviceAttributeMaxSharedMemoryPerBlock;
        HIP_ATTRIBUTE_UNIFIED_ADDRESSING = hipDeviceAttribute_t_hipDeviceAttributeUnifiedAddressing;
        HIP_ATTRIBUTE_WARP_SIZE = hipDeviceAttribute_t_hipDeviceAttributeWarpSize;
    };
    for (name, ours, theirs) in rows {
        assert_eq!(ours, theirs, "{name}");
    }
}

#[test]
fn layouts_are_those_of_the_headers() {
    type Properties = other::hipDeviceProp_tR0600;
    let cases = [
        (
            "properties",
            size_of::<HipDevicePropR0600>(),
            size_of::<Properties>(),
        ),
        (
            "gcnArchName",
            hip::HIP_DEVICE_PROP_R0600_ARCH_OFFSET,
            offset_of!(Properties, gcnArchName),
        ),
        (
            "hipError_t",
            size_of::<HipStatus>(),
            size_of::<other::hipError_t>(),
        ),
        // hsa.h of ROCr 5.2.3, sizes and offsets printed by a C compiler on x86-64.
        ("hsa_status_t", size_of::<HsaStatus>(), 4),
        ("hsa_agent_t", size_of::<HsaAgent>(), 8),
        ("hsa_signal_t", size_of::<HsaSignal>(), 8),
        ("hsa_queue_t", size_of::<HsaQueue>(), 40),
        ("type", offset_of!(HsaQueue, queue_type), 0),
        ("features", offset_of!(HsaQueue, features), 4),
        ("base_address", offset_of!(HsaQueue, base_address), 8),
        ("doorbell_signal", offset_of!(HsaQueue, doorbell_signal), 16),
        ("size", offset_of!(HsaQueue, size), 24),
        ("id", offset_of!(HsaQueue, id), 32),
    ];
    for (name, ours, theirs) in cases {
        assert_eq!(ours, theirs, "{name}");
    }
}
