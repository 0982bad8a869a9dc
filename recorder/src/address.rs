//! Device addresses back to plan buffers.

use crate::tape::Place;
use refrain_planner::plan::BufferId;

/// The address ranges of an instance's buffers.
#[derive(Debug, Clone, Default)]
pub struct AddressMap {
    /// First address, length in bytes, buffer; by address.
    rows: Vec<(u64, u64, BufferId)>,
}

impl AddressMap {
    /// A map of `(first address, length in bytes, buffer)` rows.
    pub fn new(rows: impl IntoIterator<Item = (u64, u64, BufferId)>) -> Self {
        let mut rows: Vec<_> = rows.into_iter().collect();
        rows.sort_unstable();
        Self { rows }
    }

    /// Where `address` falls. One past the end of a buffer is outside.
    pub fn resolve(&self, address: u64) -> Place {
        let after = self.rows.partition_point(|row| row.0 <= address);
        match after.checked_sub(1).and_then(|index| self.rows.get(index)) {
            Some((first, length, buffer)) if address - first < *length => Place::Region {
                buffer: *buffer,
                offset: address - first,
            },
            _ => Place::Outside(address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::AddressMap;
    use crate::tape::Place;

    #[test]
    fn edges() {
        let map = AddressMap::new([(0x2000, 0x100, 1), (0x1000, 0x1000, 0), (0x4000, 1, 2)]);
        let region = |buffer, offset| Place::Region { buffer, offset };
        let rows = [
            (0xfff, Place::Outside(0xfff)),
            (0x1000, region(0, 0)),
            (0x1fff, region(0, 0xfff)),
            (0x2000, region(1, 0)),
            (0x20ff, region(1, 0xff)),
            (0x2100, Place::Outside(0x2100)),
            (0x4000, region(2, 0)),
            (0x4001, Place::Outside(0x4001)),
            (u64::MAX, Place::Outside(u64::MAX)),
        ];
        for (address, place) in rows {
            assert_eq!(map.resolve(address), place, "{address:#x}");
        }
    }
}
