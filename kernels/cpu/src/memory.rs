//! Memory for weights that are streamed: anonymous pages, in huge pages where the system allows them.
//!
//! A weight of hundreds of megabytes in 4 KiB pages costs a table walk every 64 lines. Transparent huge
//! pages are asked for by `madvise`, which a system may ignore: that changes speed and nothing else.

use memmap2::{Advice, MmapMut};

use crate::CpuError;

/// Bytes, zero at first, aligned to a page.
#[derive(Debug)]
pub struct Bytes(MmapMut);

impl Bytes {
    /// `length` bytes.
    ///
    /// # Errors
    /// [`CpuError::Memory`] if the system has no room.
    pub fn zeroed(length: usize) -> Result<Self, CpuError> {
        let refused = |error: std::io::Error| CpuError::Memory {
            bytes: length as u64,
            reason: error.to_string(),
        };
        let map = MmapMut::map_anon(length).map_err(refused)?;
        #[cfg(target_os = "linux")]
        // Refused where the kernel has no transparent huge pages: small pages serve as well.
        let _ = map.advise(Advice::HugePage);
        Ok(Self(map))
    }
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl std::ops::DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::Bytes;

    #[test]
    fn bytes_are_zero_and_writable() {
        for length in [0, 1, 5 << 20] {
            let mut bytes = Bytes::zeroed(length).unwrap();
            assert_eq!(bytes.len(), length);
            assert!(bytes.iter().all(|byte| *byte == 0));
            bytes.fill(3);
            assert!(bytes.iter().all(|byte| *byte == 3));
        }
        assert!(Bytes::zeroed(usize::MAX / 2).is_err());
    }
}
