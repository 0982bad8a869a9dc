//! Footprints: the exact bytes that each launch read and wrote, and their compact file.
//!
//! File layout, version 1, little-endian: the 8 bytes `RFRNFOOT`, a u32 version, then numbers of
//! variable length (LEB128, at most 10 bytes) and strings (length, UTF-8 bytes):
//!
//! | part | content |
//! |---|---|
//! | names | count, then strings: buffers, kernels and steps |
//! | launches | count, then per launch: kernel, step plus one or 0, queue, packet, dword plus one or 0, reads, writes |
//! | reads, writes | count, then per extent: buffer, first byte, bytes; the first byte is relative to the end of the extent before it in the same buffer of the list, where there is one |
//!
//! Extents of one list are sorted by buffer name and offset, and do not touch. A
//! read is a byte that the launch had not written itself before.

use std::collections::HashMap;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"RFRNFOOT";
/// Version that is written, and the only one that is read.
pub const FOOTPRINT_VERSION: u32 = 1;

/// Bytes `[offset, offset + len)` of a buffer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FootprintExtent {
    /// Name of the declared buffer or of the allocation.
    pub buffer: Arc<str>,
    /// First byte.
    pub offset: u64,
    /// Bytes, at least 1.
    pub len: u64,
}

/// What one launch read and wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Kernel.
    pub kernel: Arc<str>,
    /// Step of the declared token.
    pub step: Option<Arc<str>>,
    /// Queue id.
    pub queue: u64,
    /// Packet id in the queue.
    pub packet: u64,
    /// Dword of the indirect buffer, for a launch of one.
    pub dword: Option<u32>,
    /// Bytes read before the launch wrote them.
    pub reads: Vec<FootprintExtent>,
    /// Bytes written.
    pub writes: Vec<FootprintExtent>,
}

/// A file that is not a list of footprints.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FootprintError {
    /// The first bytes are others.
    #[error("not a footprint file: it does not begin with RFRNFOOT")]
    Magic,
    /// Another version.
    #[error("footprint version {found}, this program reads {FOOTPRINT_VERSION}; record again")]
    Version {
        /// Version in the file.
        found: u32,
    },
    /// The file ends too early, or a number is too long.
    #[error("footprint file is cut off or damaged at byte {offset}: {what}; record again")]
    Damaged {
        /// Where.
        offset: usize,
        /// What was expected.
        what: &'static str,
    },
}

#[derive(Default)]
struct Names<'a> {
    list: Vec<&'a str>,
    index: HashMap<&'a str, u64>,
}

impl<'a> Names<'a> {
    fn of(&mut self, name: &'a str) -> u64 {
        let next = self.list.len() as u64;
        let list = &mut self.list;
        *self.index.entry(name).or_insert_with(|| {
            list.push(name);
            next
        })
    }
}

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_extents<'a>(out: &mut Vec<u8>, names: &mut Names<'a>, list: &'a [FootprintExtent]) {
    put(out, list.len() as u64);
    let mut before: Option<(&str, u64)> = None;
    for extent in list {
        let base = match before {
            Some((buffer, end)) if buffer == &*extent.buffer => end,
            _ => 0,
        };
        put(out, names.of(&extent.buffer));
        put(out, extent.offset.wrapping_sub(base));
        put(out, extent.len);
        before = Some((&extent.buffer, extent.offset.wrapping_add(extent.len)));
    }
}

