//! What a HIP or HSA status code is called and what a user can do about it: one row per code.
//! Names are those of `hip_runtime_api.h`, `hsa.h` and `hsa_ext_amd.h`. Turning a row into an error
//! is left to the result layer.

/// One row: what a code is called and what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusRow {
    /// The value of the code.
    pub code: u32,
    /// The vendor's name.
    pub name: &'static str,
    /// What a user can do; a whole clause without a full stop.
    pub remedy: &'static str,
    /// The code says that there is no usable device (as opposed to a failed call on one).
    pub no_device: bool,
}

macro_rules! rows {
    ($($code:literal $name:ident $(($flag:ident))? $remedy:literal;)*) => {
        &[$(StatusRow {
            code: $code,
            name: stringify!($name),
            remedy: $remedy,
            no_device: false $(|| rows!(@$flag))?,
        }),*]
    };
    (@no_device) => { true };
}

const DRIVER: &str =
    "check that the amdgpu driver is loaded and that the card is listed by rocminfo";

/// HIP codes.
pub const HIP: &[StatusRow] = rows! {
    1 hipErrorInvalidValue "an argument was refused; report it with the message above it";
    2 hipErrorOutOfMemory "choose a smaller model or context, or free memory on the card";
    3 hipErrorNotInitialized "the runtime did not start; run rocminfo to see why";
    4 hipErrorDeinitialized "the process is shutting down";
    9 hipErrorInvalidConfiguration "grid or block exceeds the limits of the card";
    17 hipErrorInvalidDevicePointer "an address is not that of a live allocation of this device";
    21 hipErrorInvalidMemcpyDirection "the copy direction does not fit the two addresses";
    35 hipErrorInsufficientDriver "update the amdgpu driver to the one of the installed ROCm";
    98 hipErrorInvalidDeviceFunction "the kernel does not exist for this card";
    100 hipErrorNoDevice (no_device) "check that the amdgpu driver is loaded and that rocminfo lists the card";
    101 hipErrorInvalidDevice (no_device) "choose an ordinal that `refrain devices` lists";
    200 hipErrorInvalidImage "the code object is damaged; rebuild or reinstall the kernels";
    201 hipErrorInvalidContext "the device was reset; start the process again";
    209 hipErrorNoBinaryForGpu "the code object was built for another target than this card";
    218 hipErrorInvalidKernelFile "the code object is damaged; rebuild or reinstall the kernels";
    300 hipErrorInvalidSource "the code object is damaged; rebuild or reinstall the kernels";
    301 hipErrorFileNotFound "reinstall ROCm: one of its files is missing";
    302 hipErrorSharedObjectSymbolNotFound "reinstall ROCm: its libraries do not fit each other";
    303 hipErrorSharedObjectInitFailed "reinstall ROCm: one of its libraries does not start";
    304 hipErrorOperatingSystem "the system refused a call; see the kernel log";
    400 hipErrorInvalidHandle "a stream or module is not one of this device";
    401 hipErrorIllegalState "the call does not fit the state of the device";
    500 hipErrorNotFound "the code object has no kernel of that name";
    600 hipErrorNotReady "work is still in progress; wait for it";
    700 hipErrorIllegalAddress "a kernel touched memory outside its buffers; prove the plan on the software GPU";
    701 hipErrorLaunchOutOfResources "the kernel needs more registers or LDS than the card has";
    702 hipErrorLaunchTimeOut "a kernel did not end in time; see the kernel log for a GPU reset";
    709 hipErrorContextIsDestroyed "the device was reset; start the process again";
    710 hipErrorAssert "a kernel stopped at an assertion";
    719 hipErrorLaunchFailure "a kernel failed; prove the plan on the software GPU and see the kernel log";
    801 hipErrorNotSupported "this runtime does not offer the call";
    900 hipErrorStreamCaptureUnsupported "the call is not allowed while a stream is captured";
    901 hipErrorStreamCaptureInvalidated "a call during the capture was not allowed; capture again";
    999 hipErrorUnknown "see the kernel log";
    1052 hipErrorRuntimeMemory "the HSA runtime failed to handle memory; see the kernel log";
    1053 hipErrorRuntimeOther "the HSA runtime failed; see the kernel log";
};

