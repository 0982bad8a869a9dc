//! Code objects through HIP and HSA: what loads, what is found in it, what is refused.

use super::case;
use refrain_device::{DeviceError, Executable, Module};
use refrain_kernels::{Target, code_object};
use refrain_planner::identity::hex;
use refrain_tests::conformance::{Case, Done, Trouble, ensure};
use refrain_tests::subject::{KERNEL, Subject};

pub(super) const CASES: &[Case<Subject>] = &[
    case("code/load-and-find", load_and_find),
    case("code/kernarg-layouts", kernarg_layouts),
    case("code/unknown-kernel", unknown_kernel),
    case("code/damaged-image", damaged_image),
    case("code/other-target", other_target),
    case("code/digest", digest),
];

fn load_and_find(subject: &Subject) -> Done {
    let module = Module::load(&subject.device, subject.image())?;
    let executable = Executable::load(&subject.device, subject.image())?;
    module.function(KERNEL)?;
    let kernel = executable.kernel(KERNEL)?;
    ensure(kernel.kernel_object % 64 == 0, || {
        format!("descriptor at {:#x}", kernel.kernel_object)
    })?;
    ensure(kernel.private_bytes == 0 && !kernel.dynamic_stack, || {
        format!("{kernel:?}")
    })
}

/// What the runtime says about every kernel is what the catalog says.
fn kernarg_layouts(subject: &Subject) -> Done {
    let executable = Executable::load(&subject.device, subject.image())?;
    let mut seen = 0;
    for facts in code_object(subject.target).kernels {
        let kernel = executable.kernel(facts.symbol)?;
        let row = refrain_kernels::find(facts.symbol);
        let row =
            row.ok_or_else(|| Trouble::Failed(format!("{} is not in the catalog", facts.symbol)))?;
        // The compiler may end before the padding behind the last argument.
        let (found, expected) = (kernel.kernarg_size, row.kernarg_bytes());
        ensure(found <= expected && expected - found < 8, || {
            format!(
                "{}: {found} bytes of arguments, the catalog says {expected}",
                facts.symbol
            )
        })?;
        ensure(kernel.kernarg_align.is_power_of_two(), || {
            format!("{kernel:?}")
        })?;
        seen += 1;
    }
    ensure(seen > 10, || format!("only {seen} kernels"))
}

/// hipErrorNotFound is 500, HSA_STATUS_ERROR_INVALID_SYMBOL_NAME 0x1013.
fn unknown_kernel(subject: &Subject) -> Done {
    let module = Module::load(&subject.device, subject.image())?;
    let executable = Executable::load(&subject.device, subject.image())?;
    let hip = module
        .function("no_such_kernel")
        .err()
        .and_then(|error| error.status());
    ensure(hip == Some(500), || format!("HIP: {hip:?}"))?;
    let hsa = executable
        .kernel("no_such_kernel")
        .err()
        .and_then(|error| error.status());
    ensure(hsa == Some(0x1013), || format!("HSA: {hsa:?}"))
}

fn damaged_image(subject: &Subject) -> Done {
    let image = subject.image();
    let refused = |bytes: &[u8]| {
        matches!(
            Module::load(&subject.device, bytes),
            Err(DeviceError::BadImage { .. })
        )
    };
    ensure(
        refused(&[]) && refused(&image[..63]) && refused(&image[..image.len() / 2]),
        || "half a file was loaded".to_owned(),
    )?;
    let mut other = image.to_vec();
    // e_machine: 224 is AMD GPU.
    other[18] = 62;
    let loaded = Module::load(&subject.device, &other);
    ensure(loaded.is_err(), || {
        "a file of another machine was loaded".to_owned()
    })
}

fn other_target(subject: &Subject) -> Done {
    for target in Target::ALL
        .into_iter()
        .filter(|target| *target != subject.target)
    {
        let bytes = code_object(target).bytes();
        let hip = Module::load(&subject.device, bytes);
        let hsa = Executable::load(&subject.device, bytes);
        ensure(hip.is_err() && hsa.is_err(), || {
            format!("code for {target} was loaded")
        })?;
    }
    Ok(())
}

fn digest(subject: &Subject) -> Done {
    let object = code_object(subject.target);
    let found = blake3::hash(object.bytes());
    ensure(*found.as_bytes() == object.digest, || {
        format!("{} is not {}", found, hex(&object.digest))
    })
}
