//! Opening the ROCm libraries at run time, on request only, and the [`Runtime`] that carries the
//! two filled tables. Starting the runtimes and choosing a device is left to `device.rs`.

use core::any::Any;
use core::ffi::{CStr, c_void};
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use std::path::PathBuf;
use std::sync::Arc;

use libloading::Library;

use crate::error::{Attempt, LoadError};
use crate::sys::{HipTable, HsaTable};

/// Names of the HIP library, newest first; the unversioned one belongs to development packages.
const HIP_NAMES: &[&str] = &[
    "libamdhip64.so.7",
    "libamdhip64.so.6",
    "libamdhip64.so.5",
    "libamdhip64.so",
    "/opt/rocm/lib/libamdhip64.so",
];
/// Names of the HSA library.
const HSA_NAMES: &[&str] = &[
    "libhsa-runtime64.so.1",
    "libhsa-runtime64.so",
    "/opt/rocm/lib/libhsa-runtime64.so.1",
];

/// Where a runtime's tables come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The software GPU.
    Soft {
        /// Its instruction set, such as `gfx1201`.
        target: String,
        /// Its HIP ordinal: several software GPUs of one process share the ordinal space.
        ordinal: u32,
    },
    /// The ROCm libraries.
    Rocm {
        /// File behind the HIP table.
        hip_path: PathBuf,
        /// File behind the HSA table.
        hsa_path: PathBuf,
    },
}

/// Two filled function tables and what keeps the code behind them alive.
#[derive(Clone)]
pub struct Runtime {
    pub(crate) hip: HipTable,
    pub(crate) hsa: HsaTable,
    pub(crate) origin: Origin,
    pub(crate) keep_alive: Arc<dyn Any + Send + Sync>,
}

impl core::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Runtime")
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

impl Runtime {
    /// A runtime from tables that somebody else filled.
    ///
    /// # Safety
    /// Every entry behaves as the vendor documents the function of its name, from any thread, as
    /// long as `keep_alive` or a clone of it lives.
    #[must_use]
    pub unsafe fn from_tables(
        hip: HipTable,
        hsa: HsaTable,
        origin: Origin,
        keep_alive: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self {
            hip,
            hsa,
            origin,
            keep_alive,
        }
    }

    /// Opens `libhsa-runtime64` and `libamdhip64`. Neither is started.
    ///
    /// The libraries stay loaded until the process ends: HIP starts threads and registers exit
    /// handlers, so its code may not be unmapped.
    ///
    /// # Errors
    /// [`LoadError`] with every name that was tried, or the entries that a library lacks.
    pub fn load_rocm() -> Result<Self, LoadError> {
        let (hsa_library, hsa_path) = open("libhsa-runtime64", HSA_NAMES)?;
        let (hip_library, hip_path) = open("libamdhip64", HIP_NAMES)?;
        // SAFETY: the library is ROCm's by its soname, whose exported functions have the vendor's
        // signatures, which the rows restate; it is never unloaded (`ManuallyDrop` in `open`).
        let hsa = unsafe { HsaTable::from_symbols(&mut |name| find(&hsa_library, name)) }.map_err(
            |missing| LoadError::EntriesMissing {
                path: hsa_path.clone(),
                missing,
            },
        )?;
        // SAFETY: as above, for HIP.
        let hip = unsafe { HipTable::from_symbols(&mut |name| find(&hip_library, name)) }.map_err(
            |missing| LoadError::EntriesMissing {
                path: hip_path.clone(),
                missing,
            },
        )?;
        let origin = Origin::Rocm { hip_path, hsa_path };
        Ok(Self {
            hip,
            hsa,
            origin,
            keep_alive: Arc::new((hip_library, hsa_library)),
        })
    }

    /// The HIP table, for callers that check entries one by one.
    #[must_use]
    pub fn hip(&self) -> &HipTable {
        &self.hip
    }

    /// The HSA table, for callers that check entries one by one.
    #[must_use]
    pub fn hsa(&self) -> &HsaTable {
        &self.hsa
    }

    /// Where the tables come from.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }
}

fn open(
    library: &'static str,
    names: &[&'static str],
) -> Result<(ManuallyDrop<Library>, PathBuf), LoadError> {
    let mut tried = Vec::with_capacity(names.len());
    for &name in names {
        // SAFETY: the initialisers that run are those of the ROCm library that the user installed
        // under its own soname; they have no precondition.
        match unsafe { Library::new(name) } {
            Ok(opened) => return Ok((ManuallyDrop::new(opened), mapped_path(library, name))),
            Err(error) => tried.push(Attempt {
                name,
                answer: innermost(&error),
            }),
        }
    }
    Err(LoadError::NotInstalled { library, tried })
}

/// The dynamic linker's own words, which `libloading` wraps.
fn innermost(error: &dyn core::error::Error) -> String {
    let mut text = error;
    while let Some(source) = text.source() {
        text = source;
    }
    text.to_string()
}

/// The file that the linker chose, from the process's map; `name` where that does not tell.
fn mapped_path(library: &str, name: &str) -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let path = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]))
        .find(|path| {
            path.rsplit('/').next().is_some_and(|file| {
                file.strip_prefix(library)
                    .is_some_and(|rest| rest.starts_with(".so"))
            })
        });
    PathBuf::from(path.unwrap_or(name))
}

fn find(library: &Library, name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: the symbol is read as an untyped address only; `from_symbols` gives it its type.
    let symbol = unsafe { library.get::<*mut c_void>(name.to_bytes_with_nul()) }.ok()?;
    // A `*mut c_void` symbol dereferences to the address of the function itself.
    NonNull::new(*symbol)
}