/// HSA codes.
pub const HSA: &[StatusRow] = rows! {
    0x28 HSA_STATUS_ERROR_INVALID_MEMORY_POOL "the memory pool is not one of this agent";
    0x29 HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION "a kernel used an address outside its aperture; prove the plan on the software GPU";
    0x2a HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION "the code object does not fit the card, or was overwritten";
    0x2b HSA_STATUS_ERROR_MEMORY_FAULT "a kernel touched memory outside its buffers; prove the plan on the software GPU";
    0x2c HSA_STATUS_CU_MASK_REDUCED "fewer compute units than asked for are usable";
    0x1000 HSA_STATUS_ERROR "see the kernel log";
    0x1001 HSA_STATUS_ERROR_INVALID_ARGUMENT "an argument was refused; report it with the message above it";
    0x1002 HSA_STATUS_ERROR_INVALID_QUEUE_CREATION "the agent does not support a queue of that type and size";
    0x1003 HSA_STATUS_ERROR_INVALID_ALLOCATION "the size of an allocation was refused";
    0x1004 HSA_STATUS_ERROR_INVALID_AGENT "the agent is not one of this runtime";
    0x1005 HSA_STATUS_ERROR_INVALID_REGION "the memory region is not one of this runtime";
    0x1006 HSA_STATUS_ERROR_INVALID_SIGNAL "the signal was destroyed or never created";
    0x1007 HSA_STATUS_ERROR_INVALID_QUEUE "the queue was destroyed or never created";
    0x1008 HSA_STATUS_ERROR_OUT_OF_RESOURCES "free memory, queues or signals";
    0x1009 HSA_STATUS_ERROR_INVALID_PACKET_FORMAT "a packet in the ring is malformed; lint the retained form";
    0x100a HSA_STATUS_ERROR_RESOURCE_FREE "a resource could not be released";
    0x100b HSA_STATUS_ERROR_NOT_INITIALIZED "the runtime did not start; run rocminfo to see why";
    0x100c HSA_STATUS_ERROR_REFCOUNT_OVERFLOW "the runtime was started too many times";
    0x100d HSA_STATUS_ERROR_INCOMPATIBLE_ARGUMENTS "the code object does not fit the agent";
    0x100e HSA_STATUS_ERROR_INVALID_INDEX "an index is out of range";
    0x100f HSA_STATUS_ERROR_INVALID_ISA "the code object was built for another target than this card";
    0x1010 HSA_STATUS_ERROR_INVALID_CODE_OBJECT "the code object is damaged or of another version; rebuild or reinstall the kernels";
    0x1011 HSA_STATUS_ERROR_INVALID_EXECUTABLE "the executable was destroyed or never created";
    0x1012 HSA_STATUS_ERROR_FROZEN_EXECUTABLE "the executable is frozen already";
    0x1013 HSA_STATUS_ERROR_INVALID_SYMBOL_NAME "the code object has no kernel of that name";
    0x1014 HSA_STATUS_ERROR_VARIABLE_ALREADY_DEFINED "the code object defines a variable twice";
    0x1015 HSA_STATUS_ERROR_VARIABLE_UNDEFINED "the code object refers to a variable that nothing defines";
    0x1016 HSA_STATUS_ERROR_EXCEPTION "a kernel raised an exception; prove the plan on the software GPU";
    0x1017 HSA_STATUS_ERROR_INVALID_ISA_NAME "the name of the instruction set is not known";
    0x1018 HSA_STATUS_ERROR_INVALID_CODE_SYMBOL "the symbol is not one of the code object";
    0x1019 HSA_STATUS_ERROR_INVALID_EXECUTABLE_SYMBOL "the symbol is not one of the executable";
    0x1020 HSA_STATUS_ERROR_INVALID_FILE "a file could not be read";
    0x1021 HSA_STATUS_ERROR_INVALID_CODE_OBJECT_READER "the code object reader was destroyed or never created";
    0x1022 HSA_STATUS_ERROR_INVALID_CACHE "the cache is not one of this agent";
    0x1023 HSA_STATUS_ERROR_INVALID_WAVEFRONT "the wavefront is not valid";
    0x1024 HSA_STATUS_ERROR_INVALID_SIGNAL_GROUP "the signal group is not valid";
    0x1025 HSA_STATUS_ERROR_INVALID_RUNTIME_STATE "the call does not fit the state of the runtime";
    0x1026 HSA_STATUS_ERROR_FATAL "the device was lost; see the kernel log and start the process again";
};

/// The row of a HIP code, or a row that says that the code has no name here.
#[must_use]
pub fn hip(code: u32) -> StatusRow {
    find(HIP, code)
}

/// The row of an HSA code, or a row that says that the code has no name here.
#[must_use]
pub fn hsa(code: u32) -> StatusRow {
    find(HSA, code)
}

fn find(rows: &[StatusRow], code: u32) -> StatusRow {
    let unnamed = StatusRow {
        code,
        name: "unnamed status",
        remedy: DRIVER,
        no_device: false,
    };
    rows.iter()
        .find(|row| row.code == code)
        .copied()
        .unwrap_or(unnamed)
}

#[cfg(test)]
mod tests {
    use super::{HIP, HSA, StatusRow, hip, hsa};

    #[test]
    fn every_code_stands_once_in_order_with_a_remedy() {
        for rows in [HIP, HSA] {
            for pair in rows.windows(2) {
                assert!(pair[0].code < pair[1].code, "{pair:?}");
            }
            for StatusRow { name, remedy, .. } in rows {
                assert!(
                    remedy.len() > 10 && !remedy.ends_with('.'),
                    "{name}: {remedy}"
                );
            }
        }
    }

    #[test]
    fn codes_resolve_to_the_vendors_names() {
        let cases = [
            (hip(2), "hipErrorOutOfMemory", false),
            (hip(100), "hipErrorNoDevice", true),
            (hip(101), "hipErrorInvalidDevice", true),
            (hip(719), "hipErrorLaunchFailure", false),
            (hip(31_337), "unnamed status", false),
            (hsa(43), "HSA_STATUS_ERROR_MEMORY_FAULT", false),
            (hsa(0x1008), "HSA_STATUS_ERROR_OUT_OF_RESOURCES", false),
            (hsa(0x100b), "HSA_STATUS_ERROR_NOT_INITIALIZED", false),
            (hsa(7), "unnamed status", false),
        ];
        for (row, name, no_device) in cases {
            assert_eq!((row.name, row.no_device), (name, no_device), "{row:?}");
        }
    }
}
