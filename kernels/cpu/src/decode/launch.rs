//! One launch: where its arguments lie, found out once, and what its function sees of them.

use std::ops::Range;

use bytemuck::AnyBitPattern;
use refrain_kernels::format::Coding;
use refrain_kernels::{
    Access, Arg, ArgKind, CONTROL_BYTES, Effect, Factor, KernelRow, Span, Word, WordValues,
};

use super::DecodeError;
use super::memory::{Carved, Memory, Piece};
use super::table::{Function, function};
use crate::Engine;

/// Most pointer arguments of a kernel.
const MOST: usize = 16;

/// Where a pointer argument's bytes are.
#[derive(Clone, Debug)]
enum Place {
    /// In a piece of memory.
    Piece { index: usize, range: Range<usize> },
    /// In the copy that was made because a written argument is the same bytes.
    Copy(Range<usize>),
}

#[derive(Clone, Debug)]
struct Slot {
    name: &'static str,
    /// Byte of the argument at which `place` starts.
    first: usize,
    place: Place,
}

#[derive(Clone, Debug)]
struct CopyOf {
    buffer: usize,
    range: Range<usize>,
    to: usize,
}

/// A launch that is ready to run.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    row: &'static KernelRow,
    function: &'static Function,
    imms: Vec<u32>,
    slots: Vec<Slot>,
    pieces: Vec<Piece>,
    copies: Vec<CopyOf>,
}

/// A pointer argument while it is looked up.
struct Found {
    name: &'static str,
    write: bool,
    first: usize,
    buffer: usize,
    range: Range<usize>,
}

impl Found {
    fn meets(&self, other: &Self) -> bool {
        self.buffer == other.buffer
            && self.range.start < other.range.end
            && other.range.start < self.range.end
    }
}

