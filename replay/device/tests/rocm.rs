//! Loading the real ROCm libraries: on a machine without them, with them but without a device, and
//! with a device. Each of the three has one right answer; which machine this is, is found out here.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step of a test is a failed test"
)]

use refrain_device::sys::{HipTable, HsaTable};
use refrain_device::{Device, DeviceError, LoadError, NoDevice, Origin, Runtime};
use std::path::Path;

fn soname_installed(name: &str) -> bool {
    // SAFETY: opening a ROCm library has no precondition; the handle is dropped again.
    unsafe { libloading::Library::new(name) }.is_ok()
}

#[test]
fn absent_libraries_are_named_with_everything_that_was_tried() {
    match Runtime::load_rocm() {
        Ok(runtime) => {
            let Origin::Rocm { hip_path, hsa_path } = runtime.origin() else {
                panic!("{:?}", runtime.origin())
            };
            // The files that were really mapped, not just the names asked for.
            assert!(hip_path.is_absolute() && hip_path.exists(), "{hip_path:?}");
            assert!(hsa_path.is_absolute() && hsa_path.exists(), "{hsa_path:?}");
        }
        Err(LoadError::NotInstalled { library, tried }) => {
            let names: Vec<&str> = tried.iter().map(|attempt| attempt.name).collect();
            assert!(names.contains(&&*format!("{library}.so")), "{names:?}");
            assert!(
                tried
                    .iter()
                    .all(|attempt| attempt.answer.contains("cannot open")),
                "{tried:?}"
            );
            assert!(!soname_installed(&format!("{library}.so")));
            let error = DeviceError::from(LoadError::NotInstalled { library, tried });
            assert!(error.is_no_device());
            let text = error.to_string();
            for name in names {
                assert!(text.contains(name), "{text}");
            }
            assert!(text.contains("install ROCm"), "{text}");
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn without_a_device_the_reason_and_the_remedy_are_named() {
    let opened = match Runtime::load_rocm() {
        Ok(runtime) => Device::open(runtime, 0),
        Err(error) => Err(error.into()),
    };
    match opened {
        Ok(device) => assert!(Path::new("/dev/kfd").exists(), "{device:?}"),
        Err(error) => {
            assert!(error.is_no_device(), "{error}");
            let text = error.to_string();
            assert!(text.starts_with("no device: "), "{text}");
            let DeviceError::NoDevice(reason) = &error else {
                panic!("{error}")
            };
            assert!(text.ends_with(reason.remedy()), "{text}");
            match reason {
                NoDevice::DriverAbsent { path, answer } => {
                    assert!(!path.exists());
                    assert_eq!(path, Path::new("/dev/kfd"));
                    assert!(answer.contains("hsa_init answered 0x1008"), "{answer}");
                    assert!(text.contains("modprobe amdgpu"), "{text}");
                }
                NoDevice::Library(LoadError::NotInstalled { tried, .. }) => {
                    assert!(!tried.is_empty());
                }
                other => assert!(Path::new("/dev/kfd").exists(), "{other}"),
            }
        }
    }
}

#[test]
fn a_second_open_answers_as_the_first() {
    // The first hipInit of a process without a device answers 101, later ones 100; hsa_init always
    // 0x1008. Both openings must read alike.
    let open = || match Runtime::load_rocm() {
        Ok(runtime) => Device::open(runtime, 0).map(|device| device.info().clone()),
        Err(error) => Err(error.into()),
    };
    let texts = [open(), open()].map(|result| match result {
        Ok(info) => info.name,
        Err(error) => error.to_string(),
    });
    assert_eq!(texts[0], texts[1]);
}

#[test]
fn every_required_entry_is_exported() {
    let libraries = [
        ("libamdhip64.so.5", HipTable::REQUIRED, HipTable::OPTIONAL),
        (
            "libhsa-runtime64.so.1",
            HsaTable::REQUIRED,
            HsaTable::OPTIONAL,
        ),
    ];
    for (name, required, optional) in libraries {
        // SAFETY: opening a ROCm library has no precondition. It stays open: HIP starts threads.
        let Ok(library) = (unsafe { libloading::Library::new(name) }) else {
            continue;
        };
        let library = std::mem::ManuallyDrop::new(library);
        let exported = |entry: &str| {
            // SAFETY: the symbol is looked up, never called or read.
            unsafe { library.get::<*mut core::ffi::c_void>(entry.as_bytes()) }.is_ok()
        };
        for entry in required {
            assert!(exported(entry), "{name} lacks {entry}");
        }
        let absent: Vec<_> = optional.iter().filter(|entry| !exported(entry)).collect();
        // Debian's 5.2.3 predates the properties call of HIP 6; it has graphs.
        assert!(
            absent
                .iter()
                .all(|entry| **entry == "hipGetDevicePropertiesR0600"),
            "{absent:?}"
        );
    }
}
