//! Devices by name. On a machine without an AMD card `rocm:0` must say exactly what is missing.

use crate::support::{refrain, text};
use std::path::Path;

fn model() -> std::path::PathBuf {
    crate::support::austen()
}

#[test]
fn rocm_without_a_card_says_what_is_missing_and_exits_69() {
    if Path::new("/dev/kfd").exists() {
        eprintln!("skipped: this machine has /dev/kfd");
        return;
    }
    let ran = refrain(&[
        "run",
        text(&model()),
        "--prompt",
        "Emma",
        "--device",
        "rocm:0",
    ]);
    assert_eq!(ran.code, 69, "{}", ran.err);
    assert_eq!(ran.out, "");
    // Without the libraries their names are listed; with them, the kernel driver's device is.
    let named = ran.err.contains("libhsa-runtime64.so.1") || ran.err.contains("/dev/kfd");
    assert!(named && ran.err.contains("rocm:0"), "{}", ran.err);
}

#[test]
fn auto_takes_the_software_gpu_and_says_so() {
    if Path::new("/dev/kfd").exists() {
        eprintln!("skipped: this machine has /dev/kfd");
        return;
    }
    let ran = refrain(&["run", text(&model()), "--prompt", "Emma", "-n", "1"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(
        ran.err.contains("auto: software GPU") && ran.err.contains("soft:gfx1201"),
        "{}",
        ran.err
    );
}

#[test]
fn unknown_devices_are_a_usage_error_with_the_choices() {
    let ran = refrain(&[
        "run",
        text(&model()),
        "--prompt",
        "Emma",
        "--device",
        "soft:gfx906",
    ]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.err.contains("soft:gfx1201") && ran.err.contains("rocm:N"),
        "{}",
        ran.err
    );
}
