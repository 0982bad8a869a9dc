//! The compute registers of one queue as the packet processor models them: a value, and which
//! indirect buffer wrote it. State persists between buffers, as on hardware, but a dispatch may
//! only rely on what its own buffer wrote.

use super::fault::Pm4Reason;
use refrain_packet::Gfx;
use refrain_packet::tables::registers::{
    COMPUTE_FIRST, COMPUTE_LAST, Register, WRITABLE_LAST, Writer, register,
};
use refrain_packet::tables::reserved_mask;

const COUNT: usize = (COMPUTE_LAST - COMPUTE_FIRST + 1) as usize;

/// What public encoders that used a wrong register map meant to write (offset, hint).
const HINTS: &[(u16, &str)] = &[
    (0x216, "; TMPRING_SIZE is 0x218 on every generation"),
    (0x223, "; PGM_RSRC3 is 0x228 on every generation"),
    (
        0x230,
        "; the shader-engine masks are 0x216, 0x217, 0x219 and 0x21a",
    ),
    (
        0x231,
        "; the shader-engine masks are 0x216, 0x217, 0x219 and 0x21a",
    ),
    (
        0x232,
        "; the shader-engine masks are 0x216, 0x217, 0x219 and 0x21a",
    ),
    (
        0x233,
        "; the shader-engine masks are 0x216, 0x217, 0x219 and 0x21a",
    ),
];

fn hint(offset: u16) -> &'static str {
    let row = HINTS.iter().find(|hint| hint.0 == offset);
    row.map_or("", |hint| hint.1)
}

#[derive(Debug, Clone, Copy, Default)]
struct Rule {
    row: Option<&'static Register>,
    reserved: u32,
}

/// The register file and the rules of one generation.
#[derive(Debug)]
pub(crate) struct Registers {
    gfx: Gfx,
    rules: Box<[Rule; COUNT]>,
    values: [u32; COUNT],
    /// Number of the indirect buffer that wrote the value last, 0 for none.
    writer: [u64; COUNT],
    buffer: u64,
}

impl Registers {
    pub(crate) fn new(gfx: Gfx) -> Self {
        let generation = gfx.generation();
        let mut rules = Box::new([Rule::default(); COUNT]);
        for (rule, offset) in rules.iter_mut().zip(COMPUTE_FIRST..) {
            rule.row = register(offset, generation);
            let fields = rule.row.map_or(&[] as &[_], |row| row.fields);
            rule.reserved = if fields.is_empty() {
                0
            } else {
                reserved_mask(fields, 0, generation)
            };
        }
        Self {
            gfx,
            rules,
            values: [0; COUNT],
            writer: [0; COUNT],
            buffer: 0,
        }
    }

    pub(crate) fn gfx(&self) -> Gfx {
        self.gfx
    }

    /// Starts an indirect buffer: nothing counts as written.
    pub(crate) fn begin(&mut self) {
        self.buffer += 1;
    }

    /// Writes `values` from register `first` on.
    pub(crate) fn write(&mut self, first: u32, values: &[u32]) -> Result<(), Pm4Reason> {
        let last = first.saturating_add(values.len() as u32).saturating_sub(1);
        // USER_DATA ends the block that an IB may write, but a named refusal says more than the
        // window.
        let named = last <= u32::from(COMPUTE_LAST);
        if first < u32::from(COMPUTE_FIRST) || !named {
            return Err(Pm4Reason::Window { first, last });
        }
        let start = (first - u32::from(COMPUTE_FIRST)) as usize;
        for (index, &value) in (start..).zip(values) {
            self.check(index, value)?;
            if let (Some(slot), Some(writer)) =
                (self.values.get_mut(index), self.writer.get_mut(index))
            {
                *slot = value;
                *writer = self.buffer;
            }
        }
        Ok(())
    }

