//! Tape files: a recording as bytes and back, and writing it so that a file is finished or absent.
//!
//! Layout, little-endian: magic (8 bytes), version u32, body length u64, body, BLAKE3 of all that
//! precedes (32 bytes). The digest is the finish marker: a file without it is refused. Strings and
//! lists carry a u32 count that is checked against the bytes left before anything is allocated.

use crate::tape::{Direction, Entry, Place, Pointer, Recording, RingLaunch, Tape, TapeLaunch};
use refrain_planner::durable;
use refrain_planner::identity::hex;
use refrain_planner::plan::Digest;
use std::path::{Path, PathBuf};

/// First bytes of a tape file.
pub const MAGIC: [u8; 8] = *b"RFNTAPE\n";
/// Format version that this program writes and reads.
pub const VERSION: u32 = 2;
/// Domain tag of the file digest.
const DOMAIN: &str = "refrain 2026 tape file v1";
const HEADER: usize = 20;
const DIGEST: usize = 32;
/// Longest file that is read, in bytes: far above 100,000 launches.
const LIMIT: u64 = 256 << 20;

/// Why a tape file cannot be used or written.
#[derive(Debug, thiserror::Error)]
pub enum TapeFileError {
    /// The file ends before its body and digest do, e.g. after a crash while recording.
    #[error("tape is unfinished: {have} bytes, {need} needed; record it again")]
    Unfinished {
        /// Bytes present.
        have: u64,
        /// Bytes that header and body length demand.
        need: u64,
    },
    /// Not a tape.
    #[error("not a tape file: first 8 bytes are {found:02x?}; expected {MAGIC:02x?}")]
    Magic {
        /// The bytes found.
        found: [u8; 8],
    },
    /// Another format version.
    #[error("tape format version {found}, this program reads {VERSION}; record it again")]
    Version {
        /// Version in the file.
        found: u32,
    },
    /// Bytes were changed after writing.
    #[error("tape is damaged: digest {found} stored, {computed} computed; record it again")]
    Digest {
        /// Stored digest, hex.
        found: String,
        /// Computed digest, hex.
        computed: String,
    },
    /// Bytes follow the digest.
    #[error("tape has {extra} bytes after its end")]
    Trailing {
        /// How many.
        extra: u64,
    },
    /// The body contradicts itself.
    #[error("tape body, byte {offset}: {what}")]
    Body {
        /// Byte offset in the body.
        offset: usize,
        /// What was wrong.
        what: &'static str,
    },
    /// Longer than any tape.
    #[error("tape file of {bytes} bytes is longer than the limit of {LIMIT}")]
    TooLong {
        /// Its length.
        bytes: u64,
    },
    /// The operating system refused.
    #[error("{action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The file could not be written.
    #[error(transparent)]
    Write(#[from] durable::WriteError),
}

/// The bytes of a tape file.
pub fn encode(recording: &Recording) -> Vec<u8> {
    let mut body = Writer::default();
    body.bytes(&recording.sequence);
    body.count(recording.tapes.len());
    for tape in &recording.tapes {
        body.tape(tape);
    }
    let body = body.out;
    let mut file = Vec::with_capacity(HEADER + body.len() + DIGEST);
    file.extend_from_slice(&MAGIC);
    file.extend_from_slice(&VERSION.to_le_bytes());
    file.extend_from_slice(&(body.len() as u64).to_le_bytes());
    file.extend_from_slice(&body);
    let digest = file_digest(&file);
    file.extend_from_slice(&digest);
    file
}

fn file_digest(bytes: &[u8]) -> Digest {
    let mut hasher = blake3::Hasher::new_derive_key(DOMAIN);
    hasher.update(bytes);
    *hasher.finalize().as_bytes()
}

/// Reads the bytes of a tape file; nothing is believed before length and digest agree.
pub fn decode(bytes: &[u8]) -> Result<Recording, TapeFileError> {
    let have = bytes.len() as u64;
    let short = |need: u64| TapeFileError::Unfinished { have, need };
    let header = bytes
        .get(..HEADER)
        .ok_or_else(|| short((HEADER + DIGEST) as u64))?;
    let mut magic = [0; 8];
    magic.copy_from_slice(&header[..8]);
    if magic != MAGIC {
        return Err(TapeFileError::Magic { found: magic });
    }
    let mut reader = Reader {
        data: &header[8..],
        at: 0,
    };
    let version = reader.u32()?;
    if version != VERSION {
        return Err(TapeFileError::Version { found: version });
    }
    let length = reader.u64()?;
    let need = length.saturating_add((HEADER + DIGEST) as u64);
    if have < need {
        return Err(short(need));
    }
    if have > need {
        return Err(TapeFileError::Trailing { extra: have - need });
    }
    let (signed, stored) = bytes.split_at(bytes.len() - DIGEST);
    let computed = file_digest(signed);
    if stored != computed {
        return Err(TapeFileError::Digest {
            found: hex(stored),
            computed: hex(&computed),
        });
    }
    let mut body = Reader {
        data: &signed[HEADER..],
        at: 0,
    };
    let sequence = body.digest()?;
    let tapes = body.list(20, Reader::tape)?;
    if body.at != body.data.len() {
        return Err(body.wrong("bytes after the last tape"));
    }
    Ok(Recording { sequence, tapes })
}

/// Reads a tape file from disk.
pub fn load(path: &Path) -> Result<Recording, TapeFileError> {
    let io = |action, source| TapeFileError::Io {
        action,
        path: path.to_owned(),
        source,
    };
    let bytes = std::fs::metadata(path).map_err(|e| io("open", e))?.len();
    if bytes > LIMIT {
        return Err(TapeFileError::TooLong { bytes });
    }
    decode(&std::fs::read(path).map_err(|e| io("read", e))?)
}

/// Writes a tape file as a finished file or not at all; see [`durable::write`].
pub fn store(path: &Path, recording: &Recording) -> Result<(), TapeFileError> {
    Ok(durable::write(path, &encode(recording))?)
}

#[derive(Default)]
struct Writer {
    out: Vec<u8>,
}

impl Writer {
    fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// Counts above u32 cannot arise: a token has at most millions of launches of 64 KiB each.
    fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).unwrap_or(u32::MAX));
    }

    fn blob(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.bytes(bytes);
    }

    fn place(&mut self, place: Place) {
        match place {
            Place::Region { buffer, offset } => {
                self.bytes(&[0]);
                self.u32(buffer);
                self.u64(offset);
            }
            Place::Outside(address) => {
                self.bytes(&[1]);
                self.u64(address);
            }
            Place::Host => self.bytes(&[2]),
        }
    }

    fn shape(&mut self, grid: [u32; 3], block: [u32; 3]) {
        for value in grid.into_iter().chain(block) {
            self.u32(value);
        }
    }

    fn kernarg(&mut self, kernarg: &[u8], pointers: &[Pointer]) {
        self.blob(kernarg);
        self.count(pointers.len());
        for pointer in pointers {
            self.u32(pointer.at);
            self.place(pointer.place);
        }
    }

    fn tape(&mut self, tape: &Tape) {
        self.u32(tape.executor);
        self.u32(tape.position);
        self.count(tape.entries.len());
        for entry in &tape.entries {
            self.entry(entry);
        }
        match &tape.ring {
            None => self.bytes(&[0]),
            Some(ring) => {
                self.bytes(&[1]);
                self.count(ring.len());
                for launch in ring {
                    self.blob(launch.symbol.as_bytes());
                    self.bytes(&launch.object);
                    self.shape(launch.grid, launch.block);
                    self.u32(launch.lds);
                    self.bytes(&launch.header.to_le_bytes());
                    self.kernarg(&launch.kernarg, &launch.pointers);
                }
            }
        }
    }

    fn entry(&mut self, entry: &Entry) {
        match entry {
            Entry::Launch(launch) => {
                self.bytes(&[0]);
                self.blob(launch.symbol.as_bytes());
                self.bytes(&launch.object);
                self.shape(launch.grid, launch.block);
                self.u32(launch.lds);
                self.kernarg(&launch.kernarg, &launch.pointers);
            }
            Entry::Copy {
                dst,
                src,
                bytes,
                direction,
            } => {
                let row = Direction::TABLE.iter().find(|row| row.0 == *direction);
                self.bytes(&[1, row.map_or(0, |row| row.2)]);
                self.place(*dst);
                self.place(*src);
                self.u64(*bytes);
            }
            Entry::Memset { dst, value, bytes } => {
                self.bytes(&[2, *value]);
                self.place(*dst);
                self.u64(*bytes);
            }
        }
    }
}