impl Launch {
    /// Decodes kernel arguments by the catalog row. `most` holds the greatest value of each word.
    pub(super) fn new(
        row: &'static KernelRow,
        kernarg: &[u8],
        memory: &Memory,
        most: &WordValues,
    ) -> Result<Self, DecodeError> {
        let function = function(row)?;
        let symbol = row.symbol;
        let expected = row.kernarg_bytes() as usize;
        if kernarg.len() != expected {
            let given = kernarg.len();
            return Err(DecodeError::Kernarg {
                symbol,
                expected,
                given,
            });
        }
        let value = |at: u32, bytes: u32| {
            let bytes = kernarg.get(at as usize..(at + bytes) as usize);
            let bytes = bytes.unwrap_or_default().iter().rev();
            bytes.fold(0u64, |value, byte| value << 8 | u64::from(*byte))
        };
        let mut imms = Vec::new();
        let mut pointers: Vec<(&'static Arg, u64)> = Vec::new();
        for (arg, at) in row.layout() {
            match arg.kind {
                ArgKind::Pointer(_) => pointers.push((arg, value(at, 8))),
                // Four bytes.
                ArgKind::U32 | ArgKind::F32Bits => imms.push(value(at, 4) as u32),
            }
        }
        row.check(&imms)?;
        let mut found = Vec::new();
        for (arg, address) in pointers {
            let span = span(row, arg, &imms, most)?;
            let error = DecodeError::Address {
                symbol,
                arg: arg.name,
                address,
                start: span.start,
                end: span.end,
            };
            let (buffer, range) = memory.locate(address, &span).ok_or(error)?;
            found.push(Found {
                name: arg.name,
                write: matches!(arg.kind, ArgKind::Pointer(access) if access != Access::Read),
                // It lies in a buffer of this length.
                first: span.start as usize,
                buffer,
                range,
            });
        }
        let copied = copied(row, &found)?;
        Ok(Self {
            row,
            function,
            imms,
            ..arrange(row, function, &found, &copied)
        })
    }

    /// Bytes of the copies that it needs.
    pub(super) fn scratch_bytes(&self) -> usize {
        self.copies
            .iter()
            .map(|copy| copy.to + copy.range.len())
            .max()
            .unwrap_or(0)
    }

    /// Executes the launch.
    pub(super) fn run(
        &self,
        memory: &mut Memory,
        scratch: &mut [u32],
        engine: &Engine,
    ) -> Result<(), DecodeError> {
        let scratch: &mut [u8] = bytemuck::cast_slice_mut(scratch);
        for copy in &self.copies {
            let from = memory.bytes(copy.buffer).get(copy.range.clone());
            let to = scratch.get_mut(copy.to..copy.to + copy.range.len());
            if let (Some(from), Some(to)) = (from, to) {
                to.copy_from_slice(from);
            }
        }
        let mut carved: [Option<Carved<'_>>; MOST] = memory.carve(&self.pieces);
        let mut views = [const { None }; MOST];
        for (view, slot) in views.iter_mut().zip(&self.slots) {
            let bytes = match &slot.place {
                Place::Copy(range) => scratch.get(range.clone()).map(Carved::Read),
                Place::Piece { index, range } => match carved.get_mut(*index) {
                    Some(Some(Carved::Read(bytes))) => bytes.get(range.clone()).map(Carved::Read),
                    Some(piece) => piece.take(),
                    None => None,
                },
            };
            *view = bytes.map(|bytes| (slot.name, slot.first, bytes));
        }
        let mut call = Call {
            row: self.row,
            imms: &self.imms,
            views,
            engine,
        };
        self.function.run(engine.isa(), &mut call)
    }
}

/// The bytes that an argument may touch, from its address. Weights count from their first row, since a
/// view of one is of all of it.
fn span(
    row: &KernelRow,
    arg: &Arg,
    imms: &[u32],
    most: &WordValues,
) -> Result<Range<u64>, DecodeError> {
    let least = WordValues::default();
    let mut union: Option<Range<u64>> = None;
    for effect in row.effects.iter().filter(|effect| effect.arg == arg.name) {
        let range = match effect.span {
            Span::Word(_) => 0..CONTROL_BYTES,
            Span::Plane { rows, cols, .. } => 0..weight_end(row, effect, (rows, cols), imms, most)?,
            _ => row.hull(effect, imms, &least, most)?,
        };
        union = Some(match union {
            None => range,
            Some(union) => union.start.min(range.start)..union.end.max(range.end),
        });
    }
    Ok(union.unwrap_or(0..0))
}

fn weight_end(
    row: &KernelRow,
    effect: &Effect,
    (rows, cols): (Factor, Factor),
    imms: &[u32],
    most: &WordValues,
) -> Result<u64, DecodeError> {
    let least = WordValues::default();
    let plain = row
        .dtype
        .is_none_or(|dtype| matches!(dtype.format().coding, Coding::Plain(_)));
    match (plain, row.dtype, rows, cols) {
        (false, Some(dtype), Factor::Imm(rows), Factor::Imm(cols)) => {
            let (rows, cols) = (row.imm(rows, imms)?, row.imm(cols, imms)?);
            Ok(dtype.device_bytes(u64::from(rows), u64::from(cols))?)
        }
        _ => Ok(row.hull(effect, imms, &least, most)?.end),
    }
}

/// Which read arguments share bytes with a written one.
fn copied(row: &'static KernelRow, found: &[Found]) -> Result<Vec<bool>, DecodeError> {
    let allowed = |a: &str, b: &str| {
        let mut pairs = row.may_alias.iter();
        pairs.any(|(x, y)| (*x == a && *y == b) || (*x == b && *y == a))
    };
    let mut copied = vec![false; found.len()];
    for (index, one) in found.iter().enumerate() {
        for other in found
            .iter()
            .filter(|other| other.write && other.name != one.name)
        {
            if !one.meets(other) {
                continue;
            }
            if one.write || !allowed(one.name, other.name) {
                return Err(DecodeError::Overlap {
                    symbol: row.symbol,
                    first: one.name,
                    second: other.name,
                });
            }
            if let Some(copied) = copied.get_mut(index) {
                *copied = true;
            }
        }
    }
    Ok(copied)
}

/// Pieces in order, reads that overlap each other as one.
fn arrange(
    row: &'static KernelRow,
    function: &'static Function,
    found: &[Found],
    copied: &[bool],
) -> Launch {
    let mut launch = Launch {
        row,
        function,
        imms: Vec::new(),
        slots: Vec::new(),
        pieces: Vec::new(),
        copies: Vec::new(),
    };
    let borrowed = || {
        let all = found.iter().zip(copied);
        all.filter(|(_, copied)| !**copied).map(|(found, _)| found)
    };
    let mut sorted: Vec<&Found> = borrowed().collect();
    sorted.sort_by_key(|found| (found.buffer, found.range.start, found.range.end));
    for one in sorted {
        match launch.pieces.last_mut() {
            Some(last)
                if last.buffer == one.buffer
                    && !last.write
                    && !one.write
                    && one.range.start < last.range.end =>
            {
                last.range.end = last.range.end.max(one.range.end);
            }
            _ => launch.pieces.push(Piece {
                buffer: one.buffer,
                range: one.range.clone(),
                write: one.write,
            }),
        }
    }
    let mut next = 0;
    for (one, copied) in found.iter().zip(copied) {
        let place = if *copied {
            let to = next;
            // Copies start at a multiple of what any element needs.
            next = (to + one.range.len()).next_multiple_of(8);
            launch.copies.push(CopyOf {
                buffer: one.buffer,
                range: one.range.clone(),
                to,
            });
            Place::Copy(to..to + one.range.len())
        } else {
            let holds = |piece: &Piece| {
                piece.buffer == one.buffer
                    && piece.write == one.write
                    && piece.range.start <= one.range.start
                    && one.range.end <= piece.range.end
            };
            let index = launch.pieces.iter().position(holds).unwrap_or(usize::MAX);
            let start = launch
                .pieces
                .get(index)
                .map_or(0, |piece| piece.range.start);
            Place::Piece {
                index,
                range: one.range.start - start..one.range.end - start,
            }
        };
        launch.slots.push(Slot {
            name: one.name,
            first: one.first,
            place,
        });
    }
    launch
}

/// What an operation's function sees.
pub(super) struct Call<'m> {
    pub(super) row: &'static KernelRow,
    imms: &'m [u32],
    views: [Option<(&'static str, usize, Carved<'m>)>; MOST],
    pub(super) engine: &'m Engine,
}

impl<'m> Call<'m> {
    const fn absent(&self, arg: &'static str) -> DecodeError {
        DecodeError::NoArgument {
            symbol: self.row.symbol,
            arg,
        }
    }