    fn check(&self, index: usize, value: u32) -> Result<(), Pm4Reason> {
        let offset = COMPUTE_FIRST + index as u16;
        let target = self.gfx.name();
        let rule = self.rules.get(index).copied().unwrap_or_default();
        let Some(row) = rule.row else {
            let hint = hint(offset);
            return Err(Pm4Reason::NoRegister {
                offset,
                target,
                hint,
            });
        };
        let name = row.name;
        match row.writer {
            Writer::Dispatch if offset <= WRITABLE_LAST => {}
            Writer::ZeroOnly | Writer::Scratch if value == 0 => {}
            Writer::ZeroOnly | Writer::Scratch => {
                return Err(Pm4Reason::OnlyZero {
                    name,
                    offset,
                    value,
                });
            }
            writer => {
                let hint = hint(offset);
                return Err(Pm4Reason::Forbidden {
                    name,
                    offset,
                    writer: writer.name(),
                    hint,
                });
            }
        }
        let bits = value & rule.reserved;
        if bits != 0 {
            return Err(Pm4Reason::RegisterBits {
                name,
                offset,
                value,
                bits,
                target,
            });
        }
        Ok(())
    }

    /// The value of a register that this buffer wrote.
    pub(crate) fn read(&self, offset: u16) -> Result<u32, Pm4Reason> {
        let index = usize::from(offset.wrapping_sub(COMPUTE_FIRST));
        let value = self.values.get(index).copied().unwrap_or_default();
        let writer = self.writer.get(index).copied().unwrap_or_default();
        if writer == self.buffer {
            return Ok(value);
        }
        let name = self
            .rules
            .get(index)
            .and_then(|rule| rule.row)
            .map_or("?", |row| row.name);
        Err(Pm4Reason::Unset {
            name,
            stale: (writer != 0).then_some(value),
        })
    }

    /// The values of three registers in a row.
    pub(crate) fn read3(&self, offset: u16) -> Result<[u32; 3], Pm4Reason> {
        Ok([
            self.read(offset)?,
            self.read(offset + 1)?,
            self.read(offset + 2)?,
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_an_earlier_buffer_is_stale() {
        let mut registers = Registers::new(Gfx::Gfx1201);
        registers.begin();
        assert_eq!(
            registers.read(0x240),
            Err(Pm4Reason::Unset {
                name: "USER_DATA_0",
                stale: None
            })
        );
        registers.write(0x240, &[7]).unwrap();
        assert_eq!(registers.read(0x240), Ok(7));
        registers.begin();
        assert_eq!(
            registers.read(0x240),
            Err(Pm4Reason::Unset {
                name: "USER_DATA_0",
                stale: Some(7)
            })
        );
    }

    #[test]
    fn forbidden_registers_are_named() {
        for (gfx, offset, value, text) in [
            (Gfx::Gfx1201, 0x223, 0, "PGM_RSRC3 is 0x228"),
            (Gfx::Gfx1201, 0x216, u32::MAX, "TMPRING_SIZE is 0x218"),
            (Gfx::Gfx1201, 0x230, u32::MAX, "shader-engine masks"),
            (
                Gfx::Gfx1100,
                0x223,
                0,
                "no register 0x223 on gfx1100; PGM_RSRC3 is 0x228",
            ),
            (Gfx::Gfx1100, 0x214, 0, "VMID"),
            (Gfx::Gfx1100, 0x218, 1, "only 0"),
            (Gfx::Gfx1100, 0x20d, 0x100, "reserved"),
            (Gfx::Gfx1100, 0x27f, 0, "NOWHERE"),
            (Gfx::Gfx1100, 0x280, 0, "0x200..=0x24f"),
            (Gfx::Gfx1100, 0x1ff, 0, "0x200..=0x24f"),
            (Gfx::Gfx1100, 0xffff_ffff, 0, "0x200..=0x24f"),
        ] {
            let error = Registers::new(gfx)
                .write(offset, &[value])
                .unwrap_err()
                .to_string();
            assert!(error.contains(text), "{offset:#x}: {error}");
        }
    }
}
