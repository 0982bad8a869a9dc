//! Whether another process holds the device: times taken beside one are those of both.
//!
//! For a card the kernel driver says so: AMDKFD lists every process with a compute context under
//! `/sys/class/kfd/kfd/proc` (documented in the Linux ABI files, not measured here). Two runs of this
//! command are kept apart by a locked file, on any device.

use crate::exit::CliError;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;

/// Where AMDKFD lists processes.
const KFD_PROCESSES: &str = "/sys/class/kfd/kfd/proc";

/// Holds the device for this command until dropped.
#[derive(Debug)]
pub(super) struct Claim {
    _lock: File,
}

/// Claims the device, or says who has it.
pub(super) fn claim(device: &str, software: bool) -> Result<Claim, CliError> {
    claim_in(
        &std::env::temp_dir(),
        Path::new(KFD_PROCESSES),
        device,
        software,
    )
}

fn claim_in(
    folder: &Path,
    processes: &Path,
    device: &str,
    software: bool,
) -> Result<Claim, CliError> {
    if !software {
        let others = others(processes, std::process::id());
        if !others.is_empty() {
            let ids: Vec<String> = others.iter().map(u32::to_string).collect();
            return Err(CliError::DeviceHeld {
                device: device.to_owned(),
                holder: format!("process {}", ids.join(", ")),
            });
        }
    }
    let name: String = device
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let path = folder.join(format!("refrain-offload-bench-{name}.lock"));
    let io = |source| CliError::Io {
        path: path.display().to_string(),
        source,
    };
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(io)?;
    match file.try_lock() {
        Ok(()) => Ok(Claim { _lock: file }),
        Err(TryLockError::WouldBlock) => Err(CliError::DeviceHeld {
            device: device.to_owned(),
            holder: format!("another offload-bench ({})", path.display()),
        }),
        Err(TryLockError::Error(source)) => Err(io(source)),
    }
}

/// Processes with a compute context, but this one. No list means no driver, so nobody.
fn others(processes: &Path, own: u32) -> Vec<u32> {
    let entries = std::fs::read_dir(processes).into_iter().flatten();
    let mut ids: Vec<u32> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|id| *id != own)
        .collect();
    ids.sort_unstable();
    ids
}

#[cfg(test)]
mod tests {
    use super::{claim_in, others};

    #[test]
    fn a_second_claim_is_refused_until_the_first_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let none = folder.path().join("none");
        let first = claim_in(folder.path(), &none, "soft:gfx1201", true).unwrap();
        let second = claim_in(folder.path(), &none, "soft:gfx1201", true).unwrap_err();
        assert!(
            second.to_string().contains("another offload-bench"),
            "{second}"
        );
        claim_in(folder.path(), &none, "soft:gfx1100", true).unwrap();
        drop(first);
        claim_in(folder.path(), &none, "soft:gfx1201", true).unwrap();
    }

    #[test]
    fn other_processes_of_the_driver_are_named() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["17", "4", "23", "not-a-process"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        assert_eq!(others(folder.path(), 17), [4, 23]);
        let held = claim_in(folder.path(), folder.path(), "rocm:0", false).unwrap_err();
        assert!(held.to_string().contains("process 4, 17, 23"), "{held}");
        claim_in(folder.path(), folder.path(), "soft:gfx1201", true).unwrap();
    }
}
