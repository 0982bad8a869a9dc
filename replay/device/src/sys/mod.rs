//! Raw layer: the C types, constants and function tables of HIP and HSA, exactly as the vendor's
//! headers declare them. Nothing here calls anything; the result layer does.

pub mod hip;
pub mod hsa;
pub(crate) mod table;

pub use hip::HipTable;
pub use hsa::HsaTable;

#[cfg(test)]
mod abi;

#[cfg(test)]
mod tests {
    use super::{HipTable, HsaTable};
    use core::ffi::{CStr, c_void};
    use core::ptr::NonNull;

    unsafe extern "C" fn never_called() {}

    /// Resolves every name but those in `absent`, to the address of one function.
    fn symbols(absent: &'static [&'static str]) -> impl FnMut(&CStr) -> Option<NonNull<c_void>> {
        move |name: &CStr| {
            let name = name.to_str().ok()?;
            let address = NonNull::new(never_called as *mut c_void);
            if absent.contains(&name) {
                None
            } else {
                address
            }
        }
    }

    #[test]
    fn missing_required_entries_are_all_named_and_optional_ones_are_none() {
        // SAFETY: the tables are only looked at; no entry is called.
        let load = |absent| unsafe { HipTable::from_symbols(&mut symbols(absent)) };
        let full = load(&[]).unwrap();
        assert!(full.hipGetDevicePropertiesR0600.is_some());
        assert!(full.refrain_set_name.is_none() && full.refrain_fault.is_none());
        let old = load(&["hipGetDevicePropertiesR0600"]).unwrap();
        assert!(old.hipGetDevicePropertiesR0600.is_none());
        let error = load(&["hipFree", "hipModuleLaunchKernel"]).unwrap_err();
        assert_eq!(error, ["hipFree", "hipModuleLaunchKernel"]);
        // SAFETY: as above.
        let error = unsafe { HsaTable::from_symbols(&mut symbols(&["hsa_init"])) }.unwrap_err();
        assert_eq!(error, ["hsa_init"]);
    }
}