/// The file's bytes.
pub fn write_footprints(launches: &[Footprint]) -> Vec<u8> {
    let (mut body, mut names) = (Vec::new(), Names::default());
    put(&mut body, launches.len() as u64);
    for launch in launches {
        put(&mut body, names.of(&launch.kernel));
        put(
            &mut body,
            launch.step.as_deref().map_or(0, |step| names.of(step) + 1),
        );
        put(&mut body, launch.queue);
        put(&mut body, launch.packet);
        put(
            &mut body,
            launch.dword.map_or(0, |dword| u64::from(dword) + 1),
        );
        put_extents(&mut body, &mut names, &launch.reads);
        put_extents(&mut body, &mut names, &launch.writes);
    }
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&FOOTPRINT_VERSION.to_le_bytes());
    put(&mut out, names.list.len() as u64);
    for name in &names.list {
        put(&mut out, name.len() as u64);
        out.extend_from_slice(name.as_bytes());
    }
    out.extend_from_slice(&body);
    out
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn damaged<T>(&self, what: &'static str) -> Result<T, FootprintError> {
        Err(FootprintError::Damaged {
            offset: self.at,
            what,
        })
    }

    fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], FootprintError> {
        match self
            .at
            .checked_add(len)
            .and_then(|end| self.bytes.get(self.at..end))
        {
            Some(bytes) => {
                self.at += len;
                Ok(bytes)
            }
            None => self.damaged(what),
        }
    }

    fn number(&mut self, what: &'static str) -> Result<u64, FootprintError> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.take(1, what)?.first().copied().unwrap_or(0);
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                return self.damaged("a number of at most 64 bits");
            }
            value |= part << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        self.damaged("a number of at most 64 bits")
    }

    /// A count of things of at least `least` bytes each, which the rest of the file must hold.
    fn count(&mut self, least: usize, what: &'static str) -> Result<usize, FootprintError> {
        let count = self.number(what)?;
        let room = ((self.bytes.len() - self.at) / least) as u64;
        if count > room {
            return self.damaged("as many entries as the count says");
        }
        Ok(count as usize)
    }

    fn name(&mut self, names: &[Arc<str>], what: &'static str) -> Result<Arc<str>, FootprintError> {
        let index = self.number(what)?;
        let found = usize::try_from(index)
            .ok()
            .and_then(|index| names.get(index));
        match found {
            Some(name) => Ok(Arc::clone(name)),
            None => self.damaged("an index into the names"),
        }
    }

    fn extents(&mut self, names: &[Arc<str>]) -> Result<Vec<FootprintExtent>, FootprintError> {
        let count = self.count(3, "the number of extents")?;
        let mut list: Vec<FootprintExtent> = Vec::with_capacity(count);
        for _ in 0..count {
            let buffer = self.name(names, "a buffer")?;
            let base = match list.last() {
                Some(last) if last.buffer == buffer => last.offset.wrapping_add(last.len),
                _ => 0,
            };
            let offset = self.number("an offset")?.wrapping_add(base);
            let len = self.number("a length")?;
            if len == 0 || offset.checked_add(len).is_none() || offset < base {
                return self.damaged("an extent inside 64-bit offsets");
            }
            list.push(FootprintExtent {
                buffer,
                offset,
                len,
            });
        }
        Ok(list)
    }

    fn launch(&mut self, names: &[Arc<str>]) -> Result<Footprint, FootprintError> {
        let kernel = self.name(names, "a kernel")?;
        let step = match self.number("a step")? {
            0 => None,
            index => match usize::try_from(index - 1).ok().and_then(|i| names.get(i)) {
                Some(name) => Some(Arc::clone(name)),
                None => return self.damaged("an index into the names"),
            },
        };
        let queue = self.number("a queue")?;
        let packet = self.number("a packet")?;
        let dword = match self.number("a dword")? {
            0 => None,
            dword => match u32::try_from(dword - 1) {
                Ok(dword) => Some(dword),
                Err(_) => return self.damaged("a dword below 2^32"),
            },
        };
        Ok(Footprint {
            kernel,
            step,
            queue,
            packet,
            dword,
            reads: self.extents(names)?,
            writes: self.extents(names)?,
        })
    }
}