    /// An immediate that counts something.
    pub(super) fn size(&self, name: &'static str) -> Result<usize, DecodeError> {
        Ok(self.row.imm(name, self.imms)? as usize)
    }

    /// An immediate f32.
    pub(super) fn float(&self, name: &'static str) -> Result<f32, DecodeError> {
        Ok(f32::from_bits(self.row.imm(name, self.imms)?))
    }

    /// A read argument; each can be had once.
    pub(super) fn input(&mut self, arg: &'static str) -> Result<Input<'m>, DecodeError> {
        let error = self.absent(arg);
        let symbol = self.row.symbol;
        for view in &mut self.views {
            if let Some((name, first, Carved::Read(bytes))) = view
                && *name == arg
            {
                let (first, bytes) = (*first, *bytes);
                return Ok(Input {
                    symbol,
                    arg,
                    first,
                    bytes,
                });
            }
        }
        Err(error)
    }

    /// A written argument; each can be had once.
    pub(super) fn output(&mut self, arg: &'static str) -> Result<Output<'m>, DecodeError> {
        let symbol = self.row.symbol;
        let mut slots = self.views.iter_mut();
        let slot =
            slots.find(|view| matches!(view, Some((name, _, Carved::Write(_))) if *name == arg));
        match slot.and_then(Option::take) {
            Some((_, first, Carved::Write(bytes))) => Ok(Output {
                symbol,
                arg,
                first,
                bytes,
            }),
            _ => Err(self.absent(arg)),
        }
    }

    /// The control block's words.
    pub(super) fn words(&self) -> Result<WordValues, DecodeError> {
        let views = self.views.iter().flatten();
        let block = views
            .filter(|(name, ..)| *name == "control")
            .find_map(|(_, _, bytes)| {
                let bytes: &[u8] = match bytes {
                    Carved::Read(bytes) => bytes,
                    Carved::Write(bytes) => bytes,
                };
                bytes.first_chunk::<{ CONTROL_BYTES as usize }>()
            });
        block
            .map(WordValues::from_bytes)
            .ok_or_else(|| self.absent("control"))
    }

    /// Writes one word of the control block.
    pub(super) fn set_word(&mut self, word: Word, value: u32) -> Result<(), DecodeError> {
        let error = self.absent("control");
        for (name, _, bytes) in self.views.iter_mut().flatten() {
            if let Carved::Write(bytes) = bytes
                && *name == "control"
                && let Some(bytes) = bytes.get_mut(word.offset() as usize..)
                && let Some(bytes) = bytes.first_chunk_mut::<4>()
            {
                *bytes = value.to_le_bytes();
                return Ok(());
            }
        }
        Err(error)
    }
}

/// A read argument.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input<'m> {
    symbol: &'static str,
    arg: &'static str,
    first: usize,
    bytes: &'m [u8],
}

/// A written argument.
#[derive(Debug)]
pub(super) struct Output<'m> {
    symbol: &'static str,
    arg: &'static str,
    first: usize,
    bytes: &'m mut [u8],
}

/// Place of elements, counted from the argument's address, in the bytes at hand.
fn place(
    symbol: &'static str,
    arg: &'static str,
    (first, len): (usize, usize),
    elements: &Range<usize>,
    size: usize,
) -> Result<Range<usize>, DecodeError> {
    let (start, end) = (
        elements.start.saturating_mul(size),
        elements.end.saturating_mul(size),
    );
    if first <= start && start <= end && end <= first + len {
        return Ok(start - first..end - first);
    }
    Err(DecodeError::Bounds {
        symbol,
        arg,
        start,
        end,
        first,
        last: first + len,
    })
}

impl<'m> Input<'m> {
    /// Elements from the argument's address on.
    pub(super) fn slice<T: AnyBitPattern>(
        &self,
        elements: Range<usize>,
    ) -> Result<&'m [T], DecodeError> {
        let (symbol, arg, size) = (self.symbol, self.arg, size_of::<T>());
        let bounds = (self.first, self.bytes.len());
        let at = place(symbol, arg, bounds, &elements, size)?;
        let bytes = self.bytes.get(at.clone()).unwrap_or_default();
        bytemuck::try_cast_slice(bytes).map_err(|_| DecodeError::Align {
            symbol,
            arg,
            at: at.start,
            align: align_of::<T>(),
        })
    }

    /// f32 elements.
    pub(super) fn floats(&self, elements: Range<usize>) -> Result<&'m [f32], DecodeError> {
        self.slice(elements)
    }
}

impl<'m> Output<'m> {
    /// Elements from the argument's address on.
    pub(super) fn slice<T: bytemuck::Pod>(
        &mut self,
        elements: Range<usize>,
    ) -> Result<&mut [T], DecodeError> {
        let (symbol, arg, size) = (self.symbol, self.arg, size_of::<T>());
        let bounds = (self.first, self.bytes.len());
        let at = place(symbol, arg, bounds, &elements, size)?;
        let bytes = self.bytes.get_mut(at.clone()).unwrap_or_default();
        bytemuck::try_cast_slice_mut(bytes).map_err(|_| DecodeError::Align {
            symbol,
            arg,
            at: at.start,
            align: align_of::<T>(),
        })
    }

    /// f32 elements.
    pub(super) fn floats(&mut self, elements: Range<usize>) -> Result<&mut [f32], DecodeError> {
        self.slice(elements)
    }

    /// All bytes, from the argument's declared first one on.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        self.bytes
    }
}
