//! The macro that turns one list of rows into a function table.
//!
//! A row is `name(argument: type, ...) -> return;` under the heading `required`, `optional` or
//! `soft_only`. From the rows expand the `#[repr(C)]` struct of function pointers, the loader that
//! fills it from a shared library, and the name lists. The ABI test expands the same rows against an
//! independent binding. What the entries mean is left to the files that hold the rows.

/// Expands one function table; see the module comment for the grammar of a row.
macro_rules! declare_table {
    (
        $(#[$meta:meta])* $table:ident
        required { $( $name:ident ( $($arg:ident : $type:ty),* $(,)? ) -> $ret:ty; )* }
        optional { $( $oname:ident ( $($oarg:ident : $otype:ty),* $(,)? ) -> $oret:ty; )* }
        soft_only { $( $sname:ident ( $($sarg:ident : $stype:ty),* $(,)? ) -> $sret:ty; )* }
    ) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        #[allow(non_snake_case, reason = "a field carries the exact C name of its entry")]
        pub struct $table {
            $(
                #[doc = concat!("`", stringify!($name), "`, required.")]
                pub $name: unsafe extern "C" fn($($arg: $type),*) -> $ret,
            )*
            $(
                #[doc = concat!("`", stringify!($oname), "`, `None` where the library lacks it.")]
                pub $oname: Option<unsafe extern "C" fn($($oarg: $otype),*) -> $oret>,
            )*
            $(
                #[doc = concat!("`", stringify!($sname), "`, filled by the software GPU only.")]
                pub $sname: Option<unsafe extern "C" fn($($sarg: $stype),*) -> $sret>,
            )*
        }

        impl $table {
            /// Names of the entries without which the table is not usable.
            pub const REQUIRED: &[&str] = &[$(stringify!($name)),*];
            /// Names of the entries that a library may lack.
            pub const OPTIONAL: &[&str] = &[$(stringify!($oname)),*];
            /// Names of the entries that exist on the software GPU only.
            pub const SOFT_ONLY: &[&str] = &[$(stringify!($sname)),*];

            /// Fills the table from `symbol`, which returns the address behind a name. Software-GPU
            /// entries stay `None`. Errors: the names of all required entries that are missing.
            ///
            /// # Safety
            /// Each address that `symbol` returns is a function of the C declaration that the row of
            /// its name restates, and stays callable as long as any copy of the table is used.
            pub(crate) unsafe fn from_symbols(
                symbol: &mut dyn FnMut(&core::ffi::CStr) -> Option<core::ptr::NonNull<core::ffi::c_void>>,
            ) -> Result<Self, Vec<&'static str>> {
                let mut missing: Vec<&'static str> = Vec::new();
                $(
                    let address = symbol($crate::sys::table::c_name(concat!(stringify!($name), "\0")));
                    if address.is_none() {
                        missing.push(stringify!($name));
                    }
                    #[allow(non_snake_case, reason = "the exact C name of the entry")]
                    let $name = address;
                )*
                $(
                    #[allow(non_snake_case, reason = "the exact C name of the entry")]
                    let $oname = symbol($crate::sys::table::c_name(concat!(stringify!($oname), "\0")));
                )*
                // Every entry is present from here on: the `else` of each row below is unreachable
                // by construction, and returns the (then empty or partial) list rather than panic.
                if !missing.is_empty() {
                    return Err(missing);
                }
                Ok(Self {
                    $(
                        $name: match $name {
                            // SAFETY: the caller vouches that the address behind this name is a
                            // function of exactly this signature; both are pointer-sized.
                            Some(address) => unsafe {
                                core::mem::transmute::<
                                    *mut core::ffi::c_void,
                                    unsafe extern "C" fn($($type),*) -> $ret,
                                >(address.as_ptr())
                            },
                            None => return Err(missing),
                        },
                    )*
                    $(
                        $oname: $oname.map(|address| {
                            // SAFETY: as for the required entries.
                            unsafe {
                                core::mem::transmute::<
                                    *mut core::ffi::c_void,
                                    unsafe extern "C" fn($($otype),*) -> $oret,
                                >(address.as_ptr())
                            }
                        }),
                    )*
                    $($sname: None,)*
                })
            }
        }
    };
}

pub(crate) use declare_table;

/// The C name behind a row: `text` ends with its only NUL. Empty for any other text.
pub(crate) fn c_name(text: &'static str) -> &'static core::ffi::CStr {
    core::ffi::CStr::from_bytes_with_nul(text.as_bytes()).unwrap_or_default()
}