/// Reads a file's bytes.
///
/// # Errors
/// [`FootprintError`] for anything that [`write_footprints`] does not write.
pub fn read_footprints(bytes: &[u8]) -> Result<Vec<Footprint>, FootprintError> {
    let mut reader = Reader { bytes, at: 0 };
    if reader.take(8, "the magic").ok() != Some(MAGIC.as_slice()) {
        return Err(FootprintError::Magic);
    }
    let version = reader.take(4, "the version")?.first_chunk().copied();
    let version = u32::from_le_bytes(version.unwrap_or_default());
    if version != FOOTPRINT_VERSION {
        return Err(FootprintError::Version { found: version });
    }
    let count = reader.count(1, "the number of names")?;
    let mut names: Vec<Arc<str>> = Vec::with_capacity(count);
    for _ in 0..count {
        let len = reader.count(1, "a name's length")?;
        let text = reader.take(len, "a name")?;
        match std::str::from_utf8(text) {
            Ok(text) => names.push(Arc::from(text)),
            Err(_) => return reader.damaged("a name in UTF-8"),
        }
    }
    // Kernel, step, queue, packet, dword and two counts.
    let count = reader.count(7, "the number of launches")?;
    let mut launches = Vec::with_capacity(count);
    for _ in 0..count {
        launches.push(reader.launch(&names)?);
    }
    if reader.at != bytes.len() {
        return reader.damaged("the end of the file");
    }
    Ok(launches)
}

#[cfg(test)]
mod tests {
    use super::{
        FOOTPRINT_VERSION, Footprint, FootprintError, FootprintExtent, read_footprints,
        write_footprints,
    };
    use proptest::prelude::{Strategy, any, prop, prop_assert_eq, proptest};
    use std::sync::Arc;

    fn extents() -> impl Strategy<Value = Vec<FootprintExtent>> {
        let part = (0u8..3, 1u64..5000, 1u64..1 << 40);
        prop::collection::vec(part, 0..6).prop_map(|mut parts| {
            parts.sort_by_key(|part| part.0);
            let mut end = [0u64; 3];
            let extent = |(buffer, gap, len): (u8, u64, u64)| {
                let offset = end[usize::from(buffer)] + gap;
                end[usize::from(buffer)] = offset + len;
                let buffer = Arc::from(format!("b{buffer}").as_str());
                FootprintExtent {
                    buffer,
                    offset,
                    len,
                }
            };
            parts.into_iter().map(extent).collect()
        })
    }

    fn launches() -> impl Strategy<Value = Vec<Footprint>> {
        let one = (
            0u8..3,
            any::<bool>(),
            any::<u64>(),
            any::<Option<u32>>(),
            extents(),
            extents(),
        );
        let one = one.prop_map(|(kernel, step, packet, dword, reads, writes)| Footprint {
            kernel: Arc::from(format!("k{kernel}").as_str()),
            step: step.then(|| "step".into()),
            queue: 3,
            packet,
            dword,
            reads,
            writes,
        });
        prop::collection::vec(one, 0..5)
    }

    proptest! {
        #[test]
        fn files_come_back(list in launches()) {
            prop_assert_eq!(read_footprints(&write_footprints(&list)), Ok(list));
        }

        #[test]
        fn damage_never_panics_and_a_cut_is_seen(
            list in launches(), at in any::<prop::sample::Index>(), value in any::<u8>(), cut in any::<bool>()
        ) {
            let mut bytes = write_footprints(&list);
            let at = at.index(bytes.len());
            if cut { bytes.truncate(at) } else { bytes[at] = value }
            let found = read_footprints(&bytes);
            prop_assert_eq!(cut && found.is_ok(), false);
        }
    }

    #[test]
    fn foreign_files_are_refused_by_name() {
        assert_eq!(read_footprints(b"RFRN"), Err(FootprintError::Magic));
        let mut bytes = write_footprints(&[]);
        bytes[8] += 1;
        let found = FOOTPRINT_VERSION + 1;
        assert_eq!(
            read_footprints(&bytes),
            Err(FootprintError::Version { found })
        );
        bytes[8] -= 1;
        bytes.push(0);
        assert!(matches!(
            read_footprints(&bytes),
            Err(FootprintError::Damaged { .. })
        ));
    }
}
