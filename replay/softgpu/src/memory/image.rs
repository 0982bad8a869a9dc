//! Several named allocations at fixed distances from each other: the image of a loaded code object,
//! whose code reaches its data by relative addresses. Each part has its own name, bounds and
//! rights; the gaps between parts belong to nobody. Parts are freed one by one, as any allocation.

use super::backing::Backing;
use super::{
    AddressSpace, AllocError, AllocInfo, Allocation, Kind, MAX_LEN, PAGE, POISON_BYTE, Rights,
};
use std::sync::Arc;

/// One part of an image.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Name for messages.
    pub name: &'a str,
    /// Distance from the image's first byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Granted rights.
    pub rights: Rights,
    /// What it is for.
    pub kind: Kind,
}

impl AddressSpace {
    /// Allocates `parts`, which must be sorted by offset, not empty and disjoint, inside one block
    /// of `len` bytes at a multiple of [`PAGE`]; every byte holds [`POISON_BYTE`]. Returns the
    /// address of offset 0. No [`super::CODE_ROOM`] is added: the caller's code parts include it.
    pub fn alloc_image(&self, len: u64, parts: &[Part<'_>]) -> Result<u64, AllocError> {
        let mut end = 0;
        for part in parts {
            let after = part.offset.checked_add(part.len);
            if part.offset < end
                || part.len == 0
                || after.is_none_or(|after| after > len.min(MAX_LEN))
            {
                return Err(AllocError::Size {
                    name: part.name.to_owned(),
                    len: part.len,
                    max: len.min(MAX_LEN),
                });
            }
            end = part.offset + part.len;
        }
        let name = || parts.first().map_or("image", |part| part.name).to_owned();
        let block = usize::try_from(len)
            .ok()
            .and_then(|len| Backing::new(len, PAGE as usize, POISON_BYTE));
        let Some(block) = block.map(Arc::new) else {
            return Err(AllocError::HostMemory {
                name: name(),
                len,
                total: self.total_bytes(),
            });
        };
        let base = block.address();
        let mut table = self.write();
        table
            .freed
            .retain(|dead| dead.base >= base + len || dead.base + dead.len <= base);
        for part in parts {
            let Part {
                name,
                offset,
                len,
                rights,
                kind,
            } = *part;
            let info = AllocInfo {
                name: Arc::from(name),
                base: base + offset,
                len,
                rights,
                kind,
            };
            table.total += len;
            table.live.insert(
                base + offset,
                Allocation {
                    info,
                    backing: Arc::clone(&block),
                },
            );
        }
        table.changed();
        drop(table);
        for part in parts {
            let Part {
                offset,
                len,
                rights,
                ..
            } = *part;
            self.tell(|observer| observer.allocated(base + offset, len, rights));
        }
        Ok(base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Access;

    #[test]
    fn parts_are_bounded_and_freed_separately() {
        let memory = AddressSpace::new();
        let part = |name, offset, len| Part {
            name,
            offset,
            len,
            rights: Rights::READ,
            kind: Kind::Code,
        };
        let base = memory
            .alloc_image(0x3000, &[part("a", 0, 0x800), part("b", 0x1000, 0x10)])
            .unwrap();
        memory.check(base + 0x7ff, 1, Access::Read).unwrap();
        assert!(memory.check(base + 0x800, 1, Access::Read).is_err());
        assert!(memory.check(base, 1, Access::Write).is_err());
        memory.free(base).unwrap();
        memory.check(base + 0x1000, 0x10, Access::Read).unwrap();
        memory.free(base + 0x1000).unwrap();
        assert_eq!(memory.total_bytes(), 0);
        assert!(
            memory
                .alloc_image(0x1000, &[part("a", 0, 0x10), part("b", 8, 8)])
                .is_err()
        );
        assert!(
            memory
                .alloc_image(0x1000, &[part("a", 0xff8, 0x10)])
                .is_err()
        );
    }
}