struct Reader<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn wrong(&self, what: &'static str) -> TapeFileError {
        TapeFileError::Body {
            offset: self.at,
            what,
        }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], TapeFileError> {
        let end = self
            .at
            .checked_add(count)
            .filter(|end| *end <= self.data.len());
        let end = end.ok_or_else(|| self.wrong("ends early"))?;
        let taken = &self.data[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], TapeFileError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    fn u8(&mut self) -> Result<u8, TapeFileError> {
        Ok(self.array::<1>()?[0])
    }

    fn u32(&mut self) -> Result<u32, TapeFileError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, TapeFileError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn digest(&mut self) -> Result<Digest, TapeFileError> {
        self.array()
    }

    /// A list whose elements take at least `least` bytes each.
    fn list<T>(
        &mut self,
        least: usize,
        mut element: impl FnMut(&mut Self) -> Result<T, TapeFileError>,
    ) -> Result<Vec<T>, TapeFileError> {
        let count = self.u32()? as usize;
        if count > (self.data.len() - self.at) / least {
            return Err(self.wrong("count exceeds the bytes left"));
        }
        (0..count).map(|_| element(self)).collect()
    }

    fn blob(&mut self) -> Result<Vec<u8>, TapeFileError> {
        let count = self.u32()? as usize;
        Ok(self.take(count)?.to_vec())
    }

    fn string(&mut self) -> Result<String, TapeFileError> {
        let bytes = self.blob()?;
        String::from_utf8(bytes).map_err(|_| self.wrong("name is not UTF-8"))
    }

    fn place(&mut self) -> Result<Place, TapeFileError> {
        match self.u8()? {
            0 => Ok(Place::Region {
                buffer: self.u32()?,
                offset: self.u64()?,
            }),
            1 => Ok(Place::Outside(self.u64()?)),
            2 => Ok(Place::Host),
            _ => Err(self.wrong("unknown kind of place")),
        }
    }

    fn triple(&mut self) -> Result<[u32; 3], TapeFileError> {
        Ok([self.u32()?, self.u32()?, self.u32()?])
    }

    fn pointers(&mut self) -> Result<Vec<Pointer>, TapeFileError> {
        self.list(5, |r| {
            Ok(Pointer {
                at: r.u32()?,
                place: r.place()?,
            })
        })
    }

    fn tape(&mut self) -> Result<Tape, TapeFileError> {
        let (executor, position) = (self.u32()?, self.u32()?);
        let entries = self.list(10, Self::entry)?;
        let ring = match self.u8()? {
            0 => None,
            1 => Some(self.list(74, Self::ring_launch)?),
            _ => return Err(self.wrong("ring flag is neither 0 nor 1")),
        };
        Ok(Tape {
            executor,
            position,
            entries,
            ring,
        })
    }

    fn ring_launch(&mut self) -> Result<RingLaunch, TapeFileError> {
        Ok(RingLaunch {
            symbol: self.string()?,
            object: self.digest()?,
            grid: self.triple()?,
            block: self.triple()?,
            lds: self.u32()?,
            header: u16::from_le_bytes(self.array()?),
            kernarg: self.blob()?,
            pointers: self.pointers()?,
        })
    }

    fn entry(&mut self) -> Result<Entry, TapeFileError> {
        match self.u8()? {
            0 => Ok(Entry::Launch(TapeLaunch {
                symbol: self.string()?,
                object: self.digest()?,
                grid: self.triple()?,
                block: self.triple()?,
                lds: self.u32()?,
                kernarg: self.blob()?,
                pointers: self.pointers()?,
            })),
            1 => {
                let code = self.u8()?;
                let row = Direction::TABLE.iter().find(|row| row.2 == code);
                let direction = row.ok_or_else(|| self.wrong("unknown copy direction"))?.0;
                let (dst, src, bytes) = (self.place()?, self.place()?, self.u64()?);
                Ok(Entry::Copy {
                    dst,
                    src,
                    bytes,
                    direction,
                })
            }
            2 => {
                let value = self.u8()?;
                Ok(Entry::Memset {
                    value,
                    dst: self.place()?,
                    bytes: self.u64()?,
                })
            }
            _ => Err(self.wrong("unknown kind of entry")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{TapeFileError, decode, encode, load, store};
    use crate::tape::{Direction, Entry, Place, Pointer, Recording, RingLaunch, Tape, TapeLaunch};

    fn sample() -> Recording {
        let region = Place::Region {
            buffer: 3,
            offset: 0x40,
        };
        let pointers = vec![Pointer {
            at: 0,
            place: region,
        }];
        let launch = TapeLaunch {
            symbol: "axpy".into(),
            object: [7; 32],
            grid: [4, 2, 1],
            block: [256, 1, 1],
            lds: 128,
            kernarg: vec![0, 0, 0, 0, 0, 0, 0, 0, 9, 1, 0, 0],
            pointers: pointers.clone(),
        };
        let ring = RingLaunch {
            symbol: "axpy".into(),
            object: [7; 32],
            grid: [4, 2, 1],
            block: [256, 1, 1],
            lds: 640,
            header: 0x1502,
            kernarg: launch.kernarg.clone(),
            pointers,
        };
        let entries = vec![
            Entry::Launch(launch),
            Entry::Copy {
                dst: region,
                src: Place::Host,
                bytes: 5,
                direction: Direction::FromDevice,
            },
            Entry::Memset {
                dst: Place::Outside(0x1234),
                value: 0xab,
                bytes: 77,
            },
        ];
        let tape = |executor, ring| Tape {
            executor,
            position: 17,
            entries: entries.clone(),
            ring,
        };
        Recording {
            sequence: [9; 32],
            tapes: vec![tape(0, None), tape(1, Some(vec![ring]))],
        }
    }

    #[test]
    fn round_trip() {
        let recording = sample();
        assert_eq!(decode(&encode(&recording)).unwrap(), recording);
    }

    #[test]
    fn every_truncation_is_unfinished() {
        let bytes = encode(&sample());
        for length in 0..bytes.len() {
            let error = decode(&bytes[..length]).unwrap_err();
            assert!(
                matches!(error, TapeFileError::Unfinished { .. }),
                "{length}: {error}"
            );
        }
    }

    #[test]
    fn every_flipped_bit_is_refused() {
        let bytes = encode(&sample());
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn trailing_byte_is_refused() {
        let mut bytes = encode(&sample());
        bytes.push(0);
        assert!(matches!(
            decode(&bytes),
            Err(TapeFileError::Trailing { extra: 1 })
        ));
    }

    #[test]
    fn store_leaves_a_finished_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tape");
        store(&path, &sample()).unwrap();
        assert_eq!(load(&path).unwrap(), sample());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn failed_store_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        // The target name is a folder that is not empty, so the last step, the rename, fails.
        let path = folder.path().join("a.tape");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("x"), b"x").unwrap();
        assert!(matches!(
            store(&path, &sample()),
            Err(TapeFileError::Write(_))
        ));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
